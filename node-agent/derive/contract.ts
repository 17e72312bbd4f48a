/**
 * What others than the core may use of derive/: what a round is to carry out, and how rows of the derived tables are read. Nothing here
 * knows the model.
 */
export { ADDRESS_CLASSES, ADDRESSES, classOf, contentOf, FIRST_CLASS, rowsByClass } from './classes.ts';
export { GRACE_MS } from './grace.ts';
export { Pace } from './pace.ts';
export { changesAnything, type KernelState, type Plan } from './plan.ts';
export { hostPrefix, prefixKey, prefixOrNone } from './prefixes.ts';
export { blocksKey, both, DIRECTIONS, rangesOf } from './rows.ts';
export type { KernelSlot } from './slot-rows.ts';
