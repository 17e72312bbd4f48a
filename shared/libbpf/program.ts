import { constants } from 'node:os';
import { openPin, pinFd } from './bpffs.ts';
import { cmd, MAX_NAME } from './constants.ts';
import { ArgumentError, BpfError, BufferLengthError } from './errors.ts';
import { infoByFd, OwnedFd } from './fd.ts';
import { Attr } from './syscall.ts';
import type { BpfProgram, ProgramInfo, TestRunOptions, TestRunResult } from './types.ts';

const PROG_INFO_SIZE = 232;
/** Size of `struct __sk_buff` up to Linux 6.18; a kernel that knows less takes it when its tail is zero. */
export const SK_BUFF_SIZE = 192;
/** Room for a program that grows the packet. */
const TEST_HEADROOM = 512;
const ETH_HLEN = 14;

/** One loaded program. */
export class KernelProgram implements BpfProgram {
  readonly name: string;
  readonly #fd: OwnedFd;

  /** Takes ownership of the descriptor. */
  constructor(fd: number, name?: string) {
    this.#fd = new OwnedFd(fd, `program ${name ?? fd}`);
    try {
      this.name = name ?? this.info().name;
    } catch (error) {
      this.#fd.close();
      throw error;
    }
  }

  get fd(): number {
    return this.#fd.value;
  }

  info(): ProgramInfo {
    const info = infoByFd(this.fd, PROG_INFO_SIZE, `program ${this.name ?? ''}`);
    return {
      type: info.readUInt32LE(0),
      id: info.readUInt32LE(4),
      tag: info.toString('hex', 8, 16),
      name: info.toString('latin1', 64, 64 + MAX_NAME + 1).replace(/\0.*$/s, ''),
    };
  }

  testRun(options: TestRunOptions): TestRunResult {
    const { data, context } = options;
    const repeat = options.repeat ?? 1;
    if (!Number.isInteger(repeat) || repeat < 1 || repeat > 0x7fffffff) {
      throw new ArgumentError(`repeat must be a whole number from 1 to 2147483647, got ${repeat}`);
    }
    if (data.length < ETH_HLEN) {
      throw new ArgumentError(
        `a test packet starts with an Ethernet header of ${ETH_HLEN} bytes, got ${data.length} bytes`,
      );
    }
    if (context !== undefined && context.length !== SK_BUFF_SIZE) {
      throw new BufferLengthError('the context (struct __sk_buff, see skbContext)', SK_BUFF_SIZE, context.length);
    }
    const out = Buffer.alloc(data.length + TEST_HEADROOM);
    const contextOut = Buffer.alloc(SK_BUFF_SIZE);
    const attr = new Attr()
      .u32(0, this.fd)
      .u32(8, data.length)
      .u32(12, out.length)
      .pointer(16, data)
      .pointer(24, out)
      .u32(32, repeat);
    if (context !== undefined) {
      attr.u32(40, context.length).u32(44, contextOut.length).pointer(48, context).pointer(56, contextOut);
    }
    attr.call(cmd.PROG_TEST_RUN, `test-run program "${this.name}"`);
    return {
      returnValue: attr.getU32(4),
      durationNs: attr.getU32(36),
      data: new Uint8Array(out.subarray(0, attr.getU32(12))),
      context: context === undefined ? undefined : new Uint8Array(contextOut.subarray(0, attr.getU32(44))),
    };
  }

  pin(path: string): void {
    pinFd(this.fd, path, `program "${this.name}"`);
  }

  close(): void {
    this.#fd.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** @throws BpfError ENOENT when nothing is pinned at the path, EINVAL when it is not a program */
export function openPinnedProgram(path: string): BpfProgram {
  return new KernelProgram(openPin(path, 'program'));
}

/** The name of a program by its id; undefined when there is none (any more). @throws BpfError EPERM without CAP_SYS_ADMIN */
export function programName(id: number): string | undefined {
  const attr = new Attr().u32(0, id);
  const fd = attr.try(cmd.PROG_GET_FD_BY_ID);
  if (-fd === constants.errno.ENOENT) return undefined;
  if (fd < 0) throw new BpfError({ operation: `open the program of id ${id}`, errno: -fd });
  using program = new KernelProgram(fd);
  return program.name;
}

/** Fields of `struct __sk_buff` that a test run may set; the kernel refuses all others. */
export interface SkbFields {
  readonly mark?: number;
  readonly priority?: number;
  readonly ingressIfindex?: number;
  readonly ifindex?: number;
  /** Up to 5 numbers. */
  readonly cb?: readonly number[];
}

/** The context of a test run, for `TestRunOptions.context`. */
export function skbContext(fields: SkbFields): Uint8Array {
  const context = Buffer.alloc(SK_BUFF_SIZE);
  context.writeUInt32LE((fields.mark ?? 0) >>> 0, 8);
  context.writeUInt32LE((fields.priority ?? 0) >>> 0, 32);
  context.writeUInt32LE(fields.ingressIfindex ?? 0, 36);
  context.writeUInt32LE(fields.ifindex ?? 0, 40);
  const cb = fields.cb ?? [];
  if (cb.length > 5) throw new ArgumentError(`cb holds 5 numbers, got ${cb.length}`);
  cb.forEach((value, at) => {
    context.writeUInt32LE(value >>> 0, 48 + 4 * at);
  });
  return context;
}
