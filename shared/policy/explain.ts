import { RESERVED_ID } from '@weir/identity';
import { describeRule } from './describe.ts';
import { membership } from './membership.ts';
import { compareNumber } from './order.ts';
import { NO_PORT_NAMES, numbered, ownNumbers, peerNumbers } from './port-names.ts';
import { PROTOCOL_NUMBERS, WHOLE_PROTOCOLS } from './protocols.ts';
import type {
  CompileInput,
  Direction,
  PeerIdentity,
  PortNames,
  ResolvedRule,
  Verdict,
  WholeProtocol,
} from './types.ts';

export type ExplanationReason =
  | 'mode-never'
  | 'not-enforced'
  | 'explicit-deny'
  | 'rule-allows'
  | 'localhost'
  | 'no-default-deny'
  | 'no-match';

export interface Explanation {
  readonly verdict: Verdict;
  readonly reason: ExplanationReason;
  /** The rules that decided, by cookie; the first is the one that the datapath names. Empty when no rule decided. */
  readonly deciding: readonly ResolvedRule[];
  /** Rules that hit too but were outranked: allows beaten by a deny. */
  readonly outranked: readonly ResolvedRule[];
  /** One sentence. */
  readonly text: string;
}

export interface ExplainFlow {
  readonly direction: Direction;
  readonly peer: PeerIdentity;
  /** IP protocol number. */
  readonly protocol: number;
  /** Destination port; ignored for protocols without ports. */
  readonly port: number;
}

/**
 * Why one new flow is allowed or denied. Works on the rules that select the endpoint, one by one, so it is an independent
 * check of what `compile` made of them. @throws UnknownPeerSetError
 */
export function explain(input: Omit<CompileInput, 'identities'>, flow: ExplainFlow): Explanation {
  if (input.mode === 'never') return plain('allow', 'mode-never', 'policy enforcement is switched off (mode never)');
  const rules = input.rules.filter((rule) => rule.direction === flow.direction);
  if (rules.length === 0 && input.mode === 'default') {
    return plain('allow', 'not-enforced', `no policy selects the endpoint for ${flow.direction}`);
  }
  const hits = rules
    .filter(
      (rule) => hitsPeer(rule, flow.peer, input.peerSets) && hitsPort(rule, flow, input.portNames ?? NO_PORT_NAMES),
    )
    .sort((a, b) => compareNumber(a.cookie, b.cookie));
  const denies = hits.filter((rule) => rule.verdict !== 'allow');
  const allows = hits.filter((rule) => rule.verdict === 'allow');
  const [deny] = denies;
  if (deny !== undefined) {
    return {
      verdict: 'deny',
      reason: 'explicit-deny',
      deciding: denies,
      outranked: allows,
      text: `denied by: ${describeRule(deny)}`,
    };
  }
  const [allow] = allows;
  if (allow !== undefined) {
    return {
      verdict: 'allow',
      reason: 'rule-allows',
      deciding: allows,
      outranked: [],
      text: `allowed by: ${describeRule(allow)}`,
    };
  }
  if (flow.direction === 'ingress' && flow.peer.id === RESERVED_ID.host && input.allowLocalhost !== false) {
    return plain('allow', 'localhost', 'a node may reach its own pods unless a rule denies it');
  }
  if (input.mode === 'default' && !rules.some((rule) => rule.defaultDeny)) {
    return plain('allow', 'no-default-deny', `no rule matches, and no policy has default deny for ${flow.direction}`);
  }
  return plain('deny', 'no-match', `no rule allows it, and ${flow.direction} is denied by default`);
}

function plain(verdict: Verdict, reason: ExplanationReason, text: string): Explanation {
  return { verdict, reason, deciding: [], outranked: [], text };
}

function hitsPeer(rule: ResolvedRule, peer: PeerIdentity, peerSets: CompileInput['peerSets']): boolean {
  if (rule.peers === undefined) return true;
  if (peer.id === RESERVED_ID.unknown) {
    const selects = (entity: string) => (rule.verdict === 'allow' ? entity === 'all' : entity !== 'none');
    return rule.peers.some((ref) => ('entity' in ref ? selects(ref.entity) : rule.verdict !== 'allow'));
  }
  return rule.peers.some((ref) => membership(ref, peer, peerSets));
}

function hitsPort(rule: ResolvedRule, flow: ExplainFlow, names: PortNames): boolean {
  const numbersOf = flow.direction === 'ingress' ? ownNumbers(names) : peerNumbers(names, flow.peer.id, rule.verdict);
  const ports = numbered(rule.ports, numbersOf);
  if (ports === undefined) return true;
  return ports.some(({ protocol, from, to }) => {
    const number: number = PROTOCOL_NUMBERS[protocol];
    const portless = WHOLE_PROTOCOLS.includes(protocol as WholeProtocol);
    return number === flow.protocol && (portless || (from <= flow.port && flow.port <= to));
  });
}
