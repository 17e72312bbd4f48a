/**
 * From derived rows to pinned maps and links. Knows nothing of policy. Guarantees: an operation that returned is in the kernel;
 * each is idempotent; what a crash leaves half-made is found and mended by `adopt`.
 */
export { Conntrack, type SweepResult } from './conntrack.ts';
export { EndpointStore } from './endpoint-store.ts';
export { FlowNames } from './flow-events.ts';
export { IpcacheStore } from './ipcache-store.ts';
export { type InNode, Links } from './links.ts';
export { RootLock } from './lock.ts';
export { type DatapathOptions, PinnedDatapath } from './pins.ts';
export { SlotStore } from './slot-store.ts';
export { SyncLoop, type SyncOptions } from './sync.ts';
