export { Kubernetes, type KubernetesOptions } from './source.ts';
