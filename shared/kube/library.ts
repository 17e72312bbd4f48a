/** The one door to @kubernetes/client-node, so that a bundle keeps of it only what is named here. Imported when needed: see access.ts. */
export { KubeConfig } from '@kubernetes/client-node';
