/** Writes the protobuf wire format: the few types that the documents of this server need. Field numbers are the caller's. */

/** One message; the writers return `this`. Undefined and empty values write nothing, as proto3 does. */
export class ProtobufWriter {
  readonly #parts: Uint8Array[] = [];
  #length = 0;

  string(field: number, value: string | undefined): this {
    return value === undefined || value === '' ? this : this.#delimited(field, Buffer.from(value, 'utf8'));
  }

  /** One entry for each value, empty ones included. */
  strings(field: number, values: readonly string[]): this {
    for (const value of values) this.#delimited(field, Buffer.from(value, 'utf8'));
    return this;
  }

  bool(field: number, value: boolean): this {
    return value ? this.#put(varint(field * 8), varint(1)) : this;
  }

  /** A nested message, written even when it is empty. */
  message(field: number, write: (writer: ProtobufWriter) => void): this {
    const inner = new ProtobufWriter();
    write(inner);
    this.#put(varint(field * 8 + 2), varint(inner.#length), ...inner.#parts);
    return this;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts, this.#length);
  }

  #delimited(field: number, bytes: Uint8Array): this {
    return this.#put(varint(field * 8 + 2), varint(bytes.length), bytes);
  }

  #put(...parts: readonly Uint8Array[]): this {
    for (const part of parts) {
      this.#parts.push(part);
      this.#length += part.length;
    }
    return this;
  }
}

/** Whole numbers from 0 to 2^53 - 1. */
function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  while (rest > 127) {
    bytes.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
  return Uint8Array.from(bytes);
}
