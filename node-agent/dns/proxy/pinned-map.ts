/** Maps that the agent pins, and the proxy opens. They may come after the proxy, and be replaced by an agent of another version. */
import { BpfError, type BpfMap, openPinnedMap } from 'libbpf-ts';

const LOOK_EVERY_MS = 1000;

export interface Sizes {
  readonly keySize: number;
  readonly valueSize: number;
}

/** A pin, opened when it is there, and again when another map has its name. */
export class PinnedMap {
  readonly #path: string;
  readonly #sizes: Sizes;
  readonly #onNew: () => void;
  #map: BpfMap | undefined;
  #looked = Number.NEGATIVE_INFINITY;

  /** @param onNew called when the map that `get` is about to return is another one than before */
  constructor(path: string, sizes: Sizes, onNew: () => void = () => undefined) {
    this.#path = path;
    this.#sizes = sizes;
    this.#onNew = onNew;
  }

  get(): BpfMap | undefined {
    const now = performance.now();
    if (now - this.#looked < LOOK_EVERY_MS) return this.#map;
    this.#looked = now;
    const found = this.#open();
    if (found === undefined || found.info.id === this.#map?.info.id) {
      found?.close();
      return this.#map;
    }
    this.#map?.close();
    this.#map = found;
    this.#onNew();
    return found;
  }

  close(): void {
    this.#map?.close();
    this.#map = undefined;
  }

  #open(): BpfMap | undefined {
    let map: BpfMap;
    try {
      map = openPinnedMap(this.#path);
    } catch (error) {
      if (error instanceof BpfError) return undefined;
      throw error;
    }
    const { keySize, valueSize } = map.info;
    if (keySize === this.#sizes.keySize && valueSize === this.#sizes.valueSize) return map;
    map.close();
    return undefined;
  }
}
