import type { IpcacheRow } from '../tables.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { Pace } from './pace.ts';
import { PrefixIdentities } from './prefixes.ts';

/** What a plan changes of the ipcache. */
export interface AddressChanges {
  readonly upserts: readonly IpcacheRow[];
  readonly deletes: readonly string[];
  /** Identities that some address goes from and to, by upserts and by deletes. */
  readonly moved: readonly Move[];
  readonly movedByDelete: readonly Move[];
}
export type Move = readonly [from: number, to: number];

/** The ipcache as the kernel has it once the current plan is carried out. */
export class Addresses {
  readonly #ipcache: IpcacheDeriver;
  readonly #pace: Pace;
  readonly #rows = new Map<string, IpcacheRow>();
  readonly #current = new PrefixIdentities();
  readonly #counts = new Map<number, number>();

  constructor(ipcache: IpcacheDeriver, pace: Pace) {
    this.#ipcache = ipcache;
    this.#pace = pace;
  }

  get size(): number {
    return this.#current.size;
  }

  /** Takes over what the kernel holds. */
  adopt(prefix: string, identity: number): void {
    this.#current.set(prefix, identity);
    this.#count(identity, 1);
    this.#ipcache.dirty.add(prefix);
  }

  /** Whether some address has the identity. */
  has(identity: number): boolean {
    return (this.#counts.get(identity) ?? 0) > 0;
  }

  /** Concludes what must change, but for addresses that are to get the identities in `wait`; it counts as current from then on. */
  async settle(wait: ReadonlySet<number>): Promise<AddressChanges> {
    const pace = this.#pace;
    const upserts: IpcacheRow[] = [];
    const deletes: string[] = [];
    const before = new Map<string, number>();
    const waiting: string[] = [];
    for (const prefix of this.#ipcache.dirty) {
      if (pace.due()) await pace.breathe();
      const row = this.#ipcache.row(prefix);
      const had = this.#rows.get(prefix);
      const kernel = this.#current.get(prefix);
      if (row && row.identity !== kernel && wait.has(row.identity)) {
        waiting.push(prefix);
        continue;
      }
      if (row === undefined) {
        if (kernel === undefined && had === undefined) continue;
        deletes.push(prefix);
      } else {
        if (had && had.identity === row.identity && had.node === row.node && had.source === row.source) continue;
        upserts.push(row);
      }
      if (row?.identity !== kernel) before.set(prefix, this.#current.match(prefix));
    }
    this.#ipcache.dirty.clear();
    for (const prefix of waiting) this.#ipcache.dirty.add(prefix);
    for (const row of upserts) {
      if (pace.due()) await pace.breathe();
      this.#rows.set(row.prefix, row);
      const had = this.#current.get(row.prefix);
      if (had !== undefined) this.#count(had, -1);
      this.#current.set(row.prefix, row.identity);
      this.#count(row.identity, 1);
    }
    for (const prefix of deletes) {
      if (pace.due()) await pace.breathe();
      this.#rows.delete(prefix);
      const had = this.#current.get(prefix);
      if (had !== undefined) this.#count(had, -1);
      this.#current.delete(prefix);
    }
    // Many addresses move between few identities: each pair is looked at once.
    const pairs = { upsert: new Map<string, Move>(), delete: new Map<string, Move>() };
    const gone = new Set(deletes);
    for (const [prefix, old] of before) {
      if (pace.due()) await pace.breathe();
      const now = this.#current.match(prefix);
      if (now !== old) pairs[gone.has(prefix) ? 'delete' : 'upsert'].set(`${old}>${now}`, [old, now]);
    }
    return { upserts, deletes, moved: [...pairs.upsert.values()], movedByDelete: [...pairs.delete.values()] };
  }

  #count(identity: number, by: number): void {
    const next = (this.#counts.get(identity) ?? 0) + by;
    if (next === 0) this.#counts.delete(identity);
    else this.#counts.set(identity, next);
  }
}
