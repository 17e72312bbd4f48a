import type { RootLock } from './lock.ts';
import type { Mark } from './mark-folder.ts';
import type { PinnedDatapath } from './pins.ts';

/** What is in the folder of the pins beside them: marks, and the lock of who may write them. It is looked after as pins are. */
export class BesidePins implements Pick<PinnedDatapath, 'unpinned' | 'repin'> {
  readonly #lock: RootLock;
  readonly #marks: readonly Mark[];

  constructor(lock: RootLock, marks: readonly Mark[]) {
    this.#lock = lock;
    this.#marks = marks;
  }

  unpinned(): string[] {
    const marks = this.#marks.filter(({ kept }) => !kept).map(({ name }) => name);
    return this.#lock.lost ? [...marks, 'its lock'] : marks;
  }

  repin(): void {
    for (const mark of this.#marks) mark.keep();
    if (this.#lock.lost) this.#lock.acquire();
  }
}
