import type { NamedAddress, PortNames, PortProtocol } from '@weir/policy';
import { type Key, keys, query, type StateDB, type WriteTxn } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';
import type { ContainerPort } from '../tables.ts';
import type { Pace } from './pace.ts';
import { hostPrefix } from './prefixes.ts';
import { Rows } from './working.ts';

/** The names that a pod gives, and the identity that its address has. */
interface Claim {
  readonly identity: number;
  readonly addresses: readonly string[];
  readonly ports: readonly ContainerPort[];
}

/** One pod's claims: what it says, what counts, and what counts only until its address has gone. */
interface Claims {
  readonly owner: string;
  readonly wanted: Claim | undefined;
  readonly counted: Claim | undefined;
  readonly leaving: readonly Claim[];
  /** What leaves counts for one more plan. */
  readonly kept: boolean;
}

/** How many pods of an identity give a name a number. */
interface GivenNumber {
  /** By `portNameKey`. */
  readonly name: string;
  readonly identity: number;
  readonly port: number;
  readonly pods: number;
}

/** Text that is equal for equal names only. */
export function portNameKey(protocol: PortProtocol, name: string): string {
  return `${protocol}/${name}`;
}

/**
 * The numbers that pods of each identity give each port name: what rules by name mean for egress. A name counts from the plan in
 * which its pod comes until the plan after the one in which the pod's address goes or gets another identity. So a number is denied
 * before an address with it is reached, and no number becomes the only one while an address with another is still there.
 *
 * Where unknown peers are judged otherwise too (a name that is denied), endpoints first move to the slot that says so: addresses
 * that come with the names wait (`hold`) for the plan after it.
 */
export class PeerPortNames {
  readonly #db: StateDB;
  readonly #pace: Pace;
  readonly #claims: Rows<string, Claims>;
  readonly #numbers: Rows<Omit<GivenNumber, 'pods'>, GivenNumber>;
  readonly #dirty = new Set<string>();
  /** Identities of pods that came with the plan under way. */
  readonly #arrived = new Set<number>();

  constructor(db: StateDB, pace: Pace) {
    this.#db = db;
    this.#pace = pace;
    const leaving = { name: 'leaving', keys: ({ leaving: claims }: Claims) => (claims.length > 0 ? [LEAVES] : []) };
    const identity = {
      name: 'identity',
      keys: ({ counted }: Claims) => (counted === undefined ? [] : [tableKey.identity(counted.identity)]),
    };
    this.#claims = new Rows(
      db,
      { name: 'portNameClaims', key: ({ owner }) => owner, indexes: [leaving, identity] },
      (owner) => owner,
    );
    this.#numbers = new Rows<Omit<GivenNumber, 'pods'>, GivenNumber>(
      db,
      {
        name: 'peerPortNumbers',
        key: numberKey,
        indexes: [{ name: 'number', keys: ({ name, port }) => [keys.join(name, keys.uint(port, 16))] }],
      },
      numberKey,
    );
  }

  /** What one pod says, by any name that is the pod's own; no ports: nothing (any more). */
  set(owner: string, identity: number, ports: readonly ContainerPort[], addresses: readonly string[]): void {
    const wanted = ports.length > 0 && identity !== 0 ? { identity, ports, addresses } : undefined;
    const before = this.#claims.get(owner);
    const same = before?.wanted?.identity === wanted?.identity && before?.wanted?.ports === wanted?.ports;
    if (same && before?.wanted?.addresses.join() === wanted?.addresses.join()) return;
    this.#claims.set({ ...(before ?? { owner, ...NOTHING }), wanted });
    this.#dirty.add(owner);
  }

  /** A plan begins: takes in what has changed. Returns the names that may mean something else now, each with the identities of which it may. */
  async settle(): Promise<ReadonlyMap<string, ReadonlySet<number>>> {
    const changed: Changed = new Map();
    this.#arrived.clear();
    for (const { owner } of this.#claims.list('leaving', LEAVES)) {
      this.#change(owner, (txn, claims) => {
        if (claims.kept) return { ...claims, kept: false };
        for (const claim of claims.leaving) this.#count(txn, claim, -1, changed);
        return { ...claims, leaving: [] };
      });
      if (this.#pace.due()) await this.#pace.yieldNow();
    }
    for (const owner of this.#dirty) {
      this.#change(owner, (txn, claims) => {
        const { wanted, counted, leaving } = claims;
        if (wanted !== undefined) this.#count(txn, wanted, 1, changed);
        if (wanted !== undefined) this.#arrived.add(wanted.identity);
        // Its numbers count on, its addresses do not.
        if (counted !== undefined) this.#count(txn, counted, 0, changed);
        return { ...claims, counted: wanted, leaving: counted === undefined ? leaving : [...leaving, counted] };
      });
      this.#dirty.delete(owner);
      if (this.#pace.due()) await this.#pace.yieldNow();
    }
    return changed;
  }

  /**
   * Addresses do not get the identities of pods that came with this plan before the next one; what leaves with them stays as long.
   * Returns those identities.
   */
  hold(): ReadonlySet<number> {
    this.#claims.write((txn) => {
      const { table } = this.#claims;
      for (const claims of txn.list(table, 'leaving', LEAVES)) txn.upsert(table, { ...claims, kept: true });
    });
    return this.#arrived;
  }

  /** Names that some pod gave and gives no more, and that the next plan is to forget. */
  *leaving(): Generator<string> {
    for (const { leaving } of this.#claims.list('leaving', LEAVES))
      for (const { ports } of leaving) for (const { protocol, name } of ports) yield portNameKey(protocol, name);
  }

  readonly of: NonNullable<PortNames['of']> = (identity, name, protocol) => {
    const key = keys.join(portNameKey(protocol, name), tableKey.identity(identity));
    return Array.from(this.#numbers.select(query.prefix(this.#numbers.table, key)), ({ port }) => port);
  };

  readonly addresses: NonNullable<PortNames['addresses']> = (name, protocol) => this.#addresses(name, protocol);

  *#addresses(name: string, protocol: PortProtocol): Generator<NamedAddress> {
    for (const [identity, numbers] of this.peers(name, protocol)) {
      if (numbers.length < 2) continue;
      for (const { counted } of this.#claims.list('identity', tableKey.identity(identity))) {
        const own = counted?.ports.find((port) => port.name === name && port.protocol === protocol);
        if (own === undefined) continue;
        for (const address of counted?.addresses ?? []) {
          const prefix = hostPrefix(address);
          if (prefix !== undefined) yield { prefix, identity, port: own.port };
        }
      }
    }
  }

  readonly every: NonNullable<PortNames['every']> = (name, protocol) => {
    const key = portNameKey(protocol, name);
    const found: number[] = [];
    const from = (port: number): GivenNumber | undefined => {
      const [next] = this.#numbers.select(
        query.lowerBound(this.#numbers.table, keys.join(key, keys.uint(port, 16)), 'number'),
      );
      return next?.name === key ? next : undefined;
    };
    // Very many identities may give the name one number.
    for (let next = from(0); next !== undefined; next = next.port === 0xffff ? undefined : from(next.port + 1))
      found.push(next.port);
    return found;
  };

  readonly peers: PortNames['peers'] = (name, protocol) => {
    const peers = new Map<number, number[]>();
    const key = keys.join(portNameKey(protocol, name));
    // Numbers of one identity follow one another, ascending.
    for (const { identity, port } of this.#numbers.select(query.prefix(this.#numbers.table, key))) {
      const known = peers.get(identity);
      if (known) known.push(port);
      else peers.set(identity, [port]);
    }
    return peers;
  };

  /** Replaces what the owner has; nothing is not kept. */
  #change(owner: string, change: (txn: WriteTxn, claims: Claims) => Claims): void {
    const { table } = this.#claims;
    this.#db.write([table, this.#numbers.table], (txn) => {
      const before = txn.get(table, owner);
      if (before === undefined) return;
      const after = change(txn, before);
      const { wanted, counted, leaving } = after;
      if (wanted === undefined && counted === undefined && leaving.length === 0) txn.delete(table, owner);
      else txn.upsert(table, after);
    });
  }

  #count(txn: WriteTxn, { identity, ports }: Claim, by: 1 | 0 | -1, changed: Changed): void {
    const { table } = this.#numbers;
    for (const { protocol, name: portName, port } of ports) {
      const name = portNameKey(protocol, portName);
      const key = { name, identity, port };
      const before = txn.get(table, numberKey(key))?.pods ?? 0;
      const pods = before + by;
      if (pods === 0) txn.delete(table, numberKey(key));
      else txn.upsert(table, { ...key, pods });
      // Of these each address counts.
      const several = [...txn.prefix(table, keys.join(name, tableKey.identity(identity)))].length > 1;
      if (pods === 0 || before === 0 || several) changed.set(name, (changed.get(name) ?? new Set()).add(identity));
    }
  }
}

/** By name, identities that give it another number than before. */
type Changed = Map<string, Set<number>>;

const NOTHING: Omit<Claims, 'owner'> = { wanted: undefined, counted: undefined, leaving: [], kept: false };
/** Index key of all claims of which something leaves. */
const LEAVES: Key = '';

function numberKey({ name, identity, port }: Omit<GivenNumber, 'pods'>): Key {
  return keys.join(name, tableKey.identity(identity), keys.uint(port, 16));
}
