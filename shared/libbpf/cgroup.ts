import { closeSync, constants, openSync, statSync } from 'node:fs';
import { openPin } from './bpffs.ts';
import { cgroupAttachType, cmd } from './constants.ts';
import { ArgumentError } from './errors.ts';
import { KernelLink } from './link.ts';
import { Attr } from './syscall.ts';
import type { BpfProgram, CgroupAttach, CgroupLink } from './types.ts';

class AttachedToCgroup extends KernelLink implements CgroupLink {
  readonly cgroupId: bigint;
  readonly attach: CgroupAttach;

  /** Takes ownership of the descriptor. */
  constructor(fd: number, what: string) {
    let id = 0n;
    let attach: CgroupAttach = 'connect4';
    super(fd, what, 'cgroup', (own) => {
      id = own.readBigUInt64LE(0);
      attach = attachOf(own.readUInt32LE(8), what);
    });
    this.cgroupId = id;
    this.attach = attach;
  }
}

function attachOf(number: number, what: string): CgroupAttach {
  for (const [name, each] of Object.entries(cgroupAttachType)) if (each === number) return name as CgroupAttach;
  throw new ArgumentError(`${what} is of attach type ${number}, which this binding does not know`);
}

/**
 * Attaches to a cgroup of version 2, beside programs that others attached there: all of them run, in the order in which they came, for the
 * processes of this cgroup and of those in it. Closing the returned link without a pin detaches it.
 * @param cgroup its folder
 * @throws BpfError EBADF where the folder is no cgroup of version 2, EINVAL where the program's section is for another attach type
 */
export function attachCgroup(program: BpfProgram, cgroup: string, attach: CgroupAttach): CgroupLink {
  const folder = openSync(cgroup, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const fd = new Attr()
      .u32(0, program.fd)
      .u32(4, folder)
      .u32(8, cgroupAttachType[attach])
      .call(cmd.LINK_CREATE, `attach program "${program.name}" to cgroup ${cgroup} for ${attach}`);
    return new AttachedToCgroup(fd, `the link for ${attach} of cgroup ${cgroup}`);
  } finally {
    closeSync(folder);
  }
}

/** @throws BpfError ENOENT when nothing is pinned at the path, EINVAL when it is not a cgroup link */
export function openPinnedCgroupLink(path: string): CgroupLink {
  return new AttachedToCgroup(openPin(path, 'link'), `the cgroup link ${path}`);
}

/** The kernel's number of a cgroup of version 2, by its folder: the inode. */
export function cgroupIdOf(cgroup: string): bigint {
  return statSync(cgroup, { bigint: true }).ino;
}
