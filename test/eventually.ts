import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

/** Asks until `check` holds, and returns that answer. @throws when none holds within `seconds`, with the last one */
export async function eventually<T>(get: () => Promise<T>, check: (value: T) => boolean, seconds = 60): Promise<T> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await get();
    if (check(value)) return value;
    if (Date.now() > end) throw new Error(`still so after ${seconds} s: ${inspect(value, { depth: 4 })}`);
    await sleep(50);
  }
}
