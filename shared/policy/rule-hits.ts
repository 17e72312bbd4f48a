import { isLocalCidr, RESERVED_ID, scopeOf } from '@weir/identity';
import { parsePrefix } from '@weir/net';
import { CidrIndex, type Region } from './cidr-peers.ts';
import { UnknownPeerSetError } from './errors.ts';
import { entityHas, outsidePrefix } from './membership.ts';
import { compareNumber } from './order.ts';
import type { PeerNames } from './peer-names.ts';
import type { RowBudget } from './row-budget.ts';
import type { Entity, PeerIdentity, PeerSetView, Pieces, ResolvedRule, SelectorHash } from './types.ts';

/** Peers and members of a piece: some ten microseconds. */
const PIECE = 64;

const NONE: readonly number[] = [];

/** Of the pods and outside addresses of which nothing else is known. */
const SCOPE_ENTITIES = { pod: ['all', 'cluster'], world: ['all', 'world'] } as const satisfies Record<string, Entity[]>;

/** Rules that hit every peer of the same entities. One object for equal rules. */
export interface CommonHits {
  /** Indexes of rules, ascending. */
  readonly rules: readonly number[];
  readonly has: ReadonlySet<number>;
}

const NO_HITS: CommonHits = { rules: [], has: new Set() };

/** The rules that hit a peer. One object for peers that no rule tells apart. */
export interface Hits {
  readonly common: CommonHits;
  /** Indexes of further rules, ascending: of its peer sets and CIDRs. */
  readonly own: readonly number[];
}

/** Which rules hit which identity, by inverted indexes: never identities times rules. */
export class RuleHits {
  readonly #rules: readonly ResolvedRule[];
  readonly #names: PeerNames;
  readonly #budget: RowBudget;
  readonly #anyPeer: number[] = [];
  readonly #byEntity = new Map<Entity, number[]>();
  /** Rules of each peer set, by its number. */
  readonly #setRules: number[][] = [];
  /** Numbers of the peer sets that hold the identity, ascending. */
  readonly #setsOf = new Map<number, number[]>();
  /** Rules of each pattern of names. */
  readonly #byNames = new Map<string, number[]>();
  readonly #cidrs = new CidrIndex();
  readonly #cidrRule: number[] = [];
  /** By the entities that hold the peer. */
  readonly #commons = new Map<string, CommonHits>();
  /** By the text of their rules. */
  readonly #sameRules = new Map<string, CommonHits>();
  readonly #regions = new Map<Region, number>();
  /** Of those whom the region alone tells from others with the same entities. */
  readonly #ofRegions = new Map<CommonHits, Map<Region | undefined, Hits>>();
  readonly #ofCidrs = new Map<string, CommonHits>();
  /** By all that may tell peers apart. */
  readonly #known = new Map<CommonHits, Map<string, Hits>>();
  /** By the rules and what their port names stand for. */
  readonly #distinct = new Map<CommonHits, Map<string, Hits>>();

  constructor(rules: readonly ResolvedRule[], names: PeerNames, budget: RowBudget) {
    this.#rules = rules;
    this.#names = names;
    this.#budget = budget;
  }

  /** To be done before anything is asked. `membersOf`: undefined when the set is not known. */
  *index(membersOf: PeerSetView['identities']): Pieces<void> {
    const sets = new Map<SelectorHash, number>();
    let done = 0;
    for (const [index, rule] of this.#rules.entries()) {
      if (rule.peers === undefined) this.#anyPeer.push(index);
      for (const peer of rule.peers ?? []) {
        if (++done % PIECE === 0) yield;
        if ('entity' in peer) append(this.#byEntity, peer.entity, index);
        // Of addresses, not of identities (by-address.ts).
        else if ('fqdn' in peer) append(this.#byNames, peer.fqdn, index);
        else if ('cidr' in peer && peer.everyone === true) continue;
        else if ('cidr' in peer) {
          this.#cidrs.add(this.#cidrRule.length, peer.cidr, peer.except ?? []);
          this.#cidrRule.push(index);
        } else {
          const known = sets.get(peer.peerSet);
          if (known !== undefined) {
            this.#setRules[known]?.push(index);
            continue;
          }
          const members = membersOf(peer.peerSet);
          if (members === undefined) throw new UnknownPeerSetError(peer.peerSet, rule.path);
          const number = this.#setRules.push([index]) - 1;
          sets.set(peer.peerSet, number);
          for (const id of members) {
            append(this.#setsOf, id, number);
            if (++done % PIECE === 0) yield;
          }
        }
      }
    }
  }

  /** Every identity that may differ from its scope, ascending. */
  *candidates(known: Iterable<number>): Pieces<readonly number[]> {
    const ids = new Set(known);
    for (const id of this.#setsOf.keys()) if (id !== RESERVED_ID.unknown) ids.add(id);
    for (const id of this.#names.identities()) ids.add(id);
    yield;
    const sorted = [...ids].sort(compareNumber);
    yield;
    return sorted;
  }

  /** Undefined: there were too many to look at before. */
  of(identity: PeerIdentity): Hits | undefined {
    const { id, names } = identity;
    if (names !== undefined) return this.#ofNames(names);
    const common = this.#common(identity);
    const sets = this.#setsOf.get(id) ?? NONE;
    const prefix = this.#cidrRule.length === 0 ? undefined : outsidePrefix(identity);
    const region = prefix === undefined ? undefined : this.#cidrs.regionOf(prefix);
    const signature = this.#names.signature(id);
    // There may be very many of those that are outside.
    if (sets.length === 0 && signature === '') return this.#ofRegion(region, common);
    const known = within(this.#known, common);
    const key = `${sets.join()}|${region === undefined ? '' : this.#numberOf(region)}|${signature}`;
    const cached = known.get(key);
    if (cached !== undefined || this.#budget.lookedEnough) return cached;
    const outside = region === undefined ? [] : this.#rulesOf(region);
    const found = outside.concat(...sets.map((set) => this.#setRules[set] ?? []));
    const hits = this.#found(id, found, common);
    known.set(key, hits);
    return hits;
  }

  #ofNames(patterns: readonly string[]): Hits {
    const own = unique(patterns.flatMap((pattern) => this.#byNames.get(pattern) ?? []));
    return this.#same(NO_HITS, own, '');
  }

  /**
   * Whether these hits, which are those of the identity, follow from its scope alone. Of a CIDR they do not where a rule names a prefix around it:
   * the datapath would take the class of that for it.
   */
  isPlain({ id, cidr, names }: PeerIdentity, hits: Hits | undefined, scope: Hits | undefined): boolean {
    if (names !== undefined) return hits?.own.length === 0;
    if (hits === undefined || hits !== scope) return false;
    return !isLocalCidr(id) || cidr === undefined || !this.#cidrs.isWithin(parsePrefix(cidr));
  }

  /** What applies to a member of the scope of which nothing else is known. */
  scope(name: 'pod' | 'world'): Hits {
    return this.#same(this.#ofEntities(SCOPE_ENTITIES[name]), [], '');
  }

  #common(identity: PeerIdentity): CommonHits {
    const { id, cidr, kubeApiserver = false } = identity;
    if (scopeOf(id) === 'pod' && !kubeApiserver) return this.#ofEntities(SCOPE_ENTITIES.pod);
    const find = (): CommonHits =>
      this.#ofEntities([...this.#byEntity.keys()].filter((entity) => entityHas(entity, identity)));
    if (!isLocalCidr(id)) return find();
    // Entities tell CIDRs apart by no more than that.
    const kind = `${cidr?.includes(':')} ${kubeApiserver}`;
    const known = this.#ofCidrs.get(kind) ?? find();
    this.#ofCidrs.set(kind, known);
    return known;
  }

  #ofEntities(entities: readonly Entity[]): CommonHits {
    const key = entities.join();
    const known = this.#commons.get(key);
    if (known !== undefined) return known;
    const rules: readonly number[] = unique([
      ...this.#anyPeer,
      ...entities.flatMap((entity) => this.#byEntity.get(entity) ?? []),
    ]);
    const text = rules.join();
    const common = this.#sameRules.get(text) ?? { rules, has: new Set(rules) };
    this.#sameRules.set(text, common);
    this.#commons.set(key, common);
    return common;
  }

  #ofRegion(region: Region | undefined, common: CommonHits): Hits | undefined {
    const known = within(this.#ofRegions, common);
    const cached = known.get(region);
    if (cached !== undefined || this.#budget.lookedEnough) return cached;
    const hits = this.#found(undefined, region === undefined ? NONE : this.#rulesOf(region), common);
    known.set(region, hits);
    return hits;
  }

  /** `id`: gives port names numbers, perhaps. */
  #found(id: number | undefined, rules: readonly number[], common: CommonHits): Hits {
    const look = (count: number): void => this.#budget.takeLooks(count);
    look(rules.length);
    const own = unique(rules.filter((index) => !common.has.has(index)));
    return this.#same(common, own, id === undefined ? '' : this.#names.text(id, [new Set(own), common.has], look));
  }

  #numberOf(region: Region): number {
    const number = this.#regions.get(region) ?? this.#regions.size;
    this.#regions.set(region, number);
    return number;
  }

  /** Rules whose CIDRs hold the region. */
  #rulesOf(region: Region): readonly number[] {
    const peers = this.#cidrs.peersOf(region, (count) => this.#budget.takeLooks(count));
    return unique(peers.map((peer) => this.#cidrRule[peer] ?? -1));
  }

  #same(common: CommonHits, own: readonly number[], names: string): Hits {
    const distinct = within(this.#distinct, common);
    const text = own.join() + names;
    const hits = distinct.get(text) ?? { common, own };
    distinct.set(text, hits);
    return hits;
  }
}

/** Rules that apply to an unknown peer, by index: allows of any peer only, and every deny that selects anyone at all. */
export function unknownPeer(rules: readonly ResolvedRule[]): number[] {
  return rules.flatMap(({ verdict, peers }, index) => {
    const applies =
      peers === undefined ||
      peers.some((peer) =>
        verdict === 'allow'
          ? 'entity' in peer && peer.entity === 'all'
          : !('fqdn' in peer || ('entity' in peer && peer.entity === 'none')),
      );
    return applies ? [index] : [];
  });
}

function within<K, N, T>(maps: Map<K, Map<N, T>>, key: K): Map<N, T> {
  const known = maps.get(key) ?? new Map<N, T>();
  maps.set(key, known);
  return known;
}

function append<K>(map: Map<K, number[]>, name: K, value: number): void {
  const values = map.get(name);
  if (values === undefined) map.set(name, [value]);
  else if (values.at(-1) !== value) values.push(value);
}

function unique(values: readonly number[]): readonly number[] {
  if (values.length < 2) return values;
  return [...new Set(values)].sort(compareNumber);
}
