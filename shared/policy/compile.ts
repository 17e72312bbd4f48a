import { RESERVED, RESERVED_ID, scopeOf } from '@weir/identity';
import { addressRows } from './by-address.ts';
import type { ClassPainter } from './class-painter.ts';
import { checkRule, rulesOf, toolsOf } from './direction-tools.ts';
import { compareNumber } from './order.ts';
import { NO_PORT_NAMES } from './port-names.ts';
import { MOST_ROWS, RowBudget } from './row-budget.ts';
import { BLANK, OPEN, type Painting, textOf } from './rows.ts';
import { type Hits, type RuleHits, unknownPeer } from './rule-hits.ts';
import type {
  ClassRows,
  CompiledDirection,
  CompiledPolicy,
  CompileInput,
  Direction,
  PeerIdentity,
  Pieces,
} from './types.ts';

const NOBODY: CompiledDirection['scope'] = { unknown: [], pod: [], world: [] };
const UNENFORCED: CompiledDirection = { enforced: false, scope: NOBODY, classes: [], addresses: [] };

/** Identities of a piece: some ten microseconds. */
const PIECE = 64;

/**
 * The rules that select one endpoint -> what its slot holds. Near-linear in members, peers, port ranges, the numbers of
 * port names, and rows, of which there is a budget: a direction that
 * goes beyond it is closed to everybody (`excess`). The order of rules, identities and members in the input does not matter.
 *
 * `identities` lists the CIDRs that the rules name, and API servers'. The datapath judges an address in any other CIDR as the longest listed one around
 * it, or as the world.
 * @throws UnknownPeerSetError, InvalidResolvedRuleError
 */
export function compile(input: CompileInput): CompiledPolicy {
  const pieces = compilePieces(input);
  for (;;) {
    const { done, value } = pieces.next();
    if (done === true) return value;
  }
}

/** The same in pieces, for policies of very many identities. */
export function* compilePieces(input: CompileInput): Pieces<CompiledPolicy> {
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
): Pieces<CompiledDirection> {
  const rules = rulesOf(direction, input);
  if (rules.length === 0 && input.mode === 'default') return UNENFORCED;
  const budget = new RowBudget(direction, rules, input.mostRows ?? MOST_ROWS);
  const { hitsOf, painter, fallback } = toolsOf(direction, input, rules, budget);
  yield;
  yield* hitsOf.index((hash) => input.peerSets.identities(hash));

  const scopes = { pod: hitsOf.scope('pod'), world: hitsOf.scope('world'), unknown: undefined, reserved: undefined };
  const exempt = direction === 'ingress' && input.allowLocalhost !== false ? RESERVED_ID.host : undefined;
  const classes = new Classes({ identities, hitsOf, painter, budget, scopes, fallback, exempt });
  const candidates = yield* hitsOf.candidates(identities.keys());
  const scopeRows = (name: 'unknown' | 'pod' | 'world', hits: Partial<Hits>): ClassRows => {
    const rows = painter.rows(hits, name === 'unknown' ? RESERVED_ID.unknown : undefined, fallback);
    budget.takeRows(rows);
    return rows;
  };
  const scope = {
    unknown: scopeRows('unknown', { own: unknownPeer(rules) }),
    pod: scopeRows('pod', scopes.pod),
    world: scopeRows('world', scopes.world),
  };
  yield* classes.add(candidates);
  const addresses = yield* addressRows(
    rules,
    { hitsOf, painter },
    budget,
    direction === 'egress' ? (input.portNames ?? NO_PORT_NAMES) : NO_PORT_NAMES,
  );
  const excess = budget.excess();
  if (excess !== undefined) return { enforced: true, scope: NOBODY, classes: [], addresses: [], excess };
  const compiled = { enforced: true, scope, classes: classes.sorted(), addresses };
  budget.paysFor(compiled);
  return compiled;
}

interface ClassesOptions {
  readonly identities: ReadonlyMap<number, PeerIdentity>;
  readonly hitsOf: RuleHits;
  readonly painter: ClassPainter;
  readonly budget: RowBudget;
  /** What hits those of whom nothing else is known. */
  readonly scopes: Readonly<Record<ReturnType<typeof scopeOf>, Hits | undefined>>;
  /** What is decided where no rule hits. */
  readonly fallback: Painting;
  /** The identity that is let through where no rule hits (the localhost rule). */
  readonly exempt: number | undefined;
}

interface Class {
  readonly members: number[];
  readonly rows: ClassRows;
}

/** Identities of which their scope does not tell, by what is decided of them. */
class Classes {
  readonly #options: ClassesOptions;
  readonly #byHits = new Map<Hits | 'exempt', Class>();
  readonly #byRows = new Map<string, Class>();

  constructor(options: ClassesOptions) {
    this.#options = options;
  }

  *add(ids: readonly number[]): Pieces<void> {
    const { identities, hitsOf, painter, budget, scopes, fallback, exempt } = this.#options;
    let done = 0;
    for (const id of ids) {
      if (budget.spent) return;
      if (++done % PIECE === 0) yield;
      const identity = identities.get(id) ?? { id };
      const hits = hitsOf.of(identity);
      if (hitsOf.isPlain(identity, hits, scopes[scopeOf(id)])) continue;
      const name = id === exempt ? 'exempt' : hits;
      const known = hits && name && this.#byHits.get(name);
      if (known !== undefined) {
        known.members.push(id);
        continue;
      }
      // What no rule allows an address by its names is decided by what it is otherwise.
      const under = identity.names === undefined ? fallback : BLANK;
      const rows = painter.rows(hits ?? {}, id, id === exempt ? OPEN : under);
      const found = this.#of(rows);
      if (name !== undefined) this.#byHits.set(name, found);
      found.members.push(id);
      if (rows.length >= PIECE) yield;
    }
  }

  /** By their first members, which ascend. */
  sorted(): CompiledDirection['classes'] {
    const classes = [...this.#byRows.values()];
    for (const { members } of classes) members.sort(compareNumber);
    return classes.sort((a, b) => (a.members[0] ?? 0) - (b.members[0] ?? 0));
  }

  #of(rows: ClassRows): Class {
    const text = textOf(rows);
    const known = this.#byRows.get(text);
    if (known !== undefined) return known;
    this.#options.budget.takeRows(rows);
    const made = { members: [], rows };
    this.#byRows.set(text, made);
    return made;
  }
}
