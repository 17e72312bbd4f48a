import { BpfError } from './errors.ts';
import { addressOf, bpfOnThread, bpfSyscall } from './native.ts';

/** Largest part of `union bpf_attr` that this binding fills; the kernel takes any size whose unknown tail is zero. */
const ATTR_SIZE = 128;

/** One `union bpf_attr`, filled by offset. It keeps every buffer that it points to alive until the call has returned. */
export class Attr {
  readonly bytes: Buffer;
  readonly #kept: Uint8Array[] = [];
  #calls = 0;

  constructor(size: number = ATTR_SIZE) {
    this.bytes = Buffer.alloc(size);
  }

  u32(offset: number, value: number): this {
    this.bytes.writeUInt32LE(value >>> 0, offset);
    return this;
  }

  u64(offset: number, value: bigint): this {
    this.bytes.writeBigUInt64LE(value, offset);
    return this;
  }

  /** Puts the address of `target` at the offset; the kernel may read and write it during the call. */
  pointer(offset: number, target: Uint8Array): this {
    this.#kept.push(target);
    return this.u64(offset, addressOf(target));
  }

  /** A zero-terminated string, padded to at most `size` bytes. */
  text(offset: number, value: string, size: number): this {
    this.bytes.fill(0, offset, offset + size);
    this.bytes.write(value, offset, size - 1, 'latin1');
    return this;
  }

  getU32(offset: number): number {
    return this.bytes.readUInt32LE(offset);
  }

  /** Calls the kernel: the result, or the negative errno. */
  try(command: number): number {
    const result = bpfSyscall(command, this.bytes);
    // Used after the call, so that no collection of these buffers can come before it.
    this.#calls += this.#kept.length;
    return result;
  }

  /** Calls the kernel on another thread: whether it did what was asked. Not to be changed until then. */
  async tryOnThread(command: number): Promise<boolean> {
    const done = await bpfOnThread(command, this.bytes);
    this.#calls += this.#kept.length;
    return done;
  }

  /** Like `try`, and throws a BpfError with this operation when the kernel refuses. */
  call(command: number, operation: string, fix?: string): number {
    const result = this.try(command);
    if (result < 0) throw new BpfError({ operation, errno: -result, ...(fix === undefined ? {} : { fix }) });
    return result;
  }
}

/** A path as the kernel wants it. */
export function cString(text: string): Buffer {
  return Buffer.from(`${text}\0`, 'utf8');
}
