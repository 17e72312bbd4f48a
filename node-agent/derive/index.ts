/**
 * From what the agent is told (inputs) to what the kernel is to hold (slots, ipcache, endpoint states). Knows nothing of BPF.
 * Guarantees: deterministic but for numbers given out; unknown is never more allowed than known; what is in force stays in
 * force until its successor is complete.
 */
export { classOf, distinguishes, FIRST_CLASS, rowsByClass } from './classes.ts';
export { Engine, type EngineOptions, type KernelEndpoint, type KernelState, type Plan } from './engine.ts';
export { GRACE_MS } from './grace.ts';
export type { EndpointIdentity } from './identities.ts';
export { ImportedRules, type ImportOptions } from './imported.ts';
export { Multi } from './multi.ts';
export { decodeNumbers, LocalNumbers, type NumbersState } from './numbers.ts';
export type { InUse, Missing } from './policies.ts';
export { hostPrefix, PrefixIdentities } from './prefixes.ts';
export { blocksKey, blocksOf, DIRECTIONS, type VerdictBlock } from './rows.ts';
export type { KernelSlot } from './slots.ts';
