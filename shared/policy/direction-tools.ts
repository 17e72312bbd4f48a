/** What the rules of one direction are compiled with, be it anew or for a few identities. */
import { ClassPainter } from './class-painter.ts';
import { NO_LISTENERS } from './decision.ts';
import { InvalidResolvedRuleError } from './errors.ts';
import { PeerNames } from './peer-names.ts';
import { isNamed, NO_PORT_NAMES, ownNumbers } from './port-names.ts';
import { isIcmp, isPortProtocol, LAST_PORT, LAST_TYPE, RULE_PROTOCOLS } from './protocols.ts';
import type { RowBudget } from './row-budget.ts';
import { BLANK, OPEN, type Painting } from './rows.ts';
import { RuleHits } from './rule-hits.ts';
import type { CompileInput, Direction, ResolvedRule } from './types.ts';
import { type RankedRule, withWidening } from './widened.ts';

export interface DirectionTools {
  /** To be indexed before anything is asked. */
  readonly hitsOf: RuleHits;
  readonly painter: ClassPainter;
  /** What is decided where no rule hits. */
  readonly fallback: Painting;
}

export function rulesOf(direction: Direction, { rules }: Pick<CompileInput, 'rules'>): readonly RankedRule[] {
  return withWidening(rules.filter((rule) => rule.direction === direction));
}

export function toolsOf(
  direction: Direction,
  { mode, portNames = NO_PORT_NAMES, listeners = NO_LISTENERS }: Pick<CompileInput, 'mode' | 'portNames' | 'listeners'>,
  rules: readonly RankedRule[],
  budget: RowBudget,
): DirectionTools {
  const peerNames = new PeerNames(direction === 'egress' ? rules : [], portNames);
  return {
    hitsOf: new RuleHits(rules, peerNames, budget),
    painter: new ClassPainter(
      rules,
      budget,
      direction === 'ingress' ? ownNumbers(portNames) : peerNames,
      budget.listeners(listeners),
    ),
    fallback: mode === 'always' || rules.some((rule) => rule.defaultDeny) ? BLANK : OPEN,
  };
}

/** @throws InvalidResolvedRuleError */
export function checkRule(rule: ResolvedRule): void {
  if (!Number.isInteger(rule.cookie) || rule.cookie < 1 || rule.cookie > 0xffffffff) {
    throw new InvalidResolvedRuleError(rule.path, `the cookie ${rule.cookie} is not in 1..4294967295`);
  }
  if (rule.verdict !== 'allow' && rule.peers?.some((peer) => 'cidr' in peer && peer.everyone === true) === true)
    throw new InvalidResolvedRuleError(rule.path, 'only an allow may be for everyone in a CIDR');
  for (const port of rule.ports ?? []) {
    const { protocol } = port;
    if (isNamed(port)) {
      if (port.name === '' || !isPortProtocol(protocol)) {
        throw new InvalidResolvedRuleError(rule.path, `${protocol} ${JSON.stringify(port.name)} is no port name`);
      }
      continue;
    }
    const { from, to } = port;
    const last = isIcmp(protocol) ? LAST_TYPE : LAST_PORT;
    const ports = Number.isInteger(from) && Number.isInteger(to) && from >= 0 && from <= to && to <= last;
    if (!ports || !RULE_PROTOCOLS.includes(protocol)) {
      throw new InvalidResolvedRuleError(rule.path, `${protocol} ${from}..${to} is no interval of ports or types`);
    }
  }
}
