/**
 * What rules allow addresses: ipBlocks of NetworkPolicies, whoever has them, so that pods may come and go; and port names of NetworkPolicies, where
 * pods that rules do not tell apart give a name several numbers.
 */
import { parsePrefix } from '@weir/net';
import { CidrIndex } from './cidr-peers.ts';
import { ALLOW } from './decision.ts';
import type { DirectionTools } from './direction-tools.ts';
import { compareNumber } from './order.ts';
import { isNamed, namedPortKey, uniqueNames } from './port-names.ts';
import type { RowBudget } from './row-budget.ts';
import { BLANK, paintOver, rowsOf, rowsOfRule } from './rows.ts';
import type { AddressRows, ClassRows, CompiledRow, Pieces, PortNames, ResolvedRule } from './types.ts';

/** Prefixes of a piece: some ten microseconds. */
const PIECE = 64;

/**
 * Of each prefix that an ipBlock names, as its CIDR or as an exception: what is allowed of addresses that no longer one holds. And of each address of
 * `names`. `names`: of egress.
 */
export function* addressRows(
  rules: readonly ResolvedRule[],
  { hitsOf, painter }: Pick<DirectionTools, 'hitsOf' | 'painter'>,
  budget: RowBudget,
  names: PortNames,
): Pieces<readonly AddressRows[]> {
  const index = new CidrIndex();
  const ruleOf: number[] = [];
  const prefixes = new Set<string>();
  for (const [rule, { peers = [] }] of rules.entries())
    for (const peer of peers) {
      if (!('cidr' in peer) || peer.everyone !== true) continue;
      index.add(ruleOf.push(rule) - 1, peer.cidr, peer.except ?? []);
      for (const prefix of [peer.cidr, ...(peer.except ?? [])]) prefixes.add(prefix);
      if (prefixes.size % PIECE === 0) yield;
    }
  const known = new Map<string, ClassRows>();
  const found = new Map<string, AddressRows>();
  const rulesOf = (prefix: string): readonly number[] => {
    const region = index.regionOf(parsePrefix(prefix));
    const peers = region === undefined ? [] : index.peersOf(region, (count) => budget.takeLooks(count));
    return [...new Set(peers.map((peer) => ruleOf[peer] ?? -1))].sort(compareNumber);
  };
  const put = (address: Omit<AddressRows, 'rows'>, key: string, make: () => ClassRows): void => {
    let rows = known.get(key);
    if (rows === undefined) {
      rows = make();
      known.set(key, rows);
      budget.takeRows(rows);
    }
    // The prefix itself takes the room of a row.
    if (!found.has(address.prefix)) budget.takeRows([]);
    found.set(address.prefix, { ...address, rows });
  };
  for (const prefix of prefixes) {
    if (budget.spent) return [];
    const own = rulesOf(prefix);
    put({ prefix }, own.join(), () => painter.rows({ own }, undefined, BLANK));
    if (found.size % PIECE === 0) yield;
  }
  for (const { prefix, identity, numbers } of namedAddresses(rules, names).values()) {
    if (budget.spent) return [];
    const hits = hitsOf.of({ id: identity });
    if (hits === undefined) return [];
    const added = [...hits.common.rules, ...hits.own].flatMap((rule) => rowsByName(rules[rule], numbers));
    const own = rulesOf(prefix);
    const key = `${own.join()}|${added.map(({ cookie, protocol, from }) => `${cookie} ${protocol} ${from}`).join()}`;
    put({ prefix, identity }, key, () => {
      const under = painter.rows({ own }, undefined, BLANK);
      return rowsOf(paintOver(BLANK, [...under, ...added]));
    });
    if (found.size % PIECE === 0) yield;
  }
  return [...found.values()].sort((a, b) => (a.prefix < b.prefix ? -1 : 1));
}

/** What the rule allows by the names that mean each pod's own number. */
function rowsByName(rule: ResolvedRule | undefined, numbers: ReadonlyMap<string, number>): readonly CompiledRow[] {
  if (rule?.verdict !== 'allow') return [];
  const ports = (rule.ports ?? []).flatMap((port) => {
    const number = isNamed(port) && port.each === true ? numbers.get(namedPortKey(port)) : undefined;
    return number === undefined ? [] : [{ protocol: port.protocol, from: number, to: number }];
  });
  return ports.length === 0 ? [] : rowsOfRule({ ...ALLOW, cookie: rule.cookie, ports });
}

/** An address of a pod, and its own number of each name, by `namedPortKey`. */
export interface Named {
  readonly prefix: string;
  readonly identity: number;
  readonly numbers: Map<string, number>;
}

/** By address; none of those of which it is told twice otherwise. */
export function namedAddresses(rules: readonly ResolvedRule[], names: PortNames): ReadonlyMap<string, Named> {
  const found = new Map<string, Named>();
  const contested = new Set<string>();
  const ports = rules.flatMap(({ ports: all = [] }) => all.filter(isNamed).filter(({ each }) => each === true));
  for (const port of uniqueNames(ports)) {
    const key = namedPortKey(port);
    for (const { prefix, identity, port: number } of names.addresses?.(port.name, port.protocol) ?? []) {
      const one = found.get(prefix) ?? { prefix, identity, numbers: new Map<string, number>() };
      if (one.identity !== identity || (one.numbers.get(key) ?? number) !== number) contested.add(prefix);
      one.numbers.set(key, number);
      found.set(prefix, one);
    }
  }
  for (const prefix of contested) found.delete(prefix);
  return found;
}
