import { ctAge, ctKey, ctValue, isHalfOpen, PROTOCOL, ticksAt } from '@weir/bpf';
import type { BpfMap } from 'libbpf-ts';
import type { CtShares } from './ct-shares.ts';

const STEP = 512;
/** Of the table an endpoint may have this part. While more than half of the table is in use, it may have no more than if all had the same. */
const MOST_OF_ALL = 1 / 4;
/** A handshake that has been silent for longer, in conntrack ticks of 1.07 s, makes room when there is none. */
const HANDSHAKE_TICKS = 5;

export interface SweepResult {
  readonly entries: number;
  readonly deleted: number;
}

export interface ConntrackOptions {
  readonly map: BpfMap;
  readonly shares: Pick<CtShares, 'counted' | 'correct' | 'clear' | 'allow' | 'isSpent'>;
  /** The programs collect by themselves when user space has not for a minute. */
  readonly collected: (tick: number) => void;
  readonly yieldNow: () => Promise<void>;
}

/** Collects garbage in the connection table, in small steps, and shares the table out among endpoints. */
export class Conntrack {
  readonly #map: BpfMap;
  readonly #shares: ConntrackOptions['shares'];
  readonly #collected: ConntrackOptions['collected'];
  readonly #yieldNow: () => Promise<void>;
  /** Entries of each endpoint that the last collection left. */
  #left: ReadonlyMap<number, number> = new Map();

  constructor({ map, shares, collected, yieldNow }: ConntrackOptions) {
    this.#map = map;
    this.#shares = shares;
    this.#collected = collected;
    this.#yieldNow = yieldNow;
    shares.allow(Math.ceil(map.info.maxEntries * MOST_OF_ALL));
  }

  /**
   * Deletes entries that are gone. While the table is more than half full, those that are only remembered go, too, of the endpoints that have more than
   * their share of that half; and of these, and of endpoints that have all that they may, handshakes that nobody goes on with. Stops early when
   * `signal` is aborted.
   */
  async collect(signal: AbortSignal): Promise<SweepResult> {
    const pressed = this.#pressed();
    const spent = new Set(this.spent());
    const left = new Map<number, number>();
    const before = this.#shares.counted();
    const result = await this.#sweep(signal, (keyBytes, bytes) => {
      const key = ctKey.decode(keyBytes);
      const value = ctValue.decode(bytes);
      const now = process.hrtime.bigint();
      const age = ctAge(key, value, now);
      const abandoned = isHalfOpen(key, value) && ((ticksAt(now) - value.lastSeen) | 0) > HANDSHAKE_TICKS;
      const over = pressed.has(key.endpoint);
      const dead = age === 'gone' || (age === 'expired' && over) || (abandoned && (over || spent.has(key.endpoint)));
      if (!dead) left.set(key.endpoint, (left.get(key.endpoint) ?? 0) + 1);
      return dead;
    });
    if (signal.aborted) return result;
    this.#collected(ticksAt(process.hrtime.bigint()));
    this.#left = left;
    this.#shares.correct(before, left);
    this.#shares.allow(this.#most());
    return result;
  }

  /** Endpoints that have as many flows as they may: what else they begin passes untracked. */
  spent(): readonly number[] {
    return [...this.#left.keys().filter((endpoint) => this.#shares.isSpent(endpoint))];
  }

  #most(): number {
    const { maxEntries } = this.#map.info;
    const most = Math.ceil(maxEntries * MOST_OF_ALL);
    return this.#isPressed() ? Math.min(most, Math.ceil(maxEntries / this.#left.size)) : most;
  }

  #isPressed(): boolean {
    const total = this.#left.values().reduce((sum, count) => sum + count, 0);
    return total > this.#map.info.maxEntries / 2;
  }

  #pressed(): ReadonlySet<number> {
    if (!this.#isPressed()) return new Set();
    const fair = this.#map.info.maxEntries / 2 / this.#left.size;
    return new Set(this.#left.keys().filter((endpoint) => (this.#left.get(endpoint) ?? 0) > fair));
  }

  /** Deletes every flow of the endpoints, so that the next ones with their ids start without. */
  async purge(endpoints: ReadonlySet<number>, signal: AbortSignal): Promise<SweepResult> {
    const result = await this.#sweep(signal, (key) => endpoints.has(ctKey.decode(key).endpoint));
    if (!signal.aborted) for (const endpoint of endpoints) this.#shares.clear(endpoint);
    return result;
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
      await this.#yieldNow();
      if (signal.aborted) return { entries, deleted };
    }
    if (batch.length > 0) this.#map.deleteBatch(batch);
    return { entries, deleted: deleted + batch.length };
  }
}
