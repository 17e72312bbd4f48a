import { CT_KEYS, type CtKey, ctAge, ctValue, isHalfOpen, PROTOCOL, ticksAt } from '@weir/bpf';
import type { BpfMap } from 'libbpf-ts';
import type { CtShares } from './ct-shares.ts';

const STEP = 512;
/** Of the table an endpoint may have this part. While more than half of the table is in use, it may have no more than if all had the same. */
const MOST_OF_ALL = 1 / 4;
/** A handshake that has been silent for longer, in conntrack ticks of 1.07 s, makes room when there is none. */
const HANDSHAKE_TICKS = 5;

type Family = keyof typeof CT_KEYS;
const FAMILIES = Object.keys(CT_KEYS) as Family[];

export interface SweepResult {
  readonly entries: number;
  readonly deleted: number;
  /** What is left in each map. */
  readonly left: Readonly<Record<Family, number>>;
}

export interface ConntrackOptions {
  readonly maps: Readonly<Record<Family, BpfMap>>;
  readonly shares: Pick<CtShares, 'counted' | 'correct' | 'clear' | 'allow' | 'isSpent'>;
  /** The programs collect by themselves when user space has not for a minute. */
  readonly collected: (tick: number) => void;
  readonly yieldNow: () => Promise<void>;
}

/**
 * Collects garbage in the connection tables, one of each family and all of one size, in small steps, and shares a table's size out among endpoints: what
 * an endpoint has in both counts.
 */
export class Conntrack {
  readonly #maps: Readonly<Record<Family, BpfMap>>;
  readonly #size: number;
  readonly #shares: ConntrackOptions['shares'];
  readonly #collected: ConntrackOptions['collected'];
  readonly #yieldNow: () => Promise<void>;
  /** Entries of each endpoint that the last collection left. */
  #left: ReadonlyMap<number, number> = new Map();
  /** Entries of the fuller table that the last collection left. */
  #most = 0;

  constructor({ maps, shares, collected, yieldNow }: ConntrackOptions) {
    this.#maps = maps;
    this.#size = maps.ct4.info.maxEntries;
    this.#shares = shares;
    this.#collected = collected;
    this.#yieldNow = yieldNow;
    shares.allow(Math.ceil(this.#size * MOST_OF_ALL));
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
    const result = await this.#sweep(signal, (key, bytes) => {
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
    this.#most = Math.max(...Object.values(result.left));
    this.#shares.correct(before, left);
    this.#shares.allow(this.#allowed());
    return result;
  }

  /** Endpoints that have as many flows as they may: what else they begin passes untracked. */
  spent(): readonly number[] {
    return [...this.#left.keys().filter((endpoint) => this.#shares.isSpent(endpoint))];
  }

  #allowed(): number {
    const most = Math.ceil(this.#size * MOST_OF_ALL);
    return this.#isPressed() ? Math.min(most, Math.ceil(this.#size / this.#left.size)) : most;
  }

  #isPressed(): boolean {
    return this.#most > this.#size / 2;
  }

  #pressed(): ReadonlySet<number> {
    if (!this.#isPressed()) return new Set();
    const fair = this.#size / 2 / this.#left.size;
    return new Set(this.#left.keys().filter((endpoint) => (this.#left.get(endpoint) ?? 0) > fair));
  }

  /** Deletes every flow of the endpoints, so that the next ones with their ids start without. */
  async purge(endpoints: ReadonlySet<number>, signal: AbortSignal): Promise<SweepResult> {
    const result = await this.#sweep(signal, ({ endpoint }) => endpoints.has(endpoint));
    if (!signal.aborted) for (const endpoint of endpoints) this.#shares.clear(endpoint);
    return result;
  }

  /**
   * Deletes the endpoints' flows whose first packet may have been an answer: all but TCP connections, which begin with their SYN. Denied ones stay:
   * they keep answers from beginning a flow.
   */
  async doubt(endpoints: ReadonlySet<number>, signal: AbortSignal): Promise<SweepResult> {
    return await this.#sweep(signal, ({ endpoint, protocol }, bytes) => {
      if (!endpoints.has(endpoint)) return false;
      return protocol !== PROTOCOL.tcp && !ctValue.decode(bytes).denied;
    });
  }

  async #sweep(signal: AbortSignal, dead: (key: CtKey, value: Uint8Array) => boolean): Promise<SweepResult> {
    const sum = { entries: 0, deleted: 0, left: { ct4: 0, ct6: 0 } };
    for (const family of FAMILIES) {
      const map = this.#maps[family];
      let batch: Uint8Array[] = [];
      const remove = (): void => {
        if (batch.length > 0) map.deleteBatch(batch);
        sum.deleted += batch.length;
        sum.left[family] -= batch.length;
        batch = [];
      };
      for (const [key, value] of map.entries()) {
        sum.entries += 1;
        sum.left[family] += 1;
        if (dead(CT_KEYS[family].decode(key), value)) batch.push(key);
        if (sum.entries % STEP !== 0) continue;
        remove();
        await this.#yieldNow();
        if (signal.aborted) return sum;
      }
      remove();
    }
    return sum;
  }
}
