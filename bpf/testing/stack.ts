/**
 * How much stack the programs of an object need, as the verifier counts: the frames of a chain of calls together, each rounded up, at most 512 bytes. Linux
 * before 6.8 rounds each frame up to 32 bytes, later kernels to 16: what loads here may not load there.
 *
 * Reads just what clang makes of this datapath: a little-endian ELF64 object whose functions are symbols, and whose calls are relocations (R_BPF_64_32) or
 * relative.
 */

const BYTES = 8;
const R_BPF_64_32 = 10;
const STT_FUNC = 2;
const FRAME_POINTER = 10;
const ALU64_ADD_IMMEDIATE = 0x07;
const CALL = 0x85;
/** Source register of a call within the object. */
const BPF_PSEUDO_CALL = 1;

interface Section {
  readonly name: string;
  readonly offset: number;
  readonly size: number;
  readonly type: number;
  readonly info: number;
}

interface Fun {
  readonly name: string;
  readonly section: number;
  /** Its first instruction, within the section, and how many it has. */
  readonly first: number;
  readonly count: number;
}

export interface Chain {
  readonly bytes: number;
  readonly functions: readonly string[];
}

/** The chain of calls from `program` that needs most. */
export function deepest(object: Uint8Array, program: string, rounding: 16 | 32): Chain {
  const elf = new Elf(object);
  const known = new Map<string, Chain>();
  const chainOf = (fun: Fun): Chain => {
    const found = known.get(fun.name);
    if (found !== undefined) return found;
    const own = Math.ceil(Math.max(elf.frame(fun), 1) / rounding) * rounding;
    const below = elf.callees(fun).map(chainOf);
    const worst = below.reduce<Chain>((a, b) => (b.bytes > a.bytes ? b : a), { bytes: 0, functions: [] });
    const chain = { bytes: own + worst.bytes, functions: [fun.name, ...worst.functions] };
    known.set(fun.name, chain);
    return chain;
  };
  return chainOf(elf.named(program));
}

class Elf {
  readonly #view: DataView;
  readonly #sections: readonly Section[];
  readonly #functions: readonly Fun[];
  /** Where symbols begin, in the file. */
  readonly #symbols: number;

  constructor(bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#sections = this.#readSections();
    const symtab = this.#sections.find(({ type }) => type === 2);
    if (symtab === undefined) throw new Error('the object has no symbols');
    this.#symbols = symtab.offset;
    this.#functions = Array.from({ length: symtab.size / 24 }, (_, at) => this.#symbol(at)).filter(
      ({ type }) => type === STT_FUNC,
    );
  }

  named(name: string): Fun {
    const found = this.#functions.find((fun) => fun.name === name);
    if (found === undefined) throw new Error(`the object has no function ${name}`);
    return found;
  }

  /** Bytes below the frame pointer that it uses. */
  frame(fun: Fun): number {
    let most = 0;
    for (const { opcode, base, offset, immediate } of this.#instructions(fun)) {
      const isStore = (opcode & 7) === 2 || (opcode & 7) === 3;
      const register = isStore ? base.destination : base.source;
      if ((opcode & 7) >= 1 && (opcode & 7) <= 3 && register === FRAME_POINTER) most = Math.max(most, -offset);
      // The address of a local variable: a copy of the frame pointer, and a negative number.
      if (opcode === ALU64_ADD_IMMEDIATE && immediate < 0 && immediate >= -512) most = Math.max(most, -immediate);
    }
    return most;
  }

  callees(fun: Fun): readonly Fun[] {
    const relocations = this.#relocations(fun.section);
    const found = new Set<Fun>();
    for (const { at, opcode, base, immediate } of this.#instructions(fun)) {
      if (opcode !== CALL || base.source !== BPF_PSEUDO_CALL) continue;
      const symbol = relocations.get(at * BYTES);
      const [section, target] =
        symbol === undefined
          ? [fun.section, at + 1 + immediate]
          : symbol.type === STT_FUNC
            ? [symbol.section, symbol.first]
            : [symbol.section, immediate + 1];
      const callee = this.#functions.find((each) => each.section === section && each.first === target);
      // A kernel function (kfunc) is no function of the object.
      if (callee !== undefined) found.add(callee);
    }
    return [...found];
  }

  *#instructions({ section, first, count }: Fun) {
    const begin = this.#sections[section]?.offset ?? 0;
    for (let at = first; at < first + count; at += 1) {
      const place = begin + at * BYTES;
      const registers = this.#view.getUint8(place + 1);
      yield {
        at,
        opcode: this.#view.getUint8(place),
        base: { destination: registers & 15, source: registers >> 4 },
        offset: this.#view.getInt16(place + 2, true),
        immediate: this.#view.getInt32(place + 4, true),
      };
    }
  }

  /** Symbols of calls, by their place in the section. */
  #relocations(section: number): ReadonlyMap<number, Fun & { readonly type: number }> {
    const found = new Map<number, Fun & { readonly type: number }>();
    for (const { type, info, offset, size } of this.#sections) {
      if (type !== 9 || info !== section) continue;
      for (let at = offset; at < offset + size; at += 16)
        if (this.#view.getUint32(at + 8, true) === R_BPF_64_32)
          found.set(Number(this.#view.getBigUint64(at, true)), this.#symbol(this.#view.getUint32(at + 12, true)));
    }
    return found;
  }

  #symbol(index: number): Fun & { readonly type: number } {
    const at = this.#symbols + index * 24;
    const strings = this.#sections.find(({ name }) => name === '.strtab');
    return {
      name: this.#text((strings?.offset ?? 0) + this.#view.getUint32(at, true)),
      type: this.#view.getUint8(at + 4) & 15,
      section: this.#view.getUint16(at + 6, true),
      first: Number(this.#view.getBigUint64(at + 8, true)) / BYTES,
      count: Number(this.#view.getBigUint64(at + 16, true)) / BYTES,
    };
  }

  #readSections(): readonly Section[] {
    const table = Number(this.#view.getBigUint64(40, true));
    const [size, count, names] = [58, 60, 62].map((at) => this.#view.getUint16(at, true));
    const header = (at: number) => ({
      nameAt: this.#view.getUint32(at, true),
      type: this.#view.getUint32(at + 4, true),
      offset: Number(this.#view.getBigUint64(at + 24, true)),
      size: Number(this.#view.getBigUint64(at + 32, true)),
      info: this.#view.getUint32(at + 44, true),
    });
    const headers = Array.from({ length: count ?? 0 }, (_, at) => header(table + at * (size ?? 0)));
    const base = headers[names ?? 0]?.offset ?? 0;
    return headers.map(({ nameAt, ...rest }) => ({ name: this.#text(base + nameAt), ...rest }));
  }

  #text(at: number): string {
    let end = at;
    while (this.#view.getUint8(end) !== 0) end += 1;
    return new TextDecoder().decode(new Uint8Array(this.#view.buffer, this.#view.byteOffset + at, end - at));
  }
}
