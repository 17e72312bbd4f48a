/**
 * What maps hold, compared with what the kernel acknowledged of it, in steps that an edit hardly waits for: each is called between rounds, and a
 * turn of all of them sees every element once.
 */
import type { IpcacheValue } from '@weir/bpf';
import { formatAddress } from '@weir/net';
import type { Steps } from '@weir/policy';
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { hostPrefix, type Pace } from '../derive/contract.ts';
import type { IpcacheRow } from '../tables.ts';
import type { IpcacheStore } from './ipcache-store.ts';
import type { Comparison, SlotStore } from './slot-store.ts';

/** What differs. `of`: a prefix, or the number of a slot. */
export interface Difference {
  readonly of: string;
  readonly problem: string;
}

/** What one step found, and whether it was the last of its turn. */
export interface Step {
  readonly found: readonly Difference[];
  readonly ended: boolean;
}

/** One kind of content. */
export interface ContentAudit {
  /** What must not be wrong for long, whole: the same things each time. */
  nearest(): Promise<readonly Difference[]>;
  /** Goes on with the turn for as long as the pace allows without a break; at least one element. */
  step(): Promise<Step>;
  /** Why the element is not what was written; undefined when it is. */
  problem(of: string): Promise<string | undefined>;
}

export interface AddressAuditOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache' | 'endpointStates'>;
  readonly ipcache: Pick<IpcacheStore, 'holds' | 'elements' | 'delete'>;
  /** Whether the kernel is to hold what the table says of the prefix: its last write was acknowledged. */
  readonly settled: (prefix: string) => boolean;
  readonly pace: Pace;
}

/** The ipcache: first what the kernel has, listed, then what was not in that list. Nearest are the addresses of this node's pods. */
export class AddressAudit implements ContentAudit {
  readonly #options: AddressAuditOptions;
  /** What the kernel has, until it has been listed. */
  #listed: Generator<readonly [string, IpcacheValue]> | undefined;
  /** Rows of which this turn's list has told. */
  readonly #seen = new Set<IpcacheRow>();
  /** The row that the next step begins with, once all was listed. */
  #from: string | undefined;

  constructor(options: AddressAuditOptions) {
    this.#options = options;
  }

  async nearest(): Promise<readonly Difference[]> {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    const prefixes = Array.from(snapshot.all(tables.endpointStates), ({ ipv4 }) => hostPrefix(ipv4));
    return prefixes.flatMap((prefix) => (prefix === undefined ? [] : this.#compared(prefix)));
  }

  async step(): Promise<Step> {
    const { pace } = this.#options;
    const found: Difference[] = [];
    pace.restart();
    try {
      if (this.#from === undefined && !this.#list(found)) return { found, ended: false };
      if (!this.#askForOthers(found)) return { found, ended: false };
    } catch (error) {
      this.#restart();
      throw error;
    }
    this.#restart();
    return { found, ended: true };
  }

  #restart(): void {
    this.#listed = undefined;
    this.#from = undefined;
    this.#seen.clear();
  }

  /** Goes on listing; whether that is done. */
  #list(found: Difference[]): boolean {
    const { db, tables, ipcache, settled, pace } = this.#options;
    using snapshot = db.read();
    this.#listed ??= ipcache.elements();
    for (let next = this.#listed.next(); next.done !== true; next = this.#listed.next()) {
      const [prefix, value] = next.value;
      const row = snapshot.get(tables.ipcache, prefix);
      if (row === undefined) {
        // It may have gone since it was listed: to take it away tells. A lookup would find what is around it, too.
        if (settled(prefix) && ipcache.delete(prefix))
          found.push({ of: prefix, problem: 'the kernel held an address that nobody gave it' });
      } else {
        this.#seen.add(row);
        if (!says(value, row) && !ipcache.holds(row) && settled(prefix)) found.push(lost(row));
      }
      if (pace.due()) return false;
    }
    this.#from = '';
    return true;
  }

  /** Goes on with rows that were not listed: they are gone, or have come since. Whether that is done. */
  #askForOthers(found: Difference[]): boolean {
    const { db, tables, ipcache, settled, pace } = this.#options;
    using snapshot = db.read();
    for (const row of snapshot.lowerBound(tables.ipcache, this.#from ?? '')) {
      if (pace.due() && row.prefix !== this.#from) {
        this.#from = row.prefix;
        return false;
      }
      if (!this.#seen.has(row) && !ipcache.holds(row) && settled(row.prefix)) found.push(lost(row));
    }
    return true;
  }

  async problem(prefix: string): Promise<string | undefined> {
    return this.#compared(prefix)[0]?.problem;
  }

  #compared(prefix: string): Difference[] {
    const { db, tables, ipcache, settled } = this.#options;
    using snapshot = db.read();
    const row = snapshot.get(tables.ipcache, prefix);
    return row === undefined || ipcache.holds(row) || !settled(prefix) ? [] : [lost(row)];
  }
}

/** Whether a listed element is the row's. What was changed since it was listed may not look so. */
function says({ identity, node = NO_NODE, bits }: IpcacheValue, row: IpcacheRow): boolean {
  return identity === row.identity && row.prefix.endsWith(`/${bits}`) && formatAddress(node) === (row.node ?? NOWHERE);
}

const NO_NODE = new Uint8Array(4);
const NOWHERE = '0.0.0.0';

function lost({ prefix, identity }: { readonly prefix: string; readonly identity: number }): Difference {
  return { of: prefix, problem: `the kernel does not hold identity ${identity}` };
}

export interface SlotAuditOptions {
  readonly slots: Pick<SlotStore, 'numbers' | 'misplaced' | 'comparison' | 'fault'>;
  /** Whether the kernel is to hold the slot as its newest row says: its last write was acknowledged. */
  readonly settled: (slot: number) => boolean;
  /** Of this alone. */
  readonly pace: Pace;
}

/** The policy slots. One that is written while it is compared is compared again, whole in one step. Nearest is that each slot's maps are in their place. */
export class SlotAudit implements ContentAudit {
  readonly #options: SlotAuditOptions;
  /** The slot whose comparison began last in this turn; 0: none. */
  #slot = 0;
  /** What is left to compare of it. */
  #left: Steps<Comparison> | undefined;

  constructor(options: SlotAuditOptions) {
    this.#options = options;
  }

  async nearest(): Promise<readonly Difference[]> {
    const { slots, settled, pace } = this.#options;
    const found: Difference[] = [];
    pace.restart();
    for (const slot of slots.numbers()) {
      const problem = slots.misplaced(slot);
      if (problem !== undefined && settled(slot)) found.push({ of: String(slot), problem });
      if (pace.due()) await pace.breathe();
    }
    return found;
  }

  async step(): Promise<Step> {
    const { slots, settled, pace } = this.#options;
    const found: Difference[] = [];
    pace.restart();
    while (this.#begin()) {
      const compared = this.#goOn();
      if (compared === undefined) return { found, ended: false };
      const problem = compared.changed ? await slots.fault(this.#slot) : compared.problem;
      if (problem !== undefined && settled(this.#slot)) found.push({ of: String(this.#slot), problem });
      if (pace.due()) return { found, ended: false };
    }
    this.#slot = 0;
    return { found, ended: true };
  }

  /** Begins with the next slot, unless one is under way; false: there is none. */
  #begin(): boolean {
    const { slots } = this.#options;
    if (this.#left !== undefined) return true;
    const after = slots.numbers().filter((number) => number > this.#slot);
    if (after.length === 0) return false;
    this.#slot = after.reduce((least, number) => Math.min(least, number));
    this.#left = slots.comparison(this.#slot);
    return true;
  }

  /** Undefined: a break is due before the slot's end. */
  #goOn(): Comparison | undefined {
    const left = this.#left;
    this.#left = undefined;
    for (let next = left?.next(); next !== undefined; next = left?.next()) {
      if (next.done === true) return next.value;
      if (this.#options.pace.due()) {
        this.#left = left;
        return undefined;
      }
    }
    return undefined;
  }

  async problem(slot: string): Promise<string | undefined> {
    return this.#options.slots.fault(Number(slot));
  }
}
