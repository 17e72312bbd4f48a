/**
 * From derived rows to pinned maps and links. Knows nothing of policy: who does is a `Planner`. Guarantees: an operation that returned is in the kernel;
 * each is idempotent; what a crash leaves half-made is found and mended by `adopt`.
 */
export { Audit, type Pass } from './audit.ts';
export { auditRounds } from './audit-rounds.ts';
export { BesidePins } from './beside-pins.ts';
export type { Clock } from './clock.ts';
export { ClsactLinks } from './clsact-links.ts';
export { Conntrack, type SweepResult } from './conntrack.ts';
export { AddressAudit, SlotAudit } from './content-audit.ts';
export { Datapath, nodeScope, type OpenDatapath } from './datapath.ts';
export { EndpointMap, type EndpointTable } from './endpoint-map.ts';
export { EndpointStore } from './endpoint-store.ts';
export { faultAt, faultText, type Part, problemText, UNSEEN } from './faults.ts';
export { IpcacheStore } from './ipcache-store.ts';
export type { KernelStores } from './kernel-stores.ts';
export type { Hooked, InNode, LinkLook, LinkTable } from './link-table.ts';
export { Links } from './links.ts';
export { liveLinks } from './live-links.ts';
export { RootLock } from './lock.ts';
export { NetnsMark } from './netns-mark.ts';
export { PartPrograms } from './part-programs.ts';
export { FOLDERS, type MoreMap, NEXT } from './pin-files.ts';
export { type DatapathOptions, PinnedDatapath } from './pins.ts';
export { PlanWriter, type PlanWriterOptions } from './plan-writer.ts';
export type { Numbers, Planner } from './planner.ts';
export { type RemoveOptions, removePinned } from './remove.ts';
export { RoundMark } from './round-mark.ts';
export type { SlotMaps } from './slot-parts.ts';
export { SlotStore, type SlotStoreOptions } from './slot-store.ts';
export { SyncLoop, type SyncLoopOptions } from './sync-loop.ts';
export { verify } from './verification.ts';
