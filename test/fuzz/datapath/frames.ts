/** Frames that are well formed, or nearly, or not at all. Each but a few is of the same few flows. */
import type { Direction } from '@weir/bpf';
import {
  arp,
  concat,
  ETHERTYPE,
  ethernet,
  icmp,
  ip4,
  ip6,
  ipv4,
  ipv6,
  neighbour,
  sctp,
  TCP_FLAGS,
  tcp,
  udp,
} from '@weir/bpf/testing';
import type { Random } from '../../chaos/random.ts';
import { POD, POD6 } from './oracle.ts';

/** The kernel's test run takes no shorter frames, and none that do not fit into a page. */
const SHORTEST = 54;
const LONGEST = 3000;
/** In the frame: the destination of what a pod receives is the pod. */
const DESTINATION = { 4: 30, 6: 38 } as const;

export const PEERS = ['10.0.0.2', '10.0.0.3', '10.0.0.4', '192.0.2.1', '198.51.100.1'] as const;
export const PEERS6 = ['fd00::2', 'fd00::3', 'fd00::4', '2001:db8::1', '2001:db9::1'] as const;
export const PORTS = [0, 53, 80, 88, 443] as const;
const { fin, syn, rst, ack } = TCP_FLAGS;
const FLAGS = [syn, syn, syn | ack, ack, fin | ack, rst, rst | ack, syn | fin, 0, 0xff] as const;
const LENGTHS = [0, 0, 1, 8, 20, 40, 600] as const;

type Family = 4 | 6;

export interface FramesOptions {
  readonly random: Random;
  /** Of a datagram that is sent in fragments; the same few again and again. */
  readonly ids: readonly number[];
}

export class Frames {
  readonly #random: Random;
  readonly #ids: readonly number[];
  /** The last packet of each family and direction, which an error may quote. */
  #last: Partial<Record<`${Family}${Direction}`, Uint8Array>> = {};

  constructor({ random, ids }: FramesOptions) {
    this.#random = random;
    this.#ids = ids;
  }

  next(direction: Direction): Uint8Array {
    const random = this.#random;
    const kind = random.pick([4, 4, 4, 6, 6, 6, 0] as const);
    const made = kind === 0 ? this.#other() : kind === 4 ? this.#ipv4(direction) : this.#ipv6(direction);
    const frame = (random.chance(0.35) ? this.#mangled(made) : made).slice(0, LONGEST);
    const long = frame.length < SHORTEST ? concat(frame, new Uint8Array(SHORTEST - frame.length)) : frame;
    const ethertype = ((long[12] ?? 0) << 8) | (long[13] ?? 0);
    if (direction === 'ingress' && ethertype === ETHERTYPE.ipv4) long.set(ip4(POD), DESTINATION[4]);
    // A multicast address stays: neighbour discovery uses it.
    if (direction === 'ingress' && ethertype === ETHERTYPE.ipv6 && long[DESTINATION[6]] !== 0xff)
      long.set(ip6(POD6), DESTINATION[6]);
    return long;
  }

  /** Of every kind that is told apart, at times with a length that is none. */
  #options(bytes: Uint8Array): Uint8Array {
    const random = this.#random;
    for (let at = 0; at < bytes.length; ) {
      const type = random.pick([0, 1, 1, 7, 68, 131, 137, 148]);
      const length = type === 1 ? 1 : random.pick([bytes.length - at, 2, 4, 4, random.between(0, 12)]);
      bytes.set([type, length].slice(0, type === 1 ? 1 : bytes.length - at), at);
      at += Math.max(1, length);
    }
    return bytes;
  }

  #ipv4(direction: Direction): Uint8Array {
    const random = this.#random;
    const [src, dst] = this.#ends(direction, 4);
    const [protocol, payload] = this.#l4(direction, 4);
    const options = random.chance(0.1) ? { options: this.#options(new Uint8Array(4 * random.between(1, 10))) } : {};
    const id = { id: random.pick(this.#ids) };
    const fields = { src, dst, protocol, payload, ...options, ...id };
    if (protocol !== 1 || payload[0] === 0 || payload[0] === 8)
      this.#last = { ...this.#last, [`4${direction}`]: ipv4(fields) };
    if (random.chance(0.8)) return ethernet(ipv4(fields), ETHERTYPE.ipv4, random.pick([0, 0, 0, 6]));
    const offset = random.pick([0, 0, 8, 16, 24, 1480, 65_528]);
    return ethernet(ipv4({ ...fields, offset, moreFragments: random.chance(0.7) }));
  }

  #ipv6(direction: Direction): Uint8Array {
    const random = this.#random;
    const [from, to] = this.#ends(direction, 6);
    const [protocol, payload] = this.#l4(direction, 6);
    const [src, dst] = [ip6(from), ip6(to)];
    if (protocol !== 58 || payload[0] === 128 || payload[0] === 129)
      this.#last = { ...this.#last, [`6${direction}`]: ipv6({ src, dst, nextHeader: protocol, payload }) };
    const [nextHeader, headed] = this.#extended(protocol, payload);
    const hopLimit = random.pick([64, 255]);
    return ethernet(ipv6({ src, dst, nextHeader, payload: headed, hopLimit }), ETHERTYPE.ipv6, random.pick([0, 0, 6]));
  }

  /** Extension headers before the payload, more than can be followed among them. */
  #extended(protocol: number, payload: Uint8Array): readonly [next: number, payload: Uint8Array] {
    const random = this.#random;
    if (random.chance(0.6)) return [protocol, payload];
    let [next, headed] = [protocol, payload];
    for (let left = random.pick([1, 1, 1, 2, 3, 8, 9]); left > 0; left -= 1) {
      const kind = random.pick([0, 43, 44, 44, 44, 51, 60]);
      if (kind === 44) {
        const header = Uint8Array.of(next, 0, 0, 0, 0, 0, 0, 0);
        const view = new DataView(header.buffer);
        const offset = random.pick([0, 0, 0, 8, 16, 24, 1480, 65_528]);
        view.setUint16(2, offset | (random.chance(0.7) ? 1 : 0));
        view.setUint32(4, random.pick(this.#ids));
        headed = concat(header, headed);
      } else {
        const eights = random.pick([1, 1, 2, 8, 20]);
        const header = new Uint8Array(8 * eights);
        header.set([next, kind === 51 ? eights * 2 - 2 : eights - 1, 0, random.chance(0.1) ? 1 : 0]);
        headed = concat(header, headed);
      }
      next = kind;
    }
    return [next, headed];
  }

  #ends(direction: Direction, family: Family): readonly [string, string] {
    const random = this.#random;
    const [pod, other, ...groups] =
      family === 4
        ? [POD, '10.0.0.9', '127.0.0.1', '224.0.0.1', '255.255.255.255']
        : [POD6, 'fd00::9', '::1', 'ff02::1', 'ff05::fb'];
    const peers = family === 4 ? PEERS : PEERS6;
    const peer = random.chance(0.6) ? peers[0] : random.pick([...peers, ...groups]);
    if (direction === 'ingress') return [peer, pod];
    return [random.chance(0.97) ? pod : other, peer];
  }

  #l4(direction: Direction, family: Family): readonly [protocol: number, payload: Uint8Array] {
    const random = this.#random;
    const [pod, peer] = random.chance(0.6) ? [80, 443] : [random.pick(PORTS), random.pick(PORTS)];
    const ports = direction === 'egress' ? { sport: pod, dport: peer } : { sport: peer, dport: pod };
    const payload = new Uint8Array(random.pick(LENGTHS)).fill(0x41);
    const numbers = { seq: random.pick([0, 1, 2 ** 31]), ack: random.pick([0, 1, 2 ** 31]) };
    switch (random.pick(['tcp', 'tcp', 'tcp', 'udp', 'udp', 'sctp', 'icmp', 'icmp', 'error', 'error', 'other'])) {
      case 'tcp':
        return [6, tcp({ ...ports, ...numbers, flags: random.pick(FLAGS), payload })];
      case 'udp':
        return [17, udp({ ...ports, payload })];
      case 'sctp':
        return [132, sctp({ ...ports, payload })];
      case 'icmp':
        if (family === 6)
          return [58, icmp({ type: random.pick([128, 128, 129, 130, 139, 143, 160, 5, 255]), id: pod, payload })];
        return [1, icmp({ type: random.pick([0, 8, 8, 5, 13, 14, 30, 42, 43]), id: pod, payload })];
      case 'error':
        return [family === 4 ? 1 : 58, this.#error(direction, family)];
      default:
        return [random.pick([1, 2, 4, 41, 47, 50, 58, 255]), payload];
    }
  }

  /** About a packet that travelled the other way. */
  #error(direction: Direction, family: Family): Uint8Array {
    const random = this.#random;
    const other = direction === 'egress' ? 'ingress' : 'egress';
    const [type, code] = [random.pick(family === 4 ? [3, 3, 4, 11, 12] : [1, 2, 2, 3, 4]), random.pick([0, 4])];
    const last = this.#last[`${family}${other}`];
    if (last !== undefined && random.chance(0.5)) {
      const bytes = concat(last, new Uint8Array(1400));
      const lengths = family === 4 ? [27, 28, 60, 567, 568, 569, 620] : [47, 48, 80, 1231, 1232, 1233, 1300];
      return icmp({ type, code, payload: bytes.slice(0, random.pick(lengths)) });
    }
    const [src, dst] = this.#ends(other, family);
    let [protocol, payload] = this.#l4NoError(other, family);
    if (random.chance(0.1)) payload = payload.slice(0, random.between(0, 7));
    if (random.chance(0.05)) protocol = random.between(0, 255);
    if (family === 6) {
      const [nextHeader, headed] = this.#extended(protocol, payload);
      const quoted = ipv6({ src: ip6(src), dst: ip6(dst), nextHeader, payload: headed });
      return icmp({ type, code, payload: quoted.slice(0, random.pick([quoted.length, quoted.length, 48, 47])) });
    }
    const quoted = ipv4({ src, dst, protocol, payload, ...(random.chance(0.1) ? { offset: 8 } : {}) });
    return icmp({
      type,
      code,
      payload: quoted.slice(0, random.pick([quoted.length, 28, 28, 27])),
    });
  }

  #l4NoError(direction: Direction, family: Family): readonly [number, Uint8Array] {
    for (;;) {
      const [protocol, payload] = this.#l4(direction, family);
      const type = payload[0] ?? 0;
      if (family === 4 ? protocol !== 1 || ![3, 4, 11, 12].includes(type) : protocol !== 58 || type > 4)
        return [protocol, payload];
    }
  }

  #other(): Uint8Array {
    const random = this.#random;
    const link = random.pick(['fe80::1', 'fe80::2', '::', '2001:db8::1', POD6, 'ff02::1', 'ff02::1:ff00:1']);
    const to = random.pick(['fe80::2', 'ff02::1', 'ff02::1:ff00:1', '2001:db8::1', 'ff02::2']);
    switch (random.pick(['arp', 'neighbour', 'neighbour', 'ipv6', 'ethertype'])) {
      case 'arp':
        return ethernet(arp({ sender: random.pick([POD, '0.0.0.0', '10.0.0.9']), target: '10.0.0.2' }), ETHERTYPE.arp);
      case 'neighbour': {
        const options = random.pick([[], [1], [2], [14], [1, 14], [14, 14, 1], [2, 2], [3]]);
        const hopLimit = random.chance(0.9) ? 255 : 64;
        const extra = random.chance(0.1) ? { extra: new Uint8Array(random.pick([4, 8, 100])) } : {};
        const type = random.pick([133, 134, 135, 135, 136, 136, 137]);
        return ethernet(neighbour({ type, src: link, dst: to, options, hopLimit, ...extra }), ETHERTYPE.ipv6);
      }
      case 'ipv6': {
        const nextHeader = random.pick([0, 6, 17, 43, 44, 58, 59, 60, 132]);
        const payload = new Uint8Array(random.pick([0, 8, 40]));
        const hopLimit = random.pick([64, 255]);
        return ethernet(ipv6({ src: ip6(link), dst: ip6(to), nextHeader, payload, hopLimit }), ETHERTYPE.ipv6);
      }
      default:
        return ethernet(new Uint8Array(60), random.pick([ETHERTYPE.vlan, 0x88a8, 0x8847, 0x0027, 0xffff]));
    }
  }

  /** Some of the bytes are others, or the end is missing, or something is behind it. */
  #mangled(frame: Uint8Array): Uint8Array {
    const random = this.#random;
    const out = frame.slice();
    switch (random.pick(['bytes', 'bytes', 'bytes', 'cut', 'grown'])) {
      case 'cut':
        return out.slice(0, random.between(14, out.length));
      case 'grown':
        return concat(out, new Uint8Array(random.between(1, 40)).fill(random.between(0, 255)));
      default:
        for (let left = random.between(1, 3); left > 0; left -= 1) {
          const at = random.between(12, Math.min(out.length - 1, 95));
          out[at] = random.chance(0.5) ? random.between(0, 255) : (out[at] ?? 0) ^ (1 << random.between(0, 7));
        }
        return out;
    }
  }
}
