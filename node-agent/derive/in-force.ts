import { matches } from '@weir/labels';
import type { ResolvedRule, SelectorHash } from '@weir/policy';
import type { EndpointIdentity } from './identities.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import { includesSorted } from './multi.ts';
import type { Pace } from './pace.ts';
import { cidrsOf, type InUse, type Policies } from './policies.ts';

interface Subject {
  /** Indexes of the rules that select it, by policy uid. */
  readonly rules: Map<string, readonly number[]>;
  readonly info: EndpointIdentity;
}

export interface InForceOptions {
  readonly policies: Policies;
  readonly ipcache: Pick<IpcacheDeriver, 'setRuleCidr'>;
  readonly pace: Pace;
  /** Called when a rule in force begins or ceases to name a CIDR. */
  readonly cidrsChanged: () => void;
}

/** Which rules in force select which identities of this node's endpoints, and which CIDRs they name. */
export class InForce {
  readonly #options: InForceOptions;
  readonly #subjects = new Map<number, Subject>();
  readonly #ruleCidrs = new Map<string, number>();

  constructor(options: InForceOptions) {
    this.#options = options;
  }

  /** Brings into force what is complete. `dirtyHashes`: PeerSets that changed. */
  async settle(dirtyHashes: Iterable<SelectorHash>): Promise<void> {
    const { policies, ipcache, pace } = this.#options;
    for (const [uid, before, after] of policies.settle()) {
      for (const rule of before?.row.rules ?? []) this.#countCidrs(rule, -1);
      for (const rule of after?.row.rules ?? []) this.#countCidrs(rule, 1);
      for (const subject of this.#subjects.values()) this.#select(subject, uid);
      if (pace.due()) await pace.breathe();
    }
    for (const [cidr, count] of this.#ruleCidrs) {
      if (count > 0) continue;
      this.#ruleCidrs.delete(cidr);
      ipcache.setRuleCidr(cidr, false);
    }
    for (const hash of dirtyHashes) {
      for (const uid of policies.inUseNaming(hash)) {
        for (const subject of this.#subjects.values()) this.#select(subject, uid);
        if (pace.due()) await pace.breathe();
      }
    }
  }

  /** Brings the identities that are looked at up to date with the endpoints. */
  async settleSubjects(infos: Iterable<EndpointIdentity>): Promise<void> {
    const { policies, pace } = this.#options;
    const used = new Set<number>();
    for (const info of infos) {
      if (!info.ready) continue;
      used.add(info.identity);
      if (this.#subjects.has(info.identity)) continue;
      const subject: Subject = { rules: new Map(), info };
      for (const [uid] of policies.allInUse()) {
        this.#select(subject, uid);
        if (pace.due()) await pace.breathe();
      }
      this.#subjects.set(info.identity, subject);
    }
    for (const identity of this.#subjects.keys()) if (!used.has(identity)) this.#subjects.delete(identity);
  }

  /** Policies of which some rule selects the identity. */
  uids(identity: number): Iterable<string> {
    return this.#subjects.get(identity)?.rules.keys() ?? [];
  }

  /** Rules that select the identity, each with its policy and its content hash. */
  *rules(identity: number): Generator<readonly [InUse, ResolvedRule, ruleKey: string]> {
    for (const [uid, indexes] of this.#subjects.get(identity)?.rules ?? []) {
      const inUse = this.#options.policies.inUse(uid);
      for (const index of indexes) {
        const rule = inUse?.row.rules[index];
        const key = inUse?.ruleKeys[index];
        if (inUse && rule && key !== undefined) yield [inUse, rule, key];
      }
    }
  }

  #countCidrs(rule: ResolvedRule, by: number): void {
    for (const cidr of cidrsOf(rule)) {
      const count = (this.#ruleCidrs.get(cidr) ?? 0) + by;
      if (count === by && by > 0) this.#options.ipcache.setRuleCidr(cidr, true);
      this.#ruleCidrs.set(cidr, count);
      this.#options.cidrsChanged();
    }
  }

  #select(subject: Subject, uid: string): void {
    const { policies } = this.#options;
    const inUse = policies.inUse(uid);
    const indexes: number[] = [];
    for (const [index, rule] of inUse?.row.rules.entries() ?? []) {
      const set = policies.view(rule.subject);
      if (set === undefined) continue;
      const { identity, labels } = subject.info;
      const local = identity >= 0x03000000 || identity < 100;
      if (local ? matches(set.selector, labels) : includesSorted(set.identities, identity)) indexes.push(index);
    }
    if (indexes.length > 0) subject.rules.set(uid, indexes);
    else subject.rules.delete(uid);
  }
}
