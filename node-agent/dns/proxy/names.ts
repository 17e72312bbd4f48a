/**
 * Names of addresses, as answers gave them to endpoints, and the rows of the kernel that follow from them.
 *
 * Guarantees: an address has a row exactly while a name of it lives that a selector is of, and `AddressRows` says which. A name lives until its time is over,
 * and then while its endpoint has a connection to the address. What exceeds a limit goes at once, the least recently seen first, and of the endpoint that is
 * over its own limit, or, when all endpoints together are, that has most.
 */
import { fixedSuffix, HostNames } from '@weir/policy';
import type { StateDB, WriteTxn } from '@weir/statedb';
import { keys } from '@weir/statedb';
import type { DnsName, NameGone } from '../protocol.ts';
import { AddressRows, type Rows } from './address-rows.ts';
import type { AnswerAddress } from './message.ts';
import { type NameRow, nameKey, numberKey, type ProxyTables, setKey, suffixKey, timeKey } from './tables.ts';

export interface NamesOptions {
  readonly db: StateDB;
  readonly tables: ProxyTables;
  readonly rows: Rows;
  /** Told of changes, in their order, once the kernel has what follows from them. */
  readonly tell: (changes: readonly (DnsName | NameGone)[]) => void;
  /** Told of an answer that has more addresses than a name may have: the rest stays closed. */
  readonly onCut: () => void;
  /** Told of an address whose selectors have no identity of exactly them any more, or not yet (`lacking`). */
  readonly onLacking: (address: string) => void;
  /** Seconds that an answer's time is at least. */
  readonly minTtl: number;
  /** Addresses of one name of one endpoint. */
  readonly mostAddresses: number;
  /** Addresses of all names of one endpoint, and of all endpoints. */
  readonly mostOfEndpoint: number;
  readonly mostInAll: number;
}

/** An answer takes its time until it is used: a name whose time is over stays for so many milliseconds. */
export const GRACE_MS = 5000;

export class Names {
  readonly #options: NamesOptions;
  readonly #addresses: AddressRows;
  readonly #selectors = new HostNames<number>();

  constructor(options: NamesOptions) {
    this.#options = options;
    this.#addresses = new AddressRows(options.tables, options.rows, options.onLacking);
  }

  /**
   * Takes what an answer says.
   * @returns the addresses that now have names of selectors, and an identity of exactly these or not
   */
  learn(endpoint: number, name: string, answer: readonly AnswerAddress[], now: number): readonly string[] {
    const { tables, minTtl, mostAddresses, onCut } = this.#options;
    if (answer.length > mostAddresses) onCut();
    const rows = answer.slice(0, mostAddresses).map(({ address, ttl }): NameRow => {
      // In whole seconds: a name that is asked for all the time is written once a second.
      const expires = 1000 * Math.ceil(now / 1000 + Math.max(ttl, minTtl));
      return { endpoint, name, address, seen: 1000 * Math.floor(now / 1000), expires, ttl };
    });
    this.#write((txn, changes) => {
      let isMore = false;
      for (const row of rows) {
        const before = txn.get(tables.names, nameKey(row));
        isMore ||= before === undefined;
        const after = { ...row, expires: Math.max(row.expires, before?.expires ?? 0) };
        if (before?.expires === after.expires && before.seen === after.seen) continue;
        changes.push({ type: 'name', ...after });
        this.#put(txn, after);
      }
      if (isMore) this.#limit(txn, changes, endpoint, name);
    });
    return rows.map(({ address }) => address);
  }

  /** A name that was there before a restart: it is told to nobody. */
  restore(row: NameRow): void {
    this.#options.db.write(this.#all, (txn) => this.#put(txn, row));
  }

  /** Takes one away: also of one that is not there. */
  remove(row: Pick<NameRow, 'endpoint' | 'name' | 'address'>, why: NameGone['why']): void {
    this.#write((txn, changes) => this.#remove(txn, changes, row, why));
  }

  /** Takes away a name whose time is over, if it is what it was. */
  expire(row: NameRow): void {
    this.#write((txn, changes) => {
      if (txn.get(this.#options.tables.names, nameKey(row))?.expires === row.expires)
        this.#remove(txn, changes, row, 'expired');
    });
  }

  /** Names whose time was over for a while at this instant. */
  *over(now: number): Generator<NameRow> {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    yield* snapshot.range(tables.names, timeKey(0), timeKey(now - GRACE_MS), 'expires');
  }

  /** Changes what a selector is of: undefined is a selector no more. Yields between names. */
  *select(selector: number, pattern: string | undefined): Generator<void> {
    const { db, tables } = this.#options;
    const known = this.#patternOf(selector);
    if (known === pattern) return;
    if (known !== undefined) this.#selectors.delete(known, selector);
    if (pattern !== undefined) this.#selectors.add(pattern, selector);
    db.write([tables.selectors], (txn) => {
      if (pattern === undefined) txn.delete(tables.selectors, numberKey(selector));
      else txn.upsert(tables.selectors, { selector, pattern });
    });
    for (const each of [known, pattern]) {
      if (each === undefined) continue;
      for (const name of this.#below(each)) {
        this.#match(name);
        yield;
      }
    }
  }

  /** Gives selectors an identity, or takes it from them. Yields between addresses. */
  *identify(identity: number, selectors: readonly number[] | undefined): Generator<void> {
    const { db, tables } = this.#options;
    const key = numberKey(identity);
    db.write([tables.identities], (txn) => {
      if (selectors === undefined || selectors.length === 0) txn.delete(tables.identities, key);
      else txn.upsert(tables.identities, { identity, selectors });
    });
    using after = db.read();
    const [first] = selectors ?? [];
    const touched = [
      after.list(tables.addresses, 'identity', key),
      first === undefined ? [] : after.list(tables.addresses, 'lacking', numberKey(first)),
    ];
    for (const rows of touched) {
      for (const { address } of rows) {
        db.write(this.#all, (txn) => {
          const row = txn.get(tables.addresses, address);
          if (row !== undefined) this.#addresses.settle(txn, row);
        });
        yield;
      }
    }
  }

  /** Forgets names of a pattern. Yields between names. */
  *forget(pattern: string): Generator<void> {
    const { db, tables } = this.#options;
    const patterns = new HostNames<true>();
    patterns.add(pattern, true);
    for (const name of this.#below(pattern)) {
      if (!patterns.has(name)) continue;
      using snapshot = db.read();
      for (const row of snapshot.prefix(tables.names, keys.join(name))) this.remove(row, 'forgotten');
      yield;
    }
  }

  /** Forgets names of an endpoint that is gone. Yields between names. */
  *forgetEndpoint(endpoint: number): Generator<void> {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    for (const row of snapshot.prefix(tables.names, keys.join(numberKey(endpoint)), 'seen')) {
      this.remove(row, 'forgotten');
      yield;
    }
  }

  /** Of these addresses the sets of selectors that no identity is of exactly. (One that has no place in the kernel may have an identity.) */
  lacking(addresses: readonly string[]): readonly (readonly number[])[] {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    const sets = new Map<string, readonly number[]>();
    for (const address of addresses) {
      const row = snapshot.get(tables.addresses, address);
      if (row === undefined || row.exact) continue;
      const selectors = row.selectors.map(({ selector }) => selector);
      const key = setKey(selectors);
      if (isEmpty(snapshot.list(tables.identities, 'set', key))) sets.set(key, selectors);
    }
    return [...sets.values()];
  }

  /** All sets of selectors that an address has, and no identity is of exactly. */
  allLacking(): readonly (readonly number[])[] {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    return this.lacking(Array.from(snapshot.prefix(tables.addresses, '', 'lacking'), ({ address }) => address));
  }

  /** All names, of the instant at which the first is read. */
  *all(): Generator<NameRow> {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    yield* snapshot.all(tables.names);
  }

  #patternOf(selector: number): string | undefined {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.#options.tables.selectors, numberKey(selector))?.pattern;
  }

  get #all() {
    const { names, hosts, addresses, uses } = this.#options.tables;
    return [names, hosts, addresses, uses];
  }

  #write(body: (txn: WriteTxn, changes: (DnsName | NameGone)[]) => void): void {
    const changes: (DnsName | NameGone)[] = [];
    this.#options.db.write(this.#all, (txn) => body(txn, changes));
    if (changes.length > 0) this.#options.tell(changes);
  }

  #put(txn: WriteTxn, row: NameRow): void {
    const { tables } = this.#options;
    if (txn.upsert(tables.names, row) !== undefined) {
      this.#again(txn, row.address);
      return;
    }
    const host = txn.get(tables.hosts, suffixKey(row.name)) ?? { name: row.name, selectors: this.#of(row.name) };
    txn.upsert(tables.hosts, host);
    this.#use(txn, row.endpoint, 1);
    this.#addresses.count(txn, row.address, host.selectors, 1);
  }

  /** The kernel may have a place now. */
  #again(txn: WriteTxn, address: string): void {
    const row = txn.get(this.#options.tables.addresses, address);
    if (row?.exact === false) this.#addresses.settle(txn, row);
  }

  #remove(
    txn: WriteTxn,
    changes: (DnsName | NameGone)[],
    { endpoint, name, address }: Pick<NameRow, 'endpoint' | 'name' | 'address'>,
    why: NameGone['why'],
  ): void {
    const { tables } = this.#options;
    if (txn.delete(tables.names, nameKey({ endpoint, name, address })) === undefined) return;
    changes.push({ type: 'name-gone', endpoint, name, address, why });
    this.#use(txn, endpoint, -1);
    const host = txn.get(tables.hosts, suffixKey(name));
    if (host === undefined) return;
    this.#addresses.count(txn, address, host.selectors, -1);
    if (isEmpty(txn.prefix(tables.names, keys.join(name)))) txn.delete(tables.hosts, suffixKey(name));
  }

  #use(txn: WriteTxn, endpoint: number, by: 1 | -1): void {
    const { uses } = this.#options.tables;
    const names = (txn.get(uses, numberKey(endpoint))?.names ?? 0) + by;
    if (names === 0) txn.delete(uses, numberKey(endpoint));
    else txn.upsert(uses, { endpoint, names });
  }

  #limit(txn: WriteTxn, changes: (DnsName | NameGone)[], endpoint: number, name: string): void {
    const { tables, mostAddresses, mostOfEndpoint, mostInAll } = this.#options;
    const of = Array.from(txn.prefix(tables.names, keys.join(name, numberKey(endpoint))));
    if (of.length > mostAddresses) {
      of.sort((one, other) => one.seen - other.seen || one.expires - other.expires);
      for (const row of of.slice(0, of.length - mostAddresses)) this.#remove(txn, changes, row, 'evicted');
    }
    while ((txn.get(tables.uses, numberKey(endpoint))?.names ?? 0) > mostOfEndpoint)
      this.#evict(txn, changes, endpoint);
    while (txn.count(tables.names) > mostInAll) {
      const [most] = txn.prefix(tables.uses, '', 'most');
      if (most === undefined) return;
      this.#evict(txn, changes, most.endpoint);
    }
  }

  #evict(txn: WriteTxn, changes: (DnsName | NameGone)[], endpoint: number): void {
    for (const row of txn.prefix(this.#options.tables.names, keys.join(numberKey(endpoint)), 'seen')) {
      this.#remove(txn, changes, row, 'evicted');
      return;
    }
  }

  #of(name: string): readonly number[] {
    return [...new Set(this.#selectors.of(name))].sort((one, other) => one - other);
  }

  /** A name's selectors are others: so are those of its addresses. */
  #match(name: string): void {
    const { db, tables } = this.#options;
    db.write(this.#all, (txn) => {
      const host = txn.get(tables.hosts, suffixKey(name));
      if (host === undefined) return;
      const selectors = this.#of(name);
      const added = selectors.filter((selector) => !host.selectors.includes(selector));
      const gone = host.selectors.filter((selector) => !selectors.includes(selector));
      if (added.length + gone.length === 0) return;
      txn.upsert(tables.hosts, { name, selectors });
      for (const { address } of txn.prefix(tables.names, keys.join(name))) {
        // First: an address that keeps a selector keeps a row.
        this.#addresses.count(txn, address, added, 1);
        this.#addresses.count(txn, address, gone, -1);
      }
    });
  }

  /** Names that a pattern may be of. */
  *#below(pattern: string): Generator<string> {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    if (pattern.includes('*')) {
      for (const { name } of snapshot.prefix(tables.hosts, suffixKey(fixedSuffix(pattern)))) yield name;
    } else if (snapshot.has(tables.hosts, suffixKey(pattern))) yield pattern;
  }
}

function isEmpty(rows: Iterable<unknown>): boolean {
  return rows[Symbol.iterator]().next().done === true;
}
