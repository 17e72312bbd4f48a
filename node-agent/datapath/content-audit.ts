/** What maps hold, compared with what the kernel acknowledged of it, in passes whose pieces are taken between rounds. */
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { hostPrefix, type Pace } from '../derive/contract.ts';
import type { IpcacheStore } from './ipcache-store.ts';
import type { SlotStore } from './slot-store.ts';

/** What differs. `of`: a prefix, or the number of a slot. */
export interface Difference {
  readonly of: string;
  readonly problem: string;
}

/** One kind of content. */
export interface ContentAudit {
  /** What must not be wrong for long, whole: the same things each time. */
  nearest(): Promise<readonly Difference[]>;
  /** Compares every element once. Each piece takes a stretch of `Pace`, or one slot; rounds may run between two of them. */
  pass(): AsyncGenerator<readonly Difference[], void>;
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

/** The ipcache. Nearest are the addresses of this node's pods. */
export class AddressAudit implements ContentAudit {
  readonly #options: AddressAuditOptions;

  constructor(options: AddressAuditOptions) {
    this.#options = options;
  }

  async nearest(): Promise<readonly Difference[]> {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    const rows = [...snapshot.all(tables.endpointStates)];
    const prefixes = rows.flatMap(({ addresses }) => addresses.flatMap((address) => hostPrefix(address) ?? []));
    return prefixes.flatMap((prefix) => this.#compared(prefix));
  }

  async *pass(): AsyncGenerator<readonly Difference[], void> {
    const { pace } = this.#options;
    pace.restart();
    let found: Difference[] = [];
    for (const [prefix] of this.#options.ipcache.elements()) {
      found.push(...this.#unwanted(prefix));
      if (!pace.due()) continue;
      yield found;
      found = [];
      pace.restart();
    }
    for (let from: string | undefined = ''; from !== undefined; pace.restart()) {
      from = this.#compareFrom(from, found);
      yield found;
      found = [];
    }
  }

  /** Takes away what nobody gave. It may have gone since it was listed: that it was there, the deletion tells. */
  #unwanted(prefix: string): Difference[] {
    const { db, tables, ipcache, settled } = this.#options;
    using snapshot = db.read();
    if (snapshot.has(tables.ipcache, prefix) || !settled(prefix) || !ipcache.delete(prefix)) return [];
    return [{ of: prefix, problem: 'the kernel had an address that this agent did not write' }];
  }

  /** Compares rows until a break is due; returns the row to go on with, undefined at the end. */
  #compareFrom(from: string, found: Difference[]): string | undefined {
    const { db, tables, ipcache, settled, pace } = this.#options;
    using snapshot = db.read();
    for (const row of snapshot.lowerBound(tables.ipcache, from)) {
      if (row.prefix !== from && pace.due()) return row.prefix;
      if (!ipcache.holds(row) && settled(row.prefix)) found.push(lost(row));
    }
    return undefined;
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

function lost({ prefix, identity }: { readonly prefix: string; readonly identity: number }): Difference {
  return { of: prefix, problem: `the kernel does not have identity ${identity}` };
}

export interface SlotAuditOptions {
  readonly slots: Pick<SlotStore, 'numbers' | 'misplaced' | 'fault'>;
  /** Whether the kernel is to hold the slot as its newest row says: its last write was acknowledged. */
  readonly settled: (slot: number) => boolean;
  /** Of this alone. */
  readonly pace: Pace;
}

/** The policy slots. Nearest is that each slot's maps are in their place. */
export class SlotAudit implements ContentAudit {
  readonly #options: SlotAuditOptions;

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
      if (pace.due()) await pace.yieldNow();
    }
    return found;
  }

  async *pass(): AsyncGenerator<readonly Difference[], void> {
    const { slots, settled, pace } = this.#options;
    pace.restart();
    let found: Difference[] = [];
    for (const slot of slots.numbers()) {
      const problem = await slots.fault(slot);
      if (problem !== undefined && settled(slot)) found.push({ of: String(slot), problem });
      if (!pace.due()) continue;
      yield found;
      found = [];
      pace.restart();
    }
    yield found;
  }

  async problem(slot: string): Promise<string | undefined> {
    return this.#options.slots.fault(Number(slot));
  }
}
