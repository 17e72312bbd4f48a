import { closeSync } from 'node:fs';
import { ArgumentError, BpfError } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';

/** Of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h. */
const AF_INET = 2;
const AF_INET6 = 10;
const AF_NETLINK = 16;
const SOCK_RAW_CLOEXEC = 0o2000003;
const NETLINK_SOCK_DIAG = 4;
const SOCK_DIAG_BY_FAMILY = 20;
const SOCK_DESTROY = 21;
const [NLMSG_ERROR, NLMSG_DONE] = [2, 3];
const NLM_F_REQUEST = 1;
const NLM_F_ACK = 4;
const NLM_F_DUMP = 0x300;
const MSG_DONTWAIT = 0x40;
const ENOENT = 2;
/** ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK: those that have a peer and an owner. A connected UDP socket is ESTABLISHED. */
const STATES = 0b0011_0011_0110;
const PROTOCOLS = { TCP: 6, UDP: 17 } as const;

const HEADER_BYTES = 16;
const REQUEST_BYTES = 56;
/** `struct inet_diag_msg`: 4 bytes, the socket's id, and 20 more. */
const [ID_AT, ID_BYTES, MESSAGE_BYTES] = [4, 48, 72];
/** In the id. */
const COOKIE_AT = 40;
const RECEIVE_BYTES = 1 << 16;

/**
 * Closes sockets of the calling thread's network namespace, connected to a port, by the numbers (cookies) that the kernel and BPF programs know them by:
 * their owners get ECONNABORTED, and the peer of a TCP connection a reset. Needs a kernel with CONFIG_INET_DIAG_DESTROY, and CAP_NET_ADMIN. Of TCP it takes about 3 ms: the
 * kernel looks through the table of all namespaces.
 *
 * @returns how many were closed
 * @throws BpfError when the kernel does not do it
 */
export function closeSockets(protocol: 'TCP' | 'UDP', port: number, cookies: ReadonlySet<bigint>): number {
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw new ArgumentError(`${port} is no port of a peer`);
  const fd = Number(
    libcFunction('int socket(int domain, int type, int protocol)')(AF_NETLINK, SOCK_RAW_CLOEXEC, NETLINK_SOCK_DIAG),
  );
  if (fd < 0) throw failed('open a netlink socket', lastErrno());
  try {
    let closed = 0;
    for (const family of [AF_INET, AF_INET6]) {
      for (const id of connected(fd, { family, protocol, port, cookies }))
        if (destroy(fd, family, protocol, id)) closed += 1;
    }
    return closed;
  } finally {
    closeSync(fd);
  }
}

interface Search {
  readonly family: number;
  readonly protocol: 'TCP' | 'UDP';
  readonly port: number;
  readonly cookies: ReadonlySet<bigint>;
}

/** Ids of the sockets, all before one is closed: a list that is under way would miss some. */
function connected(fd: number, { family, protocol, port, cookies }: Search): Buffer[] {
  const id = Buffer.alloc(ID_BYTES);
  id.writeUInt16BE(port, 2);
  send(fd, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, family, protocol, id);
  const found: Buffer[] = [];
  for (;;) {
    for (const { type, body } of receive(fd)) {
      if (type === NLMSG_DONE) return found;
      if (type === NLMSG_ERROR) throw failed(`list ${protocol} sockets`, -body.readInt32LE(0));
      if (body.length < MESSAGE_BYTES) continue;
      const own = Buffer.from(body.subarray(ID_AT, ID_AT + ID_BYTES));
      if (cookies.has(own.readBigUInt64LE(COOKIE_AT))) found.push(own);
    }
  }
}

/** False: it has gone meanwhile. */
function destroy(fd: number, family: number, protocol: 'TCP' | 'UDP', id: Buffer): boolean {
  send(fd, SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, family, protocol, id);
  for (const { type, body } of receive(fd)) {
    if (type !== NLMSG_ERROR) continue;
    const errno = -body.readInt32LE(0);
    if (errno !== 0 && errno !== ENOENT) throw failed(`close a ${protocol} socket`, errno);
    return errno === 0;
  }
  return false;
}

function send(fd: number, type: number, flags: number, family: number, protocol: 'TCP' | 'UDP', id: Buffer): void {
  const message = Buffer.alloc(HEADER_BYTES + REQUEST_BYTES);
  message.writeUInt32LE(message.length, 0);
  message.writeUInt16LE(type, 4);
  message.writeUInt16LE(flags, 6);
  message[HEADER_BYTES] = family;
  message[HEADER_BYTES + 1] = PROTOCOLS[protocol];
  message.writeUInt32LE(STATES, HEADER_BYTES + 4);
  id.copy(message, HEADER_BYTES + 8);
  const sent = libcFunction('long send(int fd, void *buffer, size_t length, int flags)')(
    fd,
    message,
    message.length,
    0,
  );
  if (Number(sent) !== message.length) throw failed('ask the kernel for sockets', lastErrno());
}

/** Messages of one datagram. The kernel has it ready before `send` returns, and the next before `recv` does. */
function receive(fd: number): { readonly type: number; readonly body: Buffer }[] {
  const buffer = Buffer.alloc(RECEIVE_BYTES);
  const read = libcFunction('long recv(int fd, void *buffer, size_t length, int flags)');
  const length = Number(read(fd, buffer, buffer.length, MSG_DONTWAIT));
  if (length < 0) throw failed('read what the kernel says of sockets', lastErrno());
  const messages = [];
  for (let at = 0; at + HEADER_BYTES <= length; ) {
    const size = buffer.readUInt32LE(at);
    if (size < HEADER_BYTES || at + size > length) break;
    messages.push({ type: buffer.readUInt16LE(at + 4), body: buffer.subarray(at + HEADER_BYTES, at + size) });
    at += (size + 3) & ~3;
  }
  return messages;
}

function failed(operation: string, errno: number): BpfError {
  return new BpfError({
    operation,
    errno,
    fix: 'needs a kernel with CONFIG_INET_DIAG_DESTROY (and CONFIG_INET_UDP_DIAG for UDP), and CAP_NET_ADMIN',
  });
}
