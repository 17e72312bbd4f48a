import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Which writing of a state file belongs to what the kernel enforces: an empty folder `state/FILE/STAMP` beside the pins, and the same stamp
 * in the file. A file that was put back from a backup or a snapshot of the disk has another one; it tells of endpoints, addresses and
 * numbers that have changed since. Pins outlive agents and no boot: after one there is no stamp, nothing is enforced, and any file will do.
 *
 * Never throws: where no folder can be made there are no pins either, and the audit says so.
 */
export class StateStamps {
  readonly #folder: string;

  constructor(root: string, file: string) {
    this.#folder = join(root, 'state', file);
  }

  /** What the file is to hold has changed. Returns the stamp of the writing to come; until `settle` the file before counts, too. */
  begin(): string {
    const stamp = randomBytes(8).toString('hex');
    this.#make(stamp);
    return stamp;
  }

  /**
   * The writing with this stamp has ended. From now on only its file counts, even if it failed: every earlier file is out of date. `begun`:
   * the stamp of the next writing, if one has begun.
   */
  settle(stamp: string, begun: string | undefined): void {
    for (const other of this.#names()) {
      if (other === stamp || other === begun) continue;
      try {
        rmdirSync(join(this.#folder, other));
      } catch {
        // See above.
      }
    }
  }

  /** Whether a file with this stamp may be the last that was written. Where there is no stamp yet, it is from now on. */
  accepts(stamp: string | undefined): boolean {
    const names = this.#names();
    if (names.length === 0 && stamp !== undefined) this.#make(stamp);
    return names.length === 0 || (stamp !== undefined && names.includes(stamp));
  }

  #make(stamp: string): void {
    try {
      mkdirSync(join(this.#folder, stamp), { recursive: true, mode: 0o700 });
    } catch {
      // See above.
    }
  }

  #names(): string[] {
    try {
      return readdirSync(this.#folder);
    } catch {
      return [];
    }
  }
}
