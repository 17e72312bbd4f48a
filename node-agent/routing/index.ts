export { removeRoutes } from './kernel.ts';
export { NodeRouting, type NodeRoutingOptions } from './routing.ts';
export * from './types.ts';
