import { constants } from 'node:os';
import { openPin } from './bpffs.ts';
import { attachType, BPF_F_BEFORE, cmd } from './constants.ts';
import { ArgumentError, BpfError } from './errors.ts';
import { KernelLink } from './link.ts';
import { Attr } from './syscall.ts';
import type { AttachOptions, BpfProgram, TcDirection, TcLink } from './types.ts';

/** A tcx link. The attachment lives as long as this descriptor, another one of it, or a pin. */
class TcxLink extends KernelLink implements TcLink {
  readonly kind = 'tcx';
  readonly ifindex: number;
  readonly direction: TcDirection;

  /** Takes ownership of the descriptor. */
  constructor(fd: number, what: string) {
    let ifindex = 0;
    let attach = 0;
    super(fd, what, 'tcx', (own) => {
      ifindex = own.readUInt32LE(0);
      attach = own.readUInt32LE(4);
    });
    this.ifindex = ifindex;
    this.direction = attach === attachType.ingress ? 'ingress' : 'egress';
  }
}

/** @throws ArgumentError when the interface index cannot be one */
export function checkAttach(options: AttachOptions): void {
  if (!Number.isInteger(options.ifindex) || options.ifindex < 1 || options.ifindex > 0x7fffffff) {
    throw new ArgumentError(`ifindex must be a whole number from 1 to 2147483647, got ${options.ifindex}`);
  }
  if (options.direction !== 'ingress' && options.direction !== 'egress') {
    throw new ArgumentError(`direction must be "ingress" or "egress", got ${JSON.stringify(options.direction)}`);
  }
}

/** Where in the chain a program is attached; default `last`. */
export interface TcxOptions extends AttachOptions {
  readonly place?: 'first' | 'last';
}

/**
 * Attaches by a tcx link (Linux 6.6), before or after all programs that are there already. Closing the returned link without a pin
 * detaches it.
 * @throws BpfError EINVAL where the kernel has no tcx, ENODEV when the calling thread's namespace has no such interface, EEXIST when
 * this program is attached there already
 */
export function attachTcx(program: BpfProgram, options: TcxOptions): TcLink {
  checkAttach(options);
  const where = `${options.direction} of interface ${options.ifindex}`;
  const fd = new Attr()
    .u32(0, program.fd)
    .u32(4, options.ifindex)
    .u32(8, attachType[options.direction])
    .u32(12, options.place === 'first' ? BPF_F_BEFORE : 0)
    .call(cmd.LINK_CREATE, `attach program "${program.name}" by tcx to ${where}`);
  return new TcxLink(fd, `the tcx link on ${where}`);
}

/** @throws BpfError ENOENT when nothing is pinned at the path, EINVAL when it is not a tcx link */
export function openPinnedLink(path: string): TcLink {
  return new TcxLink(openPin(path, 'link'), `the tcx link ${path}`);
}

/**
 * Opens a link by the id that the kernel gave it.
 * @throws BpfError ENOENT when there is none (any more), EINVAL when it is not a tcx link, EPERM without CAP_SYS_ADMIN
 */
export function openLinkById(id: number): TcLink {
  const fd = new Attr().u32(0, id).call(cmd.LINK_GET_FD_BY_ID, `open the link of id ${id}`);
  return new TcxLink(fd, `the tcx link of id ${id}`);
}

/** One program of a tcx hook. */
export interface TcxEntry {
  readonly program: number;
  /** Id of the link that holds it; 0: it was attached without one. */
  readonly link: number;
}

/**
 * What is attached by tcx, in the order in which it runs.
 * @throws BpfError EINVAL where the kernel has no tcx, ENODEV without such an interface
 */
export function listTcx(ifindex: number, direction: TcDirection): TcxEntry[] {
  checkAttach({ ifindex, direction });
  const operation = `list the tcx programs at ${direction} of interface ${ifindex}`;
  for (let room = 16; ; room *= 2) {
    const programs = Buffer.alloc(room * 4);
    const links = Buffer.alloc(room * 4);
    // attr.query: target_ifindex, attach_type, query_flags, attach_flags, prog_ids, count, prog_attach_flags, link_ids.
    const attr = new Attr()
      .u32(0, ifindex)
      .u32(4, attachType[direction])
      .pointer(16, programs)
      .u32(24, room)
      .pointer(40, links);
    const result = attr.try(cmd.PROG_QUERY);
    if (-result === constants.errno.ENOSPC) continue;
    // An interface on which nothing was ever attached has no list yet.
    if (-result === constants.errno.ENOENT) return [];
    if (result < 0) throw new BpfError({ operation, errno: -result });
    return Array.from({ length: Math.min(attr.getU32(24), room) }, (_, at) => ({
      program: programs.readUInt32LE(at * 4),
      link: links.readUInt32LE(at * 4),
    }));
  }
}

/** Ids of the programs of `listTcx`. */
export function queryTcx(ifindex: number, direction: TcDirection): number[] {
  return listTcx(ifindex, direction).map(({ program }) => program);
}

let supported: boolean | undefined;

/** Whether this kernel has tcx; asked once, by a query of the loopback interface's index that changes nothing. */
export function hasTcx(): boolean {
  if (supported === undefined) {
    const ids = Buffer.alloc(64);
    const result = new Attr().u32(0, 1).u32(4, attachType.ingress).pointer(16, ids).u32(24, 16).try(cmd.PROG_QUERY);
    const errno = -result;
    if (result < 0 && errno === constants.errno.EPERM) {
      throw new BpfError({ operation: 'ask the kernel for tcx', errno });
    }
    // Kernels without tcx refuse the attach type itself.
    supported = result >= 0 || (errno !== constants.errno.EINVAL && errno !== constants.errno.EOPNOTSUPP);
  }
  return supported;
}
