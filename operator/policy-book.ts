/** Policies, read and resolved, and what stays enforced of those that cannot be read. */
import type { LabelSelector } from '@weir/labels';
import { type PolicyProblem, parsePolicy, type ResolvedRule, resolve } from '@weir/policy';
import { CookieBook, elementName } from './cookies.ts';
import { resolvedName } from './names.ts';
import type { PolicyObjectKind, PolicyRow, ResolvedRow } from './types.ts';

export interface PolicyEntry {
  readonly row: PolicyRow;
  readonly problems: readonly PolicyProblem[];
  /** What is enforced: this generation, or an older one of the same uid. */
  readonly resolved: ResolvedRow | undefined;
  /** Selectors that `resolved` names, by hash. */
  readonly selectors: ReadonlyMap<string, LabelSelector>;
  readonly subjects: ReadonlySet<string>;
}

export class PolicyBook {
  readonly #entries = new Map<string, PolicyEntry>();
  readonly #byUid = new Map<string, string>();
  readonly #cookies = new CookieBook();
  /** ResolvedPolicies of an earlier run, until their policy comes. */
  readonly #adopted = new Map<string, ResolvedRow>();
  readonly #adoptedSelectors = new Map<string, LabelSelector>();

  adoptSelector(hash: string, selector: LabelSelector): void {
    this.#adoptedSelectors.set(hash, selector);
  }

  /** Takes over what an earlier run resolved: its cookies, and its rules in case the policy cannot be read now. */
  adopt(row: ResolvedRow): void {
    this.#adopted.set(row.name, row);
    for (const rule of row.rules) this.#cookies.keep(rule.cookie, nameOf(row.source.uid, rule));
  }

  /**
   * Forgets what was adopted for policies that do not exist any more. Call once, when all policies have been set. Of the
   * kinds that are `missing` nobody knows: theirs are kept, and returned.
   */
  adoptionDone(
    missing: ReadonlySet<PolicyObjectKind> = new Set(),
  ): { readonly resolved: ResolvedRow; readonly selectors: ReadonlyMap<string, LabelSelector> }[] {
    const kept = [];
    for (const [name, row] of [...this.#adopted]) {
      if (missing.has(row.source.kind)) kept.push({ resolved: row, selectors: this.#selectorsOf(row, undefined) });
      else {
        this.#releaseCookies(row, undefined);
        this.#adopted.delete(name);
      }
    }
    if (kept.length === 0) this.#adoptedSelectors.clear();
    return kept;
  }

  /** What an earlier run resolved, of a policy that has not been set. */
  adopted(name: string): ResolvedRow | undefined {
    return this.#adopted.get(name);
  }

  /** Forgets, and returns, what is kept of a kind. */
  forgetAdopted(kind: PolicyObjectKind): ResolvedRow[] {
    const rows = [...this.#adopted.values()].filter(({ source }) => source.kind === kind);
    for (const row of rows) {
      this.#releaseCookies(row, undefined);
      this.#adopted.delete(row.name);
    }
    if (this.#adopted.size === 0) this.#adoptedSelectors.clear();
    return rows;
  }

  get(key: string): PolicyEntry | undefined {
    return this.#entries.get(key);
  }

  keys(): Iterable<string> {
    return this.#entries.keys();
  }

  keyOfUid(uid: string): string | undefined {
    return this.#byUid.get(uid);
  }

  /** Reads a policy. Returns the entry before and after. */
  set(row: PolicyRow): { readonly before: PolicyEntry | undefined; readonly after: PolicyEntry } {
    const before = this.#entries.get(row.key);
    const earlier = this.#earlier(row, before);
    const { rules, problems } = parsePolicy(row.object, row.kind);
    let after: PolicyEntry;
    if (problems.some((problem) => problem.code === 'InvalidSpec')) {
      const selectors = earlier === undefined ? new Map<string, LabelSelector>() : this.#selectorsOf(earlier, before);
      after = entryOf(row, problems, earlier, selectors);
    } else {
      const kept = new Map(earlier?.rules.map((rule) => [nameOf(row.uid, rule), rule.cookie]));
      const resolution = resolve(rules, {
        cookieOf: (_rule, element) => {
          const name = nameOf(row.uid, element);
          const cookie = kept.get(name);
          return cookie !== undefined && this.#cookies.keep(cookie, name) ? cookie : this.#cookies.give(name);
        },
      });
      const { kind, namespace, name, uid, generation } = row;
      const source = { kind, ...(namespace === undefined ? {} : { namespace }), name, uid, generation };
      const resolved = { name: resolvedName(kind, namespace, name), source, rules: resolution.rules };
      after = entryOf(row, problems, resolved, resolution.selectors);
    }
    if (before !== undefined) this.#byUid.delete(before.row.uid);
    for (const old of [before?.resolved, earlier]) if (old !== undefined) this.#releaseCookies(old, after.resolved);
    this.#entries.set(row.key, after);
    this.#byUid.set(row.uid, row.key);
    return { before, after };
  }

  delete(key: string): PolicyEntry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#byUid.delete(entry.row.uid);
    if (entry.resolved !== undefined) this.#releaseCookies(entry.resolved, undefined);
    return entry;
  }

  /** What was enforced until now of the same object (not of another one of the same name). */
  #earlier(row: PolicyRow, before: PolicyEntry | undefined): ResolvedRow | undefined {
    const name = resolvedName(row.kind, row.namespace, row.name);
    const adopted = this.#adopted.get(name);
    this.#adopted.delete(name);
    const earlier = before?.resolved ?? adopted;
    if (earlier?.source.uid === row.uid) return earlier;
    if (adopted !== undefined) this.#releaseCookies(adopted, undefined);
    return undefined;
  }

  #selectorsOf(resolved: ResolvedRow, before: PolicyEntry | undefined): ReadonlyMap<string, LabelSelector> {
    if (before?.resolved === resolved) return before.selectors;
    const selectors = new Map<string, LabelSelector>();
    for (const hash of hashesOf(resolved.rules)) {
      const selector = this.#adoptedSelectors.get(hash);
      // A set that somebody deleted meanwhile cannot be had back from its hash: nodes keep what they have of it.
      if (selector !== undefined) selectors.set(hash, selector);
    }
    return selectors;
  }

  #releaseCookies(old: ResolvedRow, now: ResolvedRow | undefined): void {
    const still = new Set(now?.source.uid === old.source.uid ? now.rules.map((rule) => rule.cookie) : []);
    for (const rule of old.rules) {
      if (!still.has(rule.cookie)) this.#cookies.release(rule.cookie, nameOf(old.source.uid, rule));
    }
  }
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
