export { cleanup } from './cleanup.ts';
export { UNINSTALL_ANNOTATION, UninstallMark } from './mark.ts';
export { removeFromNode } from './remove.ts';
export type * from './types.ts';
export { Uninstall } from './uninstall.ts';
