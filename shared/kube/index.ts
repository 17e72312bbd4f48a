export { createKubeClient, type KubeClientOptions, REQUEST_TIMEOUT_MS } from './client.ts';
export { crds, crdYaml } from './crds/index.ts';
export { ApiError, KubeConfigError, KubeError, LeadershipLostError } from './errors.ts';
export { heartbeatName } from './heartbeat.ts';
export * from './kubernetes-objects.ts';
export { LeaderElector, type LeaderElectorOptions } from './leader.ts';
export {
  furtherAddresses,
  MOST_NODE_ADDRESSES,
  NODE_ADDRESSES_ANNOTATION,
  type NodeAddresses,
  nodeAddresses,
  nodePodCidrs,
} from './node-facts.ts';
export { Outage, UNREACHED_FIX } from './outage.ts';
export { type NamedContainerPort, namedPort, PORT_EXCESS_FIX, podPorts } from './pod-ports.ts';
export { ServerPulse } from './pulse.ts';
export { createReflector, withoutManagedFields } from './reflector.ts';
export { reachesVersion } from './resource-version.ts';
export { apiVersionOf, describe, pathOf, resources } from './resources.ts';
export { ScrapeAccess, type ScrapeAccessOptions } from './scrape-access.ts';
export { itemsOf, objectsIn, textMapOf, textOf, textsIn } from './shapes.ts';
export * from './types.ts';
export * from './weir-objects.ts';
