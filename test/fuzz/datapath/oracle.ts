/**
 * What the datapath must make of a frame, byte by byte, written from its contract (bpf/README.md) and the RFCs, not from its sources. Flows and policy are the
 * model's of @weir/bpf. One endpoint, of `POD`; no time passes; later fragments are known for as long as the oracle lives.
 */
import type { Direction } from '@weir/bpf';
import { ETHERTYPE, type Model, type ModelPacket } from '@weir/bpf/testing';
import { formatAddress } from '@weir/net';

export const POD = '10.0.0.1';
export const POD6 = 'fd00::1';
const FORWARDED = 'forwarded';

const TCP = 6;
const UDP = 17;
const ICMP = 1;
const SCTP = 132;
const ICMPV6 = 58;
/** Bytes of their headers that are looked at. */
const L4_BYTES: Readonly<Record<number, number>> = { [TCP]: 20, [UDP]: 8, [SCTP]: 12 };
const NAMES: Readonly<Record<number, ModelPacket['protocol']>> = { [TCP]: 'tcp', [UDP]: 'udp', [SCTP]: 'sctp' };

/** What differs between the families. */
interface Family {
  readonly pod: string;
  readonly icmp: number;
  readonly name: 'icmp' | 'icmpv6';
  /** Answers, by type, and the queries that they answer. */
  readonly queries: Readonly<Record<number, number>>;
  readonly errors: readonly number[];
}

const V4: Family = {
  pod: POD,
  icmp: ICMP,
  name: 'icmp',
  queries: { 0: 8, 8: 8, 13: 13, 14: 13, 15: 15, 16: 15, 17: 17, 18: 17, 42: 42, 43: 42 },
  errors: [3, 4, 11, 12],
};
const V6: Family = {
  pod: POD6,
  icmp: ICMPV6,
  name: 'icmpv6',
  queries: { 128: 128, 129: 128, 139: 139, 140: 139, 160: 160, 161: 160 },
  errors: [1, 2, 3, 4],
};
const [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION] = [0, 43, 44, 51, 60];
const EXTENSIONS: readonly number[] = [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION];

/** What the ports of a datagram are, and for ICMP type and identifier. */
type L4 = Pick<ModelPacket, 'podPort' | 'peerPort' | 'bits' | 'number'>;

interface Ip {
  readonly family: Family;
  readonly src: string;
  readonly dst: string;
  readonly protocol: number;
  readonly id: number;
  /** Bytes into the datagram that this fragment begins at. */
  readonly offset: number;
  readonly more: boolean;
  /** Bytes before those of L4; of all, as IP says. */
  readonly header: number;
  readonly total: number;
  /** Bytes of the datagram that come before L4: headers behind that of the fragment. */
  readonly before: number;
  /** From the IP header on, without what pads the frame. */
  readonly bytes: DataView;
}

export interface FrameOracleOptions {
  readonly model: Model;
  readonly enforced: ReadonlySet<Direction>;
}

export class FrameOracle {
  readonly #model: Model;
  readonly #enforced: ReadonlySet<Direction>;
  /** First fragments that passed. */
  readonly #fragments = new Map<string, L4 & { readonly protocol: number; readonly headers: number }>();

  constructor({ model, enforced }: FrameOracleOptions) {
    this.#model = model;
    this.#enforced = enforced;
  }

  /** Datagrams of which later fragments may come. */
  get fragmented(): number {
    return this.#fragments.size;
  }

  judge(direction: Direction, frame: Uint8Array, local: boolean): string {
    const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
    switch (view.getUint16(12)) {
      case ETHERTYPE.ipv4:
        return this.#ip(direction, ipOf(view, 14, frame.length - 14), local);
      case ETHERTYPE.arp:
        return direction === 'egress' ? arpOfPod(view) : FORWARDED;
      case ETHERTYPE.ipv6:
        return this.#ip(direction, ip6Of(view, 14, frame.length - 14), local, view);
      default:
        return direction === 'egress' || this.#enforced.has(direction) ? 'unknown-l3' : FORWARDED;
    }
  }

  #ip(direction: Direction, ip: Ip | string, local: boolean, frame?: DataView): string {
    if (typeof ip === 'string') return ip;
    const { family } = ip;
    const peer = direction === 'egress' ? ip.dst : ip.src;
    const packetOf = (l4: L4, protocol: number): ModelPacket => ({
      direction,
      protocol: nameOf(family, protocol),
      peer,
      local,
      ...l4,
    });
    if (family === V4 || ip.offset > 0) {
      const wrong = direction === 'egress' ? wrongEnds(ip) : undefined;
      if (wrong !== undefined) return wrong;
    }
    if (ip.offset > 0) return this.#laterFragment(ip, direction, packetOf);
    const l4 = l4Of(ip, direction);
    if (l4 === undefined) return 'invalid-packet';
    const discovery = frame === undefined ? undefined : this.#discovery(direction, ip, l4.bits, frame);
    const wrong = discovery ?? (direction === 'egress' ? wrongEnds(ip) : undefined);
    if (wrong !== undefined) return wrong;
    const packet = packetOf(l4, ip.protocol);
    const outcome = this.#whole(ip, packet);
    if (ip.more && outcome === FORWARDED)
      this.#fragments.set(datagramOf(ip, direction), {
        ...l4,
        bits: ip.protocol === family.icmp ? l4.bits : 0,
        protocol: ip.protocol,
        headers: ip.before + bytesOf(ip.protocol),
      });
    return outcome;
  }

  #laterFragment(ip: Ip, direction: Direction, packetOf: (l4: L4, protocol: number) => ModelPacket): string {
    const { family } = ip;
    if (family === V4 && ip.offset < bytesOf(ip.protocol)) return 'invalid-packet';
    if (ip.offset + (family === V4 ? ip.total : ip.total - ip.header) > 65_535) return 'invalid-packet';
    const known = this.#fragments.get(datagramOf(ip, direction));
    if (known === undefined || (family === V6 && ip.offset < known.headers))
      return this.#enforced.has(direction) ? 'fragment-without-first' : FORWARDED;
    const { protocol, headers: _, ...l4 } = known;
    const packet = packetOf(l4, protocol);
    return isFlowless(family, packet) ? this.#model.alone(packet) : this.#model.judge(packet, false);
  }

  #whole(ip: Ip, packet: ModelPacket): string {
    if (!isFlowless(ip.family, packet)) return this.#model.judge(packet);
    return ip.family.errors.includes(packet.bits) ? this.#error(ip, packet) : this.#model.alone(packet);
  }

  /** An ICMP error: what it quotes travelled the other way. */
  #error(ip: Ip, packet: ModelPacket): string {
    const { direction, peer, local, bits: type } = packet;
    const { pod } = ip.family;
    const bytes = ip.family === V4 ? ip.total - ip.header : ip.total;
    const about = quoteOf(ip, direction);
    if (about === undefined) return this.#model.alone(packet);
    // It goes to who sent what it quotes; a pod tells of what it was sent itself.
    const [sender, receiver] = direction === 'egress' ? [peer, pod] : [pod, undefined];
    if (about.src !== sender || (receiver !== undefined && about.dst !== receiver)) return this.#model.alone(packet);
    return this.#model.judgeError({ direction, peer, type, local, bytes, about: about.packet });
  }

  /** What neighbour discovery comes to; undefined: it is none, or is judged like others. */
  #discovery(direction: Direction, ip: Ip, type: number, frame: DataView): string | undefined {
    if (ip.protocol !== ICMPV6 || type < 133 || type > 137) return undefined;
    const plain = ip.header === 40 && isPlainDiscovery(frame);
    if (direction === 'ingress') return plain ? FORWARDED : undefined;
    if (type === 134 || type === 137 || ip.header !== 40) return 'not-a-router';
    return plain && staysOnLink(frame) ? FORWARDED : 'neighbour-discovery';
  }
}

function nameOf(family: Family, protocol: number): ModelPacket['protocol'] {
  return protocol === family.icmp ? family.name : (NAMES[protocol] ?? 'other');
}

function bytesOf(protocol: number): number {
  // Of what is ICMP in the other family nothing is looked at, and yet no later fragment may lie there.
  return protocol === ICMP || protocol === ICMPV6 ? 8 : (L4_BYTES[protocol] ?? 0);
}

/** Why a pod may not send it, whatever policies say. */
function wrongEnds({ family, src, dst }: Ip): string | undefined {
  if (src !== family.pod) return 'invalid-source';
  return dst.startsWith('127.') || dst === '::1' ? 'invalid-packet' : undefined;
}

/** Neither query nor answer. */
function isFlowless(family: Family, { protocol, bits }: ModelPacket): boolean {
  return protocol === family.name && family.queries[bits] === undefined;
}

function address(view: DataView, at: number): string {
  return [0, 1, 2, 3].map((byte) => view.getUint8(at + byte)).join('.');
}

/** Whether the options of IPv4 can be told from each other, and none is a source route. */
function hasPlainOptions(frame: DataView, from: number, end: number): boolean {
  let at = from;
  while (at < end) {
    const type = frame.getUint8(at);
    if (type === 0) return true;
    if (type !== 1 && (type === 131 || type === 137 || at + 1 === frame.byteLength || frame.getUint8(at + 1) < 2))
      return false;
    at += type === 1 ? 1 : frame.getUint8(at + 1);
  }
  return at === end;
}

/** A reason where its lengths are no IPv4 packet's. `length`: bytes that there are. */
function ipOf(frame: DataView, at: number, length: number): Ip | string {
  const first = frame.getUint8(at);
  const header = (first & 15) * 4;
  const total = frame.getUint16(at + 2);
  if (first >> 4 !== 4 || header < 20 || total < header || total > length) return 'invalid-packet';
  if (!hasPlainOptions(frame, at + 20, at + header)) return 'invalid-packet';
  const fragment = frame.getUint16(at + 6);
  return {
    family: V4,
    before: 0,
    src: address(frame, at + 12),
    dst: address(frame, at + 16),
    protocol: frame.getUint8(at + 9),
    id: frame.getUint16(at + 4),
    offset: (fragment & 0x1fff) * 8,
    more: (fragment & 0x2000) !== 0,
    header,
    total,
    bytes: new DataView(frame.buffer, frame.byteOffset + at, total),
  };
}

/** The same of IPv6. A quoted packet may be cut: `isCut`. */
function ip6Of(frame: DataView, at: number, length: number, isCut = false): Ip | string {
  if (length < 40 || frame.getUint8(at) >> 4 !== 6) return 'invalid-packet';
  const said = 40 + frame.getUint16(at + 4);
  if (said > length && !isCut) return 'invalid-packet';
  const total = isCut ? length : said;
  const bytes = new DataView(frame.buffer, frame.byteOffset + at, total);
  let [protocol, header, offset, more, id, datagram] = [bytes.getUint8(6), 40, 0, false, 0, -1];
  for (let left = 8; EXTENSIONS.includes(protocol); left -= 1) {
    if (left === 0 || header + 8 > total || header > 40 + 1024) return 'ipv6-headers';
    const [next, size] = [bytes.getUint8(header), bytes.getUint8(header + 1)];
    if (protocol === FRAGMENT) {
      if (datagram >= 0) return 'ipv6-headers';
      const field = bytes.getUint16(header + 2);
      [offset, more, id] = [field & 0xfff8, (field & 1) !== 0, bytes.getUint32(header + 4)];
      header += 8;
      datagram = header;
      protocol = next;
      if (offset > 0) break;
      continue;
    }
    // It goes on to another address.
    if (protocol === ROUTING && bytes.getUint8(header + 3) > 0) return 'ipv6-headers';
    header += protocol === AUTHENTICATION ? (size + 2) * 4 : (size + 1) * 8;
    if (header > total || header > 40 + 1024) return 'ipv6-headers';
    protocol = next;
  }
  const before = datagram < 0 || offset > 0 ? 0 : header - datagram;
  const [src, dst] = [address6(frame, at + 8), address6(frame, at + 24)];
  return { family: V6, src, dst, protocol, id, offset, more, header, total, before, bytes };
}

function address6(view: DataView, at: number): string {
  return formatAddress(new Uint8Array(view.buffer, view.byteOffset + at, 16));
}

/** Undefined where the header is cut, or lies about its length. */
function l4Of({ family, bytes, header, total, protocol, more }: Ip, direction: Direction): L4 | undefined {
  const payload = total - header;
  if (protocol === family.icmp) {
    if (payload < 8) return undefined;
    const type = bytes.getUint8(header);
    const query = family.queries[type];
    return {
      podPort: query === undefined ? 0 : bytes.getUint16(header + 4),
      peerPort: query ?? 0,
      bits: type,
      number: 0,
    };
  }
  const needed = L4_BYTES[protocol];
  if (needed === undefined) return { podPort: protocol, peerPort: 0, bits: 0, number: 0 };
  if (payload < needed) return undefined;
  const [source, destination] = [bytes.getUint16(header), bytes.getUint16(header + 2)];
  const [podPort, peerPort] = direction === 'egress' ? [source, destination] : [destination, source];
  if (protocol !== TCP) return { podPort, peerPort, bits: 0, number: 0 };
  const length = (bytes.getUint8(header + 12) >> 4) * 4;
  if (length < 20 || (length > payload && !more)) return undefined;
  const number = bytes.getUint32(header + (direction === 'egress' ? 8 : 4));
  return { podPort, peerPort, bits: bytes.getUint8(header + 13), number };
}

/** Of IPv6 the protocol is told by the first fragment alone. */
function datagramOf({ family, src, dst, id, protocol }: Ip, direction: Direction): string {
  return [direction, src, dst, id, family === V4 ? protocol : 'any'].join();
}

/** The packet that an error quotes, as it travelled; undefined where it is not told which flow it was of. */
function quoteOf(
  { family, bytes, header, total }: Ip,
  direction: Direction,
): { readonly src: string; readonly dst: string; readonly packet: ModelPacket } | undefined {
  const at = header + 8;
  const quoted = family === V4 ? quoted4(bytes, at, total) : ip6Of(bytes, at, total - at, true);
  if (typeof quoted === 'string' || quoted.offset !== 0 || at + quoted.header + 8 > total) return undefined;
  const { src, dst, protocol } = quoted;
  const sent: Direction = direction === 'egress' ? 'ingress' : 'egress';
  const peer = sent === 'egress' ? dst : src;
  const l4 = at + quoted.header;
  const of = (podPort: number, peerPort: number, bits = 0) => ({
    src,
    dst,
    packet: {
      direction: sent,
      protocol: nameOf(family, protocol),
      peer,
      podPort,
      peerPort,
      bits,
      number: 0,
      local: false,
    },
  });
  if (protocol === family.icmp) {
    const type = bytes.getUint8(l4);
    const query = family.queries[type];
    return query === undefined ? undefined : of(bytes.getUint16(l4 + 4), query, type);
  }
  if (NAMES[protocol] === undefined) return of(protocol, 0);
  const [source, destination] = [bytes.getUint16(l4), bytes.getUint16(l4 + 2)];
  return sent === 'egress' ? of(source, destination) : of(destination, source);
}

/** Its total length is not looked at: a quote is cut. */
function quoted4(
  bytes: DataView,
  at: number,
  total: number,
): Pick<Ip, 'src' | 'dst' | 'protocol' | 'offset' | 'header'> | string {
  if (at + 20 > total) return 'invalid-packet';
  const first = bytes.getUint8(at);
  const header = (first & 15) * 4;
  if (first >> 4 !== 4 || header < 20) return 'invalid-packet';
  return {
    src: address(bytes, at + 12),
    dst: address(bytes, at + 16),
    protocol: bytes.getUint8(at + 9),
    offset: bytes.getUint16(at + 6) & 0x1fff,
    header,
  };
}

/** RFC 826. */
function arpOfPod(frame: DataView): string {
  const plain = frame.getUint16(14) === 1 && frame.getUint16(16) === ETHERTYPE.ipv4 && frame.getUint16(18) === 0x0604;
  if (!plain) return 'invalid-packet';
  const sender = address(frame, 28);
  return sender === POD || sender === '0.0.0.0' ? FORWARDED : 'invalid-source';
}

const unspecified = (frame: DataView, at: number): boolean =>
  [0, 4, 8, 12].every((word) => frame.getUint32(at + word) === 0);
const linkLocal = (frame: DataView, at: number): boolean => (frame.getUint16(at) & 0xffc0) === 0xfe80;
const solicitedNode = (frame: DataView, at: number): boolean =>
  frame.getUint32(at) === 0xff02_0000 &&
  frame.getUint32(at + 4) === 0 &&
  frame.getUint32(at + 8) === 1 &&
  frame.getUint8(at + 12) === 0xff;
const allNodes = (frame: DataView, at: number): boolean =>
  frame.getUint32(at) === 0xff02_0000 &&
  frame.getUint32(at + 4) === 0 &&
  frame.getUint32(at + 8) === 0 &&
  frame.getUint32(at + 12) === 1;

/** A neighbour solicitation or advertisement of RFC 4861 that carries no more than it needs. */
function isPlainDiscovery(frame: DataView): boolean {
  const length = frame.getUint16(18);
  if (frame.getUint8(21) !== 255 || length !== frame.byteLength - 54 || length < 24) return false;
  const type = frame.getUint8(54);
  if ((type !== 135 && type !== 136) || frame.getUint8(55) !== 0) return false;
  const options = length - 24;
  if (options % 8 !== 0 || options > (type === 135 ? 16 : 8)) return false;
  for (let at = 78; at < 78 + options; at += 8) {
    const option = frame.getUint8(at);
    const needed = type === 136 ? option === 2 : option === 14 || (option === 1 && !unspecified(frame, 22));
    if (frame.getUint8(at + 1) !== 1 || !needed) return false;
  }
  return true;
}

function staysOnLink(frame: DataView): boolean {
  const type = frame.getUint8(54);
  const [src, dst] = [22, 38];
  if (unspecified(frame, src)) return type === 135 && solicitedNode(frame, dst);
  if (!linkLocal(frame, src) && address6(frame, src) !== POD6) return false;
  return linkLocal(frame, dst) || (type === 135 ? solicitedNode(frame, dst) : allNodes(frame, dst));
}
