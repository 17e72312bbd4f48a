/** Whether Weir may run in this cluster. */
import { ApiError, type KubeClient, type KubeObject, type Resource, resources } from '@weir/kube';
import { PreflightError } from './errors.ts';

interface Sign {
  readonly resource: Resource<KubeObject>;
  readonly selector: string;
}

/** Labels that Cilium's own agents and operators carry, by every way of installing it. */
const CILIUM: readonly Sign[] = [
  { resource: resources.DaemonSet, selector: 'k8s-app=cilium' },
  { resource: resources.DaemonSet, selector: 'app.kubernetes.io/name=cilium-agent' },
  { resource: resources.Deployment, selector: 'io.cilium/app=operator' },
  { resource: resources.Deployment, selector: 'name=cilium-operator' },
];

/** Kinds that must be served before the operator starts. */
const NEEDED: readonly Resource<KubeObject>[] = [
  resources.CiliumNetworkPolicy,
  resources.CiliumClusterwideNetworkPolicy,
  resources.CiliumCIDRGroup,
  resources.CiliumIdentity,
  resources.CiliumEndpoint,
  resources.CiliumEndpointSlice,
  resources.ResolvedPolicy,
  resources.PeerSet,
  resources.NodePolicyStatus,
];

/** Cilium's own CRD, which Weir does not install: nobody in a namespace can make one. */
const CILIUM_CRD = 'ciliumnodes.cilium.io';

/** Where only administrators put workloads, beside the release's own namespace. */
const SYSTEM = 'kube-system';

export interface PreflightOptions {
  /** Where Weir is installed. */
  readonly namespace: string;
  /** The Lease, in that namespace, of which an operator takes hold once it was let in; undefined: none does. */
  readonly lease?: string | undefined;
  /** Ends the requests under way, which then throw its reason. */
  readonly signal?: AbortSignal;
}

/** Asks the API server, as long as it is wanted. */
interface Asker {
  readonly client: KubeClient;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Throws PreflightError where Cilium is installed (two agents would fight over the same objects and packets), or where
 * CRDs are missing. ApiErrors pass through: they are worth another try. Returns what is suspicious, and keeps nobody from starting.
 *
 * Whoever may write workloads in some namespace can make one that looks like Cilium's: it counts in the namespaces of the system, or beside
 * Cilium's own CRD; and not at all where Weir has run already.
 */
export async function preflight(
  client: KubeClient,
  { namespace, lease, signal }: PreflightOptions,
): Promise<readonly string[]> {
  const asker: Asker = { client, signal };
  const system = [...new Set([SYSTEM, namespace])];
  // All questions at once: the start waits for one round trip, not for twenty.
  const [trusted, anywhere, ciliumCrd, ran, served] = await Promise.all([
    Promise.all(system.flatMap((where) => CILIUM.map((each) => first(asker, each, where)))),
    Promise.all(CILIUM.map((each) => first(asker, each))),
    hasCrd(asker, CILIUM_CRD),
    hasRun(asker, namespace, lease),
    Promise.all(NEEDED.map(({ plural, group }) => hasCrd(asker, `${plural}.${group}`))),
  ]);
  const missing = NEEDED.filter((_, index) => served[index] === false).map(({ plural, group }) => `${plural}.${group}`);
  if (missing.length > 0) {
    throw new PreflightError(
      `CustomResourceDefinitions are missing: ${missing.join(', ')}. Install them: kubectl apply --server-side -f charts/weir/files/crds`,
    );
  }
  const [certain] = trusted.flat();
  const [found = certain] = anywhere.flat();
  if (found === undefined) return [];
  if (!ran && (certain !== undefined || ciliumCrd === true)) {
    throw new PreflightError(
      `Cilium is installed here (${certain ?? found}): Weir writes the same objects and would fight it. Remove Cilium first, or use another cluster.`,
    );
  }
  return [
    `${certain ?? found} looks like Cilium's, which Weir would fight; ${ran ? 'Weir has run here already' : `no ${CILIUM_CRD} and nothing in ${system.join(' or ')} confirms it`}`,
  ];
}

/** Whether there is something that only Weir's operator writes, and nobody in another namespace: its Lease, or what it makes of policies. */
async function hasRun({ client, signal }: Asker, namespace: string, lease: string | undefined): Promise<boolean> {
  const leaseExists = async (): Promise<boolean> =>
    lease !== undefined &&
    (await unlessNotFound(async () => {
      await client.get(resources.Lease, lease, namespace, signal);
      return true;
    }, false));
  const stopping = signal === undefined ? {} : { signal };
  const kinds = [resources.PeerSet, resources.ResolvedPolicy] as const;
  const [led, ...found] = await Promise.all([
    leaseExists(),
    ...kinds.map((resource) =>
      unlessNotFound(async () => (await client.listPage<KubeObject>(resource, { limit: 1, ...stopping })).items, []),
    ),
  ]);
  return led || found.flat().length > 0;
}

/** Undefined: who may not read CRDs learns of a missing one from the watch, which fails and says so. */
async function hasCrd({ client, signal }: Asker, name: string): Promise<boolean | undefined> {
  try {
    return await unlessNotFound(async () => {
      await client.get(resources.CustomResourceDefinition, name, undefined, signal);
      return true;
    }, false);
  } catch (error) {
    if (error instanceof ApiError && error.forbidden) return undefined;
    throw error;
  }
}

/** Kind and name of the first that has the labels. */
async function first({ client, signal }: Asker, { resource, selector }: Sign, namespace?: string): Promise<string[]> {
  const where = namespace === undefined ? {} : { namespace };
  const stopping = signal === undefined ? {} : { signal };
  // A server without this kind runs none of it.
  const items = await unlessNotFound(
    async () => (await client.listPage(resource, { limit: 1, labelSelector: selector, ...where, ...stopping })).items,
    [],
  );
  return items.map(({ metadata }) => `${resource.kind} ${metadata.namespace ?? ''}/${metadata.name}`);
}

async function unlessNotFound<T>(body: () => Promise<T>, otherwise: T): Promise<T> {
  try {
    return await body();
  } catch (error) {
    if (error instanceof ApiError && error.notFound) return otherwise;
    throw error;
  }
}
