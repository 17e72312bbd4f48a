/** Numbers that name rule elements in drop events: unique in the cluster, and the same for the same element for ever. */
import { createHash } from 'node:crypto';
import { keys, type StateDB, type Table, type WriteTxn } from '@weir/statedb';

const LARGEST = 0x7fffffff;

interface Cookie {
  readonly cookie: number;
  readonly element: string;
}

const cookieKey = (cookie: number): string => keys.uint(cookie, 32);

export class CookieBook {
  readonly #cookies: Table<Cookie>;

  constructor(db: StateDB) {
    this.#cookies = db.table<Cookie>({ name: 'cookies', key: ({ cookie }) => cookieKey(cookie) });
  }

  get tables(): readonly Table<Cookie>[] {
    return [this.#cookies];
  }

  /** Keeps a number that an element has already. False: another element has it. */
  keep(txn: WriteTxn, cookie: number, element: string): boolean {
    if (!Number.isInteger(cookie) || cookie < 1 || cookie > LARGEST) return false;
    const owner = txn.get(this.#cookies, cookieKey(cookie));
    if (owner === undefined) txn.insert(this.#cookies, { cookie, element });
    return owner === undefined || owner.element === element;
  }

  /** The hash of the element's name, or the next free number after it. */
  give(txn: WriteTxn, element: string): number {
    let cookie = (createHash('sha256').update(element).digest().readUInt32BE(0) % LARGEST) + 1;
    while (!this.keep(txn, cookie, element)) cookie = cookie === LARGEST ? 1 : cookie + 1;
    return cookie;
  }

  release(txn: WriteTxn, cookie: number, element: string): void {
    const key = cookieKey(cookie);
    if (txn.get(this.#cookies, key)?.element === element) txn.delete(this.#cookies, key);
  }
}

/** Name of an element: its policy's uid and its path. */
export function elementName(uid: string, path: string, direction: string, verdict: string): string {
  return `${uid} ${path} ${direction} ${verdict}`;
}
