/**
 * Ethernet frames for tests. Every builder fills lengths and header checksums correctly unless told to lie; addresses are
 * dotted strings (IPv4) or 16 bytes (IPv6).
 */

export const ETHERTYPE = { ipv4: 0x0800, arp: 0x0806, ipv6: 0x86dd, vlan: 0x8100 } as const;
export const TCP_FLAGS = { fin: 1, syn: 2, rst: 4, psh: 8, ack: 16 } as const;

/** The 4 bytes of a dotted address. */
export function ip4(text: string): Uint8Array {
  return Uint8Array.from(text.split('.'), Number);
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

function be16(value: number): Uint8Array {
  return Uint8Array.of((value >> 8) & 0xff, value & 0xff);
}

/** A frame; `pad` zero bytes follow the payload. */
export function ethernet(payload: Uint8Array, ethertype: number = ETHERTYPE.ipv4, pad = 0): Uint8Array {
  const mac = Uint8Array.of(2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2);
  return concat(mac, be16(ethertype), payload, new Uint8Array(pad));
}

export interface Ipv4Fields {
  readonly src: string;
  readonly dst: string;
  readonly protocol: number;
  readonly payload: Uint8Array;
  /** Bytes of options; the length must be a multiple of 4, at most 40. */
  readonly options?: Uint8Array;
  readonly id?: number;
  /** Byte offset of a fragment, a multiple of 8. */
  readonly offset?: number;
  readonly moreFragments?: boolean;
  readonly ttl?: number;
  /** Lies. */
  readonly version?: number;
  readonly headerWords?: number;
  readonly totalLength?: number;
}

export function ipv4(f: Ipv4Fields): Uint8Array {
  const options = f.options ?? new Uint8Array(0);
  const header = new Uint8Array(20 + options.length);
  const view = new DataView(header.buffer);
  header[0] = ((f.version ?? 4) << 4) | (f.headerWords ?? header.length / 4);
  view.setUint16(2, f.totalLength ?? header.length + f.payload.length);
  view.setUint16(4, f.id ?? 0);
  view.setUint16(6, (f.moreFragments === true ? 0x2000 : 0) | ((f.offset ?? 0) >> 3));
  header[8] = f.ttl ?? 64;
  header[9] = f.protocol;
  header.set(ip4(f.src), 12);
  header.set(ip4(f.dst), 16);
  header.set(options, 20);
  view.setUint16(10, checksum(header));
  return concat(header, f.payload);
}

/** The Internet checksum (RFC 1071). */
export function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

export interface TcpFields {
  readonly sport: number;
  readonly dport: number;
  /** Bits of TCP_FLAGS. Default SYN. */
  readonly flags?: number;
  /** Sequence and acknowledgment number. Default 0. */
  readonly seq?: number;
  readonly ack?: number;
  readonly payload?: Uint8Array;
  /** Lie: header length in 32-bit words. Default 5. */
  readonly dataOffset?: number;
}

export function tcp(f: TcpFields): Uint8Array {
  const out = new Uint8Array(20 + (f.payload?.length ?? 0));
  const view = new DataView(out.buffer);
  view.setUint16(0, f.sport);
  view.setUint16(2, f.dport);
  view.setUint32(4, f.seq ?? 0);
  view.setUint32(8, f.ack ?? 0);
  out[12] = (f.dataOffset ?? 5) << 4;
  out[13] = f.flags ?? TCP_FLAGS.syn;
  view.setUint16(14, 65_535);
  out.set(f.payload ?? [], 20);
  return out;
}

export function udp(f: { readonly sport: number; readonly dport: number; readonly payload?: Uint8Array }): Uint8Array {
  const out = new Uint8Array(8 + (f.payload?.length ?? 0));
  const view = new DataView(out.buffer);
  view.setUint16(0, f.sport);
  view.setUint16(2, f.dport);
  view.setUint16(4, out.length);
  out.set(f.payload ?? [], 8);
  return out;
}

export function sctp(f: { readonly sport: number; readonly dport: number; readonly payload?: Uint8Array }): Uint8Array {
  const out = new Uint8Array(12 + (f.payload?.length ?? 0));
  const view = new DataView(out.buffer);
  view.setUint16(0, f.sport);
  view.setUint16(2, f.dport);
  out.set(f.payload ?? [], 12);
  return out;
}

export interface IcmpFields {
  readonly type: number;
  readonly code?: number;
  /** Queries. */
  readonly id?: number;
  /** What follows the 8-byte header; errors: the quoted packet. */
  readonly payload?: Uint8Array;
}

export function icmp(f: IcmpFields): Uint8Array {
  const out = new Uint8Array(8 + (f.payload?.length ?? 0));
  out[0] = f.type;
  out[1] = f.code ?? 0;
  new DataView(out.buffer).setUint16(4, f.id ?? 0);
  out.set(f.payload ?? [], 8);
  new DataView(out.buffer).setUint16(2, checksum(out));
  return out;
}

/** An ICMP error about `quoted` (an IPv4 packet): quotes its header and the first 8 bytes behind it. */
export function icmpError(type: number, code: number, quoted: Uint8Array): Uint8Array {
  const header = ((quoted[0] ?? 0) & 0xf) * 4;
  return icmp({ type, code, payload: quoted.slice(0, header + 8) });
}

export function arp(f: { readonly sender: string; readonly target: string; readonly operation?: number }): Uint8Array {
  return concat(
    Uint8Array.of(0, 1, 8, 0, 6, 4, 0, f.operation ?? 1, 2, 0, 0, 0, 0, 2),
    ip4(f.sender),
    new Uint8Array(6),
    ip4(f.target),
  );
}

/** The 16 bytes of an IPv6 address. */
export function ip6(text: string): Uint8Array {
  const [head = '', tail] = text.split('::');
  const words = (part: string) => (part === '' ? [] : part.split(':').map((word) => Number.parseInt(word, 16)));
  const [first, last] = [words(head), words(tail ?? '')];
  const gap = tail === undefined ? 0 : 8 - first.length - last.length;
  return concat(...[...first, ...Array<number>(gap).fill(0), ...last].map(be16));
}

/** The 4 or 16 bytes of an address. */
export function ipBytes(text: string): Uint8Array {
  return text.includes(':') ? ip6(text) : ip4(text);
}

export interface Ipv6Fields {
  readonly src: Uint8Array;
  readonly dst: Uint8Array;
  readonly nextHeader: number;
  readonly payload: Uint8Array;
  readonly hopLimit?: number;
  /** Lie: length of the payload. */
  readonly payloadLength?: number;
}

export function ipv6(f: Ipv6Fields): Uint8Array {
  const header = new Uint8Array(40);
  header[0] = 0x60;
  new DataView(header.buffer).setUint16(4, f.payloadLength ?? f.payload.length);
  header[6] = f.nextHeader;
  header[7] = f.hopLimit ?? 255;
  header.set(f.src, 8);
  header.set(f.dst, 24);
  return concat(header, f.payload);
}

export interface NeighbourFields {
  /** ICMPv6 type: 135 solicitation, 136 advertisement. */
  readonly type: number;
  readonly src: string;
  readonly dst: string;
  /** Default: fe80::1. */
  readonly target?: string;
  /** Types of the options that follow, each of 8 bytes: 1 source link address, 2 target link address, 14 nonce. */
  readonly options?: readonly number[];
  /** What lies behind them in the IPv6 payload. */
  readonly extra?: Uint8Array;
  readonly code?: number;
  readonly hopLimit?: number;
  readonly payloadLength?: number;
}

/** A packet of IPv6 neighbour discovery with its checksum. */
export function neighbour(f: NeighbourFields): Uint8Array {
  const options = (f.options ?? []).map((type) => Uint8Array.of(type, 1, 2, 0, 0, 0, 0, 1));
  const head = Uint8Array.of(f.type, f.code ?? 0, 0, 0, 0, 0, 0, 0);
  const payload = concat(head, ip6(f.target ?? 'fe80::1'), ...options, f.extra ?? new Uint8Array(0));
  const [src, dst] = [ip6(f.src), ip6(f.dst)];
  const pseudo = concat(src, dst, Uint8Array.of(0, 0), be16(payload.length), Uint8Array.of(0, 0, 0, 58));
  new DataView(payload.buffer).setUint16(2, checksum(concat(pseudo, payload)));
  return ipv6({ ...f, src, dst, nextHeader: 58, payload });
}
