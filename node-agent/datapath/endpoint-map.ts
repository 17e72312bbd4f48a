import { constants } from 'node:os';
import { checkElement, ENDPOINT_CELLS, EndpointCells, elementProblem, endpointKey, endpointValue } from '@weir/bpf';
import { BpfError, type BpfMap } from 'libbpf-ts';

/** What a store of endpoints needs of its map: one of the kernel's, or EndpointMap. */
export type EndpointTable = Pick<BpfMap, 'lookup' | 'update' | 'delete' | 'entries' | 'keys'>;

/**
 * `endpoint_array` and `endpoints` as one map by ifindex. An endpoint is in its cell of the array, where programs find it
 * without a call, or in the hash when another one has the cell.
 *
 * Guarantees: after each single store or system call the programs find an endpoint complete, as it was or as it shall be;
 * between them it may be in both maps, and then the array counts, as it does for the programs. In the array a new policy
 * is one 8-byte store. A change of an endpoint's id or address, which no single store can make, moves it to the hash.
 * Endpoints that are in the hash stay there until `settle`.
 */
export class EndpointMap implements EndpointTable {
  /** Keys of elements that no agent wrote, removed when this was opened. */
  readonly removed: readonly number[];
  readonly #cells: EndpointCells;
  readonly #hash: BpfMap;

  private constructor(cells: EndpointCells, hash: BpfMap, removed: readonly number[]) {
    this.removed = removed;
    this.#cells = cells;
    this.#hash = hash;
  }

  /**
   * Mends what a crash left, so that no endpoint is in both maps: the higher revision stays, in doubt the array's. An element that no program
   * would take, or of an index or id that the kernel or no agent gives, is removed.
   * @param array the elements of `endpoint_array` (see mapArray); must stay mapped while this is used
   * @throws LayoutError when the array has another size; BpfError
   */
  static open(array: Uint8Array, hash: BpfMap): EndpointMap {
    const cells = new EndpointCells(array);
    const inHash = Array.from(hash.entries(), ([key, value]) => [endpointKey.decode(key), value] as const);
    const odd = inHash.filter(isOdd);
    for (const [ifindex] of odd) hash.delete(endpointKey.encode(ifindex));
    const oddCells = [...cells.entries()].filter(isOdd);
    for (const [ifindex] of oddCells) cells.clear(ifindex);
    for (const [key, value] of hash.entries()) {
      const { ifindex, revision } = endpointValue.decode(value);
      const twin = cells.get(ifindex);
      if (twin === undefined) continue;
      if (endpointValue.decode(twin).revision < revision) cells.clear(ifindex);
      else hash.delete(key);
    }
    return new EndpointMap(
      cells,
      hash,
      [...odd, ...oddCells].map(([ifindex]) => ifindex),
    );
  }

  lookup(key: Uint8Array): Uint8Array | undefined {
    return this.#cells.get(endpointKey.decode(key)) ?? this.#hash.lookup(key);
  }

  /** @throws LayoutError when the value is not an endpoint of this key; BpfError as a map of the kernel does */
  update(key: Uint8Array, value: Uint8Array, mode: 'any' | 'noexist' | 'exist' = 'any'): void {
    const ifindex = checkElement(value);
    if (endpointKey.decode(key) !== ifindex) {
      throw refused(`the value names ifindex ${ifindex}`, constants.errno.EINVAL);
    }
    const inArray = this.#cells.holder(ifindex) === ifindex;
    const present = inArray || this.#hash.lookup(key) !== undefined;
    if (mode === 'noexist' && present) throw refused(`ifindex ${ifindex} is there`, constants.errno.EEXIST);
    if (mode === 'exist' && !present) throw refused(`ifindex ${ifindex} is not there`, constants.errno.ENOENT);
    if (inArray) {
      if (this.#cells.change(value)) return;
      this.#hash.update(key, value);
      this.#cells.clear(ifindex);
    } else if (present || this.#cells.holder(ifindex) !== undefined) this.#hash.update(key, value);
    else this.#cells.put(value);
  }

  /** The hash first: where a failed call left the endpoint in both, what it held must not come back when the cell is gone. */
  delete(key: Uint8Array): boolean {
    const inHash = this.#hash.delete(key);
    return this.#cells.clear(endpointKey.decode(key)) || inHash;
  }

  *entries(): Generator<readonly [key: Uint8Array, value: Uint8Array]> {
    for (const { key, value } of this.located()) yield [key, value];
  }

  /** Every endpoint with the name of the map that it is in. */
  *located(): Generator<{ readonly map: 'endpoint_array' | 'endpoints'; key: Uint8Array; value: Uint8Array }> {
    const seen = new Set<number>();
    for (const [ifindex, value] of this.#cells.entries()) {
      seen.add(ifindex);
      yield { map: 'endpoint_array', key: endpointKey.encode(ifindex), value };
    }
    for (const [key, value] of this.#hash.entries()) {
      if (!seen.has(endpointKey.decode(key))) yield { map: 'endpoints', key, value };
    }
  }

  *keys(): Generator<Uint8Array> {
    for (const [key] of this.entries()) yield key;
  }

  /**
   * Moves endpoints from the hash into cells that are free. Call it when every interface runs programs that look
   * into the array: an older version's look only into the hash. The words come after all other fields of all endpoints
   * and a system call, so that no processor pairs a new word with fields that it read ahead of it.
   * @returns endpoints moved
   */
  settle(): number {
    const moving: (readonly [Uint8Array, Uint8Array])[] = [];
    const taken = new Set<number>();
    for (const entry of this.#hash.entries()) {
      if (elementProblem(entry[1]) !== undefined) continue;
      const ifindex = endpointKey.decode(entry[0]);
      const cell = ifindex % ENDPOINT_CELLS;
      if (this.#cells.holder(ifindex) !== undefined || taken.has(cell)) continue;
      taken.add(cell);
      this.#cells.stage(entry[1]);
      moving.push(entry);
    }
    for (const [key] of moving) {
      const value = this.#hash.lookup(key);
      if (value !== undefined) this.#cells.publish(value);
    }
    for (const [key] of moving) this.#hash.delete(key);
    return moving.length;
  }
}

/** The kernel's indexes are positive and of 31 bits. */
const LAST_INDEX = 0x7fff_ffff;

function isOdd([key, value]: readonly [number, Uint8Array]): boolean {
  const { ifindex, id } = endpointValue.decode(value);
  return ifindex !== key || ifindex > LAST_INDEX || id === 0 || elementProblem(value) !== undefined;
}

function refused(why: string, errno: number): BpfError {
  return new BpfError({ operation: `update an endpoint: ${why}`, errno });
}
