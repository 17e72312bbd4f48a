/**
 * What the datapath must make of a frame, byte by byte, written from its contract (bpf/README.md) and the RFCs, not from its sources. Flows and policy are the
 * model's of @weir/bpf. One endpoint, of `POD`; no time passes; later fragments are known for as long as the oracle lives.
 */
import type { Direction } from '@weir/bpf';
import { ETHERTYPE, type Model, type ModelPacket } from '@weir/bpf/testing';

export const POD = '10.0.0.1';
const FORWARDED = 'forwarded';

const TCP = 6;
const UDP = 17;
const ICMP = 1;
const SCTP = 132;
const ICMPV6 = 58;
/** Bytes of their headers that are looked at. */
const L4_BYTES: Readonly<Record<number, number>> = { [TCP]: 20, [UDP]: 8, [ICMP]: 8, [SCTP]: 12 };
const NAMES: Readonly<Record<number, ModelPacket['protocol']>> = {
  [TCP]: 'tcp',
  [UDP]: 'udp',
  [ICMP]: 'icmp',
  [SCTP]: 'sctp',
};
/** ICMP answers, by type, and the queries that they answer. */
const QUERIES: Readonly<Record<number, number>> = {
  0: 8,
  8: 8,
  13: 13,
  14: 13,
  15: 15,
  16: 15,
  17: 17,
  18: 17,
  42: 42,
  43: 42,
};
const ERRORS: readonly number[] = [3, 4, 11, 12];

/** What the ports of a datagram are, and for ICMP type and identifier. */
type L4 = Pick<ModelPacket, 'podPort' | 'peerPort' | 'bits' | 'number'>;

interface Ip {
  readonly src: string;
  readonly dst: string;
  readonly protocol: number;
  readonly id: number;
  /** Bytes into the datagram that this fragment begins at. */
  readonly offset: number;
  readonly more: boolean;
  /** Bytes of the IP header; of all, by the total length. */
  readonly header: number;
  readonly total: number;
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
  readonly #fragments = new Map<string, L4>();

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
        return this.#ipv4(direction, view, local);
      case ETHERTYPE.arp:
        return direction === 'egress' ? arpOfPod(view) : FORWARDED;
      case ETHERTYPE.ipv6:
        return this.#ipv6(direction, view);
      default:
        return direction === 'egress' || this.#enforced.has(direction) ? 'unknown-l3' : FORWARDED;
    }
  }

  #ipv4(direction: Direction, frame: DataView, local: boolean): string {
    const ip = ipOf(frame, 14, frame.byteLength - 14);
    if (ip === undefined) return 'invalid-packet';
    if (direction === 'egress' && ip.src !== POD) return 'invalid-source';
    if (direction === 'egress' && ip.dst.startsWith('127.')) return 'invalid-packet';
    const peer = direction === 'egress' ? ip.dst : ip.src;
    const packetOf = (l4: L4): ModelPacket => ({
      direction,
      protocol: NAMES[ip.protocol] ?? 'other',
      peer,
      local,
      ...l4,
    });
    if (ip.offset > 0) return this.#laterFragment(ip, packetOf);
    const l4 = l4Of(ip, direction);
    if (l4 === undefined) return 'invalid-packet';
    const packet = packetOf(l4);
    const outcome = this.#whole(ip, packet);
    if (ip.more && outcome === FORWARDED)
      this.#fragments.set(datagramOf(ip, direction), { ...l4, bits: ip.protocol === ICMP ? l4.bits : 0 });
    return outcome;
  }

  #laterFragment(ip: Ip, packetOf: (l4: L4) => ModelPacket): string {
    const end = ip.offset + ip.total;
    if (ip.offset < (L4_BYTES[ip.protocol] ?? 0) || end > 65_535) return 'invalid-packet';
    const none = packetOf({ podPort: 0, peerPort: 0, bits: 0, number: 0 });
    const l4 = this.#fragments.get(datagramOf(ip, none.direction));
    if (l4 === undefined) return this.#enforced.has(none.direction) ? 'fragment-without-first' : FORWARDED;
    const packet = packetOf(l4);
    return isFlowless(packet) ? this.#model.alone(packet) : this.#model.judge(packet, false);
  }

  #whole(ip: Ip, packet: ModelPacket): string {
    if (packet.protocol !== 'icmp') return this.#model.judge(packet);
    if (!isFlowless(packet)) return this.#model.judge(packet);
    return ERRORS.includes(packet.bits) ? this.#error(ip, packet) : this.#model.alone(packet);
  }

  /** An ICMP error: what it quotes travelled the other way. */
  #error(ip: Ip, packet: ModelPacket): string {
    const { direction, peer, local, bits: type } = packet;
    const bytes = ip.total - ip.header;
    const about = quoteOf(ip, direction);
    if (about === undefined) return this.#model.alone(packet);
    // It goes to who sent what it quotes; a pod tells of what it was sent itself.
    const [sender, receiver] = direction === 'egress' ? [peer, POD] : [POD, undefined];
    if (about.src !== sender || (receiver !== undefined && about.dst !== receiver)) return this.#model.alone(packet);
    return this.#model.judgeError({ direction, peer, type, local, bytes, about: about.packet });
  }

  #ipv6(direction: Direction, frame: DataView): string {
    const enforced = this.#enforced.has(direction);
    const refused = enforced ? 'ipv6-unsupported' : FORWARDED;
    if (frame.getUint8(14) >> 4 !== 6) return 'invalid-packet';
    const next = frame.getUint8(20);
    const hops = frame.getUint8(21);
    if (next === ICMPV6 && frame.byteLength < 55) return 'invalid-packet';
    const type = next === ICMPV6 ? frame.getUint8(54) : 0;
    const plain = next === ICMPV6 && isPlainDiscovery(frame);
    if (direction === 'ingress') return plain ? FORWARDED : refused;
    if (hops === 255 && ![ICMPV6, TCP, UDP, SCTP].includes(next)) return 'not-a-router';
    if (type === 134 || type === 137) return 'not-a-router';
    if (type >= 133 && type <= 136) return plain && staysOnLink(frame, !enforced) ? FORWARDED : 'neighbour-discovery';
    return refused;
  }
}

/** Neither query nor answer. */
function isFlowless({ protocol, bits }: ModelPacket): boolean {
  return protocol === 'icmp' && QUERIES[bits] === undefined;
}

function address(view: DataView, at: number): string {
  return [0, 1, 2, 3].map((byte) => view.getUint8(at + byte)).join('.');
}

/** Undefined where its lengths are no IPv4 packet's. `length`: bytes that there are. */
function ipOf(frame: DataView, at: number, length: number): Ip | undefined {
  const first = frame.getUint8(at);
  const header = (first & 15) * 4;
  const total = frame.getUint16(at + 2);
  if (first >> 4 !== 4 || header < 20 || total < header || total > length) return undefined;
  const fragment = frame.getUint16(at + 6);
  return {
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

/** Undefined where the header is cut, or lies about its length. */
function l4Of({ bytes, header, total, protocol, more }: Ip, direction: Direction): L4 | undefined {
  const payload = total - header;
  const needed = L4_BYTES[protocol];
  if (needed === undefined) return { podPort: protocol, peerPort: 0, bits: 0, number: 0 };
  if (payload < needed) return undefined;
  if (protocol === ICMP) {
    const type = bytes.getUint8(header);
    const query = QUERIES[type];
    return {
      podPort: query === undefined ? 0 : bytes.getUint16(header + 4),
      peerPort: query ?? 0,
      bits: type,
      number: 0,
    };
  }
  const [source, destination] = [bytes.getUint16(header), bytes.getUint16(header + 2)];
  const [podPort, peerPort] = direction === 'egress' ? [source, destination] : [destination, source];
  if (protocol !== TCP) return { podPort, peerPort, bits: 0, number: 0 };
  const length = (bytes.getUint8(header + 12) >> 4) * 4;
  if (length < 20 || (length > payload && !more)) return undefined;
  const number = bytes.getUint32(header + (direction === 'egress' ? 8 : 4));
  return { podPort, peerPort, bits: bytes.getUint8(header + 13), number };
}

function datagramOf({ src, dst, id, protocol }: Ip, direction: Direction): string {
  return [direction, src, dst, id, protocol].join();
}

/** The packet that an error quotes, as it travelled; undefined where it is not told which flow it was of. */
function quoteOf(
  { bytes, header, total }: Ip,
  direction: Direction,
): { readonly src: string; readonly dst: string; readonly packet: ModelPacket } | undefined {
  const at = header + 8;
  if (at + 20 > total) return undefined;
  const first = bytes.getUint8(at);
  const inner = (first & 15) * 4;
  if (first >> 4 !== 4 || inner < 20 || (bytes.getUint16(at + 6) & 0x1fff) !== 0 || at + inner + 8 > total)
    return undefined;
  const protocol = bytes.getUint8(at + 9);
  const [src, dst] = [address(bytes, at + 12), address(bytes, at + 16)];
  const sent: Direction = direction === 'egress' ? 'ingress' : 'egress';
  const peer = sent === 'egress' ? dst : src;
  const l4 = at + inner;
  const of = (podPort: number, peerPort: number, bits = 0) => ({
    src,
    dst,
    packet: {
      direction: sent,
      protocol: NAMES[protocol] ?? ('other' as const),
      peer,
      podPort,
      peerPort,
      bits,
      number: 0,
      local: false,
    },
  });
  if (protocol === ICMP) {
    const type = bytes.getUint8(l4);
    const query = QUERIES[type];
    return query === undefined ? undefined : of(bytes.getUint16(l4 + 4), query, type);
  }
  if (NAMES[protocol] === undefined) return of(protocol, 0);
  const [source, destination] = [bytes.getUint16(l4), bytes.getUint16(l4 + 2)];
  return sent === 'egress' ? of(source, destination) : of(destination, source);
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

function staysOnLink(frame: DataView, anySource: boolean): boolean {
  const type = frame.getUint8(54);
  const [src, dst] = [22, 38];
  if (unspecified(frame, src)) return type === 135 && solicitedNode(frame, dst);
  if (!linkLocal(frame, src) && (!anySource || frame.getUint8(src) === 0xff)) return false;
  return linkLocal(frame, dst) || (type === 135 ? solicitedNode(frame, dst) : allNodes(frame, dst));
}
