/** Maps in memory that tell of every single change, so that a test can look between any two of them. */
import { MAPS, type MapName, slotMapOptions } from '@weir/bpf';
import { type BpfMap, createMemoryMap, type EncodeRow, type MapInfo, type UpdateMode } from 'libbpf-ts';
import type { SlotMaps } from '../slot-parts.ts';

/** Called before (and may refuse by a throw) and after each change. */
export interface Recorder {
  before(operation: string, key?: Uint8Array): void;
  after(operation: string): void;
}

class RecordedMap implements BpfMap {
  readonly plain: BpfMap;
  readonly #recorder: Recorder;

  constructor(plain: BpfMap, recorder: Recorder) {
    this.plain = plain;
    this.#recorder = recorder;
  }

  get fd(): number {
    return this.plain.fd;
  }
  get info(): MapInfo {
    return this.plain.info;
  }
  lookup(key: Uint8Array): Uint8Array | undefined {
    return this.plain.lookup(key);
  }
  entries(): Generator<readonly [key: Uint8Array, value: Uint8Array]> {
    return this.plain.entries();
  }
  keys(): Generator<Uint8Array> {
    return this.plain.keys();
  }
  update(key: Uint8Array, value: Uint8Array, mode?: UpdateMode): void {
    this.#change('update', () => this.plain.update(key, value, mode), key);
  }
  delete(key: Uint8Array): boolean {
    return this.#change('delete', () => this.plain.delete(key));
  }
  /** The kernel's batches are no transactions: each entry is a change. */
  updateBatch(entries: readonly (readonly [Uint8Array, Uint8Array])[]): void {
    for (const [key, value] of entries) this.update(key, value);
  }
  updateRows<T>(rows: readonly T[], encode: EncodeRow<T>): void {
    for (const row of rows) this.#change('update', () => this.plain.updateRows([row], encode));
  }
  deleteBatch(keys: readonly Uint8Array[]): void {
    for (const key of keys) this.delete(key);
  }
  setInner(key: Uint8Array, inner: BpfMap): void {
    this.#change('setInner', () => this.plain.setInner(key, inner instanceof RecordedMap ? inner.plain : inner));
  }
  async setInnerAsync(key: Uint8Array, inner: BpfMap): Promise<void> {
    this.setInner(key, inner);
  }
  async deleteInnerAsync(key: Uint8Array): Promise<boolean> {
    return this.delete(key);
  }
  openInner(key: Uint8Array): BpfMap | undefined {
    const inner = this.plain.openInner(key);
    return inner === undefined ? undefined : new RecordedMap(inner, this.#recorder);
  }
  pin(path: string): void {
    this.plain.pin(path);
  }
  close(): void {
    this.plain.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }

  #change<T>(operation: string, change: () => T, key?: Uint8Array): T {
    const what = `${operation} ${this.info.name}`;
    this.#recorder.before(what, key);
    const result = change();
    this.#recorder.after(what);
    return result;
  }
}

export type KernelMaps = Readonly<
  Record<'endpoints' | 'ipcache' | 'policy_classes' | 'policy_verdicts' | 'settings', BpfMap>
>;

/** Fresh maps of one kernel. */
export function memoryKernel(): KernelMaps {
  const inner = slotMapOptions({ classes: 1, verdicts: 1 });
  const make = (name: MapName, template?: BpfMap): BpfMap => {
    const { type, keySize, valueSize, maxEntries, flags } = MAPS[name];
    return createMemoryMap({
      name,
      type,
      keySize,
      valueSize,
      maxEntries,
      flags,
      ...(template ? { inner: template } : {}),
    });
  };
  return {
    endpoints: make('endpoints'),
    ipcache: make('ipcache'),
    policy_classes: make('policy_classes', createMemoryMap(inner.classes)),
    policy_verdicts: make('policy_verdicts', createMemoryMap(inner.verdicts)),
    settings: make('settings'),
  };
}

/** The same maps, changed under the recorder's eyes. Closing these closes nothing: the kernel outlives an agent. */
export function recorded(maps: KernelMaps, recorder: Recorder): KernelMaps {
  const wrap = (map: BpfMap): BpfMap => new RecordedMap(map, recorder);
  return {
    endpoints: wrap(maps.endpoints),
    ipcache: wrap(maps.ipcache),
    policy_classes: wrap(maps.policy_classes),
    policy_verdicts: wrap(maps.policy_verdicts),
    settings: wrap(maps.settings),
  };
}

export function recordedSlot(recorder: Recorder): (sizes: { classes: number; verdicts: number }) => SlotMaps {
  return (sizes) => {
    const { classes, verdicts } = slotMapOptions(sizes);
    return {
      classes: new RecordedMap(createMemoryMap(classes), recorder),
      verdicts: new RecordedMap(createMemoryMap(verdicts), recorder),
    };
  };
}
