/** Policies, read and resolved, and what stays enforced of those that cannot be read, or cost more than they may. */
import { isDeepStrictEqual } from 'node:util';
import type { LabelSelector } from '@weir/labels';
import {
  type PolicyProblem,
  parsePolicy,
  type ResolvedRule,
  type Rule,
  resolve,
  type ServicePeers,
  type ServiceRef,
  type ServiceView,
} from '@weir/policy';
import {
  type AnyTable,
  type Change,
  type IndexSpec,
  type Key,
  keys,
  type Reader,
  type StateDB,
  type Table,
  type WriteTxn,
} from '@weir/statedb';
import { NO_LIMITS, type PolicyLimits } from '../limits.ts';
import { hashesOf, resolvedName } from '../names.ts';
import type { Adopted, PolicyObjectKind, PolicyRow, ResolvedRow } from '../types.ts';
import { askedBy, namedPorts, portNameKey } from './asked-names.ts';
import { Budgets, covers, type Needs, NOTHING, needsOf } from './budgets.ts';
import { CookieBook, elementName } from './cookies.ts';
import { FairQueue } from './fair-queue.ts';
import { type CountedSets, MatchBudget, NOT_COUNTED, type Progress } from './match-budget.ts';
import { dependents, type NamesServices, SERVICE_INDEX } from './service-needs.ts';

/** Rules in force, and what they need. */
export interface Enforced {
  readonly resolved: ResolvedRow | undefined;
  /** Selectors that `resolved` names, by hash. */
  readonly selectors: ReadonlyMap<string, LabelSelector>;
  /** What they cost. */
  readonly needs: Needs;
}

/** What is enforced of a policy that never could be. */
const NEVER: Enforced = { resolved: undefined, selectors: new Map<string, LabelSelector>(), needs: NOTHING };

export interface PolicyEntry extends Enforced, NamesServices {
  readonly row: PolicyRow;
  readonly problems: readonly PolicyProblem[];
  /** What is enforced: this generation, or an older one of the same uid. */
  readonly resolved: ResolvedRow | undefined;
  readonly subjects: ReadonlySet<string>;
  /** What this generation would cost, which cannot be afforded now; undefined: it can, or never could be, or nobody knows yet. */
  readonly wanting: Wanting | undefined;
  /** This generation has not been read to the end: it waits for its turn (`nextAgain`). */
  readonly waits: boolean;
}

interface Wanting extends Needs {
  /** What it would have matched when it was read last, as far as that was counted; undefined: it was refused before. */
  readonly matches: number | undefined;
}

/** A policy that waits, or was refused and is to be read again. */
interface Again {
  readonly key: string;
  readonly namespace: string;
  /** Whatever is known of what it would cost, as that may be less by now. */
  readonly anyway: boolean;
  /** Services that it names are not what they were when it was read. */
  readonly stale: boolean;
}

/** A generation of a policy that has been resolved, and is being counted: over several rounds, if it takes that long. */
interface UnderWay extends Pick<PolicyRow, 'key' | 'uid' | 'generation'>, NamesServices {
  readonly problems: readonly PolicyProblem[];
  /** As it will be if it can be afforded. It has its cookies already. */
  readonly resolved: ResolvedRow;
  readonly selectors: Enforced['selectors'];
  readonly needs: Needs;
  readonly progress: Progress;
}

/** What a policy takes the place of. */
interface Replaced {
  /** What stays in force when this generation cannot be. */
  readonly earlier: Enforced;
  readonly cost: Needs;
  /** Identities that it matches, summed. */
  readonly matched: () => number;
}

/** How a policy is read. */
type Reading = Pick<PolicyEntry, 'problems' | 'wanting'> & {
  readonly enforced: Enforced;
  /** Default true: it is one of the policies that its namespace may have. */
  readonly placed?: boolean;
  readonly waits?: boolean;
  /** Default: none. */
  readonly services?: readonly ServiceRef[];
};

/** When a policy is read. */
export interface Pace {
  /** Whether selectors may still be evaluated. */
  readonly hasTime: () => boolean;
  /** `first`: everybody waits for the first state. `change`: the policy has changed. `again`: `nextAgain` said so. */
  readonly when: 'first' | 'change' | 'again';
}

/** What keeps a policy from being enforced as a whole. */
const REFUSALS: ReadonlySet<PolicyProblem['code']> = new Set(['InvalidSpec', 'BudgetExceeded']);

/** Place of refused policies among those of their namespace that are to be read: after those that wait. */
const LAST = Number.MAX_SAFE_INTEGER;

/** What an earlier run resolved, of a policy that has not been set yet. */
export interface AdoptedPolicy extends Enforced {
  readonly resolved: ResolvedRow;
  /** Identities that its peer sets list, summed. */
  readonly matches: number;
}

export class PolicyBook {
  readonly #entries: Table<PolicyEntry>;
  readonly #adopted: Table<AdoptedPolicy>;
  readonly #cookies: CookieBook;
  readonly #budgets: Budgets;
  readonly #matches: MatchBudget;
  readonly #sets: CountedSets;
  readonly #again: FairQueue<Again>;
  readonly #underWay: Table<UnderWay>;
  readonly #servicesIn: (reader: Reader) => ServiceView;

  constructor(
    db: StateDB,
    sets: CountedSets,
    servicesIn: (reader: Reader) => ServiceView,
    limits: PolicyLimits = NO_LIMITS,
  ) {
    this.#sets = sets;
    this.#servicesIn = servicesIn;
    this.#again = new FairQueue(db, {
      name: 'policies-again',
      keyOf: ({ key }) => key,
      ownerOf: ({ namespace }) => namespace,
    });
    this.#budgets = new Budgets(db, limits);
    this.#matches = new MatchBudget(db, sets, limits);
    const selector: IndexSpec<Enforced> = { name: 'selector', keys: ({ selectors }) => selectors.keys() };
    this.#entries = db.table<PolicyEntry>({
      name: 'parsed-policies',
      key: ({ row }) => row.key,
      indexes: [
        selector,
        SERVICE_INDEX,
        { name: 'uid', keys: ({ row }) => [row.uid] },
        {
          name: 'over-budget',
          keys: ({ problems }) => (problems.some(({ code }) => code === 'BudgetExceeded') ? [''] : []),
        },
        {
          name: 'refused',
          keys: ({ row, problems }) => (problems.some(({ code }) => REFUSALS.has(code)) ? [row.namespace ?? ''] : []),
        },
        { name: 'waits', keys: ({ row, waits }) => (waits ? [row.namespace ?? ''] : []) },
        { name: 'wanting', keys: ({ row, wanting }) => (wanting === undefined ? [] : [row.namespace ?? '']) },
        {
          name: 'too-many-matches',
          keys: ({ row, wanting }) => (wanting?.matches === undefined ? [] : [keys.join(row.namespace ?? '')]),
        },
        { name: 'no-place', keys: ({ row, needs }) => (needs.policies === 0 ? [row.namespace ?? ''] : []) },
        { name: 'subject', keys: ({ subjects }) => subjects },
        { name: 'subjects', keys: ({ subjects }) => (subjects.size === 0 ? [] : [subjectsKey(subjects)]) },
        {
          name: 'port-name',
          keys: (entry) => rulesWithNames(entry).flatMap((rule) => namedPorts(rule).map(portNameKey)),
        },
        { name: 'asked', keys: (entry) => rulesWithNames(entry).flatMap((rule) => askedBy(rule).hashes) },
        {
          name: 'asks-everyone',
          keys: (entry) => (rulesWithNames(entry).some((rule) => askedBy(rule).everyone) ? [''] : []),
        },
      ],
    });
    this.#adopted = db.table<AdoptedPolicy>({
      name: 'adopted-policies',
      key: ({ resolved }) => resolved.name,
      indexes: [selector, { name: 'kind', keys: ({ resolved }) => [resolved.source.kind] }],
    });
    this.#underWay = db.table<UnderWay>({
      name: 'policies-under-way',
      key: ({ key }) => key,
      indexes: [SERVICE_INDEX],
    });
    this.#cookies = new CookieBook(db);
  }

  get tables(): readonly AnyTable[] {
    const books = [this.#cookies, this.#budgets, this.#matches, this.#again];
    return [this.#entries, this.#adopted, this.#underWay, ...books.flatMap((book): readonly AnyTable[] => book.tables)];
  }

  /** Takes over what an earlier run resolved: its cookies, and its rules in case the policies cannot be read now. */
  adopt(txn: WriteTxn, { peerSets, resolved }: Pick<Adopted, 'peerSets' | 'resolved'>): void {
    const [known, sizes] = [new Map<string, LabelSelector>(), new Map<string, number>()];
    for (const { hash, selector, identities } of peerSets) {
      known.set(hash, selector);
      sizes.set(hash, (sizes.get(hash) ?? 0) + identities.length);
    }
    for (const was of resolved) {
      const { kind, namespace, name, generation } = was.source;
      // An earlier version may have given it another name.
      const row = { ...was, name: resolvedName(kind, namespace, name) };
      if ((txn.get(this.#adopted, row.name)?.resolved.source.generation ?? 0) > generation) continue;
      const selectors = new Map<string, LabelSelector>();
      for (const hash of hashesOf(row.rules)) {
        const selector = known.get(hash);
        // A set that somebody deleted meanwhile cannot be had back from its hash: nodes keep what they have of it.
        if (selector !== undefined) selectors.set(hash, selector);
      }
      const needs = needsOf(row.rules, selectors.values());
      const matches = [...selectors.keys()].reduce((sum, hash) => sum + (sizes.get(hash) ?? 0), 0);
      const twice = txn.upsert(this.#adopted, { resolved: row, selectors, needs, matches });
      this.#budgets.charge(txn, row.source.namespace, twice?.needs ?? NOTHING, needs);
      this.#matches.charge(txn, row.source.namespace, matches - (twice?.matches ?? 0));
      for (const rule of row.rules) this.#cookies.keep(txn, rule.cookie, nameOf(row.source.uid, rule));
    }
  }

  /** What was adopted of policies that have not been set since. */
  adopted(reader: Reader): Iterable<AdoptedPolicy> {
    return reader.all(this.#adopted);
  }

  /** How many are refused for their cost. */
  overBudget(reader: Reader): number {
    let count = 0;
    for (const _ of reader.list(this.#entries, 'over-budget', '')) count += 1;
    return count;
  }

  adoptedOf(reader: Reader, kind: PolicyObjectKind): Iterable<AdoptedPolicy> {
    return reader.list(this.#adopted, 'kind', kind);
  }

  /** Forgets what was adopted of a policy. */
  forgetAdopted(txn: WriteTxn, name: string): AdoptedPolicy | undefined {
    const adopted = txn.delete(this.#adopted, name);
    if (adopted === undefined) return undefined;
    this.#releaseCookies(txn, adopted.resolved, undefined);
    this.#budgets.charge(txn, adopted.resolved.source.namespace, adopted.needs, NOTHING);
    this.#matches.charge(txn, adopted.resolved.source.namespace, -adopted.matches);
    return adopted;
  }

  /** Whether policies wait to be read, or to be read again. */
  hasAgain(reader: Reader): boolean {
    return this.#budgets.fallen(reader) !== undefined || !this.#again.isEmpty(reader);
  }

  /** The next policy that waits, or was refused and perhaps would not be now, in turns of the namespaces. To be given to `set`. */
  nextAgain(txn: WriteTxn): PolicyRow | undefined {
    this.#queueAffordable(txn);
    for (let next = this.#again.take(txn); next !== undefined; next = this.#again.take(txn)) {
      const entry = this.get(txn, next.row.key);
      if (entry?.waits === true || (entry !== undefined && next.row.stale)) return entry.row;
      const isRefused = entry?.wanting !== undefined || entry?.needs.policies === 0;
      if (isRefused && (next.row.anyway || this.#canAfford(txn, entry))) return entry.row;
    }
    return undefined;
  }

  /** Has policies that matched too much read again, if selectors may match less than at the last call. */
  recount(txn: WriteTxn): void {
    if (!this.#sets.takeFewer(txn)) return;
    for (const { row } of txn.prefix(this.#entries, '', 'too-many-matches'))
      this.#readAgain(txn, row.key, row.namespace ?? '', true);
  }

  /** A Service is another than it was, or gone: policies that name it are read again. */
  serviceChanged(txn: WriteTxn, service: ServicePeers): void {
    for (const underWay of [...dependents(txn, this.#underWay, service)]) {
      const { resolved } = this.get(txn, underWay.key) ?? NEVER;
      this.#abandon(txn, underWay, resolved);
    }
    for (const { row } of [...dependents(txn, this.#entries, service)]) {
      const { anyway = false } = this.#again.get(txn, row.key) ?? {};
      this.#again.put(txn, again(row.key, row.namespace, anyway, txn.revision(this.#entries), true));
    }
  }

  /** A set has so many members more, or fewer. */
  resized(txn: WriteTxn, hash: string, by: number): void {
    this.#matches.resized(txn, hash, by);
  }

  get(reader: Reader, key: string): PolicyEntry | undefined {
    return reader.get(this.#entries, key);
  }

  all(reader: Reader): Iterable<PolicyEntry> {
    return reader.all(this.#entries);
  }

  keyOfUid(reader: Reader, uid: string): string | undefined {
    const [entry] = reader.list(this.#entries, 'uid', uid);
    return entry?.row.key;
  }

  /** Policies that have this set as a subject. */
  withSubject(reader: Reader, hash: string): Iterable<string> {
    return this.#keysIn(reader, 'subject', hash);
  }

  /** Policies that have exactly these subjects, by `subjectsKey`. */
  withSubjects(reader: Reader, key: string): Iterable<string> {
    return this.#keysIn(reader, 'subjects', key);
  }

  /** Policies that name ports by this name (`TCP/http`). */
  usingPortName(reader: Reader, name: string): Iterable<string> {
    return this.#keysIn(reader, 'port-name', name);
  }

  /** Policies that ask the members of this set for names. */
  asking(reader: Reader, hash: string): Iterable<string> {
    return this.#keysIn(reader, 'asked', hash);
  }

  /** Policies that ask all pods for names. */
  askingEveryone(reader: Reader): Iterable<string> {
    return this.#keysIn(reader, 'asks-everyone', '');
  }

  /** Whether anything that is enforced, or was adopted, names this set. */
  names(reader: Reader, hash: string): boolean {
    for (const _ of reader.list(this.#entries, 'selector', hash)) return true;
    for (const _ of reader.list(this.#adopted, 'selector', hash)) return true;
    return false;
  }

  /**
   * Reads a policy. Returns its entry, and what that takes the place of; undefined: it is still being counted, and nothing has changed. Who has
   * not been counted to the end is told by `nextAgain`.
   */
  set(
    txn: WriteTxn,
    row: PolicyRow,
    pace: Pace,
  ): { readonly before: readonly Enforced[]; readonly after: PolicyEntry } | undefined {
    const before = this.get(txn, row.key);
    const name = resolvedName(row.kind, row.namespace, row.name);
    const adopted = txn.get(this.#adopted, name);
    const earlier = earlierOf(row, before, adopted);
    const gone = [before, adopted].filter((old) => old !== undefined);
    const cost = total(gone);
    const matched = (): number => this.#matches.sum(txn, before?.selectors.keys() ?? []) + (adopted?.matches ?? 0);
    const known = txn.get(this.#underWay, row.key);
    if (known !== undefined && !isSame(known, row)) {
      this.#abandon(txn, known, (before ?? adopted)?.resolved);
      // It begins anew, and behind those that wait: who edits it without end keeps nobody else's from being read.
      this.#again.remove(txn, row.key);
    }
    const reading = this.#read(txn, row, { earlier: earlier ?? NEVER, cost, matched }, pace);
    const { problems, wanting, enforced, placed = true, waits = false, services = [] } = reading;
    if (waits && pace.when === 'again') {
      this.#again.putBack(txn, again(row.key, row.namespace, true, 0, before?.waits === false));
      return undefined;
    }
    if (waits) this.#again.put(txn, again(row.key, row.namespace, true, txn.revision(this.#entries)));
    const { resolved, selectors } = enforced;
    const needs = { ...enforced.needs, policies: placed ? 1 : 0 };
    const subjects = subjectsOf(resolved);
    const after = { row, problems, services, wanting, waits, resolved, selectors, needs, subjects };
    txn.delete(this.#adopted, name);
    for (const old of [before?.resolved, adopted?.resolved]) {
      if (old !== undefined) this.#releaseCookies(txn, old, after.resolved);
    }
    txn.upsert(this.#entries, after);
    this.#budgets.charge(txn, row.namespace, cost, after.needs);
    const used = this.#matches.used(txn, row.namespace);
    this.#matches.charge(txn, row.namespace, -(adopted?.matches ?? 0));
    this.#matches.use(txn, row.namespace, before?.selectors.keys() ?? [], -1);
    this.#matches.use(txn, row.namespace, after.selectors.keys(), 1);
    if (row.namespace !== undefined && this.#matches.used(txn, row.namespace) < used)
      this.#budgets.markFallen(txn, row.namespace);
    return { before: gone, after };
  }

  delete(txn: WriteTxn, key: string): PolicyEntry | undefined {
    const [entry, underWay] = [txn.delete(this.#entries, key), txn.get(this.#underWay, key)];
    if (underWay !== undefined) this.#abandon(txn, underWay, undefined);
    this.#again.remove(txn, key);
    if (entry?.resolved !== undefined) this.#releaseCookies(txn, entry.resolved, undefined);
    if (entry !== undefined) {
      this.#budgets.charge(txn, entry.row.namespace, entry.needs, NOTHING);
      this.#matches.use(txn, entry.row.namespace, entry.selectors.keys(), -1);
    }
    return entry;
  }

  /** Of namespaces whose policies cost less than before: policies that may be had now. */
  #queueAffordable(txn: WriteTxn): void {
    for (let namespace = this.#budgets.fallen(txn); namespace !== undefined; namespace = this.#budgets.fallen(txn)) {
      this.#budgets.lookedAt(txn, namespace);
      for (const entry of txn.list(this.#entries, 'wanting', namespace))
        if (this.#canAfford(txn, entry)) this.#readAgain(txn, entry.row.key, namespace, false);
      let places = this.#budgets.placesLeft(txn, namespace);
      for (const { row } of txn.list(this.#entries, 'no-place', namespace)) {
        if (places <= 0) break;
        places -= 1;
        this.#readAgain(txn, row.key, namespace, false);
      }
    }
  }

  #readAgain(txn: WriteTxn, key: string, namespace: string, anyway: boolean): void {
    const known = this.#again.get(txn, key);
    if (anyway || known === undefined) this.#again.put(txn, again(key, namespace, anyway, LAST, known?.stale));
  }

  /** Whether what was refused for the budget of its namespace may be had now, as far as is known without reading it. */
  #canAfford(txn: WriteTxn, { row: { namespace }, wanting, needs, selectors }: PolicyEntry): boolean {
    if (wanting === undefined) return this.#budgets.ofPlace(txn, namespace) === undefined;
    if (!this.#budgets.fits(txn, namespace ?? '', needs, wanting)) return false;
    if (wanting.matches === undefined) return true;
    return this.#matches.fits(txn, namespace, this.#matches.sum(txn, selectors.keys()), wanting.matches);
  }

  #read(txn: WriteTxn, row: PolicyRow, replaced: Replaced, pace: Pace): Reading {
    const { earlier, cost } = replaced;
    const known = txn.get(this.#underWay, row.key);
    if (known !== undefined) return this.#count(txn, row, known, replaced, pace);
    const refused = (problems: readonly PolicyProblem[]): Reading => ({
      problems,
      wanting: undefined,
      enforced: earlier,
    });
    const noPlace = cost.policies > 0 ? undefined : this.#budgets.ofPlace(txn, row.namespace);
    if (noPlace !== undefined) return { ...refused([noPlace]), placed: false };
    const tooMuch = this.#budgets.ofText(row);
    if (tooMuch !== undefined) return refused([tooMuch]);
    if (!isInForce(row, earlier) && this.#isBusy(txn, row, pace)) return waiting(earlier);
    const parsed = parsePolicy(row.object, row.kind, this.#servicesIn(txn));
    const { problems, services } = parsed;
    if (problems.some(({ code }) => REFUSALS.has(code))) return { ...refused(problems), services };
    const { key, uid, generation } = row;
    const resolved = this.#resolve(txn, row, parsed.rules, earlier);
    return this.#count(
      txn,
      row,
      { key, uid, generation, problems, services, ...resolved, progress: NOT_COUNTED },
      replaced,
      pace,
    );
  }

  /** Finds out whether what has been resolved can be afforded, as far as there is time. */
  #count(txn: WriteTxn, row: PolicyRow, underWay: UnderWay, { earlier, cost, matched }: Replaced, pace: Pace): Reading {
    const { problems, services, resolved, selectors, needs, progress } = underWay;
    const alone = this.#budgets.ofPolicy(needs);
    // First come keeps: what is in force, or is no more than that.
    const inForce = isInForce(row, earlier) && (services.length === 0 || isSameRules(resolved, earlier.resolved));
    const kept = inForce || covers(earlier.needs, needs);
    const uncounted = alone ?? (kept ? undefined : this.#budgets.ofNamespace(txn, row.namespace, cost, needs));
    const counted =
      uncounted === undefined && !inForce
        ? this.#matches.count(txn, { ...row, selectors, before: matched }, progress, pace.hasTime)
        : undefined;
    if (counted?.unfinished !== undefined) {
      txn.upsert(this.#underWay, { ...underWay, progress: counted.unfinished });
      return waiting(earlier);
    }
    const excess = uncounted ?? counted?.problem;
    if (excess === undefined) {
      txn.delete(this.#underWay, row.key);
      return { problems, services, wanting: undefined, enforced: { resolved, selectors, needs } };
    }
    this.#abandon(txn, underWay, earlier.resolved);
    const wanting = alone === undefined ? { ...needs, matches: counted?.matches } : undefined;
    return { problems: [...problems, excess], services, wanting, enforced: earlier };
  }

  /**
   * Whether a policy has to wait for others of its namespace, unread: only one of them is under way at a time, and before the first state is
   * shown no more of them are read once one has been refused.
   */
  #isBusy(reader: Reader, { key, namespace = '' }: PolicyRow, { when }: Pace): boolean {
    if (when === 'again') return false;
    for (const index of when === 'first' ? ['waits', 'refused'] : ['waits'])
      for (const { row } of reader.list(this.#entries, index, namespace)) if (row.key !== key) return true;
    return false;
  }

  /** Forgets a policy that is under way, with its lists, and its cookies but for those of `inForce`. */
  #abandon(txn: WriteTxn, { key, resolved }: UnderWay, inForce: ResolvedRow | undefined): void {
    txn.delete(this.#underWay, key);
    this.#sets.forgetEvaluated(txn, key);
    this.#releaseCookies(txn, resolved, inForce);
  }

  #resolve(
    txn: WriteTxn,
    { kind, namespace, name, uid, generation }: PolicyRow,
    rules: readonly Rule[],
    earlier: Enforced,
  ): Enforced & { readonly resolved: ResolvedRow } {
    const kept = new Map(earlier.resolved?.rules.map((rule) => [nameOf(uid, rule), rule.cookie]));
    const { rules: resolved, selectors } = resolve(rules, {
      cookieOf: (_rule, element) => {
        const text = nameOf(uid, element);
        const cookie = kept.get(text);
        return cookie !== undefined && this.#cookies.keep(txn, cookie, text) ? cookie : this.#cookies.give(txn, text);
      },
    });
    const source = { kind, ...(namespace === undefined ? {} : { namespace }), name, uid, generation };
    return {
      resolved: { name: resolvedName(kind, namespace, name), source, rules: resolved },
      selectors,
      needs: needsOf(resolved, selectors.values()),
    };
  }

  #keysIn(reader: Reader, index: string, key: Key): Iterable<string> {
    return keysOf(reader.list(this.#entries, index, key));
  }

  #releaseCookies(txn: WriteTxn, old: ResolvedRow, now: ResolvedRow | undefined): void {
    const still = new Set(now?.source.uid === old.source.uid ? now.rules.map((rule) => rule.cookie) : []);
    for (const rule of old.rules) {
      if (!still.has(rule.cookie)) this.#cookies.release(txn, rule.cookie, nameOf(old.source.uid, rule));
    }
  }
}

/** What was enforced until now of the same object (not of another one of the same name). */
function earlierOf(
  { uid }: PolicyRow,
  before: PolicyEntry | undefined,
  adopted: AdoptedPolicy | undefined,
): Enforced | undefined {
  const earlier = before?.resolved === undefined ? adopted : before;
  return earlier?.resolved?.source.uid === uid ? earlier : undefined;
}

function waiting(earlier: Enforced): Reading {
  return { problems: [], wanting: undefined, enforced: earlier, waits: true };
}

function isSame(a: Pick<PolicyRow, 'uid' | 'generation'>, b: Pick<PolicyRow, 'uid' | 'generation'>): boolean {
  return a.uid === b.uid && a.generation === b.generation;
}

function isInForce({ generation }: PolicyRow, { resolved }: Enforced): boolean {
  return resolved?.source.generation === generation;
}

/** Services may be others than when the earlier rules of this generation were resolved. */
function isSameRules(resolved: ResolvedRow, earlier: ResolvedRow | undefined): boolean {
  return isDeepStrictEqual(resolved.rules, earlier?.rules);
}

function again(key: string, namespace = '', anyway = false, revision = 0, stale = false): Change<Again> {
  return { row: { key, namespace, anyway, stale }, revision, deleted: false };
}

/** One text for each combination of subjects. Hashes are hexadecimal digits of one length. */
export function subjectsKey(subjects: ReadonlySet<string>): string {
  return [...subjects].sort().join();
}

/** Rules that name ports. */
function rulesWithNames({ resolved }: PolicyEntry): readonly ResolvedRule[] {
  return (resolved?.rules ?? []).filter((rule) => namedPorts(rule).length > 0);
}

function* keysOf(entries: Iterable<PolicyEntry>): Generator<string> {
  for (const { row } of entries) yield row.key;
}

function nameOf(
  uid: string,
  element: { readonly path: string; readonly direction: string; readonly verdict: string },
): string {
  return elementName(uid, element.path, element.direction, element.verdict);
}

function subjectsOf(resolved: ResolvedRow | undefined): ReadonlySet<string> {
  return new Set(resolved?.rules.map((rule) => rule.subject));
}

/** What they cost their namespace. */
function total(all: readonly Enforced[]): Needs {
  return all.reduce(
    (sum, { needs }) => ({
      ...NOTHING,
      policies: sum.policies + needs.policies,
      selectors: sum.selectors + needs.selectors,
      bytes: sum.bytes + needs.bytes,
      cidrs: sum.cidrs + needs.cidrs,
    }),
    NOTHING,
  );
}
