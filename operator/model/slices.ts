/**
 * Packs pods into endpoint slices. A pod stays in its slice for as long as it has an address. Shows the slices in the
 * desired table, as soon as that is complete.
 */
import type { AnyTable, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import { sliceName } from '../names.ts';
import { type Desired, show } from '../tables.ts';
import type { SlicedPod, SliceRow } from '../types.ts';
import { Marks } from './marks.ts';
import type { Piece } from './pieces.ts';

/** Endpoints per slice. */
export const SLICE_SIZE = 100;
/**
 * Bytes of endpoints from which on a slice takes no other: a slice is written, and read by every node, whole for each change of one of its
 * pods. Pods with up to 8 named ports fill theirs by number. Where a place is taken again by a pod with more ports, over a restart, a slice
 * may have more; never more than etcd takes, by `MOST_NAMED_PORTS`.
 */
const SLICE_BYTES = 65_536;

interface Slice {
  readonly name: string;
  readonly namespace: string;
  readonly places: number;
  /** Of the endpoints that have been seen. */
  readonly bytes: number;
}

interface Place {
  readonly namespace: string;
  readonly pod: string;
  readonly slice: string;
  /** undefined: the pod was in the slice before a restart and has not been seen yet; its place is kept. */
  readonly endpoint: SlicedPod | undefined;
  readonly bytes: number;
}

export class SlicePacker {
  readonly #slices: Table<Slice>;
  readonly #places: Table<Place>;
  readonly #desired: Table<Desired<SliceRow>>;
  readonly #changed = new Marks<string>();

  constructor(db: StateDB, desired: Table<Desired<SliceRow>>) {
    this.#desired = desired;
    this.#slices = db.table<Slice>({
      name: 'packedSlices',
      key: ({ name }) => name,
      indexes: [
        {
          name: 'room',
          keys: ({ namespace, places, bytes }) => (places < SLICE_SIZE && bytes < SLICE_BYTES ? [namespace] : []),
        },
      ],
    });
    this.#places = db.table<Place>({
      name: 'slicePlaces',
      key: ({ namespace, pod }) => placeKey(namespace, pod),
      indexes: [
        { name: 'slice', keys: ({ slice }) => [slice] },
        { name: 'kept', keys: ({ endpoint }) => (endpoint === undefined ? [''] : []) },
      ],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#slices, this.#places];
  }

  /** Keeps the places of pods (names) in a slice that exists. */
  adopt(txn: WriteTxn, name: string, namespace: string, pods: readonly string[]): void {
    if (txn.has(this.#slices, name)) return;
    const kept = new Set(pods.filter((pod) => !txn.has(this.#places, placeKey(namespace, pod))));
    txn.insert(this.#slices, { name, namespace, places: kept.size, bytes: 0 });
    for (const pod of kept) txn.insert(this.#places, { namespace, pod, slice: name, endpoint: undefined, bytes: 0 });
  }

  /** Frees the places that nobody came to take. Call once, when all pods have been set. */
  adoptionDone(txn: WriteTxn): void {
    for (const { namespace, pod } of txn.list(this.#places, 'kept', '')) this.remove(txn, namespace, pod);
    for (const { name, places } of txn.all(this.#slices)) if (places === 0) txn.delete(this.#slices, name);
  }

  set(txn: WriteTxn, namespace: string, endpoint: SlicedPod): void {
    const pod = endpoint.name;
    const known = txn.get(this.#places, placeKey(namespace, pod));
    const bytes = JSON.stringify(endpoint).length;
    const slice = this.#sliceOf(txn, known) ?? this.#room(txn, namespace);
    const places = known === undefined ? slice.places + 1 : slice.places;
    txn.upsert(this.#slices, { ...slice, places, bytes: slice.bytes + bytes - (known?.bytes ?? 0) });
    txn.upsert(this.#places, { namespace, pod, slice: slice.name, endpoint, bytes });
    this.#changed.add(txn, slice.name);
  }

  remove(txn: WriteTxn, namespace: string, pod: string): void {
    const place = txn.delete(this.#places, placeKey(namespace, pod));
    const slice = this.#sliceOf(txn, place);
    if (place === undefined || slice === undefined) return;
    if (slice.places === 1) txn.delete(this.#slices, slice.name);
    else txn.upsert(this.#slices, { ...slice, places: slice.places - 1, bytes: slice.bytes - place.bytes });
    this.#changed.add(txn, slice.name);
  }

  /** Shows what changed in this transaction. */
  showChanged(txn: WriteTxn): void {
    for (const name of this.#changed.take(txn)) this.#show(txn, name);
  }

  /** Pieces of work that show all of them. */
  *showAll(reader: Reader): Generator<Piece> {
    for (const { name } of reader.all(this.#slices)) yield (txn) => this.#show(txn, name);
  }

  #show(txn: WriteTxn, name: string): void {
    const slice = txn.get(this.#slices, name);
    if (slice === undefined) {
      txn.delete(this.#desired, name);
      return;
    }
    // In order of name: the keys of one namespace's places differ in it alone.
    const endpoints = [...txn.list(this.#places, 'slice', name)].flatMap(({ endpoint }) => endpoint ?? []);
    show(txn, this.#desired, { name, namespace: slice.namespace, endpoints });
  }

  #sliceOf(txn: WriteTxn, place: Place | undefined): Slice | undefined {
    return place === undefined ? undefined : txn.get(this.#slices, place.slice);
  }

  /** A slice that may have one endpoint more. */
  #room(txn: WriteTxn, namespace: string): Slice {
    const [slice] = txn.list(this.#slices, 'room', namespace);
    if (slice !== undefined) return slice;
    let n = 0;
    while (txn.has(this.#slices, sliceName(namespace, n))) n += 1;
    return { name: sliceName(namespace, n), namespace, places: 0, bytes: 0 };
  }
}

function placeKey(namespace: string, pod: string): string {
  return `${namespace}/${pod}`;
}
