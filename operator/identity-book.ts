/** Which label set has which number, and which numbers are unused since when. */
import { CLUSTER_FIRST, CLUSTER_LAST, IdentityAllocator } from '@weir/identity';
import { type LabelMap, labelsKey } from '@weir/labels';

interface Entry {
  readonly id: number;
  readonly labels: LabelMap;
  readonly key: string;
  users: number;
  /** Milliseconds; meaningful while `users` is 0. */
  unusedSince: number;
}

export class IdentityBook {
  readonly #allocator = new IdentityAllocator({ first: CLUSTER_FIRST, last: CLUSTER_LAST });
  readonly #byId = new Map<number, Entry>();
  /** The numbers of each label set, ascending: the lowest wins. */
  readonly #byKey = new Map<string, Entry[]>();

  /** Takes over an identity that exists already. A number outside of the cluster's range, or a known one, is ignored. */
  adopt(id: number, labels: LabelMap, now: number): boolean {
    if (!Number.isInteger(id) || id < CLUSTER_FIRST || id > CLUSTER_LAST || this.#byId.has(id)) return false;
    const key = labelsKey(labels);
    const entry: Entry = { id, labels, key, users: 0, unusedSince: now };
    this.#allocator.adopt(id);
    this.#byId.set(id, entry);
    const same = this.#byKey.get(key);
    if (same === undefined) this.#byKey.set(key, [entry]);
    else same.splice(same.filter((other) => other.id < id).length, 0, entry);
    return true;
  }

  /**
   * The number of a label set, allocated when it has none; counts one more user.
   * Throws IdentityExhaustedError when no number is left.
   */
  use(labels: LabelMap): { readonly id: number; readonly allocated: boolean } {
    const key = labelsKey(labels);
    const known = this.#byKey.get(key)?.[0];
    if (known !== undefined) {
      known.users += 1;
      return { id: known.id, allocated: false };
    }
    const id = this.#allocator.allocate();
    const entry: Entry = { id, labels, key, users: 1, unusedSince: 0 };
    this.#byId.set(id, entry);
    this.#byKey.set(key, [entry]);
    return { id, allocated: true };
  }

  /** One user less. */
  release(id: number, now: number): void {
    const entry = this.#byId.get(id);
    if (entry === undefined || entry.users === 0) throw new RangeError(`identity ${id} is released but not in use`);
    entry.users -= 1;
    if (entry.users === 0) entry.unusedSince = now;
  }

  /** Forgets the identities that nobody has used for `graceMs`, and returns their numbers. */
  collect(now: number, graceMs: number): number[] {
    const gone: number[] = [];
    for (const entry of this.#byId.values()) {
      if (entry.users > 0 || now - entry.unusedSince < graceMs) continue;
      gone.push(entry.id);
    }
    for (const id of gone) this.#forget(id);
    return gone;
  }

  get size(): number {
    return this.#byId.size;
  }

  labels(id: number): LabelMap | undefined {
    return this.#byId.get(id)?.labels;
  }

  #forget(id: number): void {
    const entry = this.#byId.get(id);
    if (entry === undefined) return;
    this.#byId.delete(id);
    this.#allocator.release(id);
    const left = (this.#byKey.get(entry.key) ?? []).filter((other) => other !== entry);
    if (left.length === 0) this.#byKey.delete(entry.key);
    else this.#byKey.set(entry.key, left);
  }
}
