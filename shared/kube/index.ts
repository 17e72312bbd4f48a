export { Backoff, type BackoffOptions, delay } from './backoff.ts';
export { createKubeClient, type KubeClientOptions } from './client.ts';
export { crds, crdYaml } from './crds/index.ts';
export { ApiError, KubeConfigError, KubeError, LeadershipLostError } from './errors.ts';
export { LeaderElector, type LeaderElectorOptions } from './leader.ts';
export { Outage, UNREACHED_FIX } from './outage.ts';
export { createReflector, withoutManagedFields } from './reflector.ts';
export { apiVersionOf, describe, pathOf, resources } from './resources.ts';
export * from './types.ts';
