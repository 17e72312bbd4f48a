import { closeSync, readlinkSync } from 'node:fs';
import { constants } from 'node:os';
import { cmd } from './constants.ts';
import { BpfError } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';
import { Attr } from './syscall.ts';

/** A descriptor with one owner: closed exactly once, and unusable afterwards. */
export class OwnedFd {
  #fd: number;
  readonly #what: string;

  constructor(fd: number, what: string) {
    this.#fd = fd;
    this.#what = what;
  }

  /** The descriptor; throws EBADF after `close()`, so that a recycled number is never used by mistake. */
  get value(): number {
    if (this.#fd < 0) {
      throw new BpfError({
        operation: `use ${this.#what}`,
        errno: constants.errno.EBADF,
        fix: 'it was closed; keep it open for as long as it is used',
      });
    }
    return this.#fd;
  }

  get closed(): boolean {
    return this.#fd < 0;
  }

  close(): void {
    if (this.#fd < 0) return;
    const fd = this.#fd;
    this.#fd = -1;
    closeSync(fd);
  }
}

const F_DUPFD_CLOEXEC = 1030;

/** A second, close-on-exec descriptor of the same object. */
export function duplicateFd(fd: number, what: string): number {
  const copy = Number(libcFunction('int fcntl(int fd, int command, int argument)')(fd, F_DUPFD_CLOEXEC, 3));
  if (copy < 0) throw new BpfError({ operation: `duplicate the descriptor of ${what}`, errno: lastErrno() });
  return copy;
}

export type ObjectKind = 'map' | 'program' | 'link';

/** What kind of BPF object a descriptor is; undefined when it is none. */
export function kindOfFd(fd: number): ObjectKind | undefined {
  const target = readlinkSync(`/proc/self/fd/${fd}`);
  if (target.includes('bpf-map')) return 'map';
  if (target.includes('bpf-prog')) return 'program';
  // Links show as "bpf-link" or "bpf_link" by kernel version.
  if (target.includes('bpf-link') || target.includes('bpf_link')) return 'link';
  return undefined;
}

/** BPF_OBJ_GET_INFO_BY_FD: `size` bytes of the object's info structure, zero where the kernel has less. */
export function infoByFd(fd: number, size: number, what: string): Buffer {
  const info = Buffer.alloc(size);
  new Attr().u32(0, fd).u32(4, size).pointer(8, info).call(cmd.OBJ_GET_INFO_BY_FD, `read the info of ${what}`);
  return info;
}
