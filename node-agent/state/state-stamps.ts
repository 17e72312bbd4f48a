import { newId } from '@weir/process/id';
import { type Mark, MarkFolder } from '../datapath/index.ts';

/**
 * Which writing of a state file belongs to what the kernel enforces: an empty folder `state/FILE/STAMP` beside the pins, and the same stamp
 * in the file. A file that was put back from a backup or a snapshot of the disk has another one; it tells of endpoints, addresses and
 * numbers that have changed since. Pins outlive agents and no boot: after one there is no stamp, nothing is enforced, and any file will do.
 *
 * Never throws: where no folder can be made there are no pins either, and the audit says so.
 */
export class StateStamps {
  readonly #folder: MarkFolder;

  constructor(root: string, file: string) {
    this.#folder = new MarkFolder(root, `state/${file}`);
  }

  /** What the file is to hold has changed. Returns the stamp of the writing to come; until `settle` the file before counts, too. */
  begin(): string {
    const stamp = newId();
    this.#set([...this.#names, stamp]);
    return stamp;
  }

  /**
   * The writing with this stamp has ended. From now on only its file counts, even if it failed: every earlier file is out of date. `begun`:
   * the stamp of the next writing, if one has begun.
   */
  settle(stamp: string, begun: string | undefined): void {
    this.#set(begun === undefined ? [stamp] : [stamp, begun]);
  }

  /** Whether a file with this stamp may be the last that was written. Where there is no stamp yet, it is from now on. */
  accepts(stamp: string | undefined): boolean {
    const names = this.#names;
    if (names.length === 0 && stamp !== undefined) this.#set([stamp]);
    return names.length === 0 || (stamp !== undefined && names.includes(stamp));
  }

  /** For the audit. */
  get mark(): Mark {
    return this.#folder;
  }

  get #names(): readonly string[] {
    try {
      return this.#folder.names;
    } catch {
      return [];
    }
  }

  #set(names: readonly string[]): void {
    try {
      this.#folder.set(names);
    } catch {
      // See above.
    }
  }
}
