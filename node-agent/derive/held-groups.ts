import { cidrsOf } from '@weir/policy';
import type { StateDB } from '@weir/statedb';
import type { RuleGroup } from './rule-groups.ts';
import { Rows } from './working.ts';

/** Groups of rules that name CIDRs, of shapes that stay in force in place of others. Each counts once, however many shapes have it. */
export class HeldGroups {
  readonly #groups: Rows<string, RuleGroup>;

  constructor(db: StateDB) {
    this.#groups = new Rows<string, RuleGroup>(
      db,
      { name: 'heldGroups', key: ({ key }) => key, indexes: [{ name: 'cidr', keys: ({ rules }) => cidrsOf(rules) }] },
      (key) => key,
    );
  }

  /** `changed`: groups that may be held now, or no longer. Returns the CIDRs of those that are, and were not, or the other way round. */
  settle(changed: Iterable<RuleGroup>, held: (key: string) => boolean): ReadonlySet<string> {
    const cidrs = new Set<string>();
    for (const group of changed) {
      const { key, tellServers, rules } = group;
      // Rules that tell none name no CIDR.
      if (!tellServers || held(key) === this.#groups.has(key)) continue;
      if (held(key)) this.#groups.set(group);
      else this.#groups.delete(key);
      for (const cidr of cidrsOf(rules)) cidrs.add(cidr);
    }
    return cidrs;
  }

  /** Whether a held group names the CIDR, or excepts it. */
  names(cidr: string): boolean {
    const [some] = this.#groups.list('cidr', cidr);
    return some !== undefined;
  }
}
