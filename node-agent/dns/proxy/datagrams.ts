/**
 * Datagrams of many sources and destinations by one socket: as a listener gets them, with whom each is for (ip(7), IP_RECVORIGDSTADDR), and sent as whoever
 * is to have sent them.
 */
import { closeSync } from 'node:fs';
import type { Family } from '@weir/net';
import { errnoName } from 'libbpf-ts';
import { addressOf, lastErrno, libcFunction } from './libc.ts';
import {
  AF,
  bindTo,
  type Flow,
  MSG_DONTWAIT,
  MSG_NOSIGNAL,
  ORIGINAL_DESTINATION,
  open,
  option,
  optionOf,
  orClose,
  PLACE_BYTES,
  type Place,
  type ProxySocketOptions,
  SOL_IP,
  SOL_IPV6,
  SOL_SOCKET,
} from './sockets.ts';

/** Of linux/in.h, linux/in6.h, asm-generic/socket.h. */
const IPPROTO_UDP = 17;
const SOL_RAW = 255;
const IPV6_CHECKSUM = 7;
const SO_ATTACH_FILTER = 26;
const PACKET_INFO = { 4: [SOL_IP, 8], 6: [SOL_IPV6, 50] } as const;
const MSG_TRUNC = 0x20;

const recvmmsg = libcFunction('int recvmmsg(int fd, void *messages, unsigned int count, int flags, void *timeout)');
const sendmsg = libcFunction('long sendmsg(int fd, void *message, int flags)');

/** struct msghdr on 64 bits, and struct mmsghdr around it. */
const HEADER_BYTES = 56;
const SLOT_BYTES = 64;
const [IOV_BYTES, CONTROL_BYTES] = [16, 64];
/** A question is shorter: what is longer is not one. */
const LONGEST = 4096;
const SLOTS = 32;
const MOST_ADDRESSES = 1024;
const UDP_BYTES = 8;
const LONGEST_SENT = 65_535;

/** Addresses that are met again and again, each as one object. Nobody changes it. */
class Addresses {
  readonly #known = new Map<number | string, Uint8Array>();

  of(family: Family, bytes: Buffer, at: number): Uint8Array {
    const end = at + (family === 4 ? 4 : 16);
    const key = family === 4 ? bytes.readUInt32BE(at) : bytes.toString('latin1', at, end);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    // Anybody may ask anybody: what is kept stays small.
    if (this.#known.size === MOST_ADDRESSES) this.#known.clear();
    const address = Uint8Array.prototype.slice.call(bytes, at, end);
    this.#known.set(key, address);
    return address;
  }
}

/** Reads datagrams of a listener with whom they came from and whom they were sent to, many by one call. */
export class DatagramReader {
  readonly #headers = Buffer.alloc(SLOTS * SLOT_BYTES);
  readonly #names = Buffer.alloc(SLOTS * PLACE_BYTES);
  readonly #controls = Buffer.alloc(SLOTS * CONTROL_BYTES);
  readonly #data = Buffer.alloc(SLOTS * LONGEST);
  readonly #vectors = Buffer.alloc(SLOTS * IOV_BYTES);
  readonly #addresses = new Addresses();
  readonly #fd: number;
  readonly #family: Family;
  /** Slots whose lengths the last call has changed. */
  #used = SLOTS;

  constructor(fd: number, family: Family) {
    this.#fd = fd;
    this.#family = family;
    const [names, controls, data, vectors] = [
      addressOf(this.#names),
      addressOf(this.#controls),
      addressOf(this.#data),
      addressOf(this.#vectors),
    ];
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const at = slot * SLOT_BYTES;
      this.#headers.writeBigUInt64LE(names + BigInt(slot * PLACE_BYTES), at);
      this.#headers.writeBigUInt64LE(vectors + BigInt(slot * IOV_BYTES), at + 16);
      this.#headers.writeBigUInt64LE(1n, at + 24);
      this.#headers.writeBigUInt64LE(controls + BigInt(slot * CONTROL_BYTES), at + 32);
      this.#vectors.writeBigUInt64LE(data + BigInt(slot * LONGEST), slot * IOV_BYTES);
      this.#vectors.writeBigUInt64LE(BigInt(LONGEST), slot * IOV_BYTES + 8);
    }
  }

  /** Gives each datagram that waits, at most `SLOTS`, valid until it returns; returns whether there may be more. */
  read(take: (data: Buffer, flow: Flow) => void): boolean {
    for (let slot = 0; slot < this.#used; slot += 1) {
      this.#headers.writeUInt32LE(PLACE_BYTES, slot * SLOT_BYTES + 8);
      // Of eight bytes; the others stay 0.
      this.#headers.writeUInt32LE(CONTROL_BYTES, slot * SLOT_BYTES + 40);
    }
    const count = recvmmsg()(this.#fd, this.#headers, SLOTS, MSG_DONTWAIT, null);
    this.#used = Math.max(0, count);
    for (let slot = 0; slot < count; slot += 1) {
      const flow = this.#flow(slot);
      if (flow === undefined) continue;
      const length = this.#headers.readUInt32LE(slot * SLOT_BYTES + HEADER_BYTES);
      take(this.#data.subarray(slot * LONGEST, slot * LONGEST + length), flow);
    }
    return count === SLOTS;
  }

  /** Undefined: it is longer than a slot, or not said whom it is for. */
  #flow(slot: number): Flow | undefined {
    const header = slot * SLOT_BYTES;
    if ((this.#headers.readInt32LE(header + 48) & MSG_TRUNC) !== 0) return undefined;
    const destination = this.#destination(slot, this.#headers.readUInt32LE(header + 40));
    return destination && { source: this.#place(this.#names, slot * PLACE_BYTES), destination };
  }

  /** Of struct cmsghdr: length in 8 bytes, level, type, then the address. */
  #destination(slot: number, length: number): Place | undefined {
    const start = slot * CONTROL_BYTES;
    const [level, type] = ORIGINAL_DESTINATION[this.#family];
    for (let at = start; at + 16 <= start + length; ) {
      const size = this.#controls.readUInt32LE(at);
      if (size < 16) return undefined;
      if (this.#controls.readInt32LE(at + 8) === level && this.#controls.readInt32LE(at + 12) === type)
        return this.#place(this.#controls, at + 16);
      at += (size + 7) & ~7;
    }
    return undefined;
  }

  #place(bytes: Buffer, at: number): Place {
    const family = this.#family;
    return {
      family,
      address: this.#addresses.of(family, bytes, at + (family === 4 ? 4 : 8)),
      port: bytes.readUInt16BE(at + 2),
    };
  }
}

/**
 * Sends datagrams in the name of any address and port. By a raw socket: one that were bound to a server's address and port would receive what is sent to a
 * server that runs on this node, or could not be bound beside it. It receives nothing: a filter refuses all. Needs CAP_NET_RAW.
 */
export class DatagramSender {
  readonly fd: number;
  readonly #family: Family;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  readonly #name = Buffer.alloc(PLACE_BYTES);
  readonly #vector = Buffer.alloc(IOV_BYTES);
  readonly #datagram = Buffer.alloc(UDP_BYTES + LONGEST_SENT);
  readonly #control: Buffer;

  constructor(family: Family, options: ProxySocketOptions) {
    this.#family = family;
    this.fd = open(family, 'raw', options, IPPROTO_UDP);
    orClose(this.fd, () => {
      refuseAll(this.fd);
      // What is sent to that address alone is looked at.
      bindTo(this.fd, { family, address: family === 4 ? Uint8Array.of(127, 87, 87, 87) : LOOPBACK_6, port: 0 });
      if (family === 6) option(this.fd, SOL_RAW, IPV6_CHECKSUM, 6, 'IPV6_CHECKSUM');
    });
    // struct in_pktinfo (interface, source, destination), struct in6_pktinfo (source, interface).
    const info = family === 4 ? 12 : 20;
    this.#control = Buffer.alloc(16 + ((info + 7) & ~7));
    const [level, type] = PACKET_INFO[family];
    this.#control.writeUInt32LE(16 + info, 0);
    this.#control.writeInt32LE(level, 8);
    this.#control.writeInt32LE(type, 12);
    this.#vector.writeBigUInt64LE(addressOf(this.#datagram), 0);
    this.#header.writeBigUInt64LE(addressOf(this.#name), 0);
    this.#header.writeUInt32LE(family === 4 ? 16 : 28, 8);
    this.#header.writeBigUInt64LE(addressOf(this.#vector), 16);
    this.#header.writeBigUInt64LE(1n, 24);
    this.#header.writeBigUInt64LE(addressOf(this.#control), 32);
    this.#header.writeBigUInt64LE(BigInt(this.#control.length), 40);
  }

  /** @returns undefined, or the name of the errno */
  send({ source, destination }: Flow, data: Uint8Array): string | undefined {
    const address = this.#family === 4 ? 4 : 8;
    this.#name.writeUInt16LE(AF[this.#family], 0);
    this.#name.set(destination.address, address);
    this.#control.set(source.address, this.#family === 4 ? 20 : 16);
    const length = UDP_BYTES + data.length;
    this.#datagram.writeUInt16BE(source.port, 0);
    this.#datagram.writeUInt16BE(destination.port, 2);
    this.#datagram.writeUInt16BE(length, 4);
    this.#datagram.writeUInt16BE(0, 6);
    this.#datagram.set(data, UDP_BYTES);
    if (this.#family === 4) this.#datagram.writeUInt16BE(checksum(source, destination, this.#datagram, length), 6);
    // Of eight bytes; the others stay 0.
    this.#vector.writeUInt32LE(length, 8);
    if (sendmsg()(this.fd, this.#header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return undefined;
    return errnoName(lastErrno());
  }

  close(): void {
    closeSync(this.fd);
  }
}

const LOOPBACK_6 = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);

/** struct sock_fprog with one instruction, BPF_RET | BPF_K of 0. */
function refuseAll(fd: number): void {
  const program = Buffer.alloc(8);
  program.writeUInt16LE(6);
  const value = Buffer.alloc(16);
  value.writeUInt16LE(1);
  value.writeBigUInt64LE(addressOf(program), 8);
  optionOf(fd, SOL_SOCKET, SO_ATTACH_FILTER, value, 'SO_ATTACH_FILTER');
}

/** Of a UDP datagram (RFC 768). */
function checksum(source: Place, destination: Place, datagram: Buffer, length: number): number {
  let sum = IPPROTO_UDP + length + sumOf(source.address, 4) + sumOf(destination.address, 4) + sumOf(datagram, length);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff || 0xffff;
}

function sumOf(bytes: Uint8Array, length: number): number {
  let sum = 0;
  for (let at = 0; at < length; at += 1) sum += at % 2 === 0 ? (bytes[at] ?? 0) << 8 : (bytes[at] ?? 0);
  return sum;
}
