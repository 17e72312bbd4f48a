/** The IP protocols that rules name: those with ports, ICMP by its types, and those that are named whole. */
import type { IcmpProtocol, PortProtocol, RuleProtocol, WholeProtocol } from './types.ts';

export const PORT_PROTOCOLS: readonly PortProtocol[] = ['TCP', 'UDP', 'SCTP'];
const ICMP_PROTOCOLS: readonly IcmpProtocol[] = ['ICMP', 'ICMPv6'];
export const WHOLE_PROTOCOLS: readonly WholeProtocol[] = ['IGMP', 'IPIP', 'IPV6', 'GRE', 'ESP', 'AH', 'VRRP'];
/** In the order of rules. */
export const RULE_PROTOCOLS: readonly RuleProtocol[] = [...PORT_PROTOCOLS, ...ICMP_PROTOCOLS, ...WHOLE_PROTOCOLS];

export const PROTOCOL_NUMBERS = {
  ICMP: 1,
  IGMP: 2,
  IPIP: 4,
  TCP: 6,
  UDP: 17,
  IPV6: 41,
  GRE: 47,
  ESP: 50,
  AH: 51,
  ICMPv6: 58,
  VRRP: 112,
  SCTP: 132,
} as const satisfies Record<RuleProtocol, number>;

export const LAST_PORT = 0xffff;
export const LAST_TYPE = 0xff;

export function isPortProtocol(protocol: RuleProtocol): protocol is PortProtocol {
  return PORT_PROTOCOLS.includes(protocol as PortProtocol);
}

export function isIcmp(protocol: RuleProtocol): protocol is IcmpProtocol {
  return ICMP_PROTOCOLS.includes(protocol as IcmpProtocol);
}
