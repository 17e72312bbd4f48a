/** Subresources beyond status: the scale of workloads, and the answers for what a kubelet would serve. */
import { badRequest, cause, invalid, StatusError } from './errors.ts';
import { at, isObject, type Json, type JsonObject, scalarText, text } from './json.ts';
import type { Resource } from './registry.ts';

const SCALED = new Set(['apps/deployments', 'apps/replicasets', 'apps/statefulsets']);

export const hasScale = (resource: Resource): boolean => SCALED.has(resource.storage);

/** What the kubelet of the pod's node answers in a real cluster. */
const KUBELET = new Set(['log', 'exec', 'attach', 'portforward', 'proxy', 'ephemeralcontainers']);

/** @throws StatusError for the subresources of a pod that its node's kubelet would serve. */
export function refuseKubelet(resource: Resource, name: string, subresource: string): void {
  if (resource.storage !== '/pods' || !KUBELET.has(subresource)) return;
  throw new StatusError(
    501,
    'NotImplemented',
    `pods/${subresource} of ${JSON.stringify(name)}: pods of this cluster have no kubelet API, so there are no logs, no exec, no attach and no port-forward. They are processes in network namespaces of this machine: list those with "ip netns", enter one with "nsenter --net=/var/run/netns/NAME".`,
    { name, kind: 'pods' },
  );
}

/** The autoscaling/v1 Scale of a workload. */
export function scaleOf(workload: JsonObject): JsonObject {
  const {
    name = '',
    namespace = '',
    uid = '',
    resourceVersion = '',
    creationTimestamp = '',
  } = isObject(workload.metadata) ? workload.metadata : {};
  const labels = at(workload, 'spec', 'selector', 'matchLabels');
  const selector = Object.entries(isObject(labels) ? labels : {})
    .map(([key, value]) => `${key}=${scalarText(value)}`)
    .sort();
  return {
    kind: 'Scale',
    apiVersion: 'autoscaling/v1',
    metadata: { name, namespace, uid, resourceVersion, creationTimestamp },
    // Go leaves a zero out.
    spec: at(workload, 'spec', 'replicas') ? { replicas: at(workload, 'spec', 'replicas') ?? 0 } : {},
    status: { replicas: at(workload, 'status', 'replicas') ?? 0, selector: selector.join(',') },
  };
}

/** The merge patch of the workload that a written Scale asks for. @throws StatusError BadRequest */
export function patchOfScale(scale: Json | undefined, name: string): JsonObject {
  const replicas = at(scale, 'spec', 'replicas') ?? 0;
  if (typeof replicas === 'number' && replicas < 0) {
    const scaled = { group: 'autoscaling', plural: '', kind: 'Scale' };
    const why = cause.invalid('spec.replicas', replicas, 'must be greater than or equal to 0');
    throw invalid(scaled, name, [why]);
  }
  if (typeof replicas !== 'number' || !Number.isInteger(replicas)) {
    throw badRequest(`spec.replicas: ${JSON.stringify(replicas)} is not a whole number of 0 or more`);
  }
  const resourceVersion = text(scale, 'metadata', 'resourceVersion');
  return { spec: { replicas }, ...(resourceVersion === '' ? {} : { metadata: { resourceVersion } }) };
}
