import { RESERVED_ID } from '@weir/identity';
import { formatPrefix, parsePrefix } from '@weir/net';
import { type Named, namedAddresses } from './by-address.ts';
import { ANY_NAME } from './decision.ts';
import { describeRule } from './describe.ts';
import { hostNameList } from './host-names.ts';
import { membership } from './membership.ts';
import { compareNumber } from './order.ts';
import { isNamed, NO_PORT_NAMES, namedPortKey, numbered, ownNumbers, peerNumbers } from './port-names.ts';
import { PROTOCOL_NUMBERS, WHOLE_PROTOCOLS } from './protocols.ts';
import type {
  CompileInput,
  Direction,
  NamedPort,
  PeerIdentity,
  PortNames,
  ResolvedRule,
  Verdict,
  WholeProtocol,
} from './types.ts';
import { type RankedRule, withWidening } from './widened.ts';

export type ExplanationReason =
  | 'mode-never'
  | 'not-enforced'
  | 'explicit-deny'
  | 'asks-authentication'
  | 'asks-proxy'
  | 'asks-names'
  | 'rule-allows'
  | 'localhost'
  | 'no-default-deny'
  | 'no-match';

export interface Explanation {
  readonly verdict: Verdict;
  readonly reason: ExplanationReason;
  /** The rules that decided, by cookie; the first is the one that the datapath names. Empty when no rule decided. */
  readonly deciding: readonly ResolvedRule[];
  /** Of `asks-names`: patterns of the names that the DNS proxy lets pass. */
  readonly dns?: readonly string[];
  /** Rules that hit too but were outranked: such as allows beaten by a deny. */
  readonly outranked: readonly ResolvedRule[];
  /** One sentence. */
  readonly text: string;
}

export interface ExplainFlow {
  readonly direction: Direction;
  readonly peer: PeerIdentity;
  /** Patterns of `toFQDNs` that names of the peer's address are of. */
  readonly names?: readonly string[];
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
  const rules = withWidening(input.rules.filter((rule) => rule.direction === flow.direction));
  if (rules.length === 0 && input.mode === 'default') {
    return plain('allow', 'not-enforced', `no policy selects the endpoint for ${flow.direction}`);
  }
  const names = input.portNames ?? NO_PORT_NAMES;
  let claims: ReadonlyMap<string, Named> | undefined;
  const named = (prefix: string): Named | undefined => {
    claims ??= namedAddresses(rules, names);
    return claims.get(prefix);
  };
  // A port name is a pod's: of whom only an ipBlock of an egress rule selects it says nothing.
  const metAs = (rule: RankedRule): RankedRule => {
    const { peers = [], ports = [], direction } = rule;
    const others = peers.filter((peer) => !('cidr' in peer) || peer.everyone !== true);
    if (direction === 'ingress' || others.length === peers.length) return rule;
    if (hitsPeer({ ...rule, peers: others }, flow.peer, input.peerSets, flow.names)) return rule;
    return ports.some(isNamed) ? { ...rule, ports: ports.filter((port) => !isNamed(port)) } : rule;
  };
  const found = rules
    .filter(
      (rule) => hitsPeer(rule, flow.peer, input.peerSets, flow.names) && hitsPort(metAs(rule), flow, names, named),
    )
    .sort((a, b) => compareNumber(a.cookie, b.cookie));
  const localhost = flow.direction === 'ingress' && flow.peer.id === RESERVED_ID.host && input.allowLocalhost !== false;
  const open = input.mode === 'default' && !rules.some((rule) => rule.defaultDeny);
  const { address: _, ...peer } = flow.peer;
  const [ofIdentity, ofAddress] = apart(
    found,
    (rule) => hitsPeer(rule, peer, input.peerSets, flow.names) && hitsPort(rule, { ...flow, peer }, names, named),
  );
  // What rules allow an address counts where nothing is decided of its identity.
  const hits = localhost || open ? ofIdentity : [...ofIdentity, ...ofAddress];
  const isUnknown = flow.peer.id === RESERVED_ID.unknown;
  const asksNames = (rule: RankedRule): boolean => rule.dns !== undefined && !(isUnknown && isOfSome(rule));
  const allows = (rule: RankedRule): boolean =>
    rule.verdict === 'allow' || (rule.verdict === 'redirect' && !asksNames(rule) && (localhost || open));
  for (const { of, verdict, reason, text } of [
    { of: isDeny, verdict: 'deny', reason: 'explicit-deny', text: 'denied by' },
    { of: asks('authenticate'), verdict: 'authenticate', reason: 'asks-authentication', text: NO_AUTHENTICATION },
    { of: isRedirectByNames, verdict: 'redirect', reason: 'asks-proxy', text: NO_PROXY },
    { of: ({ widens }: RankedRule) => widens === true, verdict: 'allow', reason: 'rule-allows', text: 'allowed by' },
    {
      of: (rule: RankedRule) => rule.verdict === 'redirect' && !asksNames(rule) && !allows(rule),
      verdict: 'redirect',
      reason: 'asks-proxy',
      text: NO_PROXY,
    },
    { of: asksNames, verdict: 'redirect', reason: 'asks-names', text: 'handed to the DNS proxy by' },
    { of: allows, verdict: 'allow', reason: 'rule-allows', text: 'allowed by' },
  ] as const) {
    const deciding = hits.filter(of);
    const [first] = deciding;
    if (first === undefined) continue;
    const outranked = hits.filter((rule) => !deciding.includes(rule) && rule.widens === undefined);
    const explained = {
      verdict,
      reason,
      deciding: deciding.map(written),
      outranked,
      text: `${text}: ${describeRule(first)}`,
    };
    if (reason !== 'asks-names') return explained;
    const names = deciding.flatMap(({ dns = [] }) => dns).concat(localhost || open ? ANY_NAME : []);
    return { ...explained, dns: hostNameList(names) };
  }
  if (localhost) return plain('allow', 'localhost', 'a node may reach its own pods unless a rule denies it');
  if (open) {
    return plain('allow', 'no-default-deny', `no rule matches, and no policy has default deny for ${flow.direction}`);
  }
  return plain('deny', 'no-match', `no rule allows it, and ${flow.direction} is denied by default`);
}

const NO_AUTHENTICATION = 'dropped, as Weir authenticates nobody and this asks for it';
const NO_PROXY = 'dropped, as there is no proxy and this asks for one';

function isDeny({ verdict }: RankedRule): boolean {
  return !['allow', 'redirect', 'authenticate'].includes(verdict);
}

function asks(wanted: Verdict): (rule: RankedRule) => boolean {
  return ({ verdict }) => verdict === wanted;
}

function written({ widens: _, ...rule }: RankedRule): ResolvedRule {
  return rule;
}

function plain(verdict: Verdict, reason: ExplanationReason, text: string): Explanation {
  return { verdict, reason, deciding: [], outranked: [], text };
}

/** What is told by names is judged apart: nothing else widens it. */
function isRedirectByNames({ verdict, peers }: RankedRule): boolean {
  return verdict === 'redirect' && peers?.some((peer) => 'fqdn' in peer) === true;
}

/** Whether it is about some peers only. */
function isOfSome({ peers }: ResolvedRule): boolean {
  return peers?.some((peer) => 'entity' in peer && peer.entity === 'all') === false;
}

function hitsPeer(
  rule: ResolvedRule,
  peer: PeerIdentity,
  peerSets: CompileInput['peerSets'],
  names: readonly string[] = [],
): boolean {
  if (rule.peers === undefined) return true;
  if (rule.peers.some((ref) => 'fqdn' in ref && names.includes(ref.fqdn))) return true;
  if (peer.id === RESERVED_ID.unknown) {
    const selects = (entity: string) => (rule.verdict === 'allow' ? entity === 'all' : entity !== 'none');
    return rule.peers.some((ref) =>
      'entity' in ref ? selects(ref.entity) : rule.verdict !== 'allow' && !('fqdn' in ref),
    );
  }
  return rule.peers.some((ref) => membership(ref, peer, peerSets));
}

function apart<T>(items: readonly T[], is: (item: T) => boolean): readonly [T[], T[]] {
  return [items.filter(is), items.filter((item) => !is(item))];
}

function hitsPort(
  rule: ResolvedRule,
  flow: ExplainFlow,
  names: PortNames,
  named: (prefix: string) => Named | undefined,
): boolean {
  const numbersOf = flow.direction === 'ingress' ? ownNumbers(names) : peerNumbers(names, flow.peer.id, rule.verdict);
  const { address, id } = flow.peer;
  const ofAddress = (port: NamedPort): readonly number[] => {
    if (port.each !== true || address === undefined || flow.direction === 'ingress') return [];
    const claim = named(formatPrefix(parsePrefix(address)));
    const number = claim?.identity === id ? claim.numbers.get(namedPortKey(port)) : undefined;
    return number === undefined ? [] : [number];
  };
  const ports = numbered(rule.ports, (port) => [...numbersOf(port), ...ofAddress(port)]);
  if (ports === undefined) return true;
  return ports.some(({ protocol, from, to }) => {
    const number: number = PROTOCOL_NUMBERS[protocol];
    const portless = WHOLE_PROTOCOLS.includes(protocol as WholeProtocol);
    return number === flow.protocol && (portless || (from <= flow.port && flow.port <= to));
  });
}
