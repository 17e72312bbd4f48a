import { CLUSTER_FIRST, isLocalCidr, isNode, plainNode } from '@weir/identity';
import { keys, query, type StateDB } from '@weir/statedb';
import type { IpcacheRow } from '../tables.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { Pace } from './pace.ts';
import { isAddress, prefixKey } from './prefixes.ts';
import { Rows } from './working.ts';

/** What a plan changes of the ipcache. */
export interface AddressChanges {
  readonly upserts: readonly IpcacheRow[];
  readonly deletes: readonly string[];
  /** Those of `deletes` that are no CIDRs, as they are once they are gone: of what is around them. */
  readonly leaving: readonly IpcacheRow[];
  /** By prefix of an upsert that gives it another identity: the one that it had. */
  readonly from: ReadonlyMap<string, number>;
  /** Identities that some address goes from and to, by upserts and by deletes. */
  readonly moved: readonly Move[];
  readonly movedByDelete: readonly Move[];
}
export type Move = readonly [from: number, to: number];

interface Address {
  readonly prefix: string;
  readonly identity: number;
  /** Absent of what was found in the kernel, until a plan has looked at it. */
  readonly row?: IpcacheRow;
}

export interface AddressesOptions {
  readonly db: StateDB;
  readonly ipcache: Pick<IpcacheDeriver, 'row' | 'dirty'>;
  readonly pace: Pace;
}

/** The ipcache as the kernel has it once the current plan is carried out. */
export class Addresses {
  readonly #options: AddressesOptions;
  readonly #rows: Rows<string, Address>;

  constructor(options: AddressesOptions) {
    this.#options = options;
    this.#rows = new Rows<string, Address>(
      options.db,
      {
        name: 'addresses',
        key: ({ prefix }) => prefix,
        indexes: [
          // Single addresses, which are most of them, contain no other prefix.
          { name: 'around', kind: 'lpm', keys: ({ prefix }) => (isAddress(prefix) ? [] : [prefixKey(prefix)]) },
          { name: 'identity', keys: ({ identity }) => [keys.uint(identity, 32)] },
        ],
      },
      (prefix) => prefix,
    );
  }

  get size(): number {
    return this.#rows.size;
  }

  /** Takes over what the kernel holds. */
  adopt(found: Iterable<readonly [prefix: string, identity: number]>): void {
    const { table } = this.#rows;
    this.#rows.write((txn) => {
      for (const [prefix, identity] of found) {
        txn.upsert(table, { prefix, identity });
        this.#options.ipcache.dirty.add(prefix);
      }
    });
  }

  /** Whether some address has the identity. */
  has(identity: number): boolean {
    const [some] = this.#rows.list('identity', keys.uint(identity, 32));
    return some !== undefined;
  }

  /** The kernel gets this identity for the prefix, before a plan has looked at it. */
  put(prefix: string, identity: number): void {
    this.#rows.set({ prefix, identity });
    this.#options.ipcache.dirty.add(prefix);
  }

  /**
   * Computes what must change, except for addresses whose new identity is in `wait`. The result counts as current from then on.
   * @param rules rules are known. Else those stay in force that were found, and they know only the identities that addresses had: an address
   *   keeps the identity that it was found with, or has a reserved one, or is unknown; any other would escape their denies. CIDRs that nothing
   *   explains stay, as those rules may name them.
   */
  async settle(wait: ReadonlySet<number>, rules: boolean): Promise<AddressChanges> {
    const { ipcache, pace } = this.#options;
    const upserts: IpcacheRow[] = [];
    const gone: Address[] = [];
    const waiting: string[] = [];
    const moved = new Moves();
    const from = new Map<string, number>();
    for (const prefix of ipcache.dirty) {
      if (pace.due()) await pace.yieldNow();
      const claimed = ipcache.row(prefix);
      const there = this.#rows.get(prefix);
      const found = there?.identity ?? 0;
      const known =
        rules ||
        claimed === undefined ||
        (claimed.identity < CLUSTER_FIRST && !isNode(found)) ||
        claimed.identity === found;
      // A node has a number of its own by rules that are not known yet.
      const row = known ? claimed : { ...claimed, identity: plainNode(claimed.identity) === found ? found : 0 };
      if (!known) waiting.push(prefix);
      if (row === undefined) {
        if (there !== undefined && !rules && isLocalCidr(there.identity)) waiting.push(prefix);
        else if (there !== undefined) gone.push(there);
        continue;
      }
      const moves = row.identity !== there?.identity;
      if (moves && wait.has(row.identity)) {
        waiting.push(prefix);
        continue;
      }
      if (there?.row !== undefined && !moves && there.row.node === row.node && there.row.source === row.source)
        continue;
      upserts.push(row);
      if (!moves) continue;
      const before = there?.identity ?? this.#around(prefix);
      moved.add(before, row.identity);
      from.set(prefix, before);
    }
    ipcache.dirty.clear();
    for (const prefix of waiting) ipcache.dirty.add(prefix);
    for (const row of upserts) {
      if (pace.due()) await pace.yieldNow();
      this.#rows.set({ prefix: row.prefix, identity: row.identity, row });
    }
    for (const { prefix } of gone) {
      if (pace.due()) await pace.yieldNow();
      this.#rows.delete(prefix);
    }
    const movedByDelete = new Moves();
    const leaving: IpcacheRow[] = [];
    for (const { prefix, identity, row } of gone) {
      if (pace.due()) await pace.yieldNow();
      const around = this.#around(prefix);
      movedByDelete.add(identity, around);
      if (around !== identity && !isLocalCidr(identity))
        leaving.push({ prefix, identity: around, source: row?.source ?? 'endpoint' });
    }
    const deletes = gone.map(({ prefix }) => prefix);
    return { upserts, deletes, leaving, from, moved: moved.list(), movedByDelete: movedByDelete.list() };
  }

  /** Identity of the longest prefix that contains this one, which has no row: as the kernel's trie answers. 0 when there is none. */
  #around(prefix: string): number {
    const [found] = this.#rows.select(query.lookup(this.#rows.table, 'around', prefixKey(prefix)));
    return found?.identity ?? 0;
  }
}

/** Many addresses move between few identities: each pair is looked at once. */
class Moves {
  readonly #pairs = new Map<string, Move>();

  add(from: number, to: number): void {
    if (from !== to) this.#pairs.set(`${from}>${to}`, [from, to]);
  }

  list(): Move[] {
    return [...this.#pairs.values()];
  }
}
