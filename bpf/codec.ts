/** A fixed-size encoding. `encode` returns a new buffer; `decode` throws LayoutError unless given exactly `size` bytes. */
import { LayoutError } from './errors.ts';

export interface Codec<T> {
  readonly size: number;
  encode(value: T): Uint8Array;
  decode(bytes: Uint8Array): T;
}

/** Little-endian writer over a zeroed buffer; `be` methods write network order. Every number is range-checked. */
export class Writer {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  readonly #what: string;

  constructor(what: string, size: number) {
    this.bytes = new Uint8Array(size);
    this.#view = new DataView(this.bytes.buffer);
    this.#what = what;
  }

  u8(at: number, value: number, field: string): this {
    this.#view.setUint8(at, this.#check(value, 0xff, field));
    return this;
  }

  u16(at: number, value: number, field: string): this {
    this.#view.setUint16(at, this.#check(value, 0xffff, field), true);
    return this;
  }

  be16(at: number, value: number, field: string): this {
    this.#view.setUint16(at, this.#check(value, 0xffff, field), false);
    return this;
  }

  be32(at: number, value: number, field: string): this {
    this.#view.setUint32(at, this.#check(value, 0xffff_ffff, field), false);
    return this;
  }

  u32(at: number, value: number, field: string): this {
    this.#view.setUint32(at, this.#check(value, 0xffff_ffff, field), true);
    return this;
  }

  u64(at: number, value: bigint, field: string): this {
    if (value < 0n || value > 0xffff_ffff_ffff_ffffn) throw new LayoutError(this.#what, field, `${value}`, '0..2^64-1');
    this.#view.setBigUint64(at, value, true);
    return this;
  }

  /** Copies exactly `length` bytes. */
  raw(at: number, value: Uint8Array, length: number, field: string): this {
    if (value.length !== length) throw new LayoutError(this.#what, field, `${value.length} bytes`, `${length} bytes`);
    this.bytes.set(value, at);
    return this;
  }

  #check(value: number, max: number, field: string): number {
    if (!Number.isInteger(value) || value < 0 || value > max) {
      throw new LayoutError(this.#what, field, `${value}`, `an integer in 0..${max}`);
    }
    return value;
  }
}

/** A view for reading, after the length was checked. */
export function reader(what: string, bytes: Uint8Array, size: number): DataView {
  if (bytes.length !== size) throw new LayoutError(what, 'length', `${bytes.length} bytes`, `${size} bytes`);
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
