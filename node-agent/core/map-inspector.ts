import { join } from 'node:path';
import {
  CT_CELLS,
  CT_KEYS,
  ctShare,
  ctShareKey,
  ctValue,
  DROP_REASONS,
  endpointKey,
  endpointValue,
  ipcacheKey,
  ipcacheValue,
  MAPS,
  type MapName,
  metricsKey,
  nameKey,
  nameValue,
  STAGES,
  settingsKey,
  settingsValue,
  sumMetrics,
} from '@weir/bpf';
import { formatAddress } from '@weir/net';
import { type BpfMap, programName } from 'libbpf-ts';
import type { Core } from '../core.ts';
import type { EndpointMap, MoreMap, SlotStore } from '../datapath/index.ts';
import { ADDRESS_CLASSES } from '../derive/contract.ts';
import { MapTooLargeError, UnknownMapError } from '../errors.ts';

type Entries = ReturnType<Core['mapEntries']>;

const DIRECTIONS = ['ingress', 'egress'] as const;
/** Entries that are decoded in one answer. */
const LARGEST = 20_000;

export interface MapInspectorOptions {
  readonly root: string;
  readonly maps: Readonly<Record<MapName, BpfMap>>;
  /** Maps of other parts. */
  readonly more: readonly MoreMap[];
  readonly endpoints: Pick<EndpointMap, 'located'>;
  readonly slots: Pick<SlotStore, 'slots' | 'spares' | 'dump'>;
  /** Sizes that are known without counting. */
  readonly counts: () => Partial<Record<MapName, number>>;
}

/** The pinned maps, for people. */
export class MapInspector {
  readonly #options: MapInspectorOptions;

  constructor(options: MapInspectorOptions) {
    this.#options = options;
  }

  /** Every pinned map. */
  maps(): ReturnType<Core['maps']> {
    const { maps, slots, root, counts: known } = this.#options;
    const counts: Partial<Record<MapName, number>> = {
      ...known(),
      policy_classes: slots.slots().length + slots.spares,
      policy_verdicts: slots.slots().length + slots.spares,
      events: 0,
      endpoint_array: this.#endpoints().filter(({ map }) => map === 'endpoint_array').length,
    };
    const row = (name: string, map: BpfMap, entries: number): ReturnType<Core['maps']>[number] => {
      const { type, maxEntries } = map.info;
      return { name, type: String(type), entries, maxEntries, path: join(root, name) };
    };
    return [
      ...(Object.keys(MAPS) as MapName[]).map((name) => row(name, maps[name], counts[name] ?? count(maps[name]))),
      ...this.#options.more.map(({ spec, map }) => row(spec.name, map, count(map))),
    ];
  }

  /**
   * A map's entries, decoded.
   * @param slot of the maps of policy slots: of this one alone
   * @throws UnknownMapError, MapTooLargeError
   */
  entries(name: string, slot?: number): Entries {
    if (name === 'policy_classes') return this.#boundedSlots(name, slot, classesOf(this.#slots(slot)));
    if (name === 'policy_verdicts') return this.#boundedSlots(name, slot, verdictsOf(this.#slots(slot)));
    const known = Object.hasOwn(this.#readers, name) ? this.#readers[name as Exclude<MapName, SlotMap>] : undefined;
    return known === undefined ? this.#ofParts(name) : known();
  }

  readonly #readers: Readonly<Record<Exclude<MapName, SlotMap>, () => Entries>> = {
    // People ask for the endpoints, wherever they are.
    endpoints: () => this.#endpoints().map(({ entry }) => entry),
    endpoint_array: () =>
      this.#endpoints()
        .filter(({ map }) => map === 'endpoint_array')
        .map(({ entry }) => entry),
    ipcache: () =>
      this.#read('ipcache').map(([key, value]) => {
        const { address, bits } = ipcacheKey.decode(key);
        const { bits: _, ...identities } = ipcacheValue.decode(value);
        return { key: { prefix: `${formatAddress(address)}/${bits}` }, value: identities };
      }),
    names: () =>
      this.#read('names').map(([key, value]) => ({
        key: { address: formatAddress(nameKey.decode(key)) },
        value: { identity: nameValue.decode(value) },
      })),
    ct4: () => this.#flows('ct4'),
    ct6: () => this.#flows('ct6'),
    ct_shares: () =>
      this.#read('ct_shares')
        .map(([key, value]) => ({ cell: ctShareKey.decode(key), value: ctShare.decode(value) }))
        .filter(({ cell, value }) => cell < CT_CELLS.seed && (value.flows !== 0 || value.size !== 0))
        .map(({ cell, value }) => ({ key: CT_CELLS.name(cell), value })),
    ct_recent: () => [
      { key: { map: 'ct_recent' }, value: { about: 'flows that endpoints with many began last: keys of ct4 and ct6' } },
    ],
    metrics: () =>
      this.metrics().map(({ reason, direction, packets, bytes }) => ({
        key: { reason, direction },
        value: { packets: String(packets), bytes: String(bytes) },
      })),
    proxy_budgets: () =>
      this.#read('proxy_budgets')
        .filter(([, value]) => value.some((byte) => byte !== 0))
        .map(([key, value]) => ({
          key: { index: Buffer.from(key).readUInt32LE(0) },
          value: {
            about: 'when all that the endpoint may ask a proxy is there again',
            ns: String(Buffer.from(value).readBigUInt64LE(0)),
          },
        })),
    settings: () =>
      this.#read('settings').map(([key, value]) => ({
        key: { setting: settingsKey.decode(key) },
        value: { bits: settingsValue.decode(value) },
      })),
    stages: () =>
      this.#read('stages').map(([key, value]) => {
        const [at = 0, id = 0] = [key, value].map((bytes) => Buffer.from(bytes).readUInt32LE(0));
        const stage = Object.entries(STAGES).find(([, number]) => number === at)?.[0] ?? at;
        return { key: { stage }, value: { program: programName(id) ?? 'unknown', id } };
      }),
    frags: () =>
      this.#read('frags').map(([key, value]) => ({
        key: { bytes: Buffer.from(key).toString('hex') },
        value: { bytes: Buffer.from(value).toString('hex') },
      })),
    // A ring buffer has no entries: its records are gone once they are read.
    events: () => [
      { key: { map: 'events' }, value: { about: 'a ring buffer, read by the agent: see `weir monitor`' } },
    ],
    event_budgets: () =>
      this.#read('event_budgets')
        .filter(([, value]) => value.some((byte) => byte !== 0))
        .map(([key, value]) => ({
          key: { index: Buffer.from(key).readUInt32LE(0) },
          value: { about: 'events that each CPU may still send', bytes: Buffer.from(value).toString('hex') },
        })),
  };

  #ofParts(name: string): Entries {
    const { more } = this.#options;
    const found = more.find(({ spec }) => spec.name === name);
    if (found === undefined)
      throw new UnknownMapError(name, [...Object.keys(MAPS), ...more.map(({ spec }) => spec.name)]);
    return this.#bounded(found.map.entries(), `it by \`${this.#dumpOf(name)}\``).map(([key, value]) =>
      found.spec.describe(key, value),
    );
  }

  metrics(): ReturnType<Core['metrics']> {
    const { metrics } = this.#options.maps;
    const out: { reason: string; direction: 'ingress' | 'egress'; packets: bigint; bytes: bigint }[] = [];
    for (const { number, name } of DROP_REASONS.values()) {
      for (const direction of [0, 1]) {
        const value = metrics.lookup(metricsKey.encode({ reason: number, direction }));
        if (value) out.push({ reason: name, direction: direction === 0 ? 'ingress' : 'egress', ...sumMetrics(value) });
      }
    }
    return out;
  }

  #endpoints() {
    return [...this.#options.endpoints.located()].map(({ map, key, value }) => ({
      map,
      entry: { key: { ifindex: endpointKey.decode(key) }, value: { ...addresses(endpointValue.decode(value)), map } },
    }));
  }

  #flows(name: keyof typeof CT_KEYS): Entries {
    return this.#read(name).map(([key, value]) => {
      const { packets, bytes, ...rest } = ctValue.decode(value);
      return {
        key: addresses(CT_KEYS[name].decode(key)),
        value: { ...rest, packets: String(packets), bytes: String(bytes) },
      };
    });
  }

  #read(name: MapName): (readonly [Uint8Array, Uint8Array])[] {
    return this.#bounded(this.#options.maps[name].entries(), `it by \`${this.#dumpOf(name)}\``);
  }

  *#slots(slot: number | undefined): Slots {
    for (const each of this.#options.slots.dump()) if (slot === undefined || each.slot === slot) yield each;
  }

  #boundedSlots(name: SlotMap, slot: number | undefined, entries: Iterable<Entries[number]>): Entries {
    const map = `\`bpftool map dump id ID\``;
    // Of a map of maps bpftool tells the ids of those inside.
    const id = `the ID that \`${this.#dumpOf(name)}\` has for`;
    const otherwise =
      slot === undefined
        ? `one slot alone by \`weir map get ${name} --slot NUMBER\`, and a larger one by ${map}, with ${id} it`
        : `slot ${slot} by ${map}, with ${id} key ${slot}`;
    return this.#bounded(entries, otherwise);
  }

  #dumpOf(name: string): string {
    return `bpftool map dump pinned ${join(this.#options.root, name)}`;
  }

  /** Reading more at once would hold up the agent. */
  #bounded<T>(entries: Iterable<T>, otherwise: string): T[] {
    const out: T[] = [];
    for (const entry of entries) {
      if (out.length === LARGEST) throw new MapTooLargeError(LARGEST, otherwise);
      out.push(entry);
    }
    return out;
  }
}

type Slots = ReturnType<SlotStore['dump']>;
type SlotMap = 'policy_classes' | 'policy_verdicts';

function* classesOf(slots: Slots): Generator<Entries[number]> {
  for (const { slot, elements } of slots)
    for (const direction of DIRECTIONS)
      for (const [identity, number] of elements[direction])
        yield { key: { slot, direction, identity }, value: { class: number } };
}

function* verdictsOf(slots: Slots): Generator<Entries[number]> {
  for (const { slot, rows } of slots)
    for (const direction of DIRECTIONS)
      for (const [number, blocks] of rows[direction])
        for (const { protocol, port, bits, cookie, prefix, identity, ...decision } of blocks) {
          const ofAddresses =
            number >= ADDRESS_CLASSES ? { class: number - ADDRESS_CLASSES, byAddress: true } : undefined;
          yield prefix === undefined
            ? {
                key: { slot, direction, ...(ofAddresses ?? { class: number }), protocol, port, portBits: bits },
                value: { ...decision, cookie },
              }
            : {
                key: { slot, direction, prefix },
                value: { class: cookie, byAddress: true, ...(identity === undefined ? {} : { identity }) },
              };
        }
}

const ARRAYS: ReadonlySet<unknown> = new Set(['array', 'percpu_array']);

/** An array has all its elements. */
function count(map: BpfMap): number {
  if (ARRAYS.has(map.info.type)) return map.info.maxEntries;
  let total = 0;
  for (const _ of map.keys()) total += 1;
  return total;
}

/** Byte addresses as text. */
function addresses(value: object): object {
  return Object.fromEntries(
    Object.entries(value).map(([key, field]: [string, unknown]) => [
      key,
      field instanceof Uint8Array ? formatAddress(field) : field,
    ]),
  );
}
