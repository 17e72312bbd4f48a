/** Frames that are well formed, or nearly, or not at all. Each but a few is of the same few flows. */
import type { Direction } from '@weir/bpf';
import {
  arp,
  concat,
  ETHERTYPE,
  ethernet,
  icmp,
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
import { POD } from './oracle.ts';

/** The kernel's test run takes no shorter frames. */
const SHORTEST = 54;
/** In the IPv4 header: the destination of what a pod receives is the pod. */
const DESTINATION = 30;

export const PEERS = ['10.0.0.2', '10.0.0.3', '10.0.0.4', '192.0.2.1', '198.51.100.1'] as const;
export const PORTS = [0, 53, 80, 88, 443] as const;
const { fin, syn, rst, ack } = TCP_FLAGS;
const FLAGS = [syn, syn, syn | ack, ack, fin | ack, rst, rst | ack, syn | fin, 0, 0xff] as const;
const LENGTHS = [0, 0, 1, 8, 20, 40, 600] as const;

export interface FramesOptions {
  readonly random: Random;
  /** Of a datagram that is sent in fragments; the same few again and again. */
  readonly ids: readonly number[];
}

export class Frames {
  readonly #random: Random;
  readonly #ids: readonly number[];
  /** The last IPv4 packet of each direction, which an error may quote. */
  #last: Partial<Record<Direction, Uint8Array>> = {};

  constructor({ random, ids }: FramesOptions) {
    this.#random = random;
    this.#ids = ids;
  }

  next(direction: Direction): Uint8Array {
    const random = this.#random;
    const made = random.chance(0.85) ? this.#ipv4(direction) : this.#other();
    const frame = random.chance(0.35) ? this.#mangled(made) : made;
    const long = frame.length < SHORTEST ? concat(frame, new Uint8Array(SHORTEST - frame.length)) : frame;
    const isIp = long[12] === 8 && long[13] === 0;
    if (direction === 'ingress' && isIp) long.set(POD.split('.').map(Number), DESTINATION);
    return long;
  }

  #ipv4(direction: Direction): Uint8Array {
    const random = this.#random;
    const [src, dst] = this.#ends(direction);
    const [protocol, payload] = this.#l4(direction);
    const options = random.chance(0.1) ? { options: new Uint8Array(4 * random.between(1, 10)) } : {};
    const id = { id: random.pick(this.#ids) };
    const fields = { src, dst, protocol, payload, ...options, ...id };
    if (protocol !== 1 || payload[0] === 0 || payload[0] === 8)
      this.#last = { ...this.#last, [direction]: ipv4(fields) };
    if (random.chance(0.8)) return ethernet(ipv4(fields), ETHERTYPE.ipv4, random.pick([0, 0, 0, 6]));
    const offset = random.pick([0, 0, 8, 16, 24, 1480, 65_528]);
    return ethernet(ipv4({ ...fields, offset, moreFragments: random.chance(0.7) }));
  }

  #ends(direction: Direction): readonly [string, string] {
    const peer = this.#random.chance(0.6) ? PEERS[0] : this.#random.pick([...PEERS, '127.0.0.1']);
    if (direction === 'ingress') return [peer, POD];
    return [this.#random.chance(0.97) ? POD : '10.0.0.9', peer];
  }

  #l4(direction: Direction): readonly [protocol: number, payload: Uint8Array] {
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
        return [1, icmp({ type: random.pick([0, 8, 8, 5, 13, 14, 30, 42, 43]), id: pod, payload })];
      case 'error':
        return [1, this.#error(direction)];
      default:
        return [random.pick([2, 4, 41, 47, 50, 255]), payload];
    }
  }

  /** About a packet that travelled the other way. */
  #error(direction: Direction): Uint8Array {
    const random = this.#random;
    const other = direction === 'egress' ? 'ingress' : 'egress';
    const [type, code] = [random.pick([3, 3, 4, 11, 12]), random.pick([0, 4])];
    const last = this.#last[other];
    if (last !== undefined && random.chance(0.5)) {
      const bytes = concat(last, new Uint8Array(600));
      return icmp({ type, code, payload: bytes.slice(0, random.pick([27, 28, 60, 567, 568, 569, bytes.length])) });
    }
    const [src, dst] = this.#ends(other);
    let [protocol, payload] = this.#l4NoError(other);
    if (random.chance(0.1)) payload = payload.slice(0, random.between(0, 7));
    if (random.chance(0.05)) protocol = random.between(0, 255);
    const quoted = ipv4({ src, dst, protocol, payload, ...(random.chance(0.1) ? { offset: 8 } : {}) });
    return icmp({
      type,
      code,
      payload: quoted.slice(0, random.pick([quoted.length, 28, 28, 27])),
    });
  }

  #l4NoError(direction: Direction): readonly [number, Uint8Array] {
    for (;;) {
      const [protocol, payload] = this.#l4(direction);
      if (protocol !== 1 || ![3, 4, 11, 12].includes(payload[0] ?? 0)) return [protocol, payload];
    }
  }

  #other(): Uint8Array {
    const random = this.#random;
    const link = random.pick(['fe80::1', 'fe80::2', '::', '2001:db8::1', 'ff02::1', 'ff02::1:ff00:1']);
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
          const at = random.between(12, Math.min(out.length - 1, 75));
          out[at] = random.chance(0.5) ? random.between(0, 255) : (out[at] ?? 0) ^ (1 << random.between(0, 7));
        }
        return out;
    }
  }
}
