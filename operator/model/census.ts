/** How many pods of each identity are on each node. */
import { keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { identityKey } from './known-identities.ts';

/** A pod that has an identity and an address. */
export interface Resident {
  readonly identity: number;
  /** undefined: no node is known. */
  readonly node: string | undefined;
  /** Being deleted: it may run for a while, or be gone from its node already. */
  readonly leaving: boolean;
}

export interface Count {
  readonly staying: number;
  readonly leaving: number;
}

/** Pods of one identity on one node; the node '' is no known one. */
interface Residents extends Count {
  readonly identity: number;
  readonly node: string;
}

export interface CensusOptions {
  /** A pod has come (`by` 1) or gone (-1). */
  readonly onChange: (txn: WriteTxn, resident: Resident, by: 1 | -1) => void;
  /** The first pod of the identity has come, or the last has gone. */
  readonly onPresence: (txn: WriteTxn, identity: number) => void;
}

export class Census {
  readonly #residents: Table<Residents>;
  readonly #options: CensusOptions;

  constructor(db: StateDB, options: CensusOptions) {
    this.#options = options;
    this.#residents = db.table<Residents>({
      name: 'residents',
      key: ({ identity, node }) => keys.join(identityKey(identity), node),
    });
  }

  get tables(): readonly Table<Residents>[] {
    return [this.#residents];
  }

  move(txn: WriteTxn, before: Resident | undefined, after: Resident | undefined): void {
    const same =
      before?.identity === after?.identity && before?.node === after?.node && before?.leaving === after?.leaving;
    if (same) return;
    const identities = new Set([before, after].flatMap((resident) => resident?.identity ?? []));
    const present = [...identities].filter((identity) => this.has(txn, identity));
    this.#add(txn, before, -1);
    this.#add(txn, after, 1);
    for (const identity of identities) {
      if (this.has(txn, identity) !== present.includes(identity)) this.#options.onPresence(txn, identity);
    }
  }

  /** Pods of an identity by node. */
  *of(reader: Reader, identity: number): Generator<readonly [node: string, count: Count]> {
    for (const residents of this.#of(reader, identity)) {
      if (residents.node !== '') yield [residents.node, residents];
    }
  }

  has(reader: Reader, identity: number): boolean {
    for (const _ of this.#of(reader, identity)) return true;
    return false;
  }

  /** In how many places, each of one identity and one node, there are pods. */
  places(reader: Reader): number {
    return reader.count(this.#residents);
  }

  #of(reader: Reader, identity: number): Iterable<Residents> {
    return reader.prefix(this.#residents, keys.join(identityKey(identity)));
  }

  #add(txn: WriteTxn, resident: Resident | undefined, by: 1 | -1): void {
    if (resident === undefined) return;
    const { identity, node = '' } = resident;
    const none = { identity, node, staying: 0, leaving: 0 };
    const key = this.#residents.spec.key(none);
    const known = txn.get(this.#residents, key) ?? none;
    const counted = resident.leaving
      ? { ...known, leaving: known.leaving + by }
      : { ...known, staying: known.staying + by };
    if (counted.staying + counted.leaving === 0) txn.delete(this.#residents, key);
    else txn.upsert(this.#residents, counted);
    this.#options.onChange(txn, resident, by);
  }
}
