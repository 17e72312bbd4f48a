/**
 * What something may be at a time: each version from the moment at which it was asked for, until the moment from which the system
 * may no longer go by it. Between an edit and the system's word that it is done, both count.
 */

export interface Version<T> {
  readonly value: T;
  readonly from: number;
  /** Exclusive; Infinity: to this day. */
  until: number;
}

export class History<T> {
  readonly #versions: Version<T>[] = [];

  constructor(value: T, from = Number.NEGATIVE_INFINITY) {
    this.begin(value, from);
  }

  /** The version that was asked for last. */
  get newest(): T {
    return (this.#versions.at(-1) as Version<T>).value;
  }

  /** A new version is asked for at `at`; the older ones go on counting. */
  begin(value: T, at: number): void {
    this.#versions.push({ value, from: at, until: Number.POSITIVE_INFINITY });
  }

  /** Beside the newest, and older than it: what may be meanwhile. */
  beside(value: T, at: number): void {
    this.#versions.splice(-1, 0, { value, from: at, until: Number.POSITIVE_INFINITY });
  }

  /** From `at` on only the newest counts, or only those that `keep` keeps. */
  settle(at: number, keep: (value: T) => boolean = () => false): void {
    for (const version of this.#versions.slice(0, -1))
      if (!keep(version.value)) version.until = Math.min(version.until, at);
  }

  /** Versions that count at some moment from `from` to `to`. */
  possible(from: number, to: number): readonly T[] {
    return this.#versions.filter((version) => version.from <= to && version.until > from).map(({ value }) => value);
  }

  /** Forgets what ended before `at`. */
  forget(at: number): void {
    const kept = this.#versions.filter(({ until }) => until >= at);
    this.#versions.splice(0, this.#versions.length, ...kept);
  }
}
