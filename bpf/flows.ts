/** Conntrack, fragments, metrics and events as codecs, and the conntrack expiry rule for whoever collects garbage. */
import { type Codec, reader, Writer } from './codec.ts';
import { CT_FLAGS, DROP_REASONS, EVENT_KIND, PROTOCOL } from './constants.ts';
import { LayoutError } from './errors.ts';

/** A flow, initiator to responder. ICMP queries: sport = identifier, dport = request type. */
export interface CtKey {
  readonly src: Uint8Array;
  readonly dst: Uint8Array;
  readonly sport: number;
  readonly dport: number;
  readonly endpoint: number;
  readonly protocol: number;
  /** DIRECTION of the initiator's packets, seen from the endpoint. */
  readonly direction: number;
}

function ctKeyOf(what: string, size: number): Codec<CtKey> {
  const length = (size - 8) / 2;
  return {
    size,
    encode: (value) =>
      new Writer(what, size)
        .be16(0, value.sport, 'sport')
        .be16(2, value.dport, 'dport')
        .u16(4, value.endpoint, 'endpoint')
        .u8(6, value.protocol, 'protocol')
        .u8(7, value.direction, 'direction')
        .raw(8, value.src, length, 'src')
        .raw(8 + length, value.dst, length, 'dst').bytes,
    decode(bytes) {
      const view = reader(what, bytes, size);
      return {
        sport: view.getUint16(0),
        dport: view.getUint16(2),
        endpoint: view.getUint16(4, true),
        protocol: view.getUint8(6),
        direction: view.getUint8(7),
        src: bytes.slice(8, 8 + length),
        dst: bytes.slice(8 + length, size),
      };
    },
  };
}

/** Keys of the connection maps, one of each family: addresses of 4 bytes, of 16 bytes. */
export const CT_KEYS = { ct4: ctKeyOf('ct4 key', 16), ct6: ctKeyOf('ct6 key', 40) } as const;

export interface CtValue {
  /** The policy revision that allowed the flow or, when `denied`, denied it. */
  readonly revision: number;
  /** A flow that the policy stopped allowing: remembered so that packets of its other side do not open it again. */
  readonly denied: boolean;
  /** The node itself opened the flow, to the endpoint. */
  readonly local: boolean;
  /** The revision hands the flow to a proxy: to the listener in the upper 16 bits of `flags`. */
  readonly proxied: boolean;
  /** 29 bits, made of the key by the kernel program (layout.h); user space does not create entries. */
  readonly tag: number;
  /** Ticks of 2^30 ns of CLOCK_MONOTONIC, modulo 2^32. */
  readonly lastSeen: number;
  /** CT_FLAGS. */
  readonly flags: number;
  /** Units of 128 jiffies: the kernel's last look at the clock. */
  readonly stamp: number;
  /** Cookie of the rule that allowed the flow when it was opened; 0 = not enforced. */
  readonly cookie: number;
  readonly packets: bigint;
  readonly bytes: bigint;
  /** Of TCP the acknowledgment number that the pod has sent last. */
  readonly acked: number;
  /** The cell of `ct_shares` that counts it for its sender; 0: none does. */
  readonly peer: number;
}

const DENIED_BIT = 0x8000_0000;
const LOCAL_BIT = 0x4000_0000;
const PROXIED_BIT = 0x2000_0000;
const TAG_MASK = 0x1fff_ffff;

function bitsOf({ denied, local, proxied }: CtValue): number {
  return (denied ? DENIED_BIT : 0) + (local ? LOCAL_BIT : 0) + (proxied ? PROXIED_BIT : 0);
}

/** What the proxy knows the rules of the flow by; 0: no proxy decides it. */
export function listenerOf({ proxied, flags }: Pick<CtValue, 'proxied' | 'flags'>): number {
  return proxied ? flags >>> 16 : 0;
}

export const ctValue: Codec<CtValue> = {
  size: 48,
  encode(value) {
    if (value.tag > TAG_MASK) throw new LayoutError('ct value', 'tag', `${value.tag}`, `an integer in 0..${TAG_MASK}`);
    return new Writer('ct value', 48)
      .u32(0, value.revision, 'revision')
      .u32(4, value.tag + bitsOf(value), 'tag')
      .u32(8, value.lastSeen, 'lastSeen')
      .u32(12, value.flags, 'flags')
      .u32(16, value.cookie, 'cookie')
      .u32(20, value.stamp, 'stamp')
      .u64(24, value.packets, 'packets')
      .u64(32, value.bytes, 'bytes')
      .be32(40, value.acked, 'acked')
      .u32(44, value.peer, 'peer').bytes;
  },
  decode(bytes) {
    const view = reader('ct value', bytes, 48);
    const tag = view.getUint32(4, true);
    return {
      revision: view.getUint32(0, true),
      denied: tag >= DENIED_BIT,
      local: (tag & LOCAL_BIT) !== 0,
      proxied: (tag & PROXIED_BIT) !== 0,
      tag: tag & TAG_MASK,
      lastSeen: view.getUint32(8, true),
      flags: view.getUint32(12, true),
      cookie: view.getUint32(16, true),
      stamp: view.getUint32(20, true),
      packets: view.getBigUint64(24, true),
      bytes: view.getBigUint64(32, true),
      acked: view.getUint32(40),
      peer: view.getUint32(44, true),
    };
  },
};

/** A cell of `ct_shares`. */
export interface CtShare {
  /** As the programs count them. */
  readonly flows: number;
  /** Of a table, how many flows it can hold; 0: no limit. */
  readonly size: number;
}

export const ctShare: Codec<CtShare> = {
  size: 8,
  encode: ({ flows, size }) => new Writer('ct_shares value', 8).u32(0, flows >>> 0, 'flows').u32(4, size, 'size').bytes,
  decode(bytes) {
    const view = reader('ct_shares value', bytes, 8);
    return { flows: view.getInt32(0, true), size: view.getUint32(4, true) };
  },
};

const ENDPOINT_CELLS = 4096;
const PEER_CELLS = 4096;
const CELLS_OF_FAMILY = ENDPOINT_CELLS + PEER_CELLS + 1;

/** Cells of `ct_shares` (layout.h): for each family those of endpoints, of peers and of the table, then the seed by which peers are put to cells. */
export const CT_CELLS = {
  endpoint: (family: keyof typeof CT_KEYS, id: number): number => firstCell(family) + (id % ENDPOINT_CELLS),
  table: (family: keyof typeof CT_KEYS): number => firstCell(family) + ENDPOINT_CELLS + PEER_CELLS,
  seed: 2 * CELLS_OF_FAMILY,
  /** What a cell counts. */
  name(cell: number): { readonly family: 4 | 6; readonly of: 'endpoint' | 'peer' | 'table'; readonly number: number } {
    const at = cell % CELLS_OF_FAMILY;
    const family = cell < CELLS_OF_FAMILY ? 4 : 6;
    if (at < ENDPOINT_CELLS) return { family, of: 'endpoint', number: at };
    return at < ENDPOINT_CELLS + PEER_CELLS
      ? { family, of: 'peer', number: at - ENDPOINT_CELLS }
      : { family, of: 'table', number: 0 };
  },
} as const;

function firstCell(family: keyof typeof CT_KEYS): number {
  return family === 'ct6' ? CELLS_OF_FAMILY : 0;
}

/** Nanoseconds of one conntrack tick. */
export const TICK_NS = 1n << 30n;

/** The tick of an instant of CLOCK_MONOTONIC (`process.hrtime.bigint()`). */
export function ticksAt(monotonicNs: bigint): number {
  return Number((monotonicNs / TICK_NS) & 0xffff_ffffn);
}

function ticksOf(seconds: number): number {
  return Number((BigInt(seconds) * 1_000_000_000n) / TICK_NS);
}

type Aging = Pick<CtValue, 'flags' | 'denied'>;

function isClosing(flags: number): boolean {
  const finished = CT_FLAGS.finForward | CT_FLAGS.finReply;
  return (flags & CT_FLAGS.reset) !== 0 || (flags & finished) === finished;
}

/** Of TCP: it was answered, and its initiator has acknowledged that. */
function isEstablished(flags: number): boolean {
  const both = CT_FLAGS.replied | CT_FLAGS.acked;
  return (flags & both) === both;
}

/**
 * Idle time in ticks after which an entry's time is over, as in conntrack.h. A denied flow counts for longer than TCP waits between two
 * retransmissions (120 s), whatever its protocol and state.
 */
export function ctTimeoutTicks(protocol: number, { flags, denied }: Aging): number {
  if (denied) return ticksOf(300);
  if (protocol === PROTOCOL.tcp) return ticksOf(isClosing(flags) ? 10 : isEstablished(flags) ? 21_600 : 60);
  return ticksOf(protocol === PROTOCOL.udp && (flags & CT_FLAGS.replied) !== 0 ? 180 : 60);
}

/** Idle time in ticks for which the kernel remembers it, so that nothing of it begins a flow of the other side. */
export function ctMemoryTicks(protocol: number, { flags, denied }: Aging): number {
  const timeout = ctTimeoutTicks(protocol, { flags, denied: denied && protocol === PROTOCOL.tcp });
  return protocol === PROTOCOL.tcp ? timeout : ticksOf(300) + timeout;
}

/** How far an entry is at that instant. Expired: its time is over, and the kernel remembers it. Gone: the kernel treats it as absent. */
export function ctAge(key: Pick<CtKey, 'protocol'>, value: CtValue, monotonicNs: bigint): 'live' | 'expired' | 'gone' {
  const idle = (ticksAt(monotonicNs) - value.lastSeen) | 0;
  const over = (value.flags & CT_FLAGS.over) !== 0 && key.protocol !== PROTOCOL.tcp;
  if (idle <= ctTimeoutTicks(key.protocol, value) && !over) return 'live';
  return idle <= ctMemoryTicks(key.protocol, value) ? 'expired' : 'gone';
}

/**
 * A TCP connection whose handshake has not been completed. It can be forgotten without harm: nothing but a SYN begins a connection, so that the
 * answer of its responder opens none of the other side.
 */
export function isHalfOpen({ protocol }: Pick<CtKey, 'protocol'>, { flags, denied }: Aging): boolean {
  return protocol === PROTOCOL.tcp && !denied && !isEstablished(flags);
}

export interface MetricsKey {
  /** Number in DROP_REASONS. */
  readonly reason: number;
  /** DIRECTION. */
  readonly direction: number;
}

export interface MetricsValue {
  readonly packets: bigint;
  readonly bytes: bigint;
}

/** Key of `metrics`; its value is one `metricsEntry` a possible CPU. */
export const metricsKey: Codec<MetricsKey> = {
  size: 4,
  encode: (value) => new Writer('metrics key', 4).u32(0, value.reason * 2 + value.direction, 'index').bytes,
  decode(bytes) {
    const index = reader('metrics key', bytes, 4).getUint32(0, true);
    return { reason: index >> 1, direction: index & 1 };
  },
};

export const metricsEntry: Codec<MetricsValue> = {
  size: 16,
  encode: (value) =>
    new Writer('metrics value', 16).u64(0, value.packets, 'packets').u64(8, value.bytes, 'bytes').bytes,
  decode(bytes) {
    const view = reader('metrics value', bytes, 16);
    return { packets: view.getBigUint64(0, true), bytes: view.getBigUint64(8, true) };
  },
};

/** Sum over all CPUs of a per-CPU `metrics` value. */
export function sumMetrics(bytes: Uint8Array): MetricsValue {
  let packets = 0n;
  let total = 0n;
  for (let at = 0; at < bytes.length; at += metricsEntry.size) {
    const entry = metricsEntry.decode(bytes.subarray(at, at + metricsEntry.size));
    packets += entry.packets;
    total += entry.bytes;
  }
  return { packets, bytes: total };
}

export interface DatapathEvent {
  /** CLOCK_BOOTTIME. */
  readonly timeNs: bigint;
  readonly kind: 'drop' | 'allow';
  /** DIRECTION. */
  readonly direction: number;
  /** Number in DROP_REASONS; 0 for an allowed flow. */
  readonly reason: number;
  /** Name of the reason; 'allowed' for 0. */
  readonly reasonName: string;
  readonly protocol: number;
  readonly endpoint: number;
  /** 4, 6, or 0 when the frame has no IP addresses. */
  readonly family: number;
  /** 4 or 16 bytes, by family; empty for 0. */
  readonly src: Uint8Array;
  readonly dst: Uint8Array;
  /** ICMP queries: the identifier. */
  readonly sport: number;
  /** ICMP: the type. */
  readonly dport: number;
  readonly ethertype: number;
  readonly icmpType: number;
  readonly icmpCode: number;
  readonly tcpFlags: number;
  readonly ifindex: number;
  /** 0 = unknown. */
  readonly srcIdentity: number;
  readonly dstIdentity: number;
  readonly cookie: number;
  /** Bytes of the frame. */
  readonly length: number;
  /** The policy revision that judged the packet. */
  readonly revision: number;
}

export const EVENT_SIZE = 80;

/** Decodes one record of the `events` ring buffer. */
export function decodeEvent(bytes: Uint8Array): DatapathEvent {
  const view = reader('event', bytes, EVENT_SIZE);
  const family = view.getUint8(23);
  const length = family === 4 ? 4 : family === 6 ? 16 : 0;
  const reason = view.getUint8(10);
  return {
    timeNs: view.getBigUint64(0, true),
    kind: view.getUint8(8) === EVENT_KIND.allow ? 'allow' : 'drop',
    direction: view.getUint8(9),
    reason,
    reasonName: reason === 0 ? 'allowed' : (DROP_REASONS.get(reason)?.name ?? `reason-${reason}`),
    protocol: view.getUint8(11),
    endpoint: view.getUint16(12, true),
    sport: view.getUint16(14),
    dport: view.getUint16(16),
    ethertype: view.getUint16(18),
    icmpType: view.getUint8(20),
    icmpCode: view.getUint8(21),
    tcpFlags: view.getUint8(22),
    family,
    ifindex: view.getUint32(24, true),
    srcIdentity: view.getUint32(28, true),
    dstIdentity: view.getUint32(32, true),
    cookie: view.getUint32(36, true),
    length: view.getUint32(40, true),
    revision: view.getUint32(44, true),
    src: bytes.slice(48, 48 + length),
    dst: bytes.slice(64, 64 + length),
  };
}
