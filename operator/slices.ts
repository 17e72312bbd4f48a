/** Packs pods into endpoint slices. A pod stays in its slice for as long as it has an address. */
import { compareText } from '@weir/labels';
import { sliceName } from './names.ts';
import type { SlicedPod, SliceRow } from './types.ts';

/** Endpoints per slice. */
export const SLICE_SIZE = 100;

interface Slice {
  readonly name: string;
  readonly namespace: string;
  readonly endpoints: Map<string, SlicedPod>;
  /** Pods that were in the slice before a restart and have not been seen yet: their place is kept. */
  readonly reserved: Set<string>;
}

export class SlicePacker {
  readonly #slices = new Map<string, Slice>();
  readonly #ofPod = new Map<string, Slice>();
  readonly #inNamespace = new Map<string, Set<Slice>>();
  readonly #changed = new Set<string>();

  /** Keeps the places of pods (names) in a slice that exists. */
  adopt(name: string, namespace: string, pods: readonly string[]): void {
    if (this.#slices.has(name)) return;
    const slice = this.#create(name, namespace);
    for (const pod of pods) {
      const key = `${namespace}/${pod}`;
      if (this.#ofPod.has(key)) continue;
      slice.reserved.add(pod);
      this.#ofPod.set(key, slice);
    }
    this.#changed.add(name);
  }

  /** Frees the places that nobody came to take. Call once, when all pods have been set. */
  adoptionDone(): void {
    for (const slice of [...this.#slices.values()]) {
      for (const pod of slice.reserved) this.#ofPod.delete(`${slice.namespace}/${pod}`);
      slice.reserved.clear();
      this.#dropIfEmpty(slice);
    }
  }

  set(namespace: string, endpoint: SlicedPod): void {
    const key = `${namespace}/${endpoint.name}`;
    const slice = this.#ofPod.get(key) ?? this.#roomIn(namespace);
    slice.reserved.delete(endpoint.name);
    slice.endpoints.set(endpoint.name, endpoint);
    this.#ofPod.set(key, slice);
    this.#changed.add(slice.name);
  }

  remove(namespace: string, pod: string): void {
    const key = `${namespace}/${pod}`;
    const slice = this.#ofPod.get(key);
    if (slice === undefined) return;
    this.#ofPod.delete(key);
    slice.endpoints.delete(pod);
    slice.reserved.delete(pod);
    this.#changed.add(slice.name);
    this.#dropIfEmpty(slice);
  }

  /** What changed since the last call. A slice that is gone has no row. */
  drainChanged(): { readonly name: string; readonly row: SliceRow | undefined }[] {
    const changed = [...this.#changed].map((name) => ({ name, row: this.#row(name) }));
    this.#changed.clear();
    return changed;
  }

  #row(name: string): SliceRow | undefined {
    const slice = this.#slices.get(name);
    if (slice === undefined) return undefined;
    const endpoints = [...slice.endpoints.values()].sort((a, b) => compareText(a.name, b.name));
    return { name, namespace: slice.namespace, endpoints };
  }

  #roomIn(namespace: string): Slice {
    for (const slice of this.#inNamespace.get(namespace) ?? []) {
      if (slice.endpoints.size + slice.reserved.size < SLICE_SIZE) return slice;
    }
    let n = 0;
    while (this.#slices.has(sliceName(namespace, n))) n += 1;
    return this.#create(sliceName(namespace, n), namespace);
  }

  #create(name: string, namespace: string): Slice {
    const slice: Slice = { name, namespace, endpoints: new Map(), reserved: new Set() };
    this.#slices.set(name, slice);
    const others = this.#inNamespace.get(namespace);
    if (others === undefined) this.#inNamespace.set(namespace, new Set([slice]));
    else others.add(slice);
    return slice;
  }

  #dropIfEmpty(slice: Slice): void {
    if (slice.endpoints.size + slice.reserved.size > 0) return;
    this.#slices.delete(slice.name);
    this.#changed.add(slice.name);
    const others = this.#inNamespace.get(slice.namespace);
    others?.delete(slice);
    if (others?.size === 0) this.#inNamespace.delete(slice.namespace);
  }
}
