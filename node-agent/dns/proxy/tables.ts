/** What the proxy keeps: what the agent said, and the names that it has seen. All of it is in the state folder, too (`store.ts`). */
import { HostNames } from '@weir/policy';
import { keys, type StateDB, type Table } from '@weir/statedb';

/** Rules that a verdict of the kernel names. */
export interface Listener {
  readonly listener: number;
  readonly names: readonly string[];
  /** Of these names. */
  readonly patterns: HostNames<true>;
}

export function listenerOf(listener: number, names: readonly string[]): Listener {
  const patterns = new HostNames<true>();
  for (const name of names) patterns.add(name, true);
  return { listener, names, patterns };
}

export interface ProxyEndpoint {
  readonly endpoint: number;
  readonly addresses: readonly string[];
}

export interface Selector {
  readonly selector: number;
  readonly pattern: string;
}

/** Of addresses whose names are of exactly these selectors, ascending. */
export interface NamesIdentity {
  readonly identity: number;
  readonly selectors: readonly number[];
}

/** An answer gave an endpoint this address of a name. */
export interface NameRow {
  readonly endpoint: number;
  readonly name: string;
  readonly address: string;
  /** Milliseconds of the epoch. */
  readonly seen: number;
  readonly expires: number;
  /** Seconds, of the last answer. */
  readonly ttl: number;
}

/** A name that an endpoint has addresses of. */
export interface HostRow {
  readonly name: string;
  /** Those whose patterns are of the name, ascending. */
  readonly selectors: readonly number[];
}

/** An address with names of selectors, and its row in the kernel. */
export interface AddressRow {
  readonly address: string;
  /** Ascending, each with how many of the address's names are of it. */
  readonly selectors: readonly SelectorCount[];
  /** What the kernel has; undefined: no row. */
  readonly identity: number | undefined;
  /** Its identity is of exactly its selectors. */
  readonly exact: boolean;
}

export interface SelectorCount {
  readonly selector: number;
  readonly names: number;
}

/** How many rows of names an endpoint has. */
export interface UseRow {
  readonly endpoint: number;
  readonly names: number;
}

export interface ProxyTables {
  readonly listeners: Table<Listener, never>;
  readonly endpoints: Table<ProxyEndpoint, 'address'>;
  readonly selectors: Table<Selector, never>;
  readonly identities: Table<NamesIdentity, 'set' | 'selector'>;
  readonly names: Table<NameRow, 'expires' | 'seen'>;
  readonly hosts: Table<HostRow, never>;
  readonly addresses: Table<AddressRow, 'identity' | 'lacking'>;
  readonly uses: Table<UseRow, 'most'>;
}

const MOST = 0xffff_ffff;

export const numberKey = (value: number): string => keys.uint(value, 32);
export const timeKey = (ms: number): string => keys.uint(Math.max(0, Math.floor(ms)), 64);
export const setKey = (selectors: readonly number[]): string => selectors.join(',');
export const nameKey = ({ endpoint, name, address }: Pick<NameRow, 'endpoint' | 'name' | 'address'>): string =>
  keys.join(name, numberKey(endpoint), address);

/** Labels from the last to the first, so that names below one domain stand together: `com.example.`. */
export function suffixKey(name: string): string {
  return name === '' ? '' : `${name.split('.').reverse().join('.')}.`;
}

export function createTables(db: StateDB): ProxyTables {
  return {
    listeners: db.table({ name: 'listeners', key: ({ listener }: Listener) => numberKey(listener) }),
    endpoints: db.table({
      name: 'endpoints',
      key: ({ endpoint }: ProxyEndpoint) => numberKey(endpoint),
      indexes: [{ name: 'address', keys: ({ addresses }) => addresses }],
    }),
    selectors: db.table({ name: 'selectors', key: ({ selector }: Selector) => numberKey(selector) }),
    identities: db.table({
      name: 'identities',
      key: ({ identity }: NamesIdentity) => numberKey(identity),
      indexes: [
        { name: 'set', keys: ({ selectors }) => [setKey(selectors)] },
        { name: 'selector', keys: ({ selectors }) => selectors.map(numberKey) },
      ],
    }),
    names: db.table({
      name: 'names',
      key: nameKey as (row: NameRow) => string,
      indexes: [
        { name: 'expires', keys: ({ expires }) => [timeKey(expires)] },
        { name: 'seen', keys: ({ endpoint, seen }) => [keys.join(numberKey(endpoint), timeKey(seen))] },
      ],
      equals: (a, b) => a.seen === b.seen && a.expires === b.expires && a.ttl === b.ttl,
    }),
    // Names below one domain stand together.
    hosts: db.table({ name: 'hosts', key: ({ name }: HostRow) => suffixKey(name) }),
    addresses: db.table({
      name: 'addresses',
      key: ({ address }: AddressRow) => address,
      indexes: [
        { name: 'identity', keys: ({ identity }) => (identity === undefined ? [] : [numberKey(identity)]) },
        {
          name: 'lacking',
          keys: ({ selectors, exact }) => (exact ? [] : selectors.map(({ selector }) => numberKey(selector))),
        },
      ],
    }),
    uses: db.table({
      name: 'uses',
      key: ({ endpoint }: UseRow) => numberKey(endpoint),
      indexes: [{ name: 'most', keys: ({ names }) => [numberKey(MOST - names)] }],
    }),
  };
}
