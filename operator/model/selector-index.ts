/**
 * Which identities each selector matches. A selector is evaluated when it is new, an identity when it is new; each only where both may
 * agree: within the namespaces that the selector names, when it names any, and where it asks for a label, with identities that have it.
 *
 * Both take as many pieces as there is time for, since anybody may write any number of selectors that match everybody's pods. A set is
 * complete once its selector has been evaluated. An identity comes to sets and leaves them later than it is known or gone. Nobody
 * is let in or kept out by that: nodes judge an identity by the selectors and its labels (peer-set-views.ts).
 *
 * A set is one row, so that what many selectors match of many identities costs some bytes for each pair, and no row.
 */
import { type LabelMap, type LabelSelector, labelsKey, matches, namespaceOf, selectorScope } from '@weir/labels';
import {
  type AnyTable,
  afterPrefix,
  type Key,
  type Reader,
  type StateDB,
  type Table,
  type WriteTxn,
} from '@weir/statedb';
import { identityKey, type KnownIdentity, labelKey, namespaceKey } from './known-identities.ts';
import { matching, type SelectorRow, WANTS, wanting, wantsOfLabels } from './selector-wants.ts';
import { type WorkQueue, work } from './work.ts';

interface Members {
  readonly hash: string;
  /** Ascending. */
  readonly identities: readonly number[];
  /** Where the evaluation of the selector goes on; undefined: it is complete. */
  readonly from: Place | undefined;
}

/** An identity that has come, or is gone, or whose pods have: all selectors that match these labels are looked at. */
interface Look {
  readonly key: string;
  readonly identity: number;
  readonly labels: LabelMap;
  /** Its first pod has come or its last has gone: whoever reads its sets is notified. */
  readonly presence: boolean;
  readonly from: Place;
}

interface Place {
  /** Number of the range of identities, or of what the labels want. */
  readonly range: number;
  /** Key of the last row of it that was looked at; '': none was. */
  readonly after: Key;
}

const BEGIN: Place = { range: 0, after: '' };
/** Rows that are looked at before time is asked for. */
const PIECE = 64;

/** Rows of known identities: of one index, or by their numbers. */
interface Range {
  readonly index: 'namespace' | 'label' | undefined;
  readonly prefix: Key;
  readonly keyOf: (row: KnownIdentity['row']) => Key;
}

/** Finds out at any time whether some is left. */
export type HasTime = () => boolean;

export interface SelectorIndexOptions {
  readonly queue: WorkQueue;
  /** Before that no selector is evaluated: it meets every identity that is known then. */
  readonly isStarted: (reader: Reader) => boolean;
  /** A complete set has other members, or is gone. */
  readonly onChanged: (txn: WriteTxn, hash: string) => void;
  /** An identity has come to the set, or pods of one that is in it have come or gone. */
  readonly onMoved: (txn: WriteTxn, hash: string) => void;
}

export class SelectorIndex {
  readonly #identities: Table<KnownIdentity>;
  readonly #options: SelectorIndexOptions;
  readonly #selectors: Table<SelectorRow>;
  readonly #members: Table<Members>;
  readonly #looks: Table<Look>;

  constructor(db: StateDB, identities: Table<KnownIdentity>, options: SelectorIndexOptions) {
    this.#identities = identities;
    this.#options = options;
    this.#selectors = db.table<SelectorRow>({ name: 'selectors', key: ({ hash }) => hash, indexes: [WANTS] });
    this.#members = db.table<Members>({ name: 'setMembers', key: ({ hash }) => hash });
    this.#looks = db.table<Look>({ name: 'setLooks', key: ({ key }) => key });
  }

  get tables(): readonly AnyTable[] {
    return [this.#selectors, this.#members, this.#looks];
  }

  /** Adds a set that a policy names, unless it is there: `evaluate` finds its members. */
  add(txn: WriteTxn, hash: string, selector: LabelSelector): void {
    if (txn.has(this.#selectors, hash)) return;
    txn.insert(this.#selectors, { hash, selector });
    txn.insert(this.#members, { hash, identities: [], from: BEGIN });
  }

  remove(txn: WriteTxn, hash: string): void {
    if (txn.delete(this.#selectors, hash) === undefined) return;
    txn.delete(this.#members, hash);
    this.#options.onChanged(txn, hash);
  }

  /** Evaluates a selector from where it was left on, while there is time. Returns whether its set is complete. */
  evaluate(txn: WriteTxn, hash: string, hasTime: HasTime): boolean {
    const [selector, known] = [this.selector(txn, hash), txn.get(this.#members, hash)];
    if (selector === undefined || known?.from === undefined) return true;
    const found: number[] = [];
    const from = this.#find(txn, selector, known.from, found, hasTime);
    const identities = found.length === 0 ? known.identities : union(known.identities, found);
    txn.upsert(this.#members, { hash, identities, from });
    if (from === undefined) this.#options.onChanged(txn, hash);
    return from === undefined;
  }

  isComplete(reader: Reader, hash: string): boolean {
    return reader.get(this.#members, hash)?.from === undefined;
  }

  /** An identity, which has these labels, is known now, or not any more: `look` sees to the sets that match it. */
  identityChanged(txn: WriteTxn, identity: number, labels: LabelMap): void {
    this.#queueLook(txn, identity, labels, false);
  }

  /** The first pod of an identity that is known has come, or its last has gone: `look` tells of its sets. */
  presence(txn: WriteTxn, identity: number): void {
    const labels = this.labels(txn, identity);
    if (labels !== undefined) this.#queueLook(txn, identity, labels, true);
  }

  /** Sees to sets that an identity comes to or leaves, while there is time. Returns whether that has been done. */
  look(txn: WriteTxn, key: string, hasTime: HasTime): boolean {
    const look = txn.get(this.#looks, key);
    if (look === undefined) return true;
    const from = this.#lookOn(txn, look, hasTime);
    if (from === undefined) txn.delete(this.#looks, key);
    else txn.upsert(this.#looks, { ...look, from });
    return from === undefined;
  }

  selector(reader: Reader, hash: string): LabelSelector | undefined {
    return reader.get(this.#selectors, hash)?.selector;
  }

  /** Sets whose selectors match these labels. */
  *selecting(reader: Reader, labels: LabelMap): Generator<string> {
    for (const { hash } of matching(reader, this.#selectors, labels)) yield hash;
  }

  /** Those that have come to the set and have not left it. Ascending. */
  members(reader: Reader, hash: string): readonly number[] {
    return reader.get(this.#members, hash)?.identities ?? [];
  }

  /** All that the selector of a complete set matches, also those that have not come to it yet; and those that have not left it. Some of them twice. */
  *matched(reader: Reader, hash: string): Generator<number> {
    yield* this.members(reader, hash);
    const selector = this.selector(reader, hash);
    if (selector === undefined) return;
    for (const { identity, labels } of reader.all(this.#looks)) if (matches(selector, labels)) yield identity;
  }

  /** Of an identity that is known. */
  labels(reader: Reader, identity: number): LabelMap | undefined {
    return reader.get(this.#identities, identityKey(identity))?.row.labels;
  }

  #find(txn: WriteTxn, selector: LabelSelector, from: Place, found: number[], hasTime: HasTime): Place | undefined {
    let looked = 0;
    for (const [at, { index, prefix, keyOf }] of this.#ranges(selector).entries().drop(from.range)) {
      const start = at > from.range || from.after === '' ? prefix : `${from.after}\0`;
      for (const { row } of txn.range(this.#identities, start, afterPrefix(prefix), index)) {
        if (matches(selector, row.labels)) found.push(row.id);
        looked += 1;
        if (looked % PIECE === 0 && !hasTime()) return { range: at, after: keyOf(row) };
      }
    }
    return undefined;
  }

  /** Where every identity is that the selector may match; perhaps in several. */
  #ranges(selector: LabelSelector): readonly Range[] {
    const { namespaces, asked } = selectorScope(selector);
    if (asked === undefined) {
      if (namespaces === undefined) return [{ index: undefined, prefix: '', keyOf: ({ id }) => identityKey(id) }];
      return namespaces.map((namespace) => ({
        index: 'namespace',
        prefix: namespaceKey(namespace),
        keyOf: ({ id }) => namespaceKey(namespace, id),
      }));
    }
    return asked.values.flatMap((value) =>
      (namespaces ?? [undefined]).map((namespace) => ({
        index: 'label' as const,
        prefix: labelKey(asked.key, value, namespace),
        keyOf: ({ id, labels }: KnownIdentity['row']) => labelKey(asked.key, value, namespaceOf(labels), id),
      })),
    );
  }

  #queueLook(txn: WriteTxn, identity: number, labels: LabelMap, presence: boolean): void {
    if (txn.count(this.#selectors) === 0 || !this.#options.isStarted(txn)) return;
    // A number may stand for other labels before everybody has looked at it for those that it had.
    const key = `${identityKey(identity)}${labelsKey(labels)}`;
    const before = txn.get(this.#looks, key);
    txn.upsert(this.#looks, { key, identity, labels, presence: presence || before?.presence === true, from: BEGIN });
    this.#options.queue.put(txn, work('identity', key, namespaceOf(labels)));
  }

  /** Judges the identity, as it is known now, by selectors that match the labels of the look. Returns where to go on; undefined: at the end. */
  #lookOn(txn: WriteTxn, { identity, labels, presence, from }: Look, hasTime: HasTime): Place | undefined {
    const known = this.labels(txn, identity);
    let looked = 0;
    for (const [at, want] of wantsOfLabels(labels).entries().drop(from.range)) {
      for (const { hash, selector } of wanting(txn, this.#selectors, want, at === from.range ? from.after : '')) {
        const isMatched = matches(selector, labels);
        if (isMatched) {
          const isMember = known !== undefined && (known === labels || matches(selector, known));
          const isNew = this.#edit(txn, hash, identity, isMember);
          if (presence || (isMember && isNew)) this.#options.onMoved(txn, hash);
        }
        looked += 1;
        // To edit and show a long list takes as long as some looks.
        if ((isMatched || looked % PIECE === 0) && !hasTime()) return { range: at, after: hash };
      }
    }
    return undefined;
  }

  /** Returns whether that changed the set. */
  #edit(txn: WriteTxn, hash: string, identity: number, isMember: boolean): boolean {
    const set = txn.get(this.#members, hash);
    if (set === undefined) return false;
    const identities = isMember ? withMember(set.identities, identity) : withoutMember(set.identities, identity);
    if (identities === set.identities) return false;
    txn.upsert(this.#members, { ...set, identities });
    if (set.from === undefined) this.#options.onChanged(txn, hash);
    return true;
  }
}

/** Ascending, each number once. */
function union(known: readonly number[], found: readonly number[]): readonly number[] {
  const both = [...known, ...found];
  const isAscending = both.every((id, at) => at === 0 || id > (both[at - 1] ?? 0));
  return isAscending ? both : [...new Set(both)].sort((a, b) => a - b);
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
