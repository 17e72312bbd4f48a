/**
 * Which identities each selector matches. A selector is evaluated when it is new, an identity when it is new; each only where both may
 * agree: within the namespaces that the selector names, when it names any, and where it asks for a label, with identities that have it.
 *
 * A set is one row, so that what many selectors match of many identities costs some bytes for each pair, and no row.
 */
import {
  type LabelMap,
  type LabelSelector,
  matches,
  NAMESPACE_LABEL,
  namespaceOf,
  type Requirement,
} from '@weir/labels';
import {
  type AnyTable,
  type Key,
  keys,
  type Query,
  query,
  type Reader,
  type StateDB,
  type Table,
  type WriteTxn,
} from '@weir/statedb';
import { identityKey, isIndexed, isNarrow, type KnownIdentity, labelKey } from './known-identities.ts';
import { Marks } from './marks.ts';

interface SelectorRow {
  readonly hash: string;
  readonly selector: LabelSelector;
}

interface Members {
  readonly hash: string;
  /** Ascending. */
  readonly identities: readonly number[];
}

/** What a selector matches that is in no set yet. */
interface Found {
  readonly identities: readonly number[];
  /** What it took to find that (`sizeOf`). */
  readonly looks: number;
}

/** The same, of a policy that is being counted. Identities that come and go meanwhile do so here, too. */
interface Evaluated extends SelectorRow, Members {
  readonly policy: string;
}

/** Identities have been removed. One row, or none. */
interface Removed {
  readonly last: number;
}

/** Where identities that a selector may match can be looked up. */
interface Scope {
  /** undefined: any. */
  readonly namespaces: readonly string[] | undefined;
  /** What only identities that have a label fulfil. */
  readonly asked: Requirement | undefined;
}

/** Places that are looked up one by one: namespaces, values of a label, or pairs of them. */
const MOST_PLACES = 100;
/** No namespace has this name. */
const ANYWHERE = '*';

export class SelectorIndex {
  readonly #identities: Table<KnownIdentity>;
  readonly #selectors: Table<SelectorRow>;
  readonly #members: Table<Members>;
  /** Hashes whose members or existence changed. */
  readonly #changed = new Marks<string>();
  readonly #evaluated: Table<Evaluated>;
  readonly #removed: Table<Removed>;
  readonly #onResize: (txn: WriteTxn, hash: string, by: number) => void;

  /** `onResize`: a set has so many members more, or fewer. */
  constructor(
    db: StateDB,
    identities: Table<KnownIdentity>,
    onResize: (txn: WriteTxn, hash: string, by: number) => void = () => {},
  ) {
    this.#identities = identities;
    this.#onResize = onResize;
    this.#selectors = db.table<SelectorRow>({
      name: 'selectors',
      key: ({ hash }) => hash,
      indexes: [{ name: 'wants', keys: ({ selector }) => wantsOf(selector) }],
    });
    this.#members = db.table<Members>({ name: 'set-members', key: ({ hash }) => hash });
    this.#evaluated = db.table<Evaluated>({
      name: 'evaluated-sets',
      key: ({ policy, hash }) => keys.join(policy, hash),
      indexes: [{ name: 'wants', keys: ({ selector }) => wantsOf(selector) }],
    });
    this.#removed = db.table<Removed>({ name: 'removed-identities', key: () => '' });
  }

  get tables(): readonly AnyTable[] {
    return [this.#selectors, this.#members, this.#evaluated, this.#removed];
  }

  /** Adds an identity to the sets that match it. */
  addIdentity(txn: WriteTxn, identity: number, labels: LabelMap): void {
    for (const { hash } of this.#matching(txn, this.#selectors, labels)) {
      const members = this.#of(txn, hash);
      const after = withMember(members, identity);
      if (after !== members) this.#put(txn, hash, after);
    }
    for (const row of this.#matching(txn, this.#evaluated, labels))
      txn.upsert(this.#evaluated, { ...row, identities: withMember(row.identities, identity) });
  }

  /** Takes an identity, which had these labels, out of the sets that match it. */
  removeIdentity(txn: WriteTxn, identity: number, labels: LabelMap): void {
    txn.upsert(this.#removed, { last: identity });
    for (const { hash } of this.#matching(txn, this.#selectors, labels)) {
      const members = this.#of(txn, hash);
      const after = withoutMember(members, identity);
      if (after !== members) this.#put(txn, hash, after);
    }
    for (const row of this.#matching(txn, this.#evaluated, labels))
      txn.upsert(this.#evaluated, { ...row, identities: withoutMember(row.identities, identity) });
  }

  /** Adds a set that a policy names, unless it is there. */
  add(txn: WriteTxn, policy: string, hash: string, selector: LabelSelector): void {
    if (txn.has(this.#selectors, hash)) return;
    txn.insert(this.#selectors, { hash, selector });
    const known = txn.get(this.#evaluated, keys.join(policy, hash)) ?? this.#evaluate(txn, selector);
    this.#put(txn, hash, known?.identities ?? []);
  }

  /** Of a set that is there, or that `sizeOf` has evaluated for the policy; undefined: neither. */
  knownSize(reader: Reader, policy: string, hash: string): number | undefined {
    const known = reader.get(this.#members, hash) ?? reader.get(this.#evaluated, keys.join(policy, hash));
    return known?.identities.length;
  }

  /**
   * How many members a set that the policy names has, or would have: evaluates its selector, whose answer `add` uses, in this transaction or
   * a later one, until `forgetEvaluated`. `looks`: its values, and its requirements as often as they were asked of an identity; none of a set
   * whose members are known. Undefined: that would take more than `mostLooks`.
   */
  sizeOf(
    txn: WriteTxn,
    policy: string,
    hash: string,
    selector: LabelSelector,
    mostLooks = Number.POSITIVE_INFINITY,
  ): { readonly size: number; readonly looks: number } | undefined {
    const size = this.knownSize(txn, policy, hash);
    if (size !== undefined) return { size, looks: 0 };
    const found = this.#evaluate(txn, selector, mostLooks);
    if (found === undefined) return undefined;
    const { identities, looks } = found;
    txn.insert(this.#evaluated, { policy, hash, selector, identities });
    return { size: identities.length, looks };
  }

  /** Forgets what has been evaluated for a policy. */
  forgetEvaluated(txn: WriteTxn, policy: string): void {
    for (const { hash } of txn.prefix(this.#evaluated, keys.join(policy)))
      txn.delete(this.#evaluated, keys.join(policy, hash));
  }

  /** Whether an identity has been removed since the last call: otherwise no selector matches less. */
  takeRemoved(txn: WriteTxn): boolean {
    return txn.delete(this.#removed, '') !== undefined;
  }

  /** Of a set that is there; 0: it is not. */
  size(reader: Reader, hash: string): number {
    return this.#of(reader, hash).length;
  }

  remove(txn: WriteTxn, hash: string): void {
    if (txn.delete(this.#selectors, hash) === undefined) return;
    txn.delete(this.#members, hash);
    this.#changed.add(txn, hash);
  }

  selector(reader: Reader, hash: string): LabelSelector | undefined {
    return reader.get(this.#selectors, hash)?.selector;
  }

  *hashes(reader: Reader): Generator<string> {
    for (const { hash } of reader.all(this.#selectors)) yield hash;
  }

  /** Ascending. */
  members(reader: Reader, hash: string): readonly number[] {
    return this.#of(reader, hash);
  }

  has(reader: Reader, hash: string, identity: number): boolean {
    const members = this.#of(reader, hash);
    return members[placeOf(members, identity)] === identity;
  }

  /** The sets of an identity that is known. */
  *setsOf(reader: Reader, identity: number): Generator<string> {
    const known = reader.get(this.#identities, identityKey(identity));
    if (known !== undefined)
      for (const { hash } of this.#matching(reader, this.#selectors, known.row.labels)) yield hash;
  }

  /** Hashes that changed in this transaction since the last call. */
  takeChanged(txn: WriteTxn): Iterable<string> {
    return this.#changed.take(txn);
  }

  #of(reader: Reader, hash: string): readonly number[] {
    return reader.get(this.#members, hash)?.identities ?? [];
  }

  /** Undefined: it takes more than `mostLooks`. */
  #evaluate(reader: Reader, selector: LabelSelector, mostLooks = Number.POSITIVE_INFINITY): Found | undefined {
    const found: number[] = [];
    const each = Math.max(1, selector.requirements.length);
    let looks = selector.requirements.reduce((sum, { values }) => sum + values.length, 0);
    let ascending = true;
    let last = -1;
    const judge = ({ row }: KnownIdentity): false | undefined => {
      looks += each;
      if (looks > mostLooks) return false;
      if (!matches(selector, row.labels)) return;
      ascending &&= row.id > last;
      last = row.id;
      found.push(row.id);
    };
    for (const candidates of this.#candidates(selector)) {
      if (looks > mostLooks) return undefined;
      reader.visit(candidates, judge);
    }
    if (looks > mostLooks) return undefined;
    const identities = ascending ? found : [...new Set(found)].sort((a, b) => a - b);
    return { identities, looks };
  }

  #put(txn: WriteTxn, hash: string, identities: readonly number[]): void {
    const by = identities.length - this.size(txn, hash);
    txn.upsert(this.#members, { hash, identities });
    if (by !== 0) this.#onResize(txn, hash, by);
    this.#changed.add(txn, hash);
  }

  /** Every row whose selector matches the labels, once. */
  #matching<T extends SelectorRow>(reader: Reader, table: Table<T>, labels: LabelMap): ReadonlySet<T> {
    const found = new Set<T>();
    if (reader.count(table) === 0) return found;
    for (const namespace of [ANYWHERE, namespaceOf(labels)]) {
      for (const key of [wantKey(namespace), ...labelWants(labels, namespace)]) {
        for (const row of reader.list(table, 'wants', key)) if (matches(row.selector, labels)) found.add(row);
      }
    }
    return found;
  }

  /** What finds every identity that the selector may match; perhaps more than once. */
  #candidates(selector: LabelSelector): readonly Query<KnownIdentity>[] {
    const { namespaces, asked } = scopeOf(selector);
    if (asked === undefined) {
      if (namespaces === undefined) return [query.all(this.#identities)];
      return namespaces.map((namespace) => query.list(this.#identities, 'namespace', namespace));
    }
    return asked.values.flatMap((value) =>
      (namespaces ?? [undefined]).map((namespace) =>
        query.prefix(this.#identities, labelKey(asked.key, value, namespace), 'label'),
      ),
    );
  }
}

/** Of how many namespaces all identities may have to be asked, at least 1 and at most `most`: 1 where few of them have the label that it asks for. */
export function breadthOf(selector: LabelSelector, most: number): number {
  const { namespaces, asked } = scopeOf(selector);
  return asked !== undefined && isNarrow(asked.key) ? 1 : Math.max(1, Math.min(most, namespaces?.length ?? most));
}

function scopeOf({ requirements }: LabelSelector): Scope {
  const named = requirements.find(({ key, operator }) => key === NAMESPACE_LABEL && operator === 'In')?.values;
  const namespaces = named !== undefined && named.length <= MOST_PLACES ? named : undefined;
  const most = MOST_PLACES / (namespaces?.length ?? 1);
  const askable = requirements.filter(
    ({ key, operator, values }) => operator === 'In' && values.length <= most && isIndexed(key),
  );
  return { namespaces, asked: askable.find(({ key }) => isNarrow(key)) ?? askable[0] };
}

/** By what an identity finds the selector: a namespace, and a label where it asks for one. */
function wantsOf(selector: LabelSelector): Key[] {
  const { namespaces = [ANYWHERE], asked } = scopeOf(selector);
  return namespaces.flatMap((namespace) =>
    asked === undefined
      ? [wantKey(namespace)]
      : asked.values.map((value) => wantKey(namespace, labelKey(asked.key, value))),
  );
}

function labelWants(labels: LabelMap, namespace: string): Key[] {
  return Object.entries(labels).flatMap(([key, value]) =>
    isIndexed(key) ? [wantKey(namespace, labelKey(key, value))] : [],
  );
}

function wantKey(namespace: string, label: Key = ''): Key {
  return keys.join(namespace, label);
}

/** The ascending list with the number; itself where it has it. */
function withMember(list: readonly number[], value: number): readonly number[] {
  const at = placeOf(list, value);
  return list[at] === value ? list : [...list.slice(0, at), value, ...list.slice(at)];
}

/** The ascending list without the number; itself where it has it not. */
function withoutMember(list: readonly number[], value: number): readonly number[] {
  const at = placeOf(list, value);
  return list[at] === value ? list.toSpliced(at, 1) : list;
}

/** Where a number is in an ascending list, or would be. */
function placeOf(list: readonly number[], value: number): number {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((list[middle] ?? value) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
