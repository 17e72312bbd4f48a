/**
 * Sockets that speak as somebody else: transparent ones (ip(7), IP_TRANSPARENT), which need CAP_NET_ADMIN. All are non-blocking, closed at exec, and carry
 * the mark by which the datapath knows the proxy's own packets.
 */
import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import type { Family } from '@weir/net';
import { errnoName } from 'libbpf-ts';
import { SocketError } from './errors.ts';
import { lastErrno, libcFunction } from './libc.ts';

/** Of linux/in.h, linux/in6.h, asm-generic/socket.h. */
export const AF = { 4: 2, 6: 10 } as const;
const SOCK = { stream: 1, datagram: 2, raw: 3 } as const;
const NONBLOCK_CLOEXEC = 0o2004000;
export const SOL_SOCKET = 1;
export const SOL_IP = 0;
export const SOL_IPV6 = 41;
const SO_REUSEADDR = 2;
const SO_RCVBUFFORCE = 33;
const SO_MARK = 36;
const SO_BINDTOIFINDEX = 62;
const IPV6_V6ONLY = 26;
const TRANSPARENT = { 4: [SOL_IP, 19], 6: [SOL_IPV6, 75] } as const;
/** IP_PKTINFO, IPV6_RECVPKTINFO; and IP_PKTOPTIONS, IPV6_2292PKTOPTIONS, which give what a connection began with. */
const RECEIVE_PACKET_INFO = { 4: [SOL_IP, 8], 6: [SOL_IPV6, 49] } as const;
const PACKET_OPTIONS = { 4: [SOL_IP, 9], 6: [SOL_IPV6, 6] } as const;
export const ORIGINAL_DESTINATION = { 4: [SOL_IP, 20], 6: [SOL_IPV6, 74] } as const;
export const MSG_DONTWAIT = 0x40;
export const MSG_NOSIGNAL = 0x4000;
const BACKLOG = 128;
/** The kernel doubles it. Has room for what the datapath lets one pod send at once (bpf/proxy.h: 2000 packets) and others beside it. */
const RECEIVE_BYTES = 4 << 20;

const { EAGAIN, EINTR, EINPROGRESS } = constants.errno;

const socketCall = libcFunction('int socket(int domain, int type, int protocol)');
const setsockopt = libcFunction('int setsockopt(int fd, int level, int name, void *value, uint32_t length)');
const getsockopt = libcFunction('int getsockopt(int fd, int level, int name, void *value, void *length)');
const bindCall = libcFunction('int bind(int fd, void *address, uint32_t length)');
const connectCall = libcFunction('int connect(int fd, void *address, uint32_t length)');
const listenCall = libcFunction('int listen(int fd, int backlog)');
const acceptCall = libcFunction('int accept4(int fd, void *address, void *length, int flags)');
const getsockname = libcFunction('int getsockname(int fd, void *address, void *length)');
const sendCall = libcFunction('long send(int fd, void *data, size_t length, int flags)');
const recvCall = libcFunction('long recv(int fd, void *data, size_t length, int flags)');

/** An address and a port. */
export interface Place {
  readonly family: Family;
  /** 4 or 16 bytes. */
  readonly address: Uint8Array;
  readonly port: number;
}

/** From whom to whom. */
export interface Flow {
  readonly source: Place;
  readonly destination: Place;
}

export interface ProxySocketOptions {
  readonly mark: number;
}

function failed(operation: string, errno = lastErrno()): SocketError {
  return new SocketError(operation, errnoName(errno));
}

function check(result: number, operation: string): number {
  if (result < 0) throw failed(operation);
  return result;
}

export const PLACE_BYTES = 28;

/** struct sockaddr_in, struct sockaddr_in6; returns its length. What is neither address nor port stays as it is: zero in a new buffer. */
export function encodePlace({ family, address, port }: Place, into: Buffer): number {
  into.writeUInt16LE(AF[family], 0);
  into.writeUInt16BE(port, 2);
  into.set(address, family === 4 ? 4 : 8);
  return family === 4 ? 16 : PLACE_BYTES;
}

/** For the call that is made next. Of each family one: nothing of the other is in it. */
const placeBytes = { 4: Buffer.alloc(PLACE_BYTES), 6: Buffer.alloc(PLACE_BYTES) } as const;

export function decodePlace(family: Family, bytes: Buffer): Place {
  const at = family === 4 ? 4 : 8;
  return {
    family,
    // A copy: the buffer is used again.
    address: Uint8Array.prototype.slice.call(bytes, at, at + (family === 4 ? 4 : 16)),
    port: bytes.readUInt16BE(2),
  };
}

const optionValue = Buffer.alloc(4);

export function option(fd: number, level: number, name: number, value: number, what: string): void {
  optionValue.writeUInt32LE(value);
  optionOf(fd, level, name, optionValue, what);
}

export function optionOf(fd: number, level: number, name: number, value: Buffer, what: string): void {
  if (setsockopt()(fd, level, name, value, value.length) < 0) throw failed(`set ${what} of a socket`);
}

export function open(family: Family, type: keyof typeof SOCK, { mark }: ProxySocketOptions, protocol = 0): number {
  const fd = check(socketCall()(AF[family], SOCK[type] | NONBLOCK_CLOEXEC, protocol), `open an IPv${family} socket`);
  return orClose(fd, () => {
    const [level, name] = TRANSPARENT[family];
    option(fd, level, name, 1, 'IP_TRANSPARENT');
    if (mark !== 0) option(fd, SOL_SOCKET, SO_MARK, mark, 'SO_MARK');
    return fd;
  });
}

/** What `body` returns; closes the socket when it throws. */
export function orClose<T>(fd: number, body: () => T): T {
  try {
    return body();
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

export function bindTo(fd: number, place: Place): void {
  const bytes = placeBytes[place.family];
  const result = bindCall()(fd, bytes, encodePlace(place, bytes));
  if (result < 0) throw failed(`bind a socket to port ${place.port}`);
}

/** A listener of datagrams or connections, whomever they are addressed to. */
export function listenAt(place: Place, type: 'stream' | 'datagram', options: ProxySocketOptions): number {
  const { family } = place;
  const fd = open(family, type, options);
  return orClose(fd, () => {
    option(fd, SOL_SOCKET, SO_REUSEADDR, type === 'stream' ? 1 : 0, 'SO_REUSEADDR');
    if (family === 6) option(fd, SOL_IPV6, IPV6_V6ONLY, 1, 'IPV6_V6ONLY');
    if (type === 'datagram') {
      const [level, name] = ORIGINAL_DESTINATION[family];
      option(fd, level, name, 1, 'IP_RECVORIGDSTADDR');
      // Whatever the node's net.core.rmem_max is.
      option(fd, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES, 'SO_RCVBUFFORCE');
    }
    if (type === 'stream') {
      const [level, name] = RECEIVE_PACKET_INFO[family];
      option(fd, level, name, 1, 'IP_PKTINFO');
    }
    bindTo(fd, place);
    if (type === 'stream') check(listenCall()(fd, BACKLOG), 'listen');
    return fd;
  });
}

/** A socket from `source` to `destination`, as if it were the source's own. Of a stream the connection may still be under way. */
export function connectAs(
  { source, destination }: Flow,
  type: 'stream' | 'datagram',
  options: ProxySocketOptions,
): number {
  const fd = open(source.family, type, options);
  return orClose(fd, () => {
    // Datagrams of one source go to several servers at once, each by a socket of its own.
    option(fd, SOL_SOCKET, SO_REUSEADDR, 1, 'SO_REUSEADDR');
    bindTo(fd, source);
    const bytes = placeBytes[destination.family];
    if (connectCall()(fd, bytes, encodePlace(destination, bytes)) < 0 && lastErrno() !== EINPROGRESS)
      throw failed('connect a socket');
    return fd;
  });
}

export interface Accepted extends Flow {
  readonly fd: number;
}

/** The next connection; undefined: none waits. */
export function accept(listener: number, family: Family): Accepted | undefined {
  const [address, length] = [Buffer.alloc(28), Buffer.alloc(4)];
  length.writeUInt32LE(address.length);
  const fd = acceptCall()(listener, address, length, NONBLOCK_CLOEXEC);
  if (fd < 0) {
    // Besides EAGAIN: errors of that connection, which is gone (accept(2)).
    if (lastErrno() === constants.errno.EMFILE || lastErrno() === constants.errno.ENFILE)
      throw failed('accept a connection');
    return undefined;
  }
  return orClose(fd, () => {
    const source = decodePlace(family, address);
    length.writeUInt32LE(address.length);
    check(getsockname()(fd, address, length), 'read whom a connection is for');
    bindToInterface(fd, family);
    return { fd, source, destination: decodePlace(family, address) };
  });
}

/**
 * Binds a connection to the interface that it came in by. Otherwise what the proxy sends in the pod's name to a server that this node itself runs would be
 * taken for the pod's: the two connections have the same two ends.
 */
function bindToInterface(fd: number, family: Family): void {
  const [control, length] = [Buffer.alloc(64), Buffer.alloc(4)];
  length.writeUInt32LE(control.length);
  const [level, name] = PACKET_OPTIONS[family];
  check(getsockopt()(fd, level, name, control, length), 'read which interface a connection came by');
  // struct cmsghdr, and in it struct in_pktinfo or in6_pktinfo: one message, as nothing else was asked for.
  const index = control.readInt32LE(family === 4 ? 16 : 32);
  if (index !== 0) option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, index, 'SO_BINDTOIFINDEX');
}

/** Sends on a connected socket. @returns undefined, or the name of the errno */
export function send(fd: number, data: Uint8Array): string | undefined {
  if (sendCall()(fd, data, data.length, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return undefined;
  return errnoName(lastErrno());
}

const received = Buffer.allocUnsafeSlow(1 << 16);

/** The next datagram, valid until the next call; the name of an errno that the socket had; or undefined: nothing waits. */
export function receive(fd: number): Buffer | string | undefined {
  const length = recvCall()(fd, received, received.length, MSG_DONTWAIT);
  if (length >= 0) return received.subarray(0, Number(length));
  const errno = lastErrno();
  return errno === EAGAIN || errno === EINTR ? undefined : errnoName(errno);
}
