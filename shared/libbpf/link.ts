import { constants } from 'node:os';
import { pinFd } from './bpffs.ts';
import { cmd } from './constants.ts';
import { BpfError } from './errors.ts';
import { infoByFd, OwnedFd } from './fd.ts';
import { Attr } from './syscall.ts';
import type { BpfProgram } from './types.ts';

const LINK_INFO_SIZE = 64;

/** enum bpf_link_type, as far as this binding makes links, with the words of its messages. */
export const linkType = { cgroup: { number: 3, words: 'a cgroup link' }, tcx: { number: 11, words: 'a tcx link' } };

/** `struct bpf_link_info`: what all links have, and the bytes of its own kind from offset 16 on. */
interface LinkInfo {
  readonly id: number;
  readonly programId: number;
  readonly own: Buffer;
}

/** A link of the kernel. The attachment lives as long as this descriptor, another one of it, or a pin. */
export class KernelLink implements Disposable {
  readonly #fd: OwnedFd;
  readonly #what: string;
  readonly #type: (typeof linkType)[keyof typeof linkType];

  /** Takes ownership of the descriptor. @throws BpfError EINVAL for a link of another type */
  constructor(fd: number, what: string, type: keyof typeof linkType, read: (own: Buffer) => void) {
    this.#what = what;
    this.#type = linkType[type];
    this.#fd = new OwnedFd(fd, what);
    try {
      read(this.#info().own);
    } catch (error) {
      this.#fd.close();
      throw error;
    }
  }

  id(): number {
    return this.#info().id;
  }

  /** The attached program's id, asked from the kernel. */
  programId(): number {
    return this.#info().programId;
  }

  /** Swaps the program atomically: every packet or call sees the old or the new one. */
  replace(program: BpfProgram): void {
    new Attr()
      .u32(0, this.#fd.value)
      .u32(4, program.fd)
      .call(
        cmd.LINK_UPDATE,
        `replace the program of ${this.#what} by "${program.name}"`,
        'what it was attached to may be gone (the link is then defunct: detach it), or the program is of another type',
      );
  }

  pin(path: string): void {
    pinFd(this.#fd.value, path, this.#what);
  }

  /** Ends the attachment even when the link is pinned; the pin then holds a link without effect, for the caller to unlink. */
  detach(): void {
    const result = new Attr().u32(0, this.#fd.value).try(cmd.LINK_DETACH);
    // ENOLINK: what it was attached to is gone, and the attachment with it.
    if (result < 0 && -result !== constants.errno.ENOLINK) {
      throw new BpfError({ operation: `detach ${this.#what}`, errno: -result });
    }
    this.close();
  }

  /** Closes the descriptor; a pinned attachment stays. */
  close(): void {
    this.#fd.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #info(): LinkInfo {
    const info = infoByFd(this.#fd.value, LINK_INFO_SIZE, this.#what);
    const type = info.readUInt32LE(0);
    if (type !== this.#type.number) {
      throw new BpfError({
        operation: `use ${this.#what}`,
        errno: constants.errno.EINVAL,
        fix: `it is a link of type ${type}, not ${this.#type.words}: unlink it if it is stale`,
      });
    }
    return { id: info.readUInt32LE(4), programId: info.readUInt32LE(8), own: info.subarray(16) };
  }
}
