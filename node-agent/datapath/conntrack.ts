import { ctAge, ctKey, ctValue, PROTOCOL } from '@weir/bpf';
import type { BpfMap } from 'libbpf-ts';

const STEP = 512;

export interface SweepResult {
  readonly entries: number;
  readonly deleted: number;
}

/** Collects garbage in the connection table, in small steps. */
export class Conntrack {
  readonly #map: BpfMap;
  readonly #breathe: () => Promise<void>;
  /** Entries of each endpoint that the last collection left. */
  #left: ReadonlyMap<number, number> = new Map();

  constructor(map: BpfMap, breathe: () => Promise<void>) {
    this.#map = map;
    this.#breathe = breathe;
  }

  /**
   * Deletes entries that are gone and, while the table is more than half full, those that are only remembered of the endpoints that have more than
   * their share of that half. Stops early when `signal` is aborted.
   */
  async collect(signal: AbortSignal): Promise<SweepResult> {
    const pressed = this.#pressed();
    const left = new Map<number, number>();
    const result = await this.#sweep(signal, (keyBytes, value) => {
      const key = ctKey.decode(keyBytes);
      const age = ctAge(key, ctValue.decode(value), process.hrtime.bigint());
      const dead = age === 'gone' || (age === 'expired' && pressed.has(key.endpoint));
      if (!dead) left.set(key.endpoint, (left.get(key.endpoint) ?? 0) + 1);
      return dead;
    });
    this.#left = left;
    return result;
  }

  #pressed(): ReadonlySet<number> {
    const half = this.#map.info.maxEntries / 2;
    const total = this.#left.values().reduce((sum, count) => sum + count, 0);
    if (total <= half) return new Set();
    return new Set(this.#left.keys().filter((endpoint) => (this.#left.get(endpoint) ?? 0) > half / this.#left.size));
  }

  /** Deletes every flow of the endpoints, so that the next ones with their ids start without. */
  async purge(endpoints: ReadonlySet<number>, signal: AbortSignal): Promise<SweepResult> {
    return await this.#sweep(signal, (key) => endpoints.has(ctKey.decode(key).endpoint));
  }

  /**
   * Deletes the endpoints' flows whose first packet may have been an answer: all but TCP connections, which begin with their SYN. Denied ones stay:
   * they keep answers from beginning a flow.
   */
  async doubt(endpoints: ReadonlySet<number>, signal: AbortSignal): Promise<SweepResult> {
    return await this.#sweep(signal, (key, bytes) => {
      const { endpoint, protocol } = ctKey.decode(key);
      if (!endpoints.has(endpoint)) return false;
      return protocol !== PROTOCOL.tcp && !ctValue.decode(bytes).denied;
    });
  }

  async #sweep(signal: AbortSignal, dead: (key: Uint8Array, value: Uint8Array) => boolean): Promise<SweepResult> {
    let entries = 0;
    let deleted = 0;
    let batch: Uint8Array[] = [];
    for (const [key, value] of this.#map.entries()) {
      entries += 1;
      if (dead(key, value)) batch.push(key);
      if (entries % STEP !== 0) continue;
      if (batch.length > 0) this.#map.deleteBatch(batch);
      deleted += batch.length;
      batch = [];
      await this.#breathe();
      if (signal.aborted) return { entries, deleted };
    }
    if (batch.length > 0) this.#map.deleteBatch(batch);
    return { entries, deleted: deleted + batch.length };
  }
}
