/** Policies, read and resolved, and what stays enforced of those that cannot be read, or ask for more than they may. */
import type { LabelSelector } from '@weir/labels';
import {
  type CidrGroup,
  closedPolicy,
  demandOf,
  demandProblem,
  type ParseResult,
  type PolicyProblem,
  parsePolicy,
  type Referents,
  type ResolveOptions,
  type Rule,
  resolve,
  type ServicePeers,
  sizeProblem,
} from '@weir/policy';
import type { AnyTable, IndexSpec, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import { NO_LIMITS, type PolicyLimits } from '../limits.ts';
import { hashesOf, resolvedName } from '../names.ts';
import type { Adopted, PolicyObjectKind, PolicyRow, ResolvedRow } from '../types.ts';
import { askedSets, namedPorts, portNameKey, rulesWithNames } from './asked-names.ts';
import { CIDR_GROUP_INDEX, type NamesCidrGroups, namesCidrGroup } from './cidr-group-needs.ts';
import { CookieBook, elementName } from './cookies.ts';
import { noPlace, noPlaces, placesOf } from './places.ts';
import { dependents, type NamesServices, SERVICE_INDEX } from './service-needs.ts';
import { type WorkQueue, work } from './work.ts';

/** Rules in force. */
export interface Enforced {
  readonly resolved: ResolvedRow | undefined;
  /** Selectors that `resolved` names, by hash. */
  readonly selectors: ReadonlyMap<string, LabelSelector>;
}

/** What is enforced of a policy that has never been valid. */
const NEVER: Enforced = { resolved: undefined, selectors: new Map<string, LabelSelector>() };

/** What a policy names, of which a change has it read again. */
type References = NamesServices & NamesCidrGroups & Pick<ParseResult, 'byStack'>;

const NO_REFERENCES: References = { services: [], cidrGroups: [], byStack: false };

export interface PolicyEntry extends Enforced, References {
  readonly row: PolicyRow;
  readonly problems: readonly PolicyProblem[];
  /** What is enforced: this generation, or an older one of the same uid. */
  readonly resolved: ResolvedRow | undefined;
  readonly subjects: ReadonlySet<string>;
  /** How many of the policies that its namespace may have it counts for. */
  readonly places: number;
  /** As many it would have to count for, and cannot; 0: it has what it needs. */
  readonly lacks: number;
}

/** What an earlier run resolved, of a policy that has not been set yet. */
export interface AdoptedPolicy extends Enforced {
  readonly resolved: ResolvedRow;
  /** As of `PolicyEntry`. */
  readonly places: number;
}

/** How a policy is read. */
interface Reading {
  readonly problems: readonly PolicyProblem[];
  readonly enforced: Enforced;
  readonly references: References;
  /** As of `PolicyEntry`. */
  readonly lacks: number;
}

/** What the policies of a namespace count for, refused ones too. */
interface Count {
  readonly namespace: string;
  readonly policies: number;
}

export interface PolicyBookOptions extends Pick<ResolveOptions, 'networkPolicyCidrs'> {
  readonly limits?: PolicyLimits | undefined;
}

export class PolicyBook {
  readonly #entries: Table<PolicyEntry>;
  readonly #adopted: Table<AdoptedPolicy>;
  readonly #counts: Table<Count>;
  readonly #cookies: CookieBook;
  readonly #limits: PolicyLimits;
  readonly #networkPolicyCidrs: PolicyBookOptions['networkPolicyCidrs'];
  readonly #queue: WorkQueue;
  readonly #referentsIn: (reader: Reader) => Referents;

  constructor(
    db: StateDB,
    queue: WorkQueue,
    referentsIn: (reader: Reader) => Referents,
    { limits = NO_LIMITS, networkPolicyCidrs }: PolicyBookOptions = {},
  ) {
    this.#queue = queue;
    this.#referentsIn = referentsIn;
    this.#limits = limits;
    this.#networkPolicyCidrs = networkPolicyCidrs;
    const selector: IndexSpec<Enforced> = { name: 'selector', keys: ({ selectors }) => selectors.keys() };
    this.#entries = db.table<PolicyEntry>({
      name: 'parsedPolicies',
      key: ({ row }) => row.key,
      indexes: [
        selector,
        SERVICE_INDEX,
        CIDR_GROUP_INDEX,
        { name: 'stack', keys: ({ byStack }) => (byStack ? [''] : []) },
        { name: 'uid', keys: ({ row }) => [row.uid] },
        {
          name: 'over-budget',
          keys: ({ problems }) => (problems.some(({ code }) => code === 'BudgetExceeded') ? [''] : []),
        },
        { name: 'no-place', keys: ({ row, lacks }) => (lacks === 0 ? [] : [row.namespace ?? '']) },
        { name: 'subjects', keys: ({ subjects }) => (subjects.size === 0 ? [] : [subjectsKey(subjects)]) },
        {
          name: 'port-name',
          keys: (entry) => rulesWithNames(entry).flatMap((rule) => namedPorts(rule).map(portNameKey)),
        },
        {
          name: 'asked',
          keys: (entry) => rulesWithNames(entry).flatMap(askedSets),
        },
      ],
    });
    this.#adopted = db.table<AdoptedPolicy>({
      name: 'adoptedPolicies',
      key: ({ resolved }) => resolved.name,
      indexes: [selector, { name: 'kind', keys: ({ resolved }) => [resolved.source.kind] }],
    });
    this.#counts = db.table<Count>({ name: 'policyCounts', key: ({ namespace }) => namespace });
    this.#cookies = new CookieBook(db);
  }

  get tables(): readonly AnyTable[] {
    return [this.#entries, this.#adopted, this.#counts, ...this.#cookies.tables];
  }

  /** Takes over what an earlier run resolved: its cookies, its place, and its rules in case the policy cannot be read now. */
  adopt(txn: WriteTxn, { peerSets, resolved }: Pick<Adopted, 'peerSets' | 'resolved'>): void {
    const known = new Map(Array.from(peerSets, ({ hash, selector }) => [hash, selector]));
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
      const adopted = { resolved: row, selectors };
      const places = placesOf(adopted);
      const twice = txn.upsert(this.#adopted, { ...adopted, places });
      this.#count(txn, namespace, places - (twice?.places ?? 0));
      for (const rule of row.rules) this.#cookies.keep(txn, rule.cookie, nameOf(row.source.uid, rule));
    }
  }

  /** What was adopted of policies that have not been set since. */
  adopted(reader: Reader): Iterable<AdoptedPolicy> {
    return reader.all(this.#adopted);
  }

  /** How many are refused for what they ask. */
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
    this.#count(txn, adopted.resolved.source.namespace, -adopted.places);
    return adopted;
  }

  /** A Service is another than it was, or gone: policies that name it are read again. */
  serviceChanged(txn: WriteTxn, service: ServicePeers): void {
    for (const { row } of [...dependents(txn, this.#entries, service)]) this.#readAgain(txn, row);
  }

  /** The same of a CiliumCIDRGroup. */
  cidrGroupChanged(txn: WriteTxn, group: Pick<CidrGroup, 'name' | 'labels'>): void {
    for (const { row } of [...namesCidrGroup(txn, this.#entries, group)]) this.#readAgain(txn, row);
  }

  /** The pods of the cluster have one family of addresses more, or less: policies of which that decides are read again. */
  stackChanged(txn: WriteTxn): void {
    for (const { row } of [...txn.list(this.#entries, 'stack', '')]) this.#readAgain(txn, row);
  }

  get(reader: Reader, key: string): PolicyEntry | undefined {
    return reader.get(this.#entries, key);
  }

  /** Rules that are in force, of a policy by its key, or of one that was adopted by its name. */
  enforced(reader: Reader, of: string): Enforced | undefined {
    return reader.get(this.#entries, of) ?? reader.get(this.#adopted, of);
  }

  all(reader: Reader): Iterable<PolicyEntry> {
    return reader.all(this.#entries);
  }

  keyOfUid(reader: Reader, uid: string): string | undefined {
    const [entry] = reader.list(this.#entries, 'uid', uid);
    return entry?.row.key;
  }

  /** Policies that have exactly these subjects, by `subjectsKey`. */
  withSubjects(reader: Reader, key: string): Iterable<string> {
    return keysOf(reader.list(this.#entries, 'subjects', key));
  }

  /** Policies that name ports by this name (`TCP/http`). */
  usingPortName(reader: Reader, name: string): Iterable<string> {
    return keysOf(reader.list(this.#entries, 'port-name', name));
  }

  /** Policies that ask the members of this set, or EVERYONE, for names. */
  asking(reader: Reader, hash: string): Iterable<string> {
    return keysOf(reader.list(this.#entries, 'asked', hash));
  }

  /** Policies whose rules in force name this set. */
  naming(reader: Reader, hash: string): Iterable<string> {
    return keysOf(reader.list(this.#entries, 'selector', hash));
  }

  /** Whether anything that is enforced, or was adopted, names this set. */
  names(reader: Reader, hash: string): boolean {
    const isAdopted = reader.list(this.#adopted, 'selector', hash).next().done !== true;
    return isAdopted || reader.list(this.#entries, 'selector', hash).next().done !== true;
  }

  /** Reads a policy. Returns its entry, and what that takes the place of. */
  set(txn: WriteTxn, row: PolicyRow): { readonly before: readonly Enforced[]; readonly after: PolicyEntry } {
    const before = this.get(txn, row.key);
    const name = resolvedName(row.kind, row.namespace, row.name);
    const adopted = txn.delete(this.#adopted, name);
    const had = (before?.places ?? 0) + (adopted?.places ?? 0);
    const left = Math.max(0, this.#placesLeft(txn, row.namespace)) + had;
    const { problems, references, enforced, lacks } = this.#read(
      txn,
      row,
      earlierOf(row, before, adopted) ?? NEVER,
      left,
    );
    const places = left === 0 ? 0 : placesOf(enforced);
    const { resolved, selectors } = enforced;
    const after = { row, problems, ...references, places, lacks, resolved, selectors, subjects: subjectsOf(resolved) };
    for (const old of [before?.resolved, adopted?.resolved]) {
      if (old !== undefined) this.#releaseCookies(txn, old, after.resolved);
    }
    txn.upsert(this.#entries, after);
    this.#count(txn, row.namespace, places - had);
    return { before: [before, adopted].filter((old) => old !== undefined), after };
  }

  delete(txn: WriteTxn, key: string): PolicyEntry | undefined {
    const entry = txn.delete(this.#entries, key);
    if (entry?.resolved !== undefined) this.#releaseCookies(txn, entry.resolved, undefined);
    if (entry !== undefined) this.#count(txn, entry.row.namespace, -entry.places);
    return entry;
  }

  #readAgain(txn: WriteTxn, { key, namespace = '' }: PolicyRow): void {
    this.#queue.put(txn, work('reread', key, namespace));
  }

  /** Administrators write policies without a namespace: as many as they want. */
  #placesLeft(reader: Reader, namespace: string | undefined): number {
    const { policiesPerNamespace: most } = this.#limits;
    if (namespace === undefined || most === 0) return Number.POSITIVE_INFINITY;
    return most - (reader.get(this.#counts, namespace)?.policies ?? 0);
  }

  /** The policies of the namespace count for so many more, or fewer. Those that have room now are read again. */
  #count(txn: WriteTxn, namespace: string | undefined, by: number): void {
    if (namespace === undefined) return;
    const policies = (txn.get(this.#counts, namespace)?.policies ?? 0) + by;
    if (policies === 0) txn.delete(this.#counts, namespace);
    else txn.upsert(this.#counts, { namespace, policies });
    if (by >= 0) return;
    let left = this.#placesLeft(txn, namespace);
    for (const { row, places, lacks } of txn.list(this.#entries, 'no-place', namespace)) {
      if (left <= 0) break;
      if (lacks - places > left) continue;
      left -= lacks - places;
      this.#readAgain(txn, row);
    }
  }

  /** `left`: how many of its namespace's policies it may count for. */
  #read(txn: WriteTxn, row: PolicyRow, earlier: Enforced, left: number): Reading {
    const refused = (problems: readonly PolicyProblem[], references = NO_REFERENCES, lacks = 0): Reading => ({
      ...{ problems, references, enforced: earlier, lacks },
    });
    if (left === 0) return refused([noPlace(row.namespace, this.#limits)], NO_REFERENCES, 1);
    const tooMuch = demandProblem(row.demand, this.#limits);
    if (tooMuch !== undefined) return this.#closed(txn, row, earlier, tooMuch);
    const {
      rules,
      refused: unreadable,
      problems,
      ...references
    } = parsePolicy(row.object, row.kind, this.#referentsIn(txn));
    if (unreadable) return refused(problems, references);
    const enforced = this.#resolve(txn, row, rules, earlier);
    const needs = placesOf(enforced);
    const lacks = needs > left ? needs : 0;
    const tooLarge =
      lacks > 0
        ? noPlaces(row.namespace, needs, left, this.#limits)
        : sizeProblem(enforced.resolved.rules, enforced.selectors);
    if (tooLarge === undefined) return { problems, references, enforced, lacks: 0 };
    this.#releaseCookies(txn, enforced.resolved, earlier.resolved);
    if (lacks === 0 && earlier === NEVER) return { ...this.#closed(txn, row, earlier, tooLarge), references };
    return refused([...problems, tooLarge], references, lacks);
  }

  /** A policy that needs more than it may stays as it was; a new one closes what it is about. */
  #closed(txn: WriteTxn, row: PolicyRow, earlier: Enforced, problem: PolicyProblem): Reading {
    const kept = { problems: [problem], references: NO_REFERENCES, enforced: earlier, lacks: 0 };
    if (earlier !== NEVER) return kept;
    const object = closedPolicy(row.object, row.kind);
    const tooMuch = demandProblem(demandOf(object, row.kind), this.#limits);
    const { rules, refused } = tooMuch === undefined ? parsePolicy(object, row.kind) : { rules: [], refused: true };
    return refused ? kept : { ...kept, enforced: this.#resolve(txn, row, rules, earlier) };
  }

  #resolve(
    txn: WriteTxn,
    { kind, namespace, name, uid, generation }: PolicyRow,
    rules: readonly Rule[],
    earlier: Enforced,
  ): Enforced & { readonly resolved: ResolvedRow } {
    const kept = new Map(earlier.resolved?.rules.map((rule) => [nameOf(uid, rule), rule.cookie]));
    const { rules: resolved, selectors } = resolve(rules, {
      networkPolicyCidrs: this.#networkPolicyCidrs,
      cookieOf: (_rule, element) => {
        const text = nameOf(uid, element);
        const cookie = kept.get(text);
        return cookie !== undefined && this.#cookies.keep(txn, cookie, text) ? cookie : this.#cookies.give(txn, text);
      },
    });
    const source = { kind, ...(namespace === undefined ? {} : { namespace }), name, uid, generation };
    return { resolved: { name: resolvedName(kind, namespace, name), source, rules: resolved }, selectors };
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

/** One text for each combination of subjects. Hashes are hexadecimal digits of one length. */
export function subjectsKey(subjects: ReadonlySet<string>): string {
  return [...subjects].sort().join();
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
