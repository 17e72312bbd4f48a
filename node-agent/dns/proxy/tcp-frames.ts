/** Messages in a stream: each has two bytes of length before it. */

export function framed(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}

export class Framer {
  readonly #longest: number;
  #parts: Buffer[] = [];
  #bytes = 0;
  #tooLong = false;

  constructor(longest: number) {
    this.#longest = longest;
  }

  /** A message was announced that is longer than may be: nothing more is given. */
  get tooLong(): boolean {
    return this.#tooLong;
  }

  /** Gives each message that is complete. */
  *add(chunk: Buffer): Generator<Buffer> {
    this.#parts.push(chunk);
    this.#bytes += chunk.length;
    for (;;) {
      if (this.#tooLong || this.#bytes < 2) return;
      const head = this.#joined();
      const length = head.readUInt16BE(0);
      if (length > this.#longest) {
        this.#tooLong = true;
        return;
      }
      if (head.length < 2 + length) return;
      this.#parts = [head.subarray(2 + length)];
      this.#bytes -= 2 + length;
      yield head.subarray(2, 2 + length);
    }
  }

  #joined(): Buffer {
    const [first, ...more] = this.#parts;
    const joined = first === undefined ? Buffer.alloc(0) : more.length === 0 ? first : Buffer.concat(this.#parts);
    this.#parts = [joined];
    return joined;
  }
}
