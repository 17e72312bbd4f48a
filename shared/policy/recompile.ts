/**
 * A compiled policy with a few identities that are others than before, in other peer sets, or selected by other rules: their classes change, all
 * others are the same objects.
 */
import { includesSorted, isLocalCidr, RESERVED_ID, scopeOf } from '@weir/identity';
import { formatPrefix, maskPrefix, parsePrefix } from '@weir/net';
import { checkRule, type DirectionTools, rulesOf, toolsOf } from './direction-tools.ts';
import { compareNumber } from './order.ts';
import { NO_PORT_NAMES, namesOf, portNamesOf } from './port-names.ts';
import { MOST_ROWS, RowBudget } from './row-budget.ts';
import { sameRows } from './rows.ts';
import { type Hits, unknownPeer } from './rule-hits.ts';
import type {
  ClassRows,
  CompiledDirection,
  CompiledPolicy,
  CompileInput,
  Direction,
  PeerIdentity,
  Pieces,
  ResolvedRule,
  SelectorHash,
} from './types.ts';

/** More than so many identities, or identities times classes, are not much less work than compiling anew. */
export const MOST_CHANGED = 1024;
const MOST_COMPARED = 65_536;
/** Prefixes that hold so many CIDRs are found faster than an index of all that rules name is made. */
const MOST_HELD = 64;

type Classes = CompiledDirection['classes'];

export interface RecompileInput extends Omit<CompileInput, 'identities' | 'peerSets'> {
  /**
   * Identities of pods that have joined or left peer sets or give port names other numbers, and of CIDRs that `identities` of `CompileInput` has now
   * and had not, or had otherwise; where rules have changed, all of those that these concern, too (`changesOf`). Of all others, and of everything else in the input, nothing has
   * changed.
   */
  readonly changed: ReadonlySet<number>;
  /** The rules that it was compiled from. Default: those that it is now. */
  readonly rulesBefore?: readonly ResolvedRule[];
  /** The sets that the pod's identity is in now. All sets that the rules name are known, as they were when it was compiled. */
  setsOf(identity: number): Iterable<SelectorHash>;
  /** What `identities` has of the CIDR's identity; undefined: it does not have it. */
  cidrPeer(identity: number): PeerIdentity | undefined;
}

/** Whether a change of so few identities may be taken in without compiling anew, as far as what was compiled before tells. */
function isSmallChange(before: CompiledPolicy, changed: ReadonlySet<number>): boolean {
  return (
    changed.size <= MOST_CHANGED &&
    [before.ingress, before.egress].every(
      ({ excess, classes }) => excess === undefined && changed.size * classes.length <= MOST_COMPARED,
    )
  );
}

/**
 * What `compile` returns for the input, by what it returned before; undefined when that takes compiling anew: other identities than
 * of pods and CIDRs, rules that have changed with port names that mean what each peer says, a direction or a default deny that came or went, a budget that is spent or may be, many
 * identities. Linear in the identities that changed times the sets that they are in, in the peers of the rules, and in the classes.
 * @throws InvalidResolvedRuleError where rules have changed
 */
export function* recompilePieces(before: CompiledPolicy, input: RecompileInput): Pieces<CompiledPolicy | undefined> {
  const { changed, rulesBefore = input.rules } = input;
  if (!isSmallChange(before, changed) || input.mode === 'never') return undefined;
  if (rulesBefore !== input.rules) for (const rule of input.rules) checkRule(rule);
  for (const id of changed) if (scopeOf(id) !== 'pod' && !isLocalCidr(id)) return undefined;
  const named = portNamesOf(input.rules).egress.length > 0;
  if (rulesBefore !== input.rules && (named || portNamesOf(rulesBefore).egress.length > 0)) return undefined;
  yield;
  const ingress = yield* recompileDirection('ingress', before.ingress, input);
  const egress = ingress && (yield* recompileDirection('egress', before.egress, input));
  return ingress && egress && { ingress, egress };
}

function* recompileDirection(
  direction: Direction,
  before: CompiledDirection,
  input: RecompileInput,
): Pieces<CompiledDirection | undefined> {
  const all = rulesOf(direction, input);
  const had = input.rulesBefore === undefined ? all : rulesOf(direction, { rules: input.rulesBefore });
  if ((all.length === 0) !== (had.length === 0) || all.some(deniesByDefault) !== had.some(deniesByDefault))
    return undefined;
  if (!before.enforced) return before;
  if (direction === 'egress' && namesAddresses(all, before, input)) return undefined;
  const ids = [...input.changed].sort(compareNumber);
  const rules = concerning(all, ids, input);
  const budget = new RowBudget(direction, rules, input.mostRows ?? MOST_ROWS);
  if (!budget.resume(before)) return undefined;
  const portNames = namesOf(ids, input.portNames ?? NO_PORT_NAMES);
  const tools = toolsOf(direction, { ...input, portNames }, rules, budget);
  const { hitsOf, painter, fallback } = tools;
  const members = membersOf(ids, input);
  yield* hitsOf.index((hash) => members.get(hash) ?? []);
  yield;
  const plain = { pod: hitsOf.scope('pod'), world: hitsOf.scope('world') };
  const rowsOf = new Map<Hits, ClassRows>();
  const wanted = new Map<number, ClassRows>();
  for (const id of ids) {
    const identity = isLocalCidr(id) ? input.cidrPeer(id) : { id };
    if (identity === undefined) continue;
    const hits = hitsOf.of(identity);
    if (hits === undefined) return undefined;
    if (hitsOf.isPlain(identity, hits, plain[isLocalCidr(id) ? 'world' : 'pod'])) continue;
    const rows = rowsOf.get(hits) ?? painter.rows(hits, id, fallback);
    rowsOf.set(hits, rows);
    wanted.set(id, rows);
    yield;
  }
  if (budget.spent) return undefined;
  const classes = yield* moved(before.classes, ids, wanted, budget);
  if (budget.spent) return undefined;
  const named = direction === 'egress' && portNamesOf(all).egress.length > 0;
  const scope = input.rulesBefore === undefined && !named ? before.scope : scopeOver(before.scope, all, tools, budget);
  if (budget.spent) return undefined;
  const after = classes === before.classes && scope === before.scope ? before : { ...before, scope, classes };
  budget.paysFor(after);
  return after;
}

/** Whether the number of a name is, or was, that of single addresses: who comes or goes may change their rows. */
function namesAddresses(rules: readonly ResolvedRule[], before: CompiledDirection, input: RecompileInput): boolean {
  if (before.addresses.some(({ identity }) => identity !== undefined)) return true;
  return portNamesOf(rules).egress.some(({ name, protocol }) => {
    for (const _ of input.portNames?.addresses?.(name, protocol) ?? []) return true;
    return false;
  });
}

function deniesByDefault({ defaultDeny }: ResolvedRule): boolean {
  return defaultDeny;
}

/** Rules of sets and CIDRs, and port names, say of whom nothing else is known only what is denied an unknown peer. */
function scopeOver(
  before: CompiledDirection['scope'],
  rules: readonly ResolvedRule[],
  { painter, fallback }: DirectionTools,
  budget: RowBudget,
): CompiledDirection['scope'] {
  const unknown = painter.rows({ own: unknownPeer(rules) }, RESERVED_ID.unknown, fallback);
  if (sameRows(before.unknown, unknown)) return before;
  budget.giveBack(before.unknown);
  budget.takeRows(unknown);
  return { ...before, unknown };
}

/** Of the identities, those that are in each set. */
function membersOf(
  ids: readonly number[],
  { setsOf }: Pick<RecompileInput, 'setsOf'>,
): ReadonlyMap<SelectorHash, number[]> {
  const members = new Map<SelectorHash, number[]>();
  for (const id of ids) {
    if (isLocalCidr(id)) continue;
    for (const hash of setsOf(id)) {
      const known = members.get(hash);
      if (known === undefined) members.set(hash, [id]);
      else known.push(id);
    }
  }
  return members;
}

/** The rules without CIDRs that hold none of the identities: there may be very many, and no pod is in one. */
function concerning(
  rules: readonly ResolvedRule[],
  ids: readonly number[],
  { cidrPeer }: Pick<RecompileInput, 'cidrPeer'>,
): readonly ResolvedRule[] {
  const cidrs = ids.filter(isLocalCidr).flatMap((id) => cidrPeer(id)?.cidr ?? []);
  if (cidrs.length > MOST_HELD) return rules;
  const holding = new Set<string>();
  for (const { family, bytes, bits } of cidrs.map((cidr) => parsePrefix(cidr)))
    for (let length = 0; length <= bits; length += 1) holding.add(formatPrefix(maskPrefix(family, bytes, length)));
  return rules.map((rule) => {
    if (rule.peers === undefined) return rule;
    return { ...rule, peers: rule.peers.filter((peer) => !('cidr' in peer) || holding.has(peer.cidr)) };
  });
}

/** The classes with each of the identities where its rows are, or in none. */
function* moved(
  classes: Classes,
  ids: readonly number[],
  wanted: ReadonlyMap<number, ClassRows>,
  budget: RowBudget,
): Pieces<Classes> {
  const at = new Map<ClassRows, number>();
  const joining = new Map<number, number[]>();
  const rowsAt: ClassRows[] = classes.map(({ rows }) => rows);
  for (const [id, rows] of wanted) {
    let index = at.get(rows) ?? rowsAt.findIndex((known) => sameRows(known, rows));
    if (index === -1) {
      index = rowsAt.push(rows) - 1;
      budget.takeRows(rows);
    }
    at.set(rows, index);
    const members = joining.get(index);
    if (members === undefined) joining.set(index, [id]);
    else members.push(id);
    yield;
  }
  const after: Classes[number][] = [];
  let edited = false;
  for (const [index, rows] of rowsAt.entries()) {
    const known = classes[index];
    const had = known?.members ?? [];
    const joins = joining.get(index) ?? [];
    const leaves = ids.filter((id) => includesSorted(had, id));
    if (known !== undefined && sameList(leaves, joins)) {
      after.push(known);
      continue;
    }
    edited = true;
    const gone = new Set(leaves);
    const members = merged(gone.size === 0 ? had : had.filter((id) => !gone.has(id)), joins);
    if (members.length === 0) budget.giveBack(rows);
    else after.push({ members, rows });
    yield;
  }
  return edited ? after.sort((a, b) => (a.members[0] ?? 0) - (b.members[0] ?? 0)) : classes;
}

/** Both ascend, and have no identity in common. */
function merged(a: readonly number[], b: readonly number[]): readonly number[] {
  if (b.length === 0) return a;
  const out: number[] = [];
  let at = 0;
  for (const id of a) {
    for (let next = b[at]; next !== undefined && next < id; next = b[++at]) out.push(next);
    out.push(id);
  }
  return at === b.length ? out : out.concat(b.slice(at));
}

function sameList(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, index) => id === b[index]);
}
