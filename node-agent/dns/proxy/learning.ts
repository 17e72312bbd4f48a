/** Keeps what answers say: the names, and the wait for an identity of theirs. */
import type { DnsName, FromProxy, NameGone } from '../protocol.ts';
import type { Learner } from './contract.ts';
import type { AnswerAddress } from './message.ts';
import type { Names } from './names.ts';
import { setKey } from './tables.ts';

export interface LearningOptions {
  readonly names: Names;
  readonly tell: (message: FromProxy) => void;
  /** Without an agent nobody gives identities. */
  readonly connected: () => boolean;
  /** Milliseconds that an answer waits for an identity. */
  readonly waitMs: number;
}

export type NameChange = DnsName | NameGone;

interface Wanted {
  /** Answers that wait for it now: each is called once when it comes. */
  readonly waiting: Set<() => void>;
  /** An answer has waited for it in vain: the agent may have had no rule of them when it was asked. */
  readonly isLate: boolean;
}

export class Learning implements Learner {
  readonly #options: LearningOptions;
  /** Sets of selectors that the agent was asked an identity for. */
  readonly #wanted = new Map<string, Wanted>();
  /** Addresses that have lost theirs, or got other selectors, in this turn of the event loop. */
  readonly #lacking = new Set<string>();

  constructor(options: LearningOptions) {
    this.#options = options;
  }

  learn(endpoint: number, name: string, answer: readonly AnswerAddress[]): Promise<void> | undefined {
    const { names, connected, waitMs } = this.#options;
    const addresses = names.learn(endpoint, name, answer, Date.now());
    for (const address of addresses) this.#lacking.delete(address);
    const lacking = names.lacking(addresses);
    if (lacking.length === 0 || !connected()) return undefined;
    const { promise, resolve } = Promise.withResolvers<void>();
    let left = lacking.length;
    const given = (): void => {
      left -= 1;
      if (left === 0) resolve();
    };
    for (const selectors of lacking) this.#want(selectors, given);
    const timer = setTimeout(() => {
      for (const selectors of lacking) this.#isLate(selectors, given);
      resolve();
    }, waitMs);
    return promise.finally(() => clearTimeout(timer));
  }

  /** An address may need an identity that no answer waits for: rules or names of it have come or gone. */
  lacks(address: string): void {
    if (!this.#options.connected()) return;
    if (this.#lacking.size === 0) setImmediate(() => this.#askForLacking());
    this.#lacking.add(address);
  }

  /** These selectors have an identity. */
  given(selectors: readonly number[]): void {
    const key = setKey(selectors);
    const wanted = this.#wanted.get(key);
    this.#wanted.delete(key);
    for (const given of wanted?.waiting ?? []) given();
  }

  /** A new agent was not asked yet. */
  *askAgain(lacking: Iterable<readonly number[]>): Generator<FromProxy> {
    const all = [...this.#wanted.values()];
    this.#wanted.clear();
    for (const { waiting } of all) for (const given of waiting) given();
    for (const selectors of lacking) yield this.#asking(selectors);
  }

  #askForLacking(): void {
    const { names, tell } = this.#options;
    const addresses = [...this.#lacking];
    this.#lacking.clear();
    for (const selectors of names.lacking(addresses)) tell(this.#asking(selectors));
  }

  #isLate(selectors: readonly number[], given: () => void): void {
    const key = setKey(selectors);
    const wanted = this.#wanted.get(key);
    if (wanted?.waiting.delete(given) !== true) return;
    if (wanted.waiting.size === 0) this.#wanted.delete(key);
    else this.#wanted.set(key, { ...wanted, isLate: true });
  }

  /** Calls `given` when they have one. */
  #want(selectors: readonly number[], given: () => void): void {
    const key = setKey(selectors);
    if (this.#wanted.get(key)?.isLate !== false) this.#options.tell(this.#asking(selectors));
    this.#wanted.get(key)?.waiting.add(given);
  }

  #asking(selectors: readonly number[]): FromProxy {
    const key = setKey(selectors);
    const waiting = this.#wanted.get(key)?.waiting ?? new Set();
    this.#wanted.set(key, { waiting, isLate: false });
    return { type: 'wanted', selectors };
  }
}
