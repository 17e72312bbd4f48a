/**
 * Which port names of a policy stand for nothing (ResolvedRefs, reason PortNameNotFound): the first five, found whenever its status is folded.
 *
 * Ingress asks the selected pods for the name, egress the peers. Where no pod is there to ask, nothing is missing. An identity that begins or
 * ceases to give a name wakes the policies that use it; one that comes to a set that is asked, those that ask it.
 */
import { includesSorted } from '@weir/identity';
import type { NamedPort, ResolvedRule } from '@weir/policy';
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { PodPort } from '../types.ts';
import { askedSets, EVERYONE, namedPorts, portNameKey } from './asked-names.ts';
import type { Census } from './census.ts';
import { identityKey } from './known-identities.ts';
import type { PolicyBook } from './policy-book.ts';
import type { SelectorIndex } from './selector-index.ts';

/** A name that no asked pod knows. */
export interface MissingName {
  readonly path: string;
  readonly name: string;
  /** As the rule says: `TCP`, or several. */
  readonly protocols: readonly string[];
  /** Who was asked. */
  readonly asked: 'selected pods' | 'peers';
}

export interface MissingNames {
  /** In the order of the rules. */
  readonly first: readonly MissingName[];
  /** Of egress rules, as many at most. */
  readonly ambiguous: readonly AmbiguousName[];
  /** Not all names were looked for: enough are missing, or that would take too long. */
  readonly more: boolean;
}

/** A pod that has an identity and an address, with the names that it gives ports. */
export interface Namer {
  /** `namespace/name`. */
  readonly pod: string;
  readonly identity: number;
  readonly ports: readonly PodPort[];
}

/** A name to which pods of equal labels give several numbers: they are one peer, and none of the numbers is theirs. */
export interface AmbiguousName {
  readonly path: string;
  readonly name: string;
  readonly protocol: string;
  /** Ascending, each with a pod that gives it. */
  readonly numbers: readonly { readonly number: number; readonly pod: string }[];
}

/** A pod that gives a port a name (`TCP/http`). */
interface Giver {
  readonly name: string;
  readonly identity: number;
  readonly port: number;
  readonly pod: string;
}

/** Names that a status names. */
const MOST_NAMED = 5;
/** Pods, sets and names that are looked at for one policy. Each takes about a microsecond. */
const MOST_LOOKS = 10_000;

interface Looks {
  left: number;
}

export interface PortNamesSources {
  readonly sets: SelectorIndex;
  readonly policies: PolicyBook;
  readonly census: Census;
}

export class PortNames {
  readonly #sources: PortNamesSources;
  readonly #onChange: (txn: WriteTxn, policy: string) => void;
  readonly #givers: Table<Giver>;

  /** `onChange`: the answer for this policy may have changed. */
  constructor(db: StateDB, sources: PortNamesSources, onChange: (txn: WriteTxn, policy: string) => void) {
    this.#sources = sources;
    this.#onChange = onChange;
    this.#givers = db.table<Giver>({ name: 'namedPorts', key: giverKey });
  }

  get tables(): readonly AnyTable[] {
    return [this.#givers];
  }

  move(txn: WriteTxn, before: Namer | undefined, after: Namer | undefined): void {
    if (before?.identity === after?.identity && before?.ports === after?.ports) return;
    // Before after: the same pod may give the same again.
    const names = [...this.#count(txn, before, -1), ...this.#count(txn, after, 1)];
    const policies = names.flatMap((name) => [...this.#sources.policies.usingPortName(txn, name)]);
    for (const policy of new Set(policies)) this.#onChange(txn, policy);
  }

  /** The first pod of an identity has come, or the last has gone. */
  presence(txn: WriteTxn, identity: number): void {
    const { sets, census } = this.#sources;
    sets.presence(txn, identity);
    if (census.places(txn) <= 1) this.moved(txn, EVERYONE);
  }

  /** The members of this set, or their pods, are others. */
  moved(txn: WriteTxn, hash: string): void {
    for (const policy of this.#sources.policies.asking(txn, hash)) this.#onChange(txn, policy);
  }

  missing(reader: Reader, rules: readonly ResolvedRule[]): MissingNames {
    const first: MissingName[] = [];
    const ambiguous: AmbiguousName[] = [];
    const looks = { left: MOST_LOOKS };
    for (const rule of rules) {
      const [ports, hashes] = [namedPorts(rule), askedSets(rule)];
      if (ports.length === 0 || !this.#hasSomebody(reader, rule, hashes, looks)) continue;
      const asked = rule.direction === 'ingress' ? 'selected pods' : 'peers';
      for (const [name, same] of Map.groupBy(ports, (port) => port.name)) {
        const protocols = [...new Set(same.map(({ protocol }) => protocol))];
        const isGiven = protocols.some((protocol) => this.#isGiven(reader, hashes, `${protocol}/${name}`, looks));
        if (looks.left <= 0 || (!isGiven && first.length === MOST_NAMED)) return { first, ambiguous, more: true };
        if (!isGiven) first.push({ path: rule.path, name, protocols, asked });
        else if (rule.direction === 'egress' && ambiguous.length < MOST_NAMED)
          ambiguous.push(...this.#ambiguous(reader, rule.path, hashes, same, looks));
      }
    }
    return { first, ambiguous, more: looks.left <= 0 };
  }

  #hasSomebody(reader: Reader, { peers }: ResolvedRule, hashes: readonly string[], looks: Looks): boolean {
    const { census } = this.#sources;
    if (hashes[0] === EVERYONE) return census.places(reader) > 0;
    // Addresses and nodes give no port a name; nobody asks nobody.
    if (hashes.length === 0) return peers?.length !== 0;
    return this.#someMember(reader, hashes, looks, (id) => census.has(reader, id));
  }

  #isGiven(reader: Reader, hashes: readonly string[], name: string, looks: Looks): boolean {
    looks.left -= 1;
    const anybody = isThere(reader.prefix(this.#givers, keys.join(name)));
    if (hashes[0] === EVERYONE || !anybody) return anybody;
    return this.#someMember(reader, hashes, looks, (id) =>
      isThere(reader.prefix(this.#givers, keys.join(name, identityKey(id)))),
    );
  }

  /** Of the ports of one name, the first of each protocol to which the pods of some identity that is asked give several numbers. */
  *#ambiguous(
    reader: Reader,
    path: string,
    hashes: readonly string[],
    ports: readonly NamedPort[],
    looks: Looks,
  ): Generator<AmbiguousName> {
    const { sets } = this.#sources;
    const asks = (id: number): boolean =>
      hashes[0] === EVERYONE || hashes.some((hash) => includesSorted(sets.members(reader, hash), id));
    for (const { name, protocol, each } of ports) {
      if (each === true) continue;
      const numbers: Giver[] = [];
      for (const giver of this.#numbers(reader, `${protocol}/${name}`)) {
        looks.left -= 1;
        if (looks.left <= 0) return;
        const [first] = numbers;
        if (first !== undefined && first.identity !== giver.identity) {
          if (numbers.length > 1 && asks(first.identity)) break;
          numbers.length = 0;
        }
        numbers.push(giver);
      }
      const [first] = numbers;
      if (first === undefined || numbers.length < 2 || !asks(first.identity)) continue;
      yield { path, name, protocol, numbers: numbers.map(({ port, pod }) => ({ number: port, pod })) };
    }
  }

  /** One pod of each identity and number, ascending. */
  *#numbers(reader: Reader, name: string): Generator<Giver> {
    for (let from = keys.join(name); ; ) {
      const [next] = reader.lowerBound(this.#givers, from);
      if (next?.name !== name) return;
      yield next;
      from = giverKey({ ...next, port: next.port + 1, pod: '' });
    }
  }

  #someMember(reader: Reader, hashes: readonly string[], looks: Looks, is: (id: number) => boolean): boolean {
    for (const hash of hashes)
      for (const id of this.#sources.sets.members(reader, hash)) {
        looks.left -= 1;
        if (looks.left <= 0) return false;
        if (is(id)) return true;
      }
    return false;
  }

  /** Returns the names that the identity has begun or ceased to give, or a number of them. */
  #count(txn: WriteTxn, namer: Namer | undefined, by: 1 | -1): string[] {
    const changed: string[] = [];
    const { pod = '', identity = 0, ports = [] } = namer ?? {};
    for (const port of ports) {
      const name = portNameKey(port);
      const giver = { name, identity, port: port.port, pod };
      const isGiven = (): boolean =>
        isThere(txn.prefix(this.#givers, keys.join(name, identityKey(identity), keys.uint(port.port, 32))));
      const before = isGiven();
      if (by === 1) txn.upsert(this.#givers, giver);
      else txn.delete(this.#givers, giverKey(giver));
      if (before !== isGiven()) changed.push(name);
    }
    return changed;
  }
}

function giverKey({ name, identity, port, pod }: Giver): string {
  return keys.join(name, identityKey(identity), keys.uint(port, 32), pod);
}

function isThere(rows: Iterator<unknown>): boolean {
  return rows.next().done !== true;
}
