/**
 * Which identities each selector matches. A selector is evaluated when it is new, an identity when it is new; each only where both may
 * agree: within the namespaces that the selector names, when it names any, and where it asks for a label, with identities that have it.
 *
 * A selector's set is right at once. An identity comes to sets that are there, and goes, as there is time for: piece by piece, in turns of the
 * identities' namespaces, since anybody may write any number of selectors that match everybody's pods. First come the sets that are of
 * its own namespace alone. Nobody is let in or kept out by that: nodes judge an identity by the selectors and its labels (peer-set-views.ts).
 *
 * A set is one row, so that what many selectors match of many identities costs some bytes for each pair, and no row.
 */
import { type LabelMap, type LabelSelector, labelsKey, matches, namespaceOf, selectorScope } from '@weir/labels';
import {
  type AnyTable,
  keys,
  type Query,
  query,
  type Reader,
  type StateDB,
  type Table,
  type WriteTxn,
} from '@weir/statedb';
import { FairQueue } from './fair-queue.ts';
import { identityKey, type KnownIdentity, labelKey } from './known-identities.ts';
import { Marks } from './marks.ts';
import { bucketOf, type SelectorRow, WANTS, wanting, wantsOfLabels } from './selector-wants.ts';

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

/** Selectors may match less than what policies were refused for. One row, or none. */
interface Fewer {
  readonly identities: true;
}

const FEWER: Fewer = { identities: true };

/** A look at all selectors that match the labels of an identity that has come, or is gone, or whose pods have. */
interface Look {
  readonly identity: number;
  readonly labels: LabelMap;
  /** Its first pod has come or its last has gone: whoever asks its sets is told. */
  readonly presence: boolean;
  /** Where it goes on. */
  readonly at: Place;
}

interface Place {
  /** Of the selectors that are being counted, and then of the others: number of what they want (`wantsOfLabels`), from 0 on. */
  readonly want: number;
  /** Of those that want that. '': the first. */
  readonly bucket: string;
}

const BEGIN: Place = { want: 0, bucket: '' };
/** What a piece of a look costs, in selectors that are looked at: a set that changes is one for each so many members more. Some milliseconds. */
const PIECE = 100;
const MEMBERS_OF_ONE = 100;
/** Looks of a namespace that may wait: who has more pays for one before another comes. */
const MOST_WAITING = 1_000;

export interface SelectorIndexOptions {
  /** A set has so many members more, or fewer. */
  readonly onResize?: (txn: WriteTxn, hash: string, by: number) => void;
  /** An identity has come to the set, or pods of one that is in it have come or gone. */
  readonly onMoved?: (txn: WriteTxn, hash: string) => void;
}

export class SelectorIndex {
  readonly #identities: Table<KnownIdentity>;
  readonly #selectors: Table<SelectorRow>;
  readonly #members: Table<Members>;
  /** Hashes whose members or existence changed. */
  readonly #changed = new Marks<string>();
  readonly #evaluated: Table<Evaluated>;
  readonly #fewer: Table<Fewer>;
  readonly #looks: FairQueue<Look>;
  readonly #options: SelectorIndexOptions;

  constructor(db: StateDB, identities: Table<KnownIdentity>, options: SelectorIndexOptions = {}) {
    this.#identities = identities;
    this.#options = options;
    this.#selectors = db.table<SelectorRow>({ name: 'selectors', key: ({ hash }) => hash, indexes: [WANTS] });
    this.#members = db.table<Members>({ name: 'set-members', key: ({ hash }) => hash });
    this.#evaluated = db.table<Evaluated>({
      name: 'evaluated-sets',
      key: ({ policy, hash }) => keys.join(policy, hash),
      indexes: [WANTS],
    });
    this.#fewer = db.table<Fewer>({ name: 'fewer-identities', key: () => '' });
    this.#looks = new FairQueue(db, {
      name: 'set-looks',
      keyOf: ({ identity }) => identityKey(identity),
      ownerOf: ({ labels }) => namespaceOf(labels),
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#selectors, this.#members, this.#evaluated, this.#fewer, ...this.#looks.tables];
  }

  /** An identity is known now: `lookNext` adds it to the sets that match it. */
  addIdentity(txn: WriteTxn, identity: number, labels: LabelMap): void {
    const before = this.#looks.get(txn, identityKey(identity));
    // Under other labels it is gone: no list has it for both.
    if (before !== undefined && labelsKey(before.labels) !== labelsKey(labels)) this.#finish(txn, before);
    this.#look(txn, identity, labels, false);
  }

  /** An identity, which had these labels, is not known any more: `lookNext` takes it out of the sets that match it. */
  removeIdentity(txn: WriteTxn, identity: number, labels: LabelMap): void {
    txn.upsert(this.#fewer, FEWER);
    this.#look(txn, identity, labels, false);
  }

  /** The first pod of an identity that is known has come, or its last has gone: `lookNext` tells of its sets. */
  presence(txn: WriteTxn, identity: number): void {
    const labels = this.labels(txn, identity);
    if (labels !== undefined) this.#look(txn, identity, labels, true);
  }

  /** Whether there is something for `lookNext`. */
  hasLooks(reader: Reader): boolean {
    return !this.#looks.isEmpty(reader);
  }

  /** Sees to some more of the sets that identities come to or leave, `piece` of them; false: that has been done. */
  lookNext(txn: WriteTxn, piece = PIECE): boolean {
    const next = this.#looks.take(txn);
    if (next === undefined) return false;
    const at = this.#lookOn(txn, next.row, piece);
    if (at !== undefined) this.#looks.putBack(txn, { ...next, row: { ...next.row, at } });
    return true;
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

  /** A policy is refused for what sets match now: where identities have not left theirs yet, they may soon match less. */
  refused(txn: WriteTxn): void {
    if (this.hasLooks(txn)) txn.upsert(this.#fewer, FEWER);
  }

  /** Whether selectors may match less than at the last call: an identity has been removed, or had not left its sets. */
  takeFewer(txn: WriteTxn): boolean {
    return txn.delete(this.#fewer, '') !== undefined;
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

  /** Those that have come to the set and have not left it. Ascending. */
  members(reader: Reader, hash: string): readonly number[] {
    return this.#of(reader, hash);
  }

  /** All that the set's selector matches, also those that have not come to it yet; and those that have not left it. Some of them twice. */
  *matched(reader: Reader, hash: string): Generator<number> {
    yield* this.#of(reader, hash);
    const selector = this.selector(reader, hash);
    if (selector === undefined || !this.hasLooks(reader)) return;
    const { namespaces } = selectorScope(selector);
    for (const owner of namespaces ?? [undefined])
      for (const { identity, labels } of this.#looks.waiting(reader, owner))
        if (matches(selector, labels)) yield identity;
  }

  has(reader: Reader, hash: string, identity: number): boolean {
    const members = this.#of(reader, hash);
    return members[placeOf(members, identity)] === identity;
  }

  /** Of an identity that is known. */
  labels(reader: Reader, identity: number): LabelMap | undefined {
    return reader.get(this.#identities, identityKey(identity))?.row.labels;
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
    if (by !== 0) this.#options.onResize?.(txn, hash, by);
    this.#changed.add(txn, hash);
  }

  #look(txn: WriteTxn, identity: number, labels: LabelMap, presence: boolean): void {
    if (txn.count(this.#selectors) === 0 && txn.count(this.#evaluated) === 0) return;
    const before = this.#looks.get(txn, identityKey(identity));
    if (before === undefined) this.#payBacklog(txn, namespaceOf(labels));
    const row = { identity, labels, presence: presence || before?.presence === true, at: BEGIN };
    this.#looks.put(txn, { row, revision: txn.revision(this.#identities), deleted: false });
  }

  /** Who makes identities come and go faster than there is time for waits for what they cost. */
  #payBacklog(txn: WriteTxn, namespace: string): void {
    if (this.#looks.waits(txn) < MOST_WAITING) return;
    const [first, ...rest] = this.#looks.waiting(txn, namespace).take(MOST_WAITING);
    if (first !== undefined && rest.length + 1 === MOST_WAITING) this.#finish(txn, first);
  }

  #finish(txn: WriteTxn, look: Look): void {
    this.#looks.remove(txn, identityKey(look.identity));
    this.#lookOn(txn, look, Number.POSITIVE_INFINITY);
  }

  /** Goes on with a look, up to the end of a bucket beyond `most`. Returns where to go on; undefined: at its end. */
  #lookOn(txn: WriteTxn, look: Look, most: number): Place | undefined {
    const { labels, at } = look;
    const wants = wantsOfLabels(labels);
    const known = this.labels(txn, look.identity);
    const edit = known !== undefined && labelsKey(known) === labelsKey(labels) ? withMember : withoutMember;
    let cost = 0;
    // First those that are being counted: one that goes from there into a set has the identity, or is met again.
    for (let [want, from] = [at.want, at.bucket]; want < 2 * wants.length; [want, from] = [want + 1, '']) {
      const key = wants[want % wants.length] ?? '';
      const rows: Iterable<SelectorRow | Evaluated> =
        want < wants.length ? wanting(txn, this.#evaluated, key, from) : wanting(txn, this.#selectors, key, from);
      let last = '';
      for (const row of rows) {
        const bucket = bucketOf(row.hash);
        if (bucket !== last && cost >= most) return { want, bucket };
        last = bucket;
        cost += 1;
        if (!matches(row.selector, labels)) continue;
        cost += 'policy' in row ? this.#editEvaluated(txn, row, look, edit) : this.#editSet(txn, row, look, edit);
      }
    }
    return undefined;
  }

  #editEvaluated(txn: WriteTxn, row: Evaluated, { identity }: Look, edit: Edit): number {
    const identities = edit(row.identities, identity);
    if (identities === row.identities) return 0;
    txn.upsert(this.#evaluated, { ...row, identities });
    return costOf(identities);
  }

  #editSet(txn: WriteTxn, { hash }: SelectorRow, { identity, presence }: Look, edit: Edit): number {
    const members = this.#of(txn, hash);
    const after = edit(members, identity);
    const changed = after !== members;
    if (changed) this.#put(txn, hash, after);
    if (presence || (changed && edit === withMember)) this.#options.onMoved?.(txn, hash);
    return changed ? costOf(after) : 0;
  }

  /** What finds every identity that the selector may match; perhaps more than once. */
  #candidates(selector: LabelSelector): readonly Query<KnownIdentity>[] {
    const { namespaces, asked } = selectorScope(selector);
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

type Edit = (list: readonly number[], value: number) => readonly number[];

/** What it costs to write a list, in selectors that are looked at. */
function costOf(identities: readonly number[]): number {
  return 1 + identities.length / MEMBERS_OF_ONE;
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
