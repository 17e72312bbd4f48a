export type { NodeProblem, NodeProblems } from './node-condition.ts';
export { Kubernetes, type KubernetesOptions } from './source.ts';
export { REMOVED_ANNOTATION, UNINSTALL_ANNOTATION } from './uninstall-mark.ts';
