import { RESERVED_ID } from '@weir/identity';
import { maskPrefix, parsePrefix } from '@weir/net';
import { keys, query, type StateDB } from '@weir/statedb';
import type { CidrPeer, IpcacheDeriver } from './ipcache.ts';
import type { Pace } from './pace.ts';
import { prefixKey } from './prefixes.ts';
import { Rows, type RowsView } from './working.ts';

export interface CidrPeersOptions {
  readonly db: StateDB;
  readonly ipcache: Pick<IpcacheDeriver, 'cidrPeer' | 'leaving' | 'dirty'>;
  readonly pace: Pace;
}

/** Where no CIDR is around an address. */
const WORLD = { 4: RESERVED_ID.world, 6: RESERVED_ID['world-ipv6'] } as const;

/**
 * The CIDR identities of the plan under way: those that rules or API servers' addresses need, and those on their way out, which addresses have
 * until they are gone from the kernel. A slot names those of its own rules, and API servers'.
 */
export class CidrPeers {
  readonly #options: CidrPeersOptions;
  readonly #rows: Rows<number, CidrPeer>;
  /** On their way out in the last plan. */
  readonly #left = new Set<string>();

  constructor(options: CidrPeersOptions) {
    this.#options = options;
    this.#rows = new Rows<number, CidrPeer>(
      options.db,
      {
        name: 'cidrPeers',
        key: ({ id }) => keys.uint(id, 32),
        indexes: [
          { name: 'prefix', kind: 'lpm', unique: true, keys: ({ cidr }) => [prefixKey(cidr)] },
          { name: 'apiserver', keys: ({ kubeApiserver }) => (kubeApiserver === true ? [''] : []) },
        ],
      },
      (id) => keys.uint(id, 32),
    );
  }

  get rows(): RowsView<number, CidrPeer> {
    return this.#rows;
  }

  /** Those of API servers' addresses. */
  servers(): Iterable<CidrPeer> {
    return this.#rows.list('apiserver', '');
  }

  /** Those of the prefix, and of what is within it. */
  within(prefix: string): Iterable<CidrPeer> {
    return this.#rows.select(query.covered(this.#rows.table, 'prefix', prefixKey(prefix)));
  }

  /** The prefix's own. */
  of(prefix: string): CidrPeer | undefined {
    const [peer] = this.#rows.list('prefix', prefixKey(prefix));
    return peer;
  }

  /** The identity that the addresses would have without this one: of the next shorter CIDR around it, or the world's. See `Around`. */
  around(id: number): number {
    const cidr = this.#rows.get(id)?.cidr;
    if (cidr === undefined) return WORLD[4];
    const { family, bytes, bits } = parsePrefix(cidr);
    const shorter = keys.prefix(maskPrefix(family, bytes, bits - 1).bytes, bits - 1);
    const [peer] = this.#rows.select(query.lookup(this.#rows.table, 'prefix', shorter));
    return peer?.id ?? WORLD[family];
  }

  /** Looks at the prefixes whose claims have changed. Returns the identities that are or were an API server's. */
  async settle(): Promise<ReadonlySet<number>> {
    const { ipcache, pace } = this.#options;
    const gone: CidrPeer[] = [];
    const found: CidrPeer[] = [];
    for (const prefix of this.#left.union(ipcache.dirty)) {
      if (pace.due()) await pace.yieldNow();
      const before = this.of(prefix);
      const peer = ipcache.cidrPeer(prefix);
      if (before?.id === peer?.id && before?.kubeApiserver === peer?.kubeApiserver) continue;
      if (before !== undefined) gone.push(before);
      if (peer !== undefined) found.push(peer);
    }
    this.#left.clear();
    const { table, keyOf } = this.#rows;
    this.#rows.write((txn) => {
      for (const { id } of gone) txn.delete(table, keyOf(id));
      for (const peer of found) txn.upsert(table, peer);
    });
    return new Set([...gone, ...found].flatMap(({ id, kubeApiserver }) => (kubeApiserver === true ? [id] : [])));
  }

  /** Call it once nothing more claims, or ceases to, in the plan under way: those on their way out are gone with the next. Whether there are any. */
  leave(): boolean {
    for (const [, prefix] of this.#options.ipcache.leaving()) this.#left.add(prefix);
    return this.#left.size > 0;
  }
}
