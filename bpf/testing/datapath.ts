/** One loaded datapath for tests: writes its maps by name and judges frames with BPF_PROG_TEST_RUN. */
import { type BpfMap, type BpfObject, loadObject, type MappedArray, mapArray, skbContext } from 'libbpf-ts';

import { buildDatapath } from '../build.ts';
import { DIRECTION, type Direction, PROTOCOL, reasonNumber, VERDICT } from '../constants.ts';
import { EndpointCells } from '../endpoint-cells.ts';
import { CT_KEYS, type CtValue, ctValue, type MetricsValue, metricsKey, sumMetrics } from '../flows.ts';
import {
  classKey,
  classValue,
  endpointKey,
  endpointValue,
  ipcacheKey,
  ipcacheValue,
  slotKey,
  VERDICT_KIND,
  verdictKey,
  verdictPrefix,
  verdictPrefixValue,
  verdictValue,
} from '../layout.ts';
import { createSlotMaps, PROGRAMS } from '../maps.ts';
import { ip4, ip6, ipBytes } from './packets.ts';

/** TC_ACT_UNSPEC, as a 32-bit number: what lets a packet through leaves it to the programs after it. */
export const PASSED = 0xffffffff;
const TC_ACT_SHOT = 2;

export type Outcome = 'pass' | 'drop';

export interface ClassRow {
  readonly identity: number;
  readonly direction: Direction;
  readonly class: number;
}

export interface VerdictRow {
  readonly class: number;
  readonly direction: Direction;
  readonly protocol: keyof typeof PROTOCOL;
  /** Default 0 with 0 bits: every port. */
  readonly port?: number;
  /** Default 16 when a port is given. */
  readonly portBits?: number;
  readonly verdict: keyof typeof VERDICT;
  readonly proxyPort?: number;
  readonly cookie?: number;
  /** The class is one of addresses. */
  readonly byAddress?: true;
}

/** Addresses of a class. */
export interface PrefixRow {
  readonly address: string;
  readonly bits: number;
  readonly direction: Direction;
  readonly class: number;
  /** Default: anybody's. */
  readonly identity?: number;
}

export interface EndpointFields {
  readonly revision?: number;
  readonly slot?: number;
  readonly flags?: number;
  readonly ipv4?: string;
  /** Default: fd00::1. */
  readonly ipv6?: string;
  readonly identity?: number;
  readonly id?: number;
  readonly ifindex?: number;
  readonly quarantine?: boolean;
}

/** Which of the two maps holds an endpoint. */
export type EndpointPlace = 'array' | 'hash';

export interface TestDatapathOptions {
  /** Where `endpoint` writes. Default: the array, unless another endpoint has the cell. */
  readonly place?: EndpointPlace;
  readonly ctEntries?: number;
  /** Default: the object built from the sources. */
  readonly objectPath?: string;
}

/** The test device: loopback, which exists in every network namespace. */
export const TEST_IFINDEX = 1;
/** The interface that has brought what pods receive. 0: none has, the node itself sends it. */
export const OUTSIDE_IFINDEX = 4095;

export class TestDatapath implements Disposable {
  readonly object: BpfObject;
  /** The cells of `endpoint_array`. */
  readonly cells: EndpointCells;
  readonly #memory: MappedArray;
  readonly #place: EndpointPlace;

  constructor(options: TestDatapathOptions = {}) {
    this.object = loadObject(options.objectPath ?? buildDatapath().objectPath, {
      maxEntries: { ct4: options.ctEntries ?? 1024, ct6: options.ctEntries ?? 1024, ipcache: 4096 },
    });
    this.#memory = mapArray(this.object.map('endpoint_array'));
    this.cells = new EndpointCells(this.#memory.bytes);
    this.#place = options.place ?? 'array';
  }

  map(name: string): BpfMap {
    return this.object.map(name);
  }

  /** Defaults: revision 1, slot 0, no flags, 10.0.0.1, identity 1000, id 7. */
  endpoint(fields: EndpointFields = {}): void {
    const ifindex = fields.ifindex ?? TEST_IFINDEX;
    const value = endpointValue.encode({
      revision: fields.revision ?? 1,
      slot: fields.slot ?? 0,
      flags: fields.flags ?? 0,
      ifindex,
      ipv4: ip4(fields.ipv4 ?? '10.0.0.1'),
      ipv6: ip6(fields.ipv6 ?? 'fd00::1'),
      identity: fields.identity ?? 1000,
      id: fields.id ?? 7,
      quarantine: fields.quarantine === true,
    });
    this.write(value);
  }

  /** The rule of user space: changed in its cell, else new in its cell, else in the hash; whole in one before gone from the other. */
  write(value: Uint8Array): void {
    const { ifindex } = endpointValue.decode(value);
    const key = endpointKey.encode(ifindex);
    const holder = this.cells.holder(ifindex);
    if (this.#place === 'hash' || (holder !== undefined && !this.cells.change(value))) {
      this.map('endpoints').update(key, value);
      this.cells.clear(ifindex);
      return;
    }
    if (holder === undefined) this.cells.put(value);
    this.map('endpoints').delete(key);
  }

  /** Removes all endpoints. */
  clearEndpoints(): void {
    this.map('endpoints').deleteBatch([...this.map('endpoints').keys()]);
    for (const [ifindex] of this.cells.entries()) this.cells.clear(ifindex);
  }

  /** `bits`: default all. */
  identity(text: string, identity: number, prefix?: number): void {
    const address = ipBytes(text);
    const bits = prefix ?? address.length * 8;
    this.map('ipcache').update(ipcacheKey.encode({ address, bits }), ipcacheValue.encode({ identity, bits }));
  }

  /** Fills a new pair of inner maps, then puts it into the slot. */
  slot(
    slot: number,
    classes: readonly ClassRow[],
    verdicts: readonly VerdictRow[],
    prefixes: readonly PrefixRow[] = [],
  ): void {
    using inner = new Inner(classes, verdicts, prefixes);
    this.map('policy_verdicts').setInner(slotKey.encode(slot), inner.maps.verdicts);
    this.map('policy_classes').setInner(slotKey.encode(slot), inner.maps.classes);
  }

  /** Runs the program of a direction once on the test device. */
  run(direction: Direction, frame: Uint8Array, from?: number): Outcome {
    return this.runMany(direction, frame, 1, from).outcome;
  }

  runMany(
    direction: Direction,
    frame: Uint8Array,
    repeat: number,
    from = OUTSIDE_IFINDEX,
  ): { outcome: Outcome; ns: number } {
    const program = this.object.program(direction === 'egress' ? PROGRAMS.fromPod : PROGRAMS.toPod);
    const context = skbContext({ ifindex: TEST_IFINDEX, ingressIfindex: direction === 'ingress' ? from : 0 });
    const result = program.testRun({ data: frame, repeat, context });
    if (result.returnValue !== PASSED && result.returnValue !== TC_ACT_SHOT)
      throw new Error(`TC action ${result.returnValue}`);
    return { outcome: result.returnValue === PASSED ? 'pass' : 'drop', ns: result.durationNs };
  }

  /** Like run, and names the outcome: 'forwarded' or the drop reason, from the metrics. */
  judge(direction: Direction, frame: Uint8Array, from?: number): string {
    const before = this.counts(direction);
    const outcome = this.run(direction, frame, from);
    const names = [...this.#since(before, direction).keys()];
    if (outcome === 'pass' ? !names.includes('forwarded') : names.length !== 1 || names[0] === 'forwarded') {
      throw new Error(`outcome ${outcome} but counted ${names.join(', ') || 'nothing'}`);
    }
    return names.sort().join('+');
  }

  /** What `run` returns. @throws where one of the packets that it judges comes to something else than `outcome`, as `judge` names it */
  expecting<T>(direction: Direction, outcome: string, packets: number, run: () => T): T {
    const before = this.counts(direction);
    const result = run();
    const found = [...this.#since(before, direction)].map(([reason, count]) => `${count} ${reason}`);
    const wanted = outcome.split('+').map((reason) => `${packets} ${reason}`);
    if (found.sort().join() !== wanted.sort().join())
      throw new Error(`expected ${wanted.join(', ')}, but counted ${found.join(', ') || 'nothing'}`);
    return result;
  }

  /** How often each outcome was counted since. */
  #since(before: ReadonlyMap<string, bigint>, direction: Direction): Map<string, bigint> {
    const since = [...this.counts(direction)].map(
      ([reason, count]) => [reason, count - (before.get(reason) ?? 0n)] as const,
    );
    return new Map(since.filter(([reason, count]) => count !== 0n && reason !== 'event-lost'));
  }

  count(reason: string, direction: Direction): bigint {
    return this.metric(reason, direction).packets;
  }

  metric(reason: string, direction: Direction): MetricsValue {
    const key = metricsKey.encode({ reason: reasonNumber(reason), direction: DIRECTION[direction] });
    return sumMetrics(this.map('metrics').lookup(key) ?? new Uint8Array(0));
  }

  counts(direction: Direction): Map<string, bigint> {
    const names = [
      'no-endpoint',
      'invalid-packet',
      'invalid-source',
      'fragment-without-first',
      'unknown-l3',
      'ipv6-headers',
      'group-address',
      'policy-denied',
      'policy',
      'unknown-identity',
      'no-policy',
      'not-a-router',
      'neighbour-discovery',
      'misplaced-checksum',
      'forwarded',
      'no-proxy',
      'no-authentication',
      'proxy-rate',
      'ct-full',
      'ct-share',
      'ct-evicted',
      'event-lost',
    ];
    return new Map(names.map((name) => [name, this.count(name, direction)]));
  }

  /** An entry of the conntrack table by initiator and responder; endpoint 7. */
  flow(direction: Direction, protocol: number, src: string, sport: number, dst: string, dport: number): Flow {
    const name = src.includes(':') ? 'ct6' : 'ct4';
    const key = CT_KEYS[name].encode({
      src: ipBytes(src),
      dst: ipBytes(dst),
      sport,
      dport,
      endpoint: 7,
      protocol,
      direction: DIRECTION[direction],
    });
    return new Flow(this.map(name), key);
  }

  /** Moves the last packet of all flows into the past, by conntrack ticks. */
  age(ticks: number): void {
    for (const map of this.#flowMaps())
      for (const [key, bytes] of [...map.entries()]) {
        const value = ctValue.decode(bytes);
        const lastSeen = (value.lastSeen - ticks) >>> 0;
        map.update(key, ctValue.encode({ ...value, lastSeen, stamp: (value.stamp - 1) >>> 0 }));
      }
  }

  flows(): number {
    return this.#flowMaps().reduce((sum, map) => sum + [...map.keys()].length, 0);
  }

  /** Forgets all flows, and all datagrams of which fragments are awaited. */
  forget(): void {
    for (const map of [...this.#flowMaps(), this.map('frags')]) map.deleteBatch([...map.keys()]);
  }

  #flowMaps(): readonly BpfMap[] {
    return [this.map('ct4'), this.map('ct6')];
  }

  close(): void {
    this.#memory.close();
    this.object.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Handle of a conntrack entry that may or may not exist. */
export class Flow {
  readonly #map: BpfMap;
  readonly #key: Uint8Array;

  constructor(map: BpfMap, key: Uint8Array) {
    this.#map = map;
    this.#key = key;
  }

  get(): CtValue | undefined {
    const bytes = this.#map.lookup(this.#key);
    return bytes === undefined ? undefined : ctValue.decode(bytes);
  }

  /** Moves the entry's last packet into the past. */
  age(seconds: number): void {
    const value = this.get();
    if (value === undefined) throw new Error('no such flow');
    const lastSeen = (value.lastSeen - Math.ceil((seconds * 1e9) / 2 ** 30)) >>> 0;
    this.#map.update(this.#key, ctValue.encode({ ...value, lastSeen, stamp: (value.stamp - 1) >>> 0 }));
  }

  delete(): boolean {
    return this.#map.delete(this.#key);
  }
}

class Inner implements Disposable {
  readonly maps: { readonly classes: BpfMap; readonly verdicts: BpfMap };

  constructor(classes: readonly ClassRow[], verdicts: readonly VerdictRow[], prefixes: readonly PrefixRow[]) {
    this.maps = createSlotMaps({ classes: classes.length, verdicts: verdicts.length + prefixes.length });
    for (const { address, bits, direction, class: number, identity = 0 } of prefixes)
      this.maps.verdicts.update(
        verdictPrefix.encode({ direction: DIRECTION[direction], address: ipBytes(address), bits }),
        verdictPrefixValue.encode({ identity, class: number }),
      );
    for (const row of classes) {
      const key = { identity: row.identity, direction: DIRECTION[row.direction] };
      this.maps.classes.update(classKey.encode(key), classValue.encode({ ...key, class: row.class }));
    }
    for (const row of verdicts) {
      const key = verdictKey.encode({
        class: row.class,
        direction: DIRECTION[row.direction] | (row.byAddress === true ? VERDICT_KIND.byAddress : 0),
        protocol: PROTOCOL[row.protocol],
        port: row.port ?? 0,
        portBits: row.portBits ?? (row.port === undefined ? 0 : 16),
      });
      const value = verdictValue.encode({
        verdict: VERDICT[row.verdict],
        proxyPort: row.proxyPort ?? 0,
        cookie: row.cookie ?? 0,
      });
      this.maps.verdicts.update(key, value);
    }
  }

  [Symbol.dispose](): void {
    this.maps.classes.close();
    this.maps.verdicts.close();
  }
}
