/**
 * libbpf-ts: a typed binding to libbpf and bpf(2). Knows nothing of policy or of Kubernetes.
 *
 * Guarantees: every buffer's length is checked before the kernel sees it (key size, value size, count, possible CPUs for
 * per-CPU maps); every failed call throws a `BpfError` that carries errno, the operation and what to do; descriptors are
 * closed by `close()` or `using`, exactly once. All calls are synchronous: the system call is the cost (about 0.5 us).
 */

/** Types of maps that can be made (`enum bpf_map_type` in linux/bpf.h). */
export type MapType =
  | 'hash'
  | 'array'
  | 'percpu_hash'
  | 'percpu_array'
  | 'lru_hash'
  | 'lpm_trie'
  | 'array_of_maps'
  | 'hash_of_maps'
  | 'ringbuf'
  | 'prog_array';

/** What the kernel says of a map (`struct bpf_map_info`); sizes in bytes. */
export interface MapInfo {
  readonly id: number;
  readonly name: string;
  readonly type: MapType | number;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
  readonly flags: number;
}

/** A map to make. Sizes in bytes. */
export interface CreateMapOptions {
  readonly name: string;
  readonly type: MapType;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
  /** BPF_F_* map flags, for example `mapFlags.NO_PREALLOC` (required for lpm_trie). */
  readonly flags?: number;
  /** Template of the inner maps, for array_of_maps and hash_of_maps. */
  readonly inner?: BpfMap;
}

/** `any`: create or replace; `noexist`: create only (EEXIST); `exist`: replace only (ENOENT). */
export type UpdateMode = 'any' | 'noexist' | 'exist';

/**
 * Writes the key and the value of a row at the given offsets, in buffers that hold zeros there; other bytes are other rows'.
 * Nothing is kept of the buffers: they are used again.
 */
export type EncodeRow<T> = (row: T, keys: DataView, keyAt: number, values: DataView, valueAt: number) => void;

/** One open map. Keys and values are exact-length byte arrays; per-CPU values hold `possibleCpus()` copies, each padded to 8. */
export interface BpfMap extends Disposable {
  readonly fd: number;
  readonly info: MapInfo;
  lookup(key: Uint8Array): Uint8Array | undefined;
  update(key: Uint8Array, value: Uint8Array, mode?: UpdateMode): void;
  /** Returns false when the key was absent. */
  delete(key: Uint8Array): boolean;
  /** Every entry once, in no order; entries changed meanwhile may be seen or not. Uses batches where the map type has them. */
  entries(): Generator<readonly [key: Uint8Array, value: Uint8Array]>;
  keys(): Generator<Uint8Array>;
  updateBatch(entries: readonly (readonly [Uint8Array, Uint8Array])[]): void;
  /**
   * As `updateBatch`, without a byte array for each key and value: `encode` writes what the kernel reads. What it throws is
   * thrown on; of the rows before, some may have been written.
   */
  updateRows<T>(rows: readonly T[], encode: EncodeRow<T>): void;
  /** Absent keys are not an error. */
  deleteBatch(keys: readonly Uint8Array[]): void;
  /** For map-in-map: puts an inner map at a key. */
  setInner(key: Uint8Array, inner: BpfMap): void;
  /** As `setInner`. The kernel waits for an RCU grace period, 10 ms and more: this waits on another thread. */
  setInnerAsync(key: Uint8Array, inner: BpfMap): Promise<void>;
  /** As `delete`, of a map-in-map: the kernel waits as in `setInnerAsync`. Returns false when the key was absent. */
  deleteInnerAsync(key: Uint8Array): Promise<boolean>;
  /** For map-in-map: opens the inner map at a key (caller closes it); undefined when absent. */
  openInner(key: Uint8Array): BpfMap | undefined;
  pin(path: string): void;
  close(): void;
}

/** What the kernel says of a program (`struct bpf_prog_info`). */
export interface ProgramInfo {
  readonly id: number;
  readonly name: string;
  readonly tag: string;
  readonly type: number;
}

/** What a program is run on (BPF_PROG_TEST_RUN). */
export interface TestRunOptions {
  /** The packet, from the Ethernet header for tc programs. */
  readonly data: Uint8Array;
  /** `struct __sk_buff` context to start from (for example to set ifindex); its size is checked. */
  readonly context?: Uint8Array;
  /** Runs; the duration is the mean. Default 1. */
  readonly repeat?: number;
}

/** What the program did to it. */
export interface TestRunResult {
  /** The program's return value (for tc: TC_ACT_*). */
  readonly returnValue: number;
  /** Mean nanoseconds a run. */
  readonly durationNs: number;
  readonly data: Uint8Array;
  readonly context: Uint8Array | undefined;
}

/** A program that the kernel has taken. Disposing of it closes its file descriptor; what is attached or pinned stays. */
export interface BpfProgram extends Disposable {
  readonly fd: number;
  readonly name: string;
  info(): ProgramInfo;
  testRun(options: TestRunOptions): TestRunResult;
  pin(path: string): void;
  close(): void;
}

/** What is changed of an object file before the kernel is given it. */
export interface LoadOptions {
  /** Initial contents of `.rodata` variables by section-relative bytes: replaces the whole section when given. */
  readonly rodata?: Uint8Array;
  /** Maps to reuse instead of creating, by the name in the object file; their type and sizes must match. */
  readonly reuseMaps?: Readonly<Record<string, BpfMap>>;
  /** As `reuseMaps`, of any `maxEntries`; those that the object does not have are left out. */
  readonly sharedMaps?: Readonly<Record<string, BpfMap>>;
  /** max_entries to set before load, by map name. */
  readonly maxEntries?: Readonly<Record<string, number>>;
}

/** A loaded object file: all its programs and maps. */
export interface BpfObject extends Disposable {
  readonly programs: Readonly<Record<string, BpfProgram>>;
  readonly maps: Readonly<Record<string, BpfMap>>;
  program(name: string): BpfProgram;
  map(name: string): BpfMap;
  close(): void;
}

/** Packets that the interface receives, or those that it sends. */
export type TcDirection = 'ingress' | 'egress';

/** Where a tc program is attached. */
export interface AttachOptions {
  /** Interface index in the network namespace of the calling thread. */
  readonly ifindex: number;
  readonly direction: TcDirection;
}

/** An attachment. A tcx link lives as long as a descriptor or pin of it; a clsact filter lives until detached. */
export interface TcLink extends Disposable {
  readonly kind: 'tcx' | 'clsact';
  readonly ifindex: number;
  readonly direction: TcDirection;
  /** The kernel's id of the link; undefined for clsact, which has none. */
  id(): number | undefined;
  /** The attached program's id, asked from the kernel. */
  programId(): number;
  /** Swaps the program atomically: every packet sees the old or the new one. */
  replace(program: BpfProgram): void;
  /** tcx only; throws for clsact, which outlives the process by itself. */
  pin(path: string): void;
  detach(): void;
  /** Closes the descriptor; a pinned or clsact attachment stays. */
  close(): void;
}

/** Which calls of a cgroup's processes run a program. 4 and 6: sockets of IPv4 and IPv6. */
export type CgroupAttach =
  | 'connect4'
  | 'connect6'
  | 'sendmsg4'
  | 'sendmsg6'
  | 'recvmsg4'
  | 'recvmsg6'
  | 'getpeername4'
  | 'getpeername6'
  | 'sockRelease';

/** A program attached to a cgroup. It lives as long as a descriptor or pin of it, and ends with its cgroup. */
export interface CgroupLink extends Disposable {
  /** The kernel's number of the cgroup; 0 once it is gone. */
  readonly cgroupId: bigint;
  readonly attach: CgroupAttach;
  id(): number;
  /** The attached program's id, asked from the kernel. */
  programId(): number;
  /** Swaps the program atomically: every call runs the old or the new one. */
  replace(program: BpfProgram): void;
  pin(path: string): void;
  detach(): void;
  close(): void;
}

/** One record of a ring buffer; the bytes are a copy. */
export type RingHandler = (record: Uint8Array) => void;
