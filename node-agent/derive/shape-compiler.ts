/** From a shape to what its slot holds: compiled from scratch, or from the former result where little has changed. */
import {
  type CompiledPolicy,
  type CompileInput,
  changesOf,
  cidrsOf,
  compilePieces,
  type Listeners,
  MOST_CHANGED,
  namesCidr,
  type PeerIdentity,
  type PortNames,
  type RecompileInput,
  type ResolvedRule,
  type RuleChanges,
  recompilePieces,
  type SelectorHash,
} from '@weir/policy';
import type { NameIdentityRow } from '../tables.ts';
import type { CidrPeers } from './cidr-peers.ts';
import type { CidrPeer } from './ipcache.ts';
import type { Pace } from './pace.ts';
import { portNameKey } from './peer-port-names.ts';
import type { RuleGroup } from './rule-groups.ts';
import { rulesOf, type Shape, sameButRules } from './shape.ts';

export interface ShapeCompilerOptions {
  readonly members: (hash: SelectorHash) => Iterable<number> | undefined;
  /** The sets that the identity is among the members of. */
  readonly setsOf: (identity: number) => Iterable<SelectorHash>;
  /** Reserved identities, and those of API servers. */
  readonly servers: () => Iterable<PeerIdentity>;
  readonly cidrPeers: Pick<CidrPeers, 'rows' | 'of' | 'within'>;
  /** Numbers that peers give port names. */
  readonly peerPorts: Omit<Required<PortNames>, 'own'>;
  /** Identities of names of the pattern. */
  readonly nameIdentities: (pattern: string) => Iterable<NameIdentityRow>;
  readonly listeners: Listeners;
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
  async compile(
    { shape, tellsServers }: { readonly shape: Shape; readonly tellsServers: boolean },
    mostRows: number,
    before?: Recompiled,
  ): Promise<CompiledPolicy> {
    const { members, servers, peerPorts, setsOf, listeners, pace } = this.#options;
    const input: Omit<CompileInput, 'identities'> = {
      rules: rulesOf(shape),
      peerSets: { identities: members },
      mode: shape.mode,
      allowLocalhost: shape.allowLocalhost,
      portNames: {
        own: (name, protocol) => shape.ownPorts.get(portNameKey(protocol, name)),
        peers: peerPorts.peers,
        of: peerPorts.of,
        every: peerPorts.every,
        addresses: peerPorts.addresses,
      },
      listeners,
      mostRows,
    };
    if (before !== undefined) {
      const isNamed = cidrTest(shape);
      // Undefined: the shape's slot does not name the CIDR's identity.
      const cidrPeer: RecompileInput['cidrPeer'] = (id) => {
        const peer = this.#options.cidrPeers.rows.get(id);
        return peer !== undefined && (peer.kubeApiserver === true || isNamed(peer.cidr)) ? peer : undefined;
      };
      const recompiled = await pace.run(recompilePieces(before.compiled, { ...input, ...before, setsOf, cidrPeer }));
      if (recompiled !== undefined) return recompiled;
    }
    const identities = [...(tellsServers ? servers() : []), ...(await this.#cidrs(shape)), ...this.#ofNames(shape)];
    return pace.run(compilePieces({ ...input, identities }));
  }

  /** Those of which a name is of a pattern of the shape's rules. */
  #ofNames(shape: Shape): readonly PeerIdentity[] {
    const found = new Map<number, PeerIdentity>();
    for (const pattern of hostNamesOf(shape))
      for (const { identity: id, patterns } of this.#options.nameIdentities(pattern))
        found.set(id, { id, names: patterns });
    return [...found.values()];
  }

  /** What the shape's slot names of CIDRs: those of its rules. (API servers' are named in any case.) Makes breaks. */
  async #cidrs({ groups }: Shape): Promise<readonly CidrPeer[]> {
    const { cidrPeers, pace } = this.#options;
    const peers: CidrPeer[] = [];
    for (const { rules } of groups)
      for (const cidr of new Set(cidrsOf(rules))) {
        const peer = cidrPeers.of(cidr);
        if (peer !== undefined) peers.push(peer);
        if (pace.due()) await pace.yieldNow();
      }
    return peers;
  }

  /** `before`, of another shape, with all whom the difference concerns; undefined where these are many, or it is more than rules. Makes breaks. */
  async differing(before: Recompiled & { readonly shape: Shape }, after: Shape): Promise<Recompiled | undefined> {
    const { members, cidrPeers } = this.#options;
    if (!sameButRules(before.shape, after)) return undefined;
    const changes = await this.#changes(before.shape, after);
    if (changes === undefined) return undefined;
    const changed = new Set(before.changed);
    for (const hash of changes.peerSets) {
      const ids = members(hash);
      if (ids === undefined) return undefined;
      for (const id of ids) if (changed.add(id).size > MOST_CHANGED) return undefined;
    }
    const [wasNamed, isNamed] = [cidrTest(before.shape), cidrTest(after)];
    let looks = 0;
    for (const cidr of changes.cidrs)
      for (const peer of cidrPeers.within(cidr)) {
        // Most may be of others' rules.
        if (++looks > MOST_LOOKS) return undefined;
        const named = peer.cidr === cidr || peer.kubeApiserver === true || isNamed(peer.cidr) || wasNamed(peer.cidr);
        if (named && changed.add(peer.id).size > MOST_CHANGED) return undefined;
      }
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

/** So many CIDRs are looked at in less time than a policy of as many is compiled. */
const MOST_LOOKS = 4 * MOST_CHANGED;

/** Questions for which a set of all CIDRs of a shape is not worth making. */
const FEW = 8;

/** Tells whether rules of the shape name a CIDR, as such or as an exception. */
function cidrTest({ groups }: Shape): (cidr: string) => boolean {
  let asked = 0;
  let all: ReadonlySet<string> | undefined;
  return (cidr) => {
    if (++asked > FEW) all ??= new Set(groups.flatMap(({ rules }) => cidrsOf(rules)));
    return all?.has(cidr) ?? groups.some(({ rules }) => namesCidr(rules, cidr));
  };
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

/** Patterns of names that the shape's rules name. */
export function hostNamesOf({ groups }: Pick<Shape, 'groups'>): ReadonlySet<string> {
  return new Set(groups.flatMap(({ hostNames }) => [...hostNames]));
}
