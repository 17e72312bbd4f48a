/** Outages of an API server, for tests in virtual time of programs that wait for its end. */
import { ApiError } from '../errors.ts';

const UNAVAILABLE = new ApiError('unavailable', { status: 503, reason: 'ServiceUnavailable' });
const REFUSED = new ApiError('connect ECONNREFUSED', { status: 0, reason: 'Unreachable' });

export const OUTAGES = [5, 20, 40, 600].flatMap((seconds) => [
  { seconds, what: 'answers 503', error: UNAVAILABLE },
  { seconds, what: 'refuses connections', error: REFUSED },
]);

/** What a server was asked, and what it took, by virtual time. */
export class Asked {
  /** Lists and watches by kind, and applies by `apply` and kind, in their order. */
  readonly #asked = new Map<string, { readonly at: number; readonly answered: boolean }[]>();
  readonly #taken: { readonly plural: string; readonly at: number }[] = [];

  ask(what: string, answered: boolean): void {
    this.#asked.set(what, [...(this.#asked.get(what) ?? []), { at: performance.now(), answered }]);
  }

  take(plural: string): void {
    this.#taken.push({ plural, at: performance.now() });
  }

  /** Forgets what has been. */
  clear(): void {
    this.#asked.clear();
    this.#taken.length = 0;
  }

  /** When it was asked. */
  times(what: string): readonly number[] {
    return (this.#asked.get(what) ?? []).map(({ at }) => at);
  }

  /** Kinds that were listed or watched. */
  get kinds(): readonly string[] {
    return [...this.#asked.keys()].filter((what) => !what.includes(' ')).sort();
  }

  /** When each kind was read for the first time with an answer. */
  get read(): ReadonlyMap<string, number> {
    return new Map(
      this.kinds.flatMap((plural) => {
        const first = this.#asked.get(plural)?.find(({ answered }) => answered);
        return first === undefined ? [] : [[plural, first.at] as const];
      }),
    );
  }

  /** When each kind was written for the first time. */
  get written(): ReadonlyMap<string, number> {
    return new Map(this.#taken.toReversed().map(({ plural, at }) => [plural, at]));
  }
}

/** For `Math.random`: the same numbers for the same seed. */
export function seeded(from: number): () => number {
  let seed = from;
  return () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
}
