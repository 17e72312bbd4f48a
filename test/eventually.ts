import { setTimeout as sleep } from 'node:timers/promises';

/** Asks until `check` holds, at most `seconds`; returns the last answer, so that an expectation can show it. */
export async function eventually<T>(get: () => Promise<T>, check: (value: T) => boolean, seconds = 60): Promise<T> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await get();
    if (check(value) || Date.now() > end) return value;
    await sleep(50);
  }
}
