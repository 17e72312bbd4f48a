import { keys, type StateDB } from '@weir/statedb';
import type { DnsName, NameGone } from './protocol.ts';
import type { FqdnRow, FqdnTable } from './types.ts';

/** Names that endpoints have looked up, as the proxy tells them: table `fqdnNames`. */
export class KnownNames {
  readonly table: FqdnTable;
  readonly #db: StateDB;
  /** Keys of those told since the last connect, until all were. */
  #told: Set<string> | undefined;

  constructor(db: StateDB) {
    this.#db = db;
    this.table = db.table<FqdnRow, 'endpoint' | 'address'>({
      name: 'fqdnNames',
      key: ({ endpoint, name, address }) => keyOf(endpoint, name, address),
      indexes: [
        { name: 'endpoint', keys: ({ endpoint }) => [String(endpoint)] },
        { name: 'address', keys: ({ address }) => [address] },
      ],
    });
  }

  /** The proxy tells all that it has: what it does not is gone. */
  begin(): void {
    this.#told = new Set();
  }

  put({ type: _, ...row }: DnsName): void {
    this.#told?.add(this.table.spec.key(row));
    this.#db.write([this.table], (txn) => void txn.upsert(this.table, row));
  }

  delete({ endpoint, name, address }: NameGone): void {
    this.#db.write([this.table], (txn) => void txn.delete(this.table, keyOf(endpoint, name, address)));
  }

  complete(): void {
    const told = this.#told;
    this.#told = undefined;
    if (told === undefined) return;
    this.#db.write([this.table], (txn) => {
      const gone = [...txn.all(this.table)].map((row) => this.table.spec.key(row)).filter((key) => !told.has(key));
      for (const key of gone) txn.delete(this.table, key);
    });
  }
}

function keyOf(endpoint: number, name: string, address: string): string {
  return keys.join(String(endpoint), name, address);
}
