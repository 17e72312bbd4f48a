/**
 * What maps hold, compared with what was written into them, in steps that an edit hardly waits for: each is called between rounds, and a
 * turn of all of them sees every element once.
 */
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { hostPrefix, type Pace } from '../derive/index.ts';
import type { IpcacheStore } from './ipcache-store.ts';
import type { SlotStore } from './slot-store.ts';

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
  readonly ipcache: Pick<IpcacheStore, 'holds' | 'prefixes' | 'delete'>;
  readonly pace: Pace;
}

/** The ipcache: first whether each address has its identity, then whether there are others. Nearest are the addresses of this node's pods. */
export class AddressAudit implements ContentAudit {
  readonly #options: AddressAuditOptions;
  /** The address that the next step begins with. */
  #prefix = '';
  /** Addresses that the kernel has, once all that it should have were compared. */
  #listed: Generator<string> | undefined;

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
    const { db, tables, ipcache, pace } = this.#options;
    const found: Difference[] = [];
    using snapshot = db.read();
    pace.restart();
    if (this.#listed === undefined) {
      for (const row of snapshot.lowerBound(tables.ipcache, this.#prefix)) {
        if (pace.due() && row.prefix !== this.#prefix) {
          this.#prefix = row.prefix;
          return { found, ended: false };
        }
        if (!ipcache.holds(row)) found.push(lost(row));
      }
      this.#prefix = '';
      this.#listed = ipcache.prefixes();
    }
    try {
      for (let next = this.#listed.next(); next.done !== true; next = this.#listed.next()) {
        const prefix = next.value;
        // To take it away tells whether it was there: a lookup finds what is around it, too.
        if (!snapshot.has(tables.ipcache, prefix) && ipcache.delete(prefix))
          found.push({ of: prefix, problem: 'the kernel held an address that nobody gave it' });
        if (pace.due()) return { found, ended: false };
      }
    } catch (error) {
      this.#listed = undefined;
      throw error;
    }
    this.#listed = undefined;
    return { found, ended: true };
  }

  async problem(prefix: string): Promise<string | undefined> {
    return this.#compared(prefix)[0]?.problem;
  }

  #compared(prefix: string): Difference[] {
    const { db, tables, ipcache } = this.#options;
    using snapshot = db.read();
    const row = snapshot.get(tables.ipcache, prefix);
    return row === undefined || ipcache.holds(row) ? [] : [lost(row)];
  }
}

function lost({ prefix, identity }: { readonly prefix: string; readonly identity: number }): Difference {
  return { of: prefix, problem: `the kernel does not hold identity ${identity}` };
}

export interface SlotAuditOptions {
  readonly slots: Pick<SlotStore, 'numbers' | 'misplaced' | 'fault'>;
  /** Of this alone: a slot makes breaks of its own. */
  readonly pace: Pace;
}

/** The policy slots, each compared whole. Nearest is that each slot's maps are in their place. */
export class SlotAudit implements ContentAudit {
  readonly #options: SlotAuditOptions;
  /** The slot that was compared last in this turn; 0: none. */
  #slot = 0;

  constructor(options: SlotAuditOptions) {
    this.#options = options;
  }

  async nearest(): Promise<readonly Difference[]> {
    const { slots, pace } = this.#options;
    const found: Difference[] = [];
    pace.restart();
    for (const slot of slots.numbers()) {
      const problem = slots.misplaced(slot);
      if (problem !== undefined) found.push({ of: String(slot), problem });
      if (pace.due()) await pace.breathe();
    }
    return found;
  }

  async step(): Promise<Step> {
    const { slots, pace } = this.#options;
    const found: Difference[] = [];
    const numbers = slots.numbers().sort((a, b) => a - b);
    pace.restart();
    for (const slot of numbers.filter((number) => number > this.#slot)) {
      this.#slot = slot;
      const problem = await slots.fault(slot);
      if (problem !== undefined) found.push({ of: String(slot), problem });
      if (pace.due()) return { found, ended: false };
    }
    this.#slot = 0;
    return { found, ended: true };
  }

  async problem(slot: string): Promise<string | undefined> {
    return this.#options.slots.fault(Number(slot));
  }
}
