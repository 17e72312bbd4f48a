/** The maps that the object defines, and how to make a slot's two inner maps. */
import { type BpfMap, type CreateMapOptions, createMap, type MapType, mapFlags } from 'libbpf-ts';

export interface MapShape {
  readonly type: MapType;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
  readonly flags: number;
  /**
   * What its bytes mean: to be raised with every change of a key or value that keeps its size (for maps in maps: of the inner maps). A pinned
   * map of another version is replaced, not read.
   */
  readonly version: number;
}

/** An entry of a map, for people. */
export interface MapEntry {
  readonly key: object;
  readonly value: object;
}

/** A pinned map: all that is known of it. */
export interface MapSpec extends MapShape {
  /** Its pin under the agent's root: lower case, with underscores, up to 15 characters. */
  readonly name: string;
  readonly describe: (key: Uint8Array, value: Uint8Array) => MapEntry;
}

function shape(
  type: MapType,
  keySize: number,
  valueSize: number,
  maxEntries: number,
  { flags = 0, version = 1 }: { readonly flags?: number; readonly version?: number } = {},
): MapShape {
  return { type, keySize, valueSize, maxEntries, flags, version };
}

/** The maps of the object, by name, with the default max_entries. All are pinned under the agent's root, by name. */
export const MAPS = {
  endpoint_array: shape('array', 4, 40, 4096, { flags: mapFlags.MMAPABLE }),
  endpoints: shape('hash', 4, 40, 4096, { flags: mapFlags.NO_PREALLOC }),
  ipcache: shape('lpm_trie', 24, 16, 512_000, { flags: mapFlags.NO_PREALLOC, version: 3 }),
  names: shape('hash', 24, 4, 131_072, { flags: mapFlags.NO_PREALLOC }),
  policy_classes: shape('array_of_maps', 4, 4, 4096),
  policy_verdicts: shape('array_of_maps', 4, 4, 4096, { version: 4 }),
  ct4: shape('hash', 16, 48, 262_144, { version: 6 }),
  ct6: shape('hash', 40, 48, 262_144, { version: 3 }),
  ct_shares: shape('array', 4, 8, 16_387, { flags: mapFlags.MMAPABLE, version: 2 }),
  ct_recent: shape('array', 4, 1288, 8192),
  frags: shape('lru_hash', 4, 96, 16_384, { version: 3 }),
  events: shape('ringbuf', 0, 0, 1 << 20),
  event_budgets: shape('percpu_array', 4, 16, 1025, { version: 2 }),
  metrics: shape('percpu_array', 4, 16, 128),
  proxy_budgets: shape('array', 4, 8, 4096),
  settings: shape('array', 4, 4, 4, { version: 2 }),
  stages: shape('prog_array', 4, 4, 5),
} as const satisfies Readonly<Record<string, MapShape>>;

export type MapName = keyof typeof MAPS;

/** Names of the programs in the object. An agent knows the programs of every version by them: they must not change. */
export const PROGRAMS = {
  fromPod: 'weir_from_pod',
  toPod: 'weir_to_pod',
  judgeSent: 'weir_judge_sent',
  toProxy: 'weir_to_proxy',
  answerToProxy: 'weir_answer',
  pass: 'weir_pass',
} as const;

/** Elements of `stages` (layout.h): programs of parts at a pod's interface, the one that those of `from-pod` go on with, and those that proxies get packets by. */
export const STAGES = { 'from-pod': 0, 'to-pod': 1, 'judge-sent': 2, 'to-proxy': 3, 'answer-to-proxy': 4 } as const;

/** How many rows each inner map must hold; at least 1 is made. */
export interface SlotSizes {
  readonly classes: number;
  readonly verdicts: number;
}

export function slotMapOptions(sizes: SlotSizes): {
  readonly classes: CreateMapOptions;
  readonly verdicts: CreateMapOptions;
} {
  return {
    classes: {
      name: 'weir_classes',
      type: 'hash',
      keySize: 8,
      valueSize: 8,
      maxEntries: Math.max(1, sizes.classes),
      flags: mapFlags.NO_PREALLOC,
    },
    verdicts: {
      name: 'weir_verdicts',
      type: 'lpm_trie',
      keySize: 24,
      valueSize: 8,
      maxEntries: Math.max(1, sizes.verdicts),
      flags: mapFlags.NO_PREALLOC,
    },
  };
}

/** Makes the inner maps of a slot. Fill both, put them into `policy_classes` and `policy_verdicts`, close them. */
export function createSlotMaps(sizes: SlotSizes): { readonly classes: BpfMap; readonly verdicts: BpfMap } {
  const options = slotMapOptions(sizes);
  const classes = createMap(options.classes);
  try {
    return { classes, verdicts: createMap(options.verdicts) };
  } catch (error) {
    classes.close();
    throw error;
  }
}
