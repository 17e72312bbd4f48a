import type { MapType } from './types.ts';

/** bpf(2) commands (include/uapi/linux/bpf.h, enum bpf_cmd). */
export const cmd = {
  MAP_CREATE: 0,
  MAP_LOOKUP_ELEM: 1,
  MAP_UPDATE_ELEM: 2,
  MAP_DELETE_ELEM: 3,
  MAP_GET_NEXT_KEY: 4,
  OBJ_PIN: 6,
  OBJ_GET: 7,
  PROG_TEST_RUN: 10,
  PROG_GET_FD_BY_ID: 13,
  MAP_GET_FD_BY_ID: 14,
  OBJ_GET_INFO_BY_FD: 15,
  PROG_QUERY: 16,
  MAP_LOOKUP_BATCH: 24,
  MAP_UPDATE_BATCH: 26,
  MAP_DELETE_BATCH: 27,
  LINK_CREATE: 28,
  LINK_UPDATE: 29,
  LINK_GET_FD_BY_ID: 30,
  LINK_DETACH: 34,
} as const;

/** Map type numbers (enum bpf_map_type) of the types that this binding knows. */
export const mapTypeNumbers: Readonly<Record<MapType, number>> = {
  hash: 1,
  array: 2,
  prog_array: 3,
  percpu_hash: 5,
  percpu_array: 6,
  lru_hash: 9,
  lpm_trie: 11,
  array_of_maps: 12,
  hash_of_maps: 13,
  ringbuf: 27,
};

/** Name of a map type number; the number itself when this binding has no name for it. */
export function mapTypeName(type: number): MapType | number {
  for (const [name, value] of Object.entries(mapTypeNumbers)) if (value === type) return name as MapType;
  return type;
}

/** BPF_F_* flags for `CreateMapOptions.flags`. */
export const mapFlags = {
  /** Allocate entries when needed; required for lpm_trie. */
  NO_PREALLOC: 1 << 0,
  /** lru_hash: one LRU list a CPU. */
  NO_COMMON_LRU: 1 << 1,
  /** System calls may only read. */
  RDONLY: 1 << 3,
  /** System calls may only write. */
  WRONLY: 1 << 4,
  ZERO_SEED: 1 << 6,
  /** Programs may only read. */
  RDONLY_PROG: 1 << 7,
  /** Programs may only write. */
  WRONLY_PROG: 1 << 8,
  /** array: may be mapped into memory. */
  MMAPABLE: 1 << 10,
  /** array: inner maps of different max_entries may share an outer map. */
  INNER_MAP: 1 << 12,
} as const;

export const updateFlags = { any: 0, noexist: 1, exist: 2 } as const;

/** enum bpf_attach_type. */
export const attachType = { ingress: 46, egress: 47 } as const;

/** The same of cgroups: what a process of the cgroup does that runs the program. */
export const cgroupAttachType = {
  connect4: 10,
  connect6: 11,
  sendmsg4: 14,
  sendmsg6: 15,
  recvmsg4: 19,
  recvmsg6: 20,
  getpeername4: 29,
  getpeername6: 30,
  sockRelease: 34,
} as const;

/** BPF_F_BEFORE: before the relative of the call; without one, before all others. */
export const BPF_F_BEFORE = 1 << 3;

/** Longest object name that the kernel keeps (BPF_OBJ_NAME_LEN less the final zero). */
export const MAX_NAME = 15;

/** Magic number of a bpf file system (linux/magic.h). */
export const BPF_FS_MAGIC = 0xcafe4a11;
