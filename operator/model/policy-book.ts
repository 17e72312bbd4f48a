/** Policies, read and resolved, and what stays enforced of those that cannot be read, or ask for more than they may. */
import type { LabelSelector } from '@weir/labels';
import {
  cidrsOf,
  demandProblem,
  type PolicyProblem,
  parsePolicy,
  type ResolvedRule,
  type Rule,
  resolve,
  type ServicePeers,
  type ServiceRef,
  type ServiceView,
  sizeProblem,
} from '@weir/policy';
import type { AnyTable, IndexSpec, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import { NO_LIMITS, type PolicyLimits } from '../limits.ts';
import { hashesOf, resolvedName } from '../names.ts';
import type { Adopted, PolicyObjectKind, PolicyRow, ResolvedRow } from '../types.ts';
import { askedSets, namedPorts, portNameKey } from './asked-names.ts';
import { CookieBook, elementName } from './cookies.ts';
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

export interface PolicyEntry extends Enforced, NamesServices {
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
  readonly services: readonly ServiceRef[];
  /** As of `PolicyEntry`. */
  readonly lacks: number;
}

/** What the policies of a namespace count for, refused ones too. */
interface Count {
  readonly namespace: string;
  readonly policies: number;
}

/** A policy counts once for so many CIDRs, or selectors, begun: each is a number on every node, or an object, that others cannot have. */
const CIDRS_A_PLACE = 50;
const SELECTORS_A_PLACE = 10;

const OPTION = '--policies-per-namespace (value operator.limits.policiesPerNamespace)';

export class PolicyBook {
  readonly #entries: Table<PolicyEntry>;
  readonly #adopted: Table<AdoptedPolicy>;
  readonly #counts: Table<Count>;
  readonly #cookies: CookieBook;
  readonly #limits: PolicyLimits;
  readonly #queue: WorkQueue;
  readonly #servicesIn: (reader: Reader) => ServiceView;

  constructor(
    db: StateDB,
    queue: WorkQueue,
    servicesIn: (reader: Reader) => ServiceView,
    limits: PolicyLimits = NO_LIMITS,
  ) {
    this.#queue = queue;
    this.#servicesIn = servicesIn;
    this.#limits = limits;
    const selector: IndexSpec<Enforced> = { name: 'selector', keys: ({ selectors }) => selectors.keys() };
    this.#entries = db.table<PolicyEntry>({
      name: 'parsedPolicies',
      key: ({ row }) => row.key,
      indexes: [
        selector,
        SERVICE_INDEX,
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

  /** Whether anything that is enforced, or was adopted, names this set. */
  names(reader: Reader, hash: string): boolean {
    for (const _ of reader.list(this.#entries, 'selector', hash)) return true;
    for (const _ of reader.list(this.#adopted, 'selector', hash)) return true;
    return false;
  }

  /** Reads a policy. Returns its entry, and what that takes the place of. */
  set(txn: WriteTxn, row: PolicyRow): { readonly before: readonly Enforced[]; readonly after: PolicyEntry } {
    const before = this.get(txn, row.key);
    const name = resolvedName(row.kind, row.namespace, row.name);
    const adopted = txn.delete(this.#adopted, name);
    const had = (before?.places ?? 0) + (adopted?.places ?? 0);
    const left = Math.max(0, this.#placesLeft(txn, row.namespace)) + had;
    const { problems, services, enforced, lacks } = this.#read(
      txn,
      row,
      earlierOf(row, before, adopted) ?? NEVER,
      left,
    );
    const places = left === 0 ? 0 : placesOf(enforced);
    const { resolved, selectors } = enforced;
    const after = { row, problems, services, places, lacks, resolved, selectors, subjects: subjectsOf(resolved) };
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
    const refused = (problems: readonly PolicyProblem[], services: readonly ServiceRef[] = [], lacks = 0): Reading => ({
      ...{ problems, services, enforced: earlier, lacks },
    });
    if (left === 0) return refused([this.#noPlace(row.namespace)], [], 1);
    const tooMuch = demandProblem(row.demand, this.#limits);
    if (tooMuch !== undefined) return refused([tooMuch]);
    const { rules, problems, services } = parsePolicy(row.object, row.kind, this.#servicesIn(txn));
    if (problems.some(({ code }) => code === 'InvalidSpec')) return refused(problems, services);
    const enforced = this.#resolve(txn, row, rules, earlier);
    const needs = placesOf(enforced);
    const lacks = needs > left ? needs : 0;
    const tooLarge =
      lacks > 0 ? this.#noPlaces(row.namespace, needs, left) : sizeProblem(enforced.resolved.rules, enforced.selectors);
    if (tooLarge === undefined) return { problems, services, enforced, lacks: 0 };
    this.#releaseCookies(txn, enforced.resolved, earlier.resolved);
    return refused([...problems, tooLarge], services, lacks);
  }

  #noPlace(namespace = ''): PolicyProblem {
    const { policiesPerNamespace: most } = this.#limits;
    return beyond(
      `namespace ${JSON.stringify(namespace)} has ${most} other policies, refused ones too, and may have ${most}, so that this one is not read: remove some, put rules with one endpointSelector into one policy (field specs), or raise ${OPTION}`,
    );
  }

  #noPlaces(namespace = '', needs: number, left: number): PolicyProblem {
    const { policiesPerNamespace: most } = this.#limits;
    return beyond(
      `the policy counts as ${needs}, one for each ${CIDRS_A_PLACE} CIDRs and each ${SELECTORS_A_PLACE} selectors begun, and namespace ${JSON.stringify(namespace)} has ${left} left of the ${most} policies that it may have: name fewer, remove others, or raise ${OPTION}`,
    );
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
    return { resolved: { name: resolvedName(kind, namespace, name), source, rules: resolved }, selectors };
  }

  #releaseCookies(txn: WriteTxn, old: ResolvedRow, now: ResolvedRow | undefined): void {
    const still = new Set(now?.source.uid === old.source.uid ? now.rules.map((rule) => rule.cookie) : []);
    for (const rule of old.rules) {
      if (!still.has(rule.cookie)) this.#cookies.release(txn, rule.cookie, nameOf(old.source.uid, rule));
    }
  }
}

/** How many policies one counts for, by its enforced rules. */
function placesOf({ resolved, selectors }: Enforced): number {
  const cidrs = resolved === undefined ? 0 : new Set(cidrsOf(resolved.rules)).size;
  return Math.max(1, Math.ceil(cidrs / CIDRS_A_PLACE), Math.ceil(selectors.size / SELECTORS_A_PLACE));
}

function beyond(message: string): PolicyProblem {
  return { code: 'BudgetExceeded', path: '$', message };
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
