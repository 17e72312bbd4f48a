export { attachTc } from './attach.ts';
export { ensureBpffs, isBpffs } from './bpffs.ts';
export { attachCgroup, cgroupIdOf, openPinnedCgroupLink } from './cgroup.ts';
export { attachClsact, type ClsactSlot, detachClsact, queryClsact } from './clsact.ts';
export { mapFlags } from './constants.ts';
export { possibleCpus } from './cpus.ts';
export {
  ArgumentError,
  BatchError,
  BpfError,
  BufferLengthError,
  errnoName,
  LibraryMissingError,
  PlatformError,
  VerifierError,
} from './errors.ts';
export { type ClsactFilter, listClsact } from './filters.ts';
export { type FolderLock, lockFolder } from './folder-lock.ts';
export { createMap, openMapById, openPinnedMap } from './map.ts';
export { type MappedArray, mapArray } from './map-memory.ts';
export { createMemoryMap } from './memory-map.ts';
export { inNetns, interfaceName, netnsCookie } from './netns.ts';
export { loadObject } from './object.ts';
export { percpu } from './percpu.ts';
export { type Feature, kernelNames, probe } from './probe.ts';
export { openPinnedProgram, programName, SK_BUFF_SIZE, type SkbFields, skbContext } from './program.ts';
export type { RingCounts } from './ring.ts';
export { RingBufferReader, type RingBufferReaderOptions } from './ring-reader.ts';
export { closeSockets } from './socket-diag.ts';
export { type SocketPeer, socketPeer } from './socket-peer.ts';
export {
  attachTcx,
  hasTcx,
  listTcx,
  openLinkById,
  openPinnedLink,
  queryTcx,
  type TcxEntry,
  type TcxOptions,
} from './tcx.ts';
export * from './types.ts';
