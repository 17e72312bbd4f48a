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
import { identityKey, isIndexed, type KnownIdentity, labelKey } from './known-identities.ts';
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
  /** Members of sets that may be added in this transaction. */
  readonly #evaluated = new WeakMap<WriteTxn, Map<string, readonly number[]>>();
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
  }

  get tables(): readonly AnyTable[] {
    return [this.#selectors, this.#members];
  }

  /** Adds an identity to the sets that match it. */
  addIdentity(txn: WriteTxn, identity: number, labels: LabelMap): void {
    for (const hash of this.#matching(txn, labels)) {
      const members = this.#of(txn, hash);
      const at = placeOf(members, identity);
      if (members[at] === identity) continue;
      this.#put(txn, hash, [...members.slice(0, at), identity, ...members.slice(at)]);
    }
  }

  /** Takes an identity, which had these labels, out of the sets that match it. */
  removeIdentity(txn: WriteTxn, identity: number, labels: LabelMap): void {
    for (const hash of this.#matching(txn, labels)) {
      const members = this.#of(txn, hash);
      const at = placeOf(members, identity);
      if (members[at] === identity) this.#put(txn, hash, members.toSpliced(at, 1));
    }
  }

  /** Adds a set, unless it is there. */
  add(txn: WriteTxn, hash: string, selector: LabelSelector): void {
    if (txn.has(this.#selectors, hash)) return;
    txn.insert(this.#selectors, { hash, selector });
    this.#put(txn, hash, this.#evaluated.get(txn)?.get(hash) ?? this.#evaluate(txn, selector)?.members ?? []);
  }

  /**
   * How many members the set has, or would have: evaluates its selector, whose answer `add` uses, until `forgetEvaluated`. `looks`: requirements
   * that were asked of identities for it. Undefined: that would take more than `mostLooks`.
   */
  sizeOf(
    txn: WriteTxn,
    hash: string,
    selector: LabelSelector,
    mostLooks = Number.POSITIVE_INFINITY,
  ): { readonly size: number; readonly looks: number } | undefined {
    if (txn.has(this.#selectors, hash)) return { size: this.size(txn, hash), looks: 0 };
    const evaluated = this.#evaluated.get(txn) ?? new Map<string, readonly number[]>();
    this.#evaluated.set(txn, evaluated);
    const known = evaluated.get(hash);
    if (known !== undefined) return { size: known.length, looks: 0 };
    const found = this.#evaluate(txn, selector, mostLooks);
    if (found === undefined) return undefined;
    evaluated.set(hash, found.members);
    return { size: found.members.length, looks: found.looks };
  }

  /** To be called before identities change. */
  forgetEvaluated(txn: WriteTxn): void {
    this.#evaluated.delete(txn);
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
    if (known !== undefined) yield* this.#matching(reader, known.row.labels);
  }

  /** Hashes that changed in this transaction since the last call. */
  takeChanged(txn: WriteTxn): Iterable<string> {
    return this.#changed.take(txn);
  }

  #of(reader: Reader, hash: string): readonly number[] {
    return reader.get(this.#members, hash)?.identities ?? [];
  }

  /** Members ascend. Undefined: it takes more than `mostLooks`. */
  #evaluate(
    reader: Reader,
    selector: LabelSelector,
    mostLooks = Number.POSITIVE_INFINITY,
  ): { readonly members: readonly number[]; readonly looks: number } | undefined {
    const found: number[] = [];
    const each = Math.max(1, selector.requirements.length);
    let looks = 0;
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
    for (const candidates of this.#candidates(selector)) reader.visit(candidates, judge);
    if (looks > mostLooks) return undefined;
    return { members: ascending ? found : [...new Set(found)].sort((a, b) => a - b), looks };
  }

  #put(txn: WriteTxn, hash: string, identities: readonly number[]): void {
    const by = identities.length - this.size(txn, hash);
    txn.upsert(this.#members, { hash, identities });
    if (by !== 0) this.#onResize(txn, hash, by);
    this.#changed.add(txn, hash);
  }

  /** Every set that matches the labels, once. */
  #matching(reader: Reader, labels: LabelMap): ReadonlySet<string> {
    const found = new Set<string>();
    for (const namespace of [ANYWHERE, namespaceOf(labels)]) {
      for (const key of [wantKey(namespace), ...labelWants(labels, namespace)]) {
        for (const { hash, selector } of reader.list(this.#selectors, 'wants', key)) {
          if (matches(selector, labels)) found.add(hash);
        }
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

/** Whether a selector must be evaluated for every identity of the cluster: it names no namespace, and asks for no label. */
export function looksEverywhere(selector: LabelSelector): boolean {
  const { namespaces, asked } = scopeOf(selector);
  return namespaces === undefined && asked === undefined;
}

function scopeOf({ requirements }: LabelSelector): Scope {
  const named = requirements.find(({ key, operator }) => key === NAMESPACE_LABEL && operator === 'In')?.values;
  const namespaces = named !== undefined && named.length <= MOST_PLACES ? named : undefined;
  const most = MOST_PLACES / (namespaces?.length ?? 1);
  const asked = requirements.find(
    ({ key, operator, values }) => operator === 'In' && values.length <= most && isIndexed(key),
  );
  return { namespaces, asked };
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
