/**
 * Which identities each selector matches. A selector is evaluated when it is new, an identity when it is new; both only
 * within the namespaces that the selector names, when it names any, and a selector that asks for a label only for identities that have it.
 */
import { type LabelMap, type LabelSelector, matches, NAMESPACE_LABEL, type Requirement } from '@weir/labels';
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { identityKey, isIndexed, type KnownIdentity, labelKey, namespaceOf } from './known-identities.ts';
import { Marks } from './marks.ts';

interface SelectorRow {
  readonly hash: string;
  readonly selector: LabelSelector;
  /** undefined: any namespace. */
  readonly namespaces: readonly string[] | undefined;
}

interface Member {
  readonly hash: string;
  readonly identity: number;
}

/** Values of a label that are looked up one by one. */
const MOST_VALUES = 100;
/** No namespace has this name. */
const ANYWHERE = '*';

export class SelectorIndex {
  readonly #identities: Table<KnownIdentity>;
  readonly #selectors: Table<SelectorRow>;
  readonly #members: Table<Member>;
  /** Hashes whose members or existence changed. */
  readonly #changed = new Marks<string>();

  constructor(db: StateDB, identities: Table<KnownIdentity>) {
    this.#identities = identities;
    this.#selectors = db.table<SelectorRow>({
      name: 'selectors',
      key: ({ hash }) => hash,
      indexes: [{ name: 'namespace', keys: ({ namespaces }) => namespaces ?? [ANYWHERE] }],
    });
    this.#members = db.table<Member>({
      name: 'set-members',
      key: memberKey,
      indexes: [{ name: 'identity', keys: ({ identity }) => [identityKey(identity)] }],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#selectors, this.#members];
  }

  /** Adds an identity to the sets that match it. */
  addIdentity(txn: WriteTxn, identity: number, labels: LabelMap): void {
    for (const namespace of [ANYWHERE, namespaceOf(labels)]) {
      for (const { hash, selector } of txn.list(this.#selectors, 'namespace', namespace)) {
        if (!matches(selector, labels)) continue;
        txn.upsert(this.#members, { hash, identity });
        this.#changed.add(txn, hash);
      }
    }
  }

  removeIdentity(txn: WriteTxn, identity: number): void {
    for (const hash of this.setsOf(txn, identity)) {
      txn.delete(this.#members, memberKey({ hash, identity }));
      this.#changed.add(txn, hash);
    }
  }

  /** Adds a set, unless it is there. */
  add(txn: WriteTxn, hash: string, selector: LabelSelector): void {
    if (txn.has(this.#selectors, hash)) return;
    const namespaces = namespacesOf(selector);
    txn.insert(this.#selectors, { hash, selector, namespaces });
    this.#changed.add(txn, hash);
    for (const { row } of this.#candidates(txn, selector, namespaces)) {
      if (matches(selector, row.labels)) txn.upsert(this.#members, { hash, identity: row.id });
    }
  }

  /** Every identity that the selector may match. */
  *#candidates(
    reader: Reader,
    selector: LabelSelector,
    namespaces: readonly string[] | undefined,
  ): Generator<KnownIdentity> {
    const asked = askedLabel(selector);
    if (asked === undefined) {
      if (namespaces === undefined) yield* reader.all(this.#identities);
      for (const namespace of namespaces ?? []) yield* reader.list(this.#identities, 'namespace', namespace);
      return;
    }
    for (const value of asked.values) {
      for (const namespace of namespaces ?? [undefined]) {
        yield* reader.prefix(this.#identities, labelKey(asked.key, value, namespace), 'label');
      }
    }
  }

  remove(txn: WriteTxn, hash: string): void {
    if (txn.delete(this.#selectors, hash) === undefined) return;
    this.#changed.add(txn, hash);
    for (const member of txn.prefix(this.#members, keys.join(hash))) txn.delete(this.#members, memberKey(member));
  }

  selector(reader: Reader, hash: string): LabelSelector | undefined {
    return reader.get(this.#selectors, hash)?.selector;
  }

  *hashes(reader: Reader): Generator<string> {
    for (const { hash } of reader.all(this.#selectors)) yield hash;
  }

  /** Ascending. */
  *members(reader: Reader, hash: string): Generator<number> {
    for (const { identity } of reader.prefix(this.#members, keys.join(hash))) yield identity;
  }

  has(reader: Reader, hash: string, identity: number): boolean {
    return reader.has(this.#members, memberKey({ hash, identity }));
  }

  *setsOf(reader: Reader, identity: number): Generator<string> {
    for (const { hash } of reader.list(this.#members, 'identity', identityKey(identity))) yield hash;
  }

  /** Hashes that changed in this transaction since the last call. */
  takeChanged(txn: WriteTxn): Iterable<string> {
    return this.#changed.take(txn);
  }
}

/** Whether a selector must be evaluated for every identity of the cluster: it names no namespace, and asks for no label. */
export function looksEverywhere(selector: LabelSelector): boolean {
  return namespacesOf(selector) === undefined && askedLabel(selector) === undefined;
}

function namespacesOf({ requirements }: LabelSelector): readonly string[] | undefined {
  return requirements.find(({ key, operator }) => key === NAMESPACE_LABEL && operator === 'In')?.values;
}

/** What only identities that have a label fulfil. */
function askedLabel({ requirements }: LabelSelector): Requirement | undefined {
  return requirements.find(
    ({ key, operator, values }) => operator === 'In' && values.length <= MOST_VALUES && isIndexed(key),
  );
}

function memberKey({ hash, identity }: Member): string {
  return keys.join(hash, identityKey(identity));
}
