/**
 * The keys of a table in the order of their last change: one live entry for each row and each delete marker.
 *
 * Entries are kept in segments; a superseded entry is blanked in its segment, and a segment is squeezed when half of it
 * is blank, so the log stays within twice the table plus its markers and no commit pays for more than its own segments.
 */
import type { Key, Revision } from './types.ts';

const SEGMENT = 1024;

interface Segment {
  revisions: Revision[];
  keys: (Key | undefined)[];
  live: number;
}

export interface LogEntry {
  readonly revision: Revision;
  readonly key: Key;
}

export class RevisionLog {
  readonly #segments: Segment[] = [];

  /** Entries kept, blank ones included. */
  get length(): number {
    return this.#segments.reduce((sum, segment) => sum + segment.keys.length, 0);
  }

  /** Adds an entry; `revision` is larger than any before. */
  append(revision: Revision, key: Key): void {
    let segment = this.#segments.at(-1);
    if (segment === undefined || segment.keys.length >= SEGMENT) {
      segment = { revisions: [], keys: [], live: 0 };
      this.#segments.push(segment);
    }
    segment.revisions.push(revision);
    segment.keys.push(key);
    segment.live++;
  }

  /** Takes out the live entry of `revision`. */
  remove(revision: Revision): void {
    const at = this.#segmentOf(revision);
    const segment = this.#segments[at];
    if (segment === undefined) return;
    const i = firstAtLeast(segment.revisions, revision);
    if (segment.revisions[i] !== revision || segment.keys[i] === undefined) return;
    segment.keys[i] = undefined;
    segment.live--;
    if (segment.live === 0) this.#segments.splice(at, 1);
    else if (segment.live * 2 <= segment.keys.length) this.#squeeze(at, segment);
  }

  /** Live entries after `revision`, in order. The log must not change meanwhile. */
  *after(revision: Revision): Generator<LogEntry, undefined, undefined> {
    for (let at = this.#segmentOf(revision); at < this.#segments.length; at++) {
      const { revisions, keys } = this.#segments[at] as Segment;
      for (let i = firstAtLeast(revisions, revision + 1); i < keys.length; i++) {
        const key = keys[i];
        if (key !== undefined) yield { revision: revisions[i] as Revision, key };
      }
    }
    return undefined;
  }

  #squeeze(at: number, segment: Segment): void {
    const revisions: Revision[] = [];
    const keys: Key[] = [];
    const neighbour = this.#segments[at - 1];
    const merge = neighbour !== undefined && neighbour.live + segment.live <= SEGMENT / 2;
    for (const source of merge ? [neighbour, segment] : [segment]) {
      for (let i = 0; i < source.keys.length; i++) {
        const key = source.keys[i];
        if (key === undefined) continue;
        revisions.push(source.revisions[i] as Revision);
        keys.push(key);
      }
    }
    const squeezed = { revisions, keys, live: keys.length };
    if (merge) this.#segments.splice(at - 1, 2, squeezed);
    else this.#segments[at] = squeezed;
  }

  /** The last segment that begins at or before `revision`, or the first. */
  #segmentOf(revision: Revision): number {
    let low = 0;
    let high = this.#segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if ((this.#segments[middle]?.revisions[0] as Revision) <= revision) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

function firstAtLeast(revisions: readonly Revision[], revision: Revision): number {
  let low = 0;
  let high = revisions.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((revisions[middle] as Revision) < revision) low = middle + 1;
    else high = middle;
  }
  return low;
}
