import { firstValueFrom, fromEvent, map, NEVER, Subject, skipWhile, takeUntil } from 'rxjs';

/** Callers that wait until a round has made something true. */
export class Waiters {
  readonly #rounds = new Subject<void>();

  /** Calls `test` now and after each round until it answers; undefined when the signal or the core's end comes first. */
  async until<T>(test: () => T | undefined, signal?: AbortSignal): Promise<T | undefined> {
    const now = test();
    if (now !== undefined || signal?.aborted) return now;
    const given = signal === undefined ? NEVER : fromEvent(signal, 'abort');
    const answers = this.#rounds.pipe(
      map(test),
      skipWhile((answer) => answer === undefined),
    );
    return await firstValueFrom(answers.pipe(takeUntil(given)), { defaultValue: undefined });
  }

  /** A round has ended. */
  look(): void {
    this.#rounds.next();
  }

  /** No round will come any more. */
  close(): void {
    this.#rounds.complete();
  }
}
