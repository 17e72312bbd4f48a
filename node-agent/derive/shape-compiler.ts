/** From a shape to what its slot holds: anew, or from what was compiled before where little has changed. */
import {
  type CompiledPolicy,
  type CompileInput,
  changesOf,
  compileSteps,
  MOST_CHANGED,
  type PeerIdentity,
  type PortNames,
  type RecompileInput,
  type ResolvedRule,
  type RuleChanges,
  recompileSteps,
  type SelectorHash,
} from '@weir/policy';
import type { CidrPeer } from './ipcache.ts';
import type { Pace } from './pace.ts';
import { portNameKey } from './peer-port-names.ts';
import type { RuleGroup, Tells } from './rule-groups.ts';
import { rulesOf, type Shape, sameButRules } from './shape.ts';
import type { RowsView } from './working.ts';

export interface ShapeCompilerOptions {
  readonly members: (hash: SelectorHash) => Iterable<number> | undefined;
  /** The sets that the identity is among the members of. */
  readonly setsOf: (identity: number) => Iterable<SelectorHash>;
  /** Reserved identities, and those of CIDRs that such rules tell apart. */
  readonly identities: (tells: NonNullable<Tells>) => Iterable<PeerIdentity>;
  readonly cidrPeers: Pick<RowsView<number, CidrPeer>, 'get' | 'values'>;
  /** Those of a prefix, and of what is within it. */
  readonly cidrPeersWithin: (prefix: string) => Iterable<CidrPeer>;
  /** Numbers that peers give port names. */
  readonly peerPorts: Omit<Required<PortNames>, 'own'>;
  readonly pace: Pace;
}

/** What was compiled before, and for whom that may hold no more. */
export interface Recompiled {
  readonly compiled: CompiledPolicy;
  readonly changed: ReadonlySet<number>;
  /** The rules that it was compiled from, where these are others. */
  readonly rulesBefore?: readonly ResolvedRule[];
}

export class ShapeCompiler {
  readonly #options: ShapeCompilerOptions;

  constructor(options: ShapeCompilerOptions) {
    this.#options = options;
  }

  /** With at most so many rows a direction. Makes breaks. @throws what `compile` of `@weir/policy` throws */
  async compile(shape: Shape, tells: Tells, mostRows: number, before?: Recompiled): Promise<CompiledPolicy> {
    const { members, identities, peerPorts, setsOf, cidrPeers, pace } = this.#options;
    const input: CompileInput = {
      rules: rulesOf(shape),
      peerSets: { identities: members },
      // Of addresses outside there may be very many.
      identities: tells === undefined ? [] : identities(tells),
      mode: shape.mode,
      allowLocalhost: shape.allowLocalhost,
      portNames: {
        own: (name, protocol) => shape.ownPorts.get(portNameKey(protocol, name)),
        peers: peerPorts.peers,
        of: peerPorts.of,
        every: peerPorts.every,
      },
      mostRows,
    };
    if (before !== undefined) {
      const cidrPeer: RecompileInput['cidrPeer'] = (id) => cidrPeers.get(id);
      const recompiled = await pace.run(recompileSteps(before.compiled, { ...input, ...before, setsOf, cidrPeer }));
      if (recompiled !== undefined) return recompiled;
    }
    return pace.run(compileSteps(input));
  }

  /** `before`, of another shape, with all whom the difference concerns; undefined where these are many, or it is more than rules. Makes breaks. */
  async differing(before: Recompiled & { readonly shape: Shape }, after: Shape): Promise<Recompiled | undefined> {
    const { members, cidrPeersWithin } = this.#options;
    if (!sameButRules(before.shape, after)) return undefined;
    const changes = await this.#changes(before.shape, after);
    if (changes === undefined) return undefined;
    const changed = new Set(before.changed);
    for (const hash of changes.peerSets) {
      const ids = members(hash);
      if (ids === undefined) return undefined;
      for (const id of ids) if (changed.add(id).size > MOST_CHANGED) return undefined;
    }
    for (const cidr of changes.cidrs)
      for (const { id } of cidrPeersWithin(cidr)) if (changed.add(id).size > MOST_CHANGED) return undefined;
    return { compiled: before.compiled, changed, rulesBefore: rulesOf(before.shape) };
  }

  /** Whom the groups concern that only one of the shapes has. An edit of a policy is the same for all whom it selects. */
  async #changes(before: Shape, after: Shape): Promise<RuleChanges | undefined> {
    const keysOf = ({ groups }: Shape): ReadonlySet<string> => new Set(groups.map(({ key }) => key));
    const [had, has] = [keysOf(before), keysOf(after)];
    const gone = before.groups.filter(({ key }) => !has.has(key));
    const come = after.groups.filter(({ key }) => !had.has(key));
    const key = come[0] ?? gone[0];
    const last = key && LAST_CHANGES.get(key);
    if (last !== undefined && areOf(last.gone, gone) && areOf(last.come, come)) return last.changes;
    const rules = (groups: readonly RuleGroup[]) => groups.flatMap((group) => group.rules);
    const changes = await this.#options.pace.run(changesOf(rules(gone), rules(come)));
    if (key !== undefined) LAST_CHANGES.set(key, { gone: refs(gone), come: refs(come), changes });
    return changes;
  }
}

interface Changes {
  /** Nobody keeps rules for having compared them. */
  readonly gone: readonly WeakRef<RuleGroup>[];
  readonly come: readonly WeakRef<RuleGroup>[];
  readonly changes: RuleChanges | undefined;
}

/** What was found last of the difference by a group. */
const LAST_CHANGES = new WeakMap<RuleGroup, Changes>();

function refs(groups: readonly RuleGroup[]): readonly WeakRef<RuleGroup>[] {
  return groups.map((group) => new WeakRef(group));
}

function areOf(known: readonly WeakRef<RuleGroup>[], groups: readonly RuleGroup[]): boolean {
  return known.length === groups.length && groups.every((group, index) => group === known[index]?.deref());
}
