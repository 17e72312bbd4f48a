import { join } from 'node:path';
import { nameKey, nameValue } from '@weir/bpf';
import { parseAddress } from '@weir/net';
import { BpfError, type BpfMap } from 'libbpf-ts';
import type { Rows } from './address-rows.ts';
import { PinnedMap, type Sizes } from './pinned-map.ts';

const SIZES: Sizes = { keySize: nameKey.size, valueSize: nameValue.size };

function keyOf(address: string): Uint8Array {
  return nameKey.encode(parseAddress(address).bytes);
}

/** The map `names`: identities of addresses by their names. */
export class KernelRows implements Rows {
  readonly #map: PinnedMap;
  readonly #onRefused: (error: BpfError) => void;
  readonly #all: () => Iterable<readonly [address: string, identity: number]>;
  #started = false;

  /**
   * @param onRefused told that the kernel takes no row more: its address stays closed
   * @param all what the map must have
   */
  constructor(
    bpfRoot: string,
    onRefused: (error: BpfError) => void,
    all: () => Iterable<readonly [address: string, identity: number]>,
  ) {
    this.#map = new PinnedMap(join(bpfRoot, 'names'), SIZES, () => this.#correct());
    this.#onRefused = onRefused;
    this.#all = all;
  }

  /** From now on the map follows: before, what it has stays. */
  start(): void {
    this.#started = true;
    this.look();
  }

  /** A map that has come, or is another one, gets all its rows. */
  look(): void {
    this.#open();
  }

  /** True without a map, too: it gets all rows when it comes. */
  set(address: string, identity: number): boolean {
    try {
      this.#open()?.update(keyOf(address), nameValue.encode(identity));
      return true;
    } catch (error) {
      if (!(error instanceof BpfError)) throw error;
      this.#onRefused(error);
      return false;
    }
  }

  delete(address: string): void {
    this.#open()?.delete(keyOf(address));
  }

  close(): void {
    this.#map.close();
  }

  #open(): BpfMap | undefined {
    return this.#started ? this.#map.get() : undefined;
  }

  /** Makes the map what it must be: rows that nobody wants go first. */
  #correct(): void {
    const map = this.#map.get();
    if (map === undefined) return;
    const wanted = new Map<string, readonly [Uint8Array, Uint8Array]>();
    for (const [address, identity] of this.#all()) {
      const key = keyOf(address);
      wanted.set(Buffer.from(key).toString('latin1'), [key, nameValue.encode(identity)]);
    }
    const strays: Uint8Array[] = [];
    for (const [key, value] of map.entries()) {
      const name = Buffer.from(key).toString('latin1');
      const should = wanted.get(name);
      if (should === undefined) strays.push(key);
      else if (Buffer.compare(should[1], value) === 0) wanted.delete(name);
    }
    if (strays.length > 0) map.deleteBatch(strays);
    if (wanted.size > 0) map.updateBatch([...wanted.values()]);
  }
}
