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

/** Identities that came, went, or mean something else. */
export interface ChangedCidrs {
  readonly all: ReadonlySet<number>;
  /** That are or were an API server's. */
  readonly servers: ReadonlySet<number>;
}

/**
 * The CIDR identities that slots tell apart, as of the plan under way: those that rules or API servers' addresses need, and those on their way
 * out, by which packets are judged until their address is gone from the kernel.
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

  /** Looks at the prefixes whose claims have changed. */
  async settle(): Promise<ChangedCidrs> {
    const { ipcache, pace } = this.#options;
    const gone: CidrPeer[] = [];
    const found: CidrPeer[] = [];
    for (const prefix of this.#left.union(ipcache.dirty)) {
      if (pace.due()) await pace.breathe();
      const [before] = this.#rows.list('prefix', prefixKey(prefix));
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
    const changed = [...gone, ...found];
    const ids = (peers: readonly CidrPeer[]): ReadonlySet<number> => new Set(peers.map(({ id }) => id));
    return { all: ids(changed), servers: ids(changed.filter(({ kubeApiserver }) => kubeApiserver === true)) };
  }

  /** To be called once nothing more claims, or ceases to, in the plan under way: those on their way out are gone with the next. Whether there are any. */
  leave(): boolean {
    for (const [, prefix] of this.#options.ipcache.leaving()) this.#left.add(prefix);
    return this.#left.size > 0;
  }
}
