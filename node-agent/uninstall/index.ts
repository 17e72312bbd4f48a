export { agentRemoval } from './agent-removal.ts';
export { cleanup } from './cleanup.ts';
export { removeFromNode } from './remove.ts';
export type * from './types.ts';
export { Uninstall } from './uninstall.ts';
