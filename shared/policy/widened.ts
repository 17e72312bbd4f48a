/**
 * Redirects that a plain allow of the same peer and port widens: the proxy lets everything pass (spec 5.1, item 4). So these flows stay allowed where there
 * is no proxy, and of DNS every name may be asked for.
 */
import { ANY_NAME } from './decision.ts';
import type { PeerRef, ResolvedRule, RulePort } from './types.ts';

/** A rule, or what of an allow widens redirects: it outranks these, and no other decision. */
export type RankedRule = ResolvedRule & { readonly widens?: true };

/** The rules, and behind them those that widen: none where nothing is redirected. */
export function withWidening(rules: readonly ResolvedRule[]): readonly RankedRule[] {
  const redirects = rules.filter(({ verdict }) => verdict === 'redirect');
  if (redirects.length === 0) return rules;
  const ofDns = redirectedIn(redirects.filter(({ dns }) => dns !== undefined));
  const ofNone = redirectedIn(redirects.filter(({ dns }) => dns === undefined));
  return [
    ...rules,
    ...rules.flatMap((rule): RankedRule[] => {
      if (rule.verdict !== 'allow') return [];
      return [
        ...widening(rule, ofNone).map((part) => ({ ...part, widens: true as const })),
        ...widening(rule, ofDns).map((part) => ({ ...part, verdict: 'redirect' as const, dns: ANY_NAME })),
      ];
    }),
  ];
}

/** Of each port the peers, by their keys. */
type Redirected = ReadonlyMap<string, ReadonlySet<string>>;

function redirectedIn(redirects: readonly ResolvedRule[]): Redirected {
  const redirected = new Map<string, Set<string>>();
  for (const { peers, ports } of redirects) {
    for (const port of ports ?? []) {
      const of = redirected.get(portKey(port)) ?? new Set();
      // What is told by names is judged apart.
      for (const peer of peersOf(peers)) if (peer === undefined || !('fqdn' in peer)) of.add(peerKey(peer));
      redirected.set(portKey(port), of);
    }
  }
  return redirected;
}

/** What of the allow is of the same peers and ports. */
function widening(rule: ResolvedRule, redirected: Redirected): readonly ResolvedRule[] {
  if (redirected.size === 0) return [];
  return (rule.ports ?? []).flatMap((port) => {
    const of = redirected.get(portKey(port));
    const peers = of === undefined ? [] : peersOf(rule.peers).filter((peer) => of.has(peerKey(peer)));
    if (peers.length === 0) return [];
    const { peers: _, ...others } = rule;
    const listed = peers.filter((peer) => peer !== undefined);
    return [{ ...others, ...(listed.length < peers.length ? {} : { peers: listed }), ports: [port] }];
  });
}

/** `undefined` among them: any peer. */
function peersOf(peers: ResolvedRule['peers']): readonly (PeerRef | undefined)[] {
  return peers ?? [undefined];
}

/** Any peer, and all of them, are one. */
function peerKey(peer: PeerRef | undefined): string {
  return peer === undefined ? JSON.stringify({ entity: 'all' }) : JSON.stringify(peer);
}

function portKey(port: RulePort): string {
  return 'name' in port ? `${port.protocol}/${port.name}` : `${port.protocol}/${port.from}-${port.to}`;
}
