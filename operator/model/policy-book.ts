/** Policies, read and resolved, and what stays enforced of those that cannot be read. */
import type { LabelSelector } from '@weir/labels';
import { type PolicyProblem, parsePolicy, type ResolvedRule, resolve, serviceWarnings } from '@weir/policy';
import type { AnyTable, IndexSpec, Key, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { Adopted, PolicyObjectKind, PolicyRow, ResolvedRow } from '../types.ts';
import { askedBy, namedPorts, portNameKey } from './asked-names.ts';
import { CookieBook, elementName } from './cookies.ts';
import { resolvedName } from './names.ts';

/** Rules in force, and what they need. */
export interface Enforced {
  readonly resolved: ResolvedRow | undefined;
  /** Selectors that `resolved` names, by hash. */
  readonly selectors: ReadonlyMap<string, LabelSelector>;
}

export interface PolicyEntry extends Enforced {
  readonly row: PolicyRow;
  readonly problems: readonly PolicyProblem[];
  /** What is enforced: this generation, or an older one of the same uid. */
  readonly resolved: ResolvedRow | undefined;
  readonly subjects: ReadonlySet<string>;
}

/** What an earlier run resolved, of a policy that has not been set yet. */
export interface AdoptedPolicy extends Enforced {
  readonly resolved: ResolvedRow;
}

export class PolicyBook {
  readonly #entries: Table<PolicyEntry>;
  readonly #adopted: Table<AdoptedPolicy>;
  readonly #cookies: CookieBook;

  constructor(db: StateDB) {
    const selector: IndexSpec<Enforced> = { name: 'selector', keys: ({ selectors }) => selectors.keys() };
    this.#entries = db.table<PolicyEntry>({
      name: 'parsed-policies',
      key: ({ row }) => row.key,
      indexes: [
        selector,
        { name: 'uid', keys: ({ row }) => [row.uid] },
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
    this.#cookies = new CookieBook(db);
  }

  get tables(): readonly AnyTable[] {
    return [this.#entries, this.#adopted, ...this.#cookies.tables];
  }

  /** Takes over what an earlier run resolved: its cookies, and its rules in case the policies cannot be read now. */
  adopt(txn: WriteTxn, { peerSets, resolved }: Pick<Adopted, 'peerSets' | 'resolved'>): void {
    const known = new Map([...peerSets].map(({ hash, selector }) => [hash, selector]));
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
      txn.upsert(this.#adopted, { resolved: row, selectors });
      for (const rule of row.rules) this.#cookies.keep(txn, rule.cookie, nameOf(row.source.uid, rule));
    }
  }

  /** What was adopted of policies that have not been set since. */
  adopted(reader: Reader): Iterable<AdoptedPolicy> {
    return reader.all(this.#adopted);
  }

  adoptedOf(reader: Reader, kind: PolicyObjectKind): Iterable<AdoptedPolicy> {
    return reader.list(this.#adopted, 'kind', kind);
  }

  /** Forgets what was adopted of a policy. */
  forgetAdopted(txn: WriteTxn, name: string): AdoptedPolicy | undefined {
    const adopted = txn.delete(this.#adopted, name);
    if (adopted !== undefined) this.#releaseCookies(txn, adopted.resolved, undefined);
    return adopted;
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

  /** Reads a policy. Returns its entry, and what that takes the place of. */
  set(txn: WriteTxn, row: PolicyRow): { readonly before: readonly Enforced[]; readonly after: PolicyEntry } {
    const before = this.get(txn, row.key);
    const adopted = txn.delete(this.#adopted, resolvedName(row.kind, row.namespace, row.name));
    const earlier = this.#earlier(txn, row, before, adopted);
    const { rules, problems: found } = parsePolicy(row.object, row.kind);
    const problems = [...found, ...serviceWarnings(rules)];
    let after: PolicyEntry;
    if (problems.some((problem) => problem.code === 'InvalidSpec')) {
      after = entryOf(row, problems, earlier?.resolved, earlier?.selectors ?? new Map<string, LabelSelector>());
    } else {
      const kept = new Map(earlier?.resolved?.rules.map((rule) => [nameOf(row.uid, rule), rule.cookie]));
      const resolution = resolve(rules, {
        cookieOf: (_rule, element) => {
          const name = nameOf(row.uid, element);
          const cookie = kept.get(name);
          return cookie !== undefined && this.#cookies.keep(txn, cookie, name) ? cookie : this.#cookies.give(txn, name);
        },
      });
      const { kind, namespace, name, uid, generation } = row;
      const source = { kind, ...(namespace === undefined ? {} : { namespace }), name, uid, generation };
      const resolved = { name: resolvedName(kind, namespace, name), source, rules: resolution.rules };
      after = entryOf(row, problems, resolved, resolution.selectors);
    }
    for (const old of [before?.resolved, earlier?.resolved]) {
      if (old !== undefined) this.#releaseCookies(txn, old, after.resolved);
    }
    txn.upsert(this.#entries, after);
    return { before: [before, adopted].filter((old) => old !== undefined), after };
  }

  delete(txn: WriteTxn, key: string): PolicyEntry | undefined {
    const entry = txn.delete(this.#entries, key);
    if (entry?.resolved !== undefined) this.#releaseCookies(txn, entry.resolved, undefined);
    return entry;
  }

  /** What was enforced until now of the same object (not of another one of the same name). */
  #earlier(
    txn: WriteTxn,
    row: PolicyRow,
    before: PolicyEntry | undefined,
    adopted: AdoptedPolicy | undefined,
  ): Enforced | undefined {
    const earlier = before?.resolved === undefined ? adopted : before;
    if (earlier?.resolved?.source.uid === row.uid) return earlier;
    if (adopted !== undefined) this.#releaseCookies(txn, adopted.resolved, undefined);
    return undefined;
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

/** One text for each combination of subjects. Hashes are hexadecimal digits of one length. */
export function subjectsKey(subjects: ReadonlySet<string>): string {
  return [...subjects].sort().join();
}

/** Every peer set that rules name, subjects too. */
export function hashesOf(rules: readonly ResolvedRule[]): Set<string> {
  const hashes = new Set<string>();
  for (const rule of rules) {
    hashes.add(rule.subject);
    for (const peer of rule.peers ?? []) if ('peerSet' in peer) hashes.add(peer.peerSet);
  }
  return hashes;
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

function entryOf(
  row: PolicyRow,
  problems: readonly PolicyProblem[],
  resolved: ResolvedRow | undefined,
  selectors: ReadonlyMap<string, LabelSelector>,
): PolicyEntry {
  return { row, problems, resolved, selectors, subjects: new Set(resolved?.rules.map((rule) => rule.subject)) };
}
