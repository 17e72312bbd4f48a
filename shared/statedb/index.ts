export type { StateDBOptions } from './db.ts';
export { createStateDB } from './db.ts';
export * from './errors.ts';
export { keys } from './keys.ts';
export type { ObserveOptions } from './observe.ts';
export { observe } from './observe.ts';
export * from './types.ts';
