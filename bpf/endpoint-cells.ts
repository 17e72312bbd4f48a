/**
 * The memory of `endpoint_array`: one cell for the endpoints of every 4096th ifindex, read by programs while it is written.
 *
 * Guarantees: a cell whose word is not 0 is complete. The word is stored last when an endpoint comes and first, as 0, when
 * it goes; every store is one aligned 8-byte store, in program order, so that a packet sees the old word or the new one.
 * In a cell that holds an endpoint only the word, and identity and quarantine, change: the programs take the address, the id
 * and the ifindex as one with the word.
 */
import { LayoutError } from './errors.ts';
import { endpointValue, guardOf } from './layout.ts';

/** Cells of the array; an endpoint's is ifindex modulo this. */
export const ENDPOINT_CELLS = 4096;

const CELL_WORDS = endpointValue.size / 8;
const WORD = 0;
/** The 8 bytes of identity, id and quarantine. */
const IDENTITY = 2;
const GUARD_SHIFT = 52n;

export class EndpointCells {
  readonly #words: BigUint64Array;

  /** @param bytes all cells: the mapped array, or zeroed memory that stands for it; aligned to 8 */
  constructor(bytes: Uint8Array) {
    const size = ENDPOINT_CELLS * endpointValue.size;
    if (bytes.length !== size)
      throw new LayoutError('endpoint_array', 'length', `${bytes.length} bytes`, `${size} bytes`);
    this.#words = new BigUint64Array(bytes.buffer, bytes.byteOffset, size / 8);
  }

  /** The ifindex that the cell of this ifindex holds; undefined when the cell is free. */
  holder(ifindex: number): number | undefined {
    return this.#holder(cellOf(ifindex));
  }

  /** A copy of the endpoint's value; undefined when the array does not hold it. */
  get(ifindex: number): Uint8Array | undefined {
    const cell = cellOf(ifindex);
    return this.#holder(cell) === ifindex ? this.#read(cell) : undefined;
  }

  *entries(): Generator<readonly [ifindex: number, value: Uint8Array]> {
    for (let cell = 0; cell < ENDPOINT_CELLS; cell += 1) {
      const ifindex = this.#holder(cell);
      if (ifindex !== undefined) yield [ifindex, this.#read(cell)];
    }
  }

  /** Writes an endpoint into its cell, which must be free: `stage`, then `publish`. */
  put(value: Uint8Array): void {
    this.stage(value);
    this.publish(value);
  }

  /** Writes everything but the word: the programs do not see it yet. The cell must be free. */
  stage(value: Uint8Array): void {
    const ifindex = checkElement(value);
    const taken = this.holder(ifindex);
    if (taken !== undefined) {
      throw new LayoutError('endpoint_array', 'cell', `taken by ifindex ${taken}`, `a free one for ifindex ${ifindex}`);
    }
    const at = cellOf(ifindex) * CELL_WORDS;
    // A word without its element (foreign bytes) must not come to life while the element is written.
    this.#store(at + WORD, 0n);
    const words = wordsOf(value);
    for (let word = 1; word < CELL_WORDS; word += 1) this.#store(at + word, words[word] ?? 0n);
  }

  /** Stores the word of what was staged. */
  publish(value: Uint8Array): void {
    this.#store(cellOf(checkElement(value)) * CELL_WORDS + WORD, wordsOf(value)[WORD] ?? 0n);
  }

  /**
   * Changes an endpoint in its cell: the identity (which only events carry) and quarantine, then the word.
   * @returns false, and changes nothing, when anything else differs or the array does not hold the endpoint
   */
  change(value: Uint8Array): boolean {
    const ifindex = checkElement(value);
    const before = this.get(ifindex);
    if (before === undefined) return false;
    const had = endpointValue.decode(before);
    const wanted = endpointValue.decode(value);
    if (had.id !== wanted.id || !same(had.ipv4, wanted.ipv4) || !same(had.ipv6, wanted.ipv6)) return false;
    const at = cellOf(ifindex) * CELL_WORDS;
    const words = wordsOf(value);
    if (had.identity !== wanted.identity || had.quarantine !== wanted.quarantine)
      this.#store(at + IDENTITY, words[IDENTITY] ?? 0n);
    this.#store(at + WORD, words[WORD] ?? 0n);
    return true;
  }

  /** Takes the endpoint out of its cell; false when the array does not hold it. */
  clear(ifindex: number): boolean {
    if (this.holder(ifindex) !== ifindex) return false;
    const at = cellOf(ifindex) * CELL_WORDS;
    for (let word = 0; word < CELL_WORDS; word += 1) this.#store(at + word, 0n);
    return true;
  }

  /** As the programs do: no word, or one that is not of the cell's own ifindex, is no endpoint. */
  #holder(cell: number): number | undefined {
    const word = Atomics.load(this.#words, cell * CELL_WORDS + WORD);
    const ifindex = Number(Atomics.load(this.#words, cell * CELL_WORDS + 1) & 0xffff_ffffn);
    if (word === 0n || cellOf(ifindex) !== cell || Number(word >> GUARD_SHIFT) !== guardOf(ifindex)) return undefined;
    return ifindex;
  }

  #read(cell: number): Uint8Array {
    const copy = this.#words.slice(cell * CELL_WORDS, (cell + 1) * CELL_WORDS);
    return new Uint8Array(copy.buffer);
  }

  #store(at: number, word: bigint): void {
    Atomics.store(this.#words, at, word);
  }
}

function cellOf(ifindex: number): number {
  return ifindex % ENDPOINT_CELLS;
}

function wordsOf(value: Uint8Array): BigUint64Array {
  return new BigUint64Array(Uint8Array.from(value).buffer);
}

function same(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  return Buffer.compare(a ?? new Uint8Array(0), b ?? new Uint8Array(0)) === 0;
}

/** Why programs would not take this element as an endpoint; undefined when they would. */
export function elementProblem(value: Uint8Array): LayoutError | undefined {
  const { ifindex } = endpointValue.decode(value);
  const word = wordsOf(value)[WORD] ?? 0n;
  const wrong = (field: string, found: string, expected: string) =>
    new LayoutError('endpoints value', field, found, expected);
  if (ifindex === 0) return wrong('ifindex', '0', 'the index of a device');
  if (word === 0n) return wrong('word', '0', 'a revision of at least 1: a word of 0 is no endpoint');
  if (Number(word >> GUARD_SHIFT) === guardOf(ifindex)) return undefined;
  return wrong('guard', `${word >> GUARD_SHIFT}`, `${guardOf(ifindex)}, that of its ifindex`);
}

/**
 * The ifindex of an element that programs would take.
 * @throws LayoutError for any other: ifindex 0, a word of 0 (revision, slot, flags and guard all 0), a foreign guard
 */
export function checkElement(value: Uint8Array): number {
  const problem = elementProblem(value);
  if (problem !== undefined) throw problem;
  return endpointValue.decode(value).ifindex;
}
