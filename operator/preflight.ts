/** Whether Weir may run in this cluster. */
import { ApiError, type KubeClient, type KubeObject, type Resource, resources } from '@weir/kube';
import { PreflightError } from './errors.ts';

/** Labels that Cilium's own agents and operators carry, by every way of installing it. */
const CILIUM = [
  { resource: resources.DaemonSet, selector: 'k8s-app=cilium' },
  { resource: resources.DaemonSet, selector: 'app.kubernetes.io/name=cilium-agent' },
  { resource: resources.Deployment, selector: 'io.cilium/app=operator' },
  { resource: resources.Deployment, selector: 'name=cilium-operator' },
];

/** Kinds that must be served before the operator starts. */
const NEEDED: readonly Resource<KubeObject>[] = [
  resources.CiliumNetworkPolicy,
  resources.CiliumClusterwideNetworkPolicy,
  resources.CiliumIdentity,
  resources.CiliumEndpoint,
  resources.CiliumEndpointSlice,
  resources.ResolvedPolicy,
  resources.PeerSet,
  resources.NodePolicyStatus,
];

/**
 * Throws PreflightError where Cilium is installed (two agents would fight over the same objects and packets), or where
 * CRDs are missing. ApiErrors pass through: they are worth another try.
 */
export async function preflight(client: KubeClient): Promise<void> {
  // All questions at once: the start waits for one round trip, not for twelve.
  const [cilium, served] = await Promise.all([
    Promise.all(CILIUM.map(({ resource, selector }) => first(client, resource, selector))),
    Promise.all(NEEDED.map((resource) => isServed(client, resource))),
  ]);
  for (const [index, [found]] of cilium.entries()) {
    if (found === undefined) continue;
    const { namespace = '', name } = found.metadata;
    throw new PreflightError(
      `Cilium is installed here (${CILIUM[index]?.resource.kind} ${namespace}/${name}): Weir writes the same objects and would fight it. Remove Cilium first, or use another cluster.`,
    );
  }
  const missing = NEEDED.filter((_, index) => served[index] !== true).map(({ plural, group }) => `${plural}.${group}`);
  if (missing.length > 0) {
    throw new PreflightError(
      `CustomResourceDefinitions are missing: ${missing.join(', ')}. Install them: kubectl apply --server-side -f charts/weir/files/crds`,
    );
  }
}

async function isServed(client: KubeClient, resource: Resource<KubeObject>): Promise<boolean> {
  try {
    await client.get(resources.CustomResourceDefinition, `${resource.plural}.${resource.group}`);
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.notFound) return false;
    // Who may not read CRDs learns of a missing one from the watch, which fails and says so.
    if (error.forbidden) return true;
    throw error;
  }
}

async function first(
  client: KubeClient,
  resource: Resource<KubeObject>,
  labelSelector: string,
): Promise<readonly KubeObject[]> {
  try {
    return (await client.listPage(resource, { limit: 1, labelSelector })).items;
  } catch (error) {
    // A server without this kind runs none of it.
    if (error instanceof ApiError && error.notFound) return [];
    throw error;
  }
}
