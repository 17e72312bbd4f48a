/** Numbers that the C program and its users agree on (layout.h). */

export const DIRECTION = { ingress: 0, egress: 1 } as const;
export type Direction = keyof typeof DIRECTION;

/** Programs let flows pass by `allow` alone. They have no proxy to redirect to, and know of no authentication. */
export const VERDICT = { allow: 1, deny: 2, redirect: 3, authenticate: 4 } as const;

export const ENDPOINT_FLAGS = { ingressEnforced: 1, egressEnforced: 2, noSourceCheck: 4 } as const;

/** First class number that a policy compiler may use; the last is 65535. Below: 0 unknown, 1 cluster, 2 world; the rest is reserved. */
export const FIRST_CLASS = 16;

/** Protocols of verdict keys. `other` stands for every protocol not listed here, with its number as port. */
export const PROTOCOL = { other: 0, icmp: 1, tcp: 6, udp: 17, icmpv6: 58, sctp: 132 } as const;

/** `settings` key 0, bit 0: events for allowed new flows. */
export const SETTINGS = { allowEvents: 1 } as const;
/** Key of `settings`: the port of the DNS proxy; 0: there is none. */
export const SETTING_PROXY_PORT = 2;
/** Key of `settings`: packets that an endpoint may send to proxies in a second, and twice as many at once; 0: 1,000. */
export const SETTING_PROXY_RATE = 3;
/**
 * Marks of packets between the kernel and proxies, the bits of MARK_PROXY: what a pod sends, and what a server answers, to be delivered on this node; what a
 * proxy sends.
 */
export const MARK_PROXY = 0xf00;
export const MARK_TO_PROXY = 0x200;
export const MARK_ANSWER = 0x300;
export const MARK_FROM_PROXY = 0xa00;

export const EVENT_KIND = { drop: 1, allow: 2 } as const;

/** Conntrack flags. */
export const CT_FLAGS = { replied: 1, finForward: 2, finReply: 4, reset: 8, acked: 16, over: 32 } as const;

export interface Reason {
  readonly number: number;
  readonly name: string;
  /** One sentence for people. */
  readonly sentence: string;
  /** False for reasons that are only counted. */
  readonly drop: boolean;
}

function reason(number: number, name: string, sentence: string, drop = true): Reason {
  return { number, name, sentence, drop };
}

const REASONS: readonly Reason[] = [
  reason(1, 'no-endpoint', 'The device belongs to no known endpoint.'),
  reason(
    2,
    'invalid-packet',
    'The packet is shorter than its headers claim, its headers contradict each other, or a pod sends it to a loopback address.',
  ),
  reason(3, 'invalid-source', "The source address is not the endpoint's own."),
  reason(
    4,
    'fragment-without-first',
    'A later fragment came before its first, or its first did not pass: its ports are unknown.',
  ),
  reason(5, 'unknown-l3', 'The frame is neither IPv4, IPv6 nor ARP, or carries a VLAN tag.'),
  reason(
    6,
    'ipv6-headers',
    'The IPv6 extension headers cannot be followed: more than 8 or 1,024 bytes, two fragment headers, or a route that goes on.',
  ),
  reason(7, 'policy-denied', 'A policy rule denies the flow.'),
  reason(8, 'policy', 'The direction is enforced and no policy rule allows the flow.'),
  reason(9, 'unknown-identity', 'The peer has no identity and no policy rule allows unknown peers.'),
  reason(10, 'no-policy', 'The compiled policy of the endpoint is missing in the kernel.'),
  reason(11, 'not-a-router', 'The pod sent a router advertisement or a redirect over IPv6, and a pod is no router.'),
  reason(
    12,
    'neighbour-discovery',
    'Of IPv6 neighbour discovery a pod sends its node plain neighbour solicitations and advertisements, and this is none.',
  ),
  reason(
    13,
    'misplaced-checksum',
    "The packet's checksum is left to be completed later, and would be written over what was judged, such as its ports.",
  ),
  reason(14, 'no-judge', 'A program that ran before judging could not go on with the one that judges.'),
  reason(15, 'no-backend', 'The Service has no endpoint for this client.'),
  reason(16, 'no-service', 'The packet goes to an address of a Service, and could not be translated to an endpoint.'),
  reason(
    17,
    'group-address',
    'The packet goes to a broadcast or multicast address, and the policy does not allow the host and all pods.',
  ),
  reason(18, 'no-proxy', 'A policy rule hands the flow to a proxy, and there is none.'),
  reason(19, 'source-range', "The client is in none of the Service's source ranges."),
  reason(20, 'nat-full', 'The table of translated flows is full, and the packet would leave with an address of a pod.'),
  reason(21, 'nat-share', 'The endpoint has its whole share of translated flows.'),
  reason(22, 'nat-port', 'No port of the node is free for a flow to that address and port.'),
  reason(23, 'nat-address', "The interface that leads to the packet's destination has no address of the node."),
  reason(
    24,
    'nat-unknown',
    'An ICMP error about no known flow would leave with an address of a pod, or headers that cannot be translated.',
  ),
  reason(25, 'no-authentication', 'A policy rule asks both ends to authenticate, and Weir authenticates nobody.'),
  reason(26, 'proxy-rate', 'The endpoint asks a proxy more in a second than it may.'),
  reason(32, 'forwarded', 'The packet passed.', false),
  reason(33, 'ct-full', 'The connection table is full; an allowed packet passed untracked.', false),
  reason(
    35,
    'ct-share',
    'The endpoint or its peer has as much of the connection table as it may; an allowed packet passed untracked.',
    false,
  ),
  reason(
    36,
    'ct-evicted',
    'The endpoint or its peer has as much of the connection table as it may; an unanswered flow of it was forgotten for a new one.',
    false,
  ),
  reason(34, 'event-lost', 'An event was not reported: rate limit or full buffer.', false),
];

/** Drop reasons and counted outcomes by number. */
export const DROP_REASONS: ReadonlyMap<number, Reason> = new Map(REASONS.map((each) => [each.number, each]));

/** Reason numbers by name; throws for a name that does not exist. */
export function reasonNumber(name: string): number {
  const found = REASONS.find((each) => each.name === name);
  if (found === undefined) throw new RangeError(`no drop reason is named ${name}`);
  return found.number;
}
