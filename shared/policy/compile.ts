import { RESERVED, RESERVED_ID, scopeOf } from '@weir/identity';
import { CidrIndex } from './cidr-peers.ts';
import { InvalidResolvedRuleError, UnknownPeerSetError } from './errors.ts';
import { entityHas, outsidePrefix } from './membership.ts';
import { compareNumber } from './order.ts';
import { PeerNames } from './peer-names.ts';
import { isNamed, NO_PORT_NAMES, type NumbersOf, numbered, ownNumbers } from './port-names.ts';
import { type Fallback, rowsOf } from './rows.ts';
import type {
  ClassRows,
  CompiledDirection,
  CompiledPolicy,
  CompileInput,
  Direction,
  Entity,
  PeerIdentity,
  ResolvedRule,
  Verdict,
} from './types.ts';

const UNENFORCED: CompiledDirection = { enforced: false, scope: { unknown: [], pod: [], world: [] }, classes: [] };

/** Work in steps: it yields where its caller may do something else, if only that does not change what the work reads. */
export type Steps<T> = Generator<void, T, void>;

/** Identities that a step looks at: some ten microseconds. */
const STEP = 64;

/**
 * The rules that select one endpoint -> what its slot holds. Near-linear in members, peers, port ranges and the numbers of
 * port names. The order of rules, identities and members in the input does not matter.
 *
 * A CIDR identity that `identities` does not list is judged as the plain world: list it before the ipcache hands it out.
 * @throws UnknownPeerSetError, InvalidResolvedRuleError
 */
export function compile(input: CompileInput): CompiledPolicy {
  const steps = compileSteps(input);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** The same in steps, for policies of very many identities. */
export function* compileSteps(input: CompileInput): Steps<CompiledPolicy> {
  for (const rule of input.rules) checkRule(rule);
  if (input.mode === 'never') return { ingress: UNENFORCED, egress: UNENFORCED };
  const identities = knownIdentities(input.identities);
  yield;
  const ingress = yield* compileDirection('ingress', input, identities);
  const egress = yield* compileDirection('egress', input, identities);
  return { ingress, egress };
}

/** Every reserved identity, and those given; what is given of an identity holds. */
function knownIdentities(given: Iterable<PeerIdentity>): ReadonlyMap<number, PeerIdentity> {
  const identities = new Map<number, PeerIdentity>();
  for (const id of RESERVED.keys()) identities.set(id, { id });
  for (const identity of given) if (identity.id !== RESERVED_ID.unknown) identities.set(identity.id, identity);
  return identities;
}

function* compileDirection(
  direction: Direction,
  input: CompileInput,
  identities: ReadonlyMap<number, PeerIdentity>,
): Steps<CompiledDirection> {
  const rules = input.rules.filter((rule) => rule.direction === direction);
  if (rules.length === 0 && input.mode === 'default') return UNENFORCED;
  const defaultDeny = input.mode === 'always' || rules.some((rule) => rule.defaultDeny);
  const portNames = input.portNames ?? NO_PORT_NAMES;
  const own = ownNumbers(portNames);
  const peerNames = new PeerNames(direction === 'egress' ? rules : [], portNames);
  yield;
  const hitsOf = new RuleHits(rules, peerNames);
  yield* hitsOf.index(input.peerSets);
  const fallback: Fallback = { allow: !defaultDeny };
  const rows = (hits: readonly number[], identity: number | undefined, use = fallback): ClassRows => {
    const numbersOf = (verdict: Verdict): NumbersOf =>
      direction === 'ingress' ? own : peerNames.numbersOf(identity, verdict);
    return rowsOf(
      hits
        .map((index) => rules[index])
        .filter((rule) => rule !== undefined)
        .map(({ verdict, cookie, ports }) => {
          const numbers = numbered(ports, numbersOf(verdict));
          return { verdict, cookie, ...(numbers === undefined ? {} : { ports: numbers }) };
        }),
      use,
    );
  };

  const scopeHits = { unknown: hitsOf.unknown(), pod: hitsOf.scope('pod'), world: hitsOf.scope('world') };
  const scope = {
    unknown: rows(scopeHits.unknown, RESERVED_ID.unknown),
    pod: rows(scopeHits.pod, undefined),
    world: rows(scopeHits.world, undefined),
  };
  const scopeKey = { unknown: undefined, reserved: undefined, pod: key(scopeHits.pod), world: key(scopeHits.world) };

  const localhost = direction === 'ingress' && input.allowLocalhost !== false;
  const groups = new Map<string, { members: number[]; rows: ClassRows }>();
  let steps = 0;
  const candidates = yield* hitsOf.candidates(identities.keys());
  for (const id of candidates) {
    if (++steps % STEP === 0) yield;
    const { hits, text } = hitsOf.of(identities.get(id) ?? { id });
    if (text === scopeKey[scopeOf(id)]) continue;
    const exempt = localhost && id === RESERVED_ID.host;
    const name = exempt ? `${text} localhost` : text;
    const group = groups.get(name);
    if (group === undefined)
      groups.set(name, { members: [id], rows: rows(hits, id, exempt ? { allow: true } : fallback) });
    else group.members.push(id);
  }
  // Candidates come in ascending order, so groups are in order of their first member already.
  return { enforced: true, scope, classes: [...groups.values()] };
}

/** Indexes of rules, ascending, and the text that stands for them and for what their port names are to the peer. */
interface Hits {
  readonly hits: readonly number[];
  readonly text: string;
}

function key(hits: readonly number[]): string {
  return hits.join(',');
}

/** Which rules hit which identity, by inverted indexes: never identities times rules. */
class RuleHits {
  readonly #rules: readonly ResolvedRule[];
  /** Rules by identity, from peer sets. */
  readonly #bySet = new Map<number, number[]>();
  readonly #anyPeer: number[] = [];
  readonly #byEntity = new Map<Entity, number[]>();
  readonly #cidrs = new CidrIndex();
  readonly #cidrRule: number[] = [];
  readonly #podHits = new Map<string, Hits>();
  readonly #names: PeerNames;

  constructor(rules: readonly ResolvedRule[], names: PeerNames) {
    this.#rules = rules;
    this.#names = names;
  }

  /** To be done before anything is asked. */
  *index(peerSets: CompileInput['peerSets']): Steps<void> {
    let steps = 0;
    for (const [index, rule] of this.#rules.entries()) {
      if (rule.peers === undefined) this.#anyPeer.push(index);
      for (const peer of rule.peers ?? []) {
        if (++steps % STEP === 0) yield;
        if ('entity' in peer) append(this.#byEntity, peer.entity, index);
        else if ('cidr' in peer) {
          this.#cidrs.add(this.#cidrRule.length, peer.cidr, peer.except ?? []);
          this.#cidrRule.push(index);
        } else {
          const members = peerSets.identities(peer.peerSet);
          if (members === undefined) throw new UnknownPeerSetError(peer.peerSet, rule.path);
          for (const id of members) {
            append(this.#bySet, id, index);
            if (++steps % STEP === 0) yield;
          }
        }
      }
    }
  }

  /** Every identity that may differ from its scope, ascending. */
  *candidates(known: Iterable<number>): Steps<readonly number[]> {
    const ids = new Set(known);
    for (const id of this.#bySet.keys()) if (id !== RESERVED_ID.unknown) ids.add(id);
    for (const id of this.#names.identities()) ids.add(id);
    yield;
    const sorted = [...ids].sort(compareNumber);
    yield;
    return sorted;
  }

  of(identity: PeerIdentity): Hits {
    const own = this.#bySet.get(identity.id) ?? [];
    // Pods differ by their peer sets and named ports only: one computation serves all of one combination.
    const shared =
      scopeOf(identity.id) === 'pod' && identity.kubeApiserver !== true
        ? `${key(own)}|${this.#names.signature(identity.id)}`
        : undefined;
    const cached = shared === undefined ? undefined : this.#podHits.get(shared);
    if (cached !== undefined) return cached;
    const hits = [...this.#anyPeer, ...own];
    for (const [entity, rules] of this.#byEntity) if (entityHas(entity, identity)) hits.push(...rules);
    const prefix = outsidePrefix(identity);
    if (prefix !== undefined) for (const peer of this.#cidrs.peersOf(prefix)) hits.push(this.#cidrRule[peer] ?? -1);
    const found = unique(hits);
    const result = { hits: found, text: key(found) + this.#names.text(identity.id, found) };
    if (shared !== undefined) this.#podHits.set(shared, result);
    return result;
  }

  /** What applies to a member of the scope of which nothing else is known. */
  scope(name: 'pod' | 'world'): number[] {
    const entities: Entity[] = name === 'pod' ? ['all', 'cluster'] : ['all', 'world'];
    return unique([...this.#anyPeer, ...entities.flatMap((entity) => this.#byEntity.get(entity) ?? [])]);
  }

  /** What applies to an unknown peer: allows of any peer only, and every deny that selects anyone at all. */
  unknown(): number[] {
    return [...this.#rules.keys()].filter((index) => {
      const rule = this.#rules[index];
      if (rule === undefined) return false;
      if (rule.peers === undefined) return true;
      return rule.peers.some((peer) =>
        rule.verdict === 'allow'
          ? 'entity' in peer && peer.entity === 'all'
          : !('entity' in peer && peer.entity === 'none'),
      );
    });
  }
}

function append<K>(map: Map<K, number[]>, name: K, value: number): void {
  const values = map.get(name);
  if (values === undefined) map.set(name, [value]);
  else if (values.at(-1) !== value) values.push(value);
}

function unique(values: readonly number[]): number[] {
  return [...new Set(values)].sort(compareNumber);
}

function checkRule(rule: ResolvedRule): void {
  if (!Number.isInteger(rule.cookie) || rule.cookie < 1 || rule.cookie > 0xffffffff) {
    throw new InvalidResolvedRuleError(rule.path, `the cookie ${rule.cookie} is not in 1..4294967295`);
  }
  for (const port of rule.ports ?? []) {
    const { protocol } = port;
    if (isNamed(port)) {
      if (port.name === '' || !['TCP', 'UDP', 'SCTP'].includes(protocol)) {
        throw new InvalidResolvedRuleError(rule.path, `${protocol} ${JSON.stringify(port.name)} is no port name`);
      }
      continue;
    }
    const { from, to } = port;
    const ports = Number.isInteger(from) && Number.isInteger(to) && from >= 0 && from <= to && to <= 0xffff;
    if (!ports || !['TCP', 'UDP', 'SCTP'].includes(protocol)) {
      throw new InvalidResolvedRuleError(rule.path, `${protocol} ${from}..${to} is no interval of ports`);
    }
  }
}
