/**
 * What each endpoint has of the connection table, and may have: the elements of `ct_shares`, as memory that programs count in at the same time. A share is of
 * all endpoints whose ids have the same last bits; there are as many as a node has endpoints.
 */
import { MAPS } from '@weir/bpf';

const SHARES = MAPS.ct_shares.maxEntries;

/** Flows of each share at one moment. */
export type CountedFlows = Int32Array;

export class CtShares {
  /** Pairs: flows, and how many they may be. */
  readonly #words: Int32Array;

  /** @param bytes the elements (see mapArray); must stay mapped while this is used */
  constructor(bytes: Uint8Array) {
    this.#words = new Int32Array(bytes.buffer, bytes.byteOffset, 2 * SHARES);
  }

  counted(): CountedFlows {
    return Int32Array.from({ length: SHARES }, (_, at) => Atomics.load(this.#words, 2 * at));
  }

  /** There were so many of each endpoint, of `before` and of what came meanwhile. What programs have counted since `before` stays counted. */
  correct(before: CountedFlows, found: ReadonlyMap<number, number>): void {
    const flows = new Int32Array(SHARES);
    for (const [endpoint, count] of found) {
      const at = shareOf(endpoint);
      flows[at] = (flows[at] ?? 0) + count;
    }
    for (const [at, count] of flows.entries()) {
      const wrong = (before[at] ?? 0) - count;
      if (wrong !== 0) Atomics.sub(this.#words, 2 * at, wrong);
    }
  }

  /** All flows of the endpoint are gone. */
  clear(endpoint: number): void {
    Atomics.store(this.#words, 2 * shareOf(endpoint), 0);
  }

  /** Each endpoint may have so many. */
  allow(most: number): void {
    for (let at = 0; at < SHARES; at += 1) Atomics.store(this.#words, 2 * at + 1, most);
  }

  isSpent(endpoint: number): boolean {
    const at = 2 * shareOf(endpoint);
    const most = Atomics.load(this.#words, at + 1);
    return most > 0 && Atomics.load(this.#words, at) >= most;
  }
}

function shareOf(endpoint: number): number {
  return endpoint % SHARES;
}
