/**
 * A table's committed entries in the order of their revisions: what streams read. A replaced row's entry leaves the order,
 * so each key is in it at most once; a deleted row's marker is in it while a stream has still to pass it.
 */
import { Entry, goAway, isGone, Marker } from './entry.ts';
import type { Key, Revision } from './types.ts';

/** A stream's place. Places are kept in the order of their revisions. */
export class Place<T> {
  readonly name: string;
  /** Everything up to and including this revision has been handed out. */
  revision: Revision;
  /** The last entry handed out; it may have left the order since. */
  entry: Entry<T>;
  before: Place<T> | undefined = undefined;
  after: Place<T> | undefined = undefined;

  constructor(name: string, revision: Revision, entry: Entry<T>) {
    this.name = name;
    this.revision = revision;
    this.entry = entry;
  }
}

export class History<T> {
  /** Deletes up to this revision may have no marker any more. */
  forgotten: Revision = 0;
  readonly #start = new Entry<T>('', undefined as T, 0);
  #last: Entry<T> = this.#start;
  readonly #markers = new Map<Key, Marker<T>>();
  #firstPlace: Place<T> | undefined;
  #lastPlace: Place<T> | undefined;
  #places = 0;

  get markers(): number {
    return this.#markers.size;
  }

  get streams(): number {
    return this.#places;
  }

  *places(): Generator<Place<T>> {
    for (let place = this.#firstPlace; place !== undefined; place = place.after) yield place;
  }

  /** Takes in a committed entry, whose revision is larger than all before it, in place of the one it replaces. */
  commit(entry: Entry<T>): void {
    const replaced = entry.before;
    if (replaced !== undefined) this.#leave(replaced);
    else if (this.#markers.size > 0) this.#forget(entry.key);
    if (entry instanceof Marker) {
      if (this.#places === 0) {
        this.forgotten = entry.revision;
        goAway(entry);
        return;
      }
      this.#markers.set(entry.key, entry);
    }
    entry.before = this.#last;
    this.#last.after = entry;
    this.#last = entry;
  }

  /** The entry after `entry`, or after where it was. */
  after(entry: Entry<T>): Entry<T> | undefined {
    let from = entry;
    while (isGone(from)) from = from.before ?? this.#start;
    return from.after;
  }

  /** A stream's place after `revision`. */
  open(name: string, revision: Revision): Place<T> {
    let entry = revision === 0 ? this.#start : this.#last;
    while (entry.revision > revision) entry = entry.before ?? this.#start;
    const place = new Place(name, revision, entry);
    this.#insert(place, this.#firstPlace);
    this.#places++;
    return place;
  }

  close(place: Place<T>): void {
    this.#take(place);
    this.#places--;
    this.forgetMarkers();
  }

  /** Moves a place forward, or back again. */
  move(place: Place<T>, revision: Revision, entry: Entry<T>): void {
    const forward = revision >= place.revision;
    const { after } = place;
    this.#take(place);
    place.revision = revision;
    place.entry = entry;
    this.#insert(place, forward ? after : this.#firstPlace);
  }

  /** Drops the markers that every stream has passed. */
  forgetMarkers(): void {
    const passed = this.#firstPlace?.revision ?? Number.POSITIVE_INFINITY;
    for (const marker of this.#markers.values()) {
      if (marker.revision > passed) return;
      this.#forget(marker.key);
      this.forgotten = marker.revision;
    }
  }

  #forget(key: Key): void {
    const marker = this.#markers.get(key);
    if (marker === undefined) return;
    this.#markers.delete(key);
    this.#leave(marker);
  }

  #leave(entry: Entry<T>): void {
    const { before, after } = entry;
    if (before !== undefined) before.after = after;
    if (after === undefined) this.#last = before ?? this.#start;
    else after.before = before;
    goAway(entry);
  }

  #take(place: Place<T>): void {
    const { before, after } = place;
    if (before === undefined) this.#firstPlace = after;
    else before.after = after;
    if (after === undefined) this.#lastPlace = before;
    else after.before = before;
  }

  /** Puts a place in its order; those before `from` have no larger revision. */
  #insert(place: Place<T>, from: Place<T> | undefined): void {
    let after = from;
    if (this.#lastPlace !== undefined && this.#lastPlace.revision <= place.revision) after = undefined;
    else while (after !== undefined && after.revision <= place.revision) after = after.after;
    const before = after === undefined ? this.#lastPlace : after.before;
    place.before = before;
    place.after = after;
    if (before === undefined) this.#firstPlace = place;
    else before.after = place;
    if (after === undefined) this.#lastPlace = place;
    else after.before = place;
  }
}
