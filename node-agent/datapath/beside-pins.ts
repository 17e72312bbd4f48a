import type { RootLock } from './lock.ts';
import type { NetnsMark } from './netns-mark.ts';
import type { PinnedDatapath } from './pins.ts';

/** What is in the folder of the pins beside them: of which network namespace they are, and the lock of who may write them. It is looked after as pins are. */
export class BesidePins implements Pick<PinnedDatapath, 'unpinned' | 'repin'> {
  readonly #lock: RootLock;
  readonly #netns: NetnsMark;

  constructor(lock: RootLock, netns: NetnsMark) {
    this.#lock = lock;
    this.#netns = netns;
  }

  unpinned(): string[] {
    return [...(this.#netns.kept ? [] : ['netns']), ...(this.#lock.lost ? ['its lock'] : [])];
  }

  repin(): void {
    this.#netns.keep();
    if (this.#lock.lost) this.#lock.acquire();
  }
}
