import { closeSync } from 'node:fs';
import { BpfError } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';
import { checkAttach } from './tcx.ts';
import type { TcDirection } from './types.ts';

/** One filter of a clsact hook. */
export interface ClsactFilter {
  /** 1 to 65535, lower runs first. */
  readonly priority: number;
  /** Of equal priority the one that was added last runs first, whatever its handle. */
  readonly handle: number;
  /** `bpf`, `flower`, ... */
  readonly kind: string;
  /** Id of a bpf filter's program. */
  readonly program?: number;
}

const AF_NETLINK = 16;
const NETLINK_ROUTE = 0;
const SOCK_RAW = 3;
const SOCK_CLOEXEC = 0o2000000;
const RTM_NEWTFILTER = 44;
const RTM_GETTFILTER = 46;
const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
/** NLM_F_REQUEST | NLM_F_DUMP */
const REQUEST_DUMP = 0x301;
const HEADER = 16;
const TCMSG = 20;
/** TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS or TC_H_MIN_EGRESS). */
const PARENT = { ingress: 0xfffffff2, egress: 0xfffffff3 } as const;
const TCA = { kind: 1, options: 2, chain: 11 } as const;
const TCA_BPF_ID = 11;
/** The kernel fills at most 32 KiB at once. */
const ROOM = 64 * 1024;

/**
 * The filters of a clsact hook that every packet meets (chain 0), in the order in which they run; none without such a qdisc or interface.
 * libbpf can only ask for a filter whose place is known: this is rtnetlink(7).
 */
export function listClsact(ifindex: number, direction: TcDirection): ClsactFilter[] {
  checkAttach({ ifindex, direction });
  const operation = `list the clsact filters at ${direction} of interface ${ifindex}`;
  const fail = (errno: number): never => {
    throw new BpfError({ operation, errno });
  };
  const socket = libcFunction('int socket(int domain, int type, int protocol)');
  const fd = Number(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (fd < 0) fail(lastErrno());
  try {
    const request = Buffer.alloc(HEADER + TCMSG);
    request.writeUInt32LE(request.length, 0);
    request.writeUInt16LE(RTM_GETTFILTER, 4);
    request.writeUInt16LE(REQUEST_DUMP, 6);
    request.writeInt32LE(ifindex, HEADER + 4);
    request.writeUInt32LE(PARENT[direction], HEADER + 12);
    const send = libcFunction('long send(int fd, const void *bytes, unsigned long length, int flags)');
    if (Number(send(fd, request, request.length, 0)) < 0) fail(lastErrno());
    const receive = libcFunction('long recv(int fd, void *bytes, unsigned long length, int flags)');
    const filters: ClsactFilter[] = [];
    for (const answer = Buffer.alloc(ROOM); ; ) {
      const length = Number(receive(fd, answer, answer.length, 0));
      if (length < 0) fail(lastErrno());
      for (const { type, body } of messages(answer.subarray(0, length))) {
        if (type === NLMSG_DONE) return filters;
        if (type === NLMSG_ERROR) fail(-body.readInt32LE(0));
        if (type === RTM_NEWTFILTER) filters.push(...filterOf(body));
      }
    }
  } finally {
    closeSync(fd);
  }
}

function filterOf(message: Buffer): ClsactFilter[] {
  const handle = message.readUInt32LE(8);
  const attributes = attributesOf(message.subarray(TCMSG));
  const options = attributes.get(TCA.options);
  const chain = attributes.get(TCA.chain)?.readUInt32LE(0) ?? 0;
  // Before the filters of each priority comes a message of the priority itself.
  if (handle === 0 || options === undefined || chain !== 0) return [];
  const kind = (attributes.get(TCA.kind) ?? Buffer.alloc(0)).toString('utf8').replace(/\0.*$/s, '');
  const own = kind === 'bpf' ? attributesOf(options) : new Map<number, Buffer>();
  const program = own.get(TCA_BPF_ID)?.readUInt32LE(0);
  const priority = message.readUInt32LE(16) >>> 16;
  return [{ priority, handle, kind, ...(program === undefined ? {} : { program }) }];
}

function* messages(bytes: Buffer): Generator<{ readonly type: number; readonly body: Buffer }> {
  for (let at = 0; at + HEADER <= bytes.length; ) {
    const length = bytes.readUInt32LE(at);
    yield { type: bytes.readUInt16LE(at + 4), body: bytes.subarray(at + HEADER, at + length) };
    at += aligned(Math.max(length, HEADER));
  }
}

function attributesOf(bytes: Buffer): Map<number, Buffer> {
  const out = new Map<number, Buffer>();
  for (let at = 0; at + 4 <= bytes.length; ) {
    const length = bytes.readUInt16LE(at);
    // The two highest bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
    out.set(bytes.readUInt16LE(at + 2) & 0x3fff, bytes.subarray(at + 4, at + length));
    at += aligned(Math.max(length, 4));
  }
  return out;
}

function aligned(length: number): number {
  return (length + 3) & ~3;
}
