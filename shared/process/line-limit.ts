/**
 * A limit for log lines that others cause as often as they like.
 *
 * Guarantees: of each key, `most` lines are admitted in a window of `perMs`, which begins with the first of them. What was left out is told with
 * its number when the window ends, and by `stop`. A key without lines costs nothing once its window has ended.
 */
export interface LineLimitOptions {
  /** Lines of one key in a window. Default 10. */
  readonly most?: number;
  /** Milliseconds. Default 60000. */
  readonly perMs?: number;
  /** At most once a window for each key. `lines`: at least 1. */
  readonly onLeftOut: (key: string, lines: number) => void;
}

interface Window {
  admitted: number;
  leftOut: number;
  readonly end: NodeJS.Timeout;
}

export class LineLimit {
  readonly #most: number;
  readonly #perMs: number;
  readonly #onLeftOut: LineLimitOptions['onLeftOut'];
  readonly #windows = new Map<string, Window>();

  constructor({ most = 10, perMs = 60_000, onLeftOut }: LineLimitOptions) {
    this.#most = most;
    this.#perMs = perMs;
    this.#onLeftOut = onLeftOut;
  }

  /** Whether a line of this key may be written now; else it is counted. */
  admits(key: string): boolean {
    let window = this.#windows.get(key);
    if (window === undefined) {
      window = { admitted: 0, leftOut: 0, end: setTimeout(() => this.#end(key), this.#perMs).unref() };
      this.#windows.set(key, window);
    }
    if (window.admitted < this.#most) {
      window.admitted += 1;
      return true;
    }
    window.leftOut += 1;
    return false;
  }

  /** Ends all windows. */
  stop(): void {
    for (const key of [...this.#windows.keys()]) this.#end(key);
  }

  #end(key: string): void {
    const window = this.#windows.get(key);
    if (window === undefined) return;
    clearTimeout(window.end);
    this.#windows.delete(key);
    if (window.leftOut > 0) this.#onLeftOut(key, window.leftOut);
  }
}
