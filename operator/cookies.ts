/** Numbers that name rule elements in drop events: unique in the cluster, and the same for the same element for ever. */
import { createHash } from 'node:crypto';

const LARGEST = 0x7fffffff;

export class CookieBook {
  readonly #owners = new Map<number, string>();

  /** Keeps a number that an element has already. False: another element has it. */
  keep(cookie: number, element: string): boolean {
    if (!Number.isInteger(cookie) || cookie < 1 || cookie > LARGEST) return false;
    const owner = this.#owners.get(cookie);
    if (owner !== undefined) return owner === element;
    this.#owners.set(cookie, element);
    return true;
  }

  /** The hash of the element's name, or the next free number after it. */
  give(element: string): number {
    let cookie = (createHash('sha256').update(element).digest().readUInt32BE(0) % LARGEST) + 1;
    while (!this.keep(cookie, element)) cookie = cookie === LARGEST ? 1 : cookie + 1;
    return cookie;
  }

  release(cookie: number, element: string): void {
    if (this.#owners.get(cookie) === element) this.#owners.delete(cookie);
  }
}

/** Name of an element: its policy's uid and its path. */
export function elementName(uid: string, path: string, direction: string, verdict: string): string {
  return `${uid} ${path} ${direction} ${verdict}`;
}
