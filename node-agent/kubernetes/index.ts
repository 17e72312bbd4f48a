export { REMOVED_ANNOTATION } from './node-policy-status.ts';
export { Kubernetes, type KubernetesOptions } from './source.ts';
