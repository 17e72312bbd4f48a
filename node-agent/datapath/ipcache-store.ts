import { type IpcacheValue, identityIn, ipcacheKey, ipcacheValue } from '@weir/bpf';
import { addressBits, formatPrefix, parsePrefix } from '@weir/net';
import type { StateDB, Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import type { IpcacheRow } from '../tables.ts';

/** A prefix as the kernel had it at start. Key: `prefix`. */
interface FoundPrefix {
  readonly prefix: string;
  readonly value: Uint8Array;
}

const STEP = 1000;

/** Prefix -> identity in the kernel. While it is adopted, table `foundIpcache` has what was found and is not written yet. */
export class IpcacheStore {
  readonly #db: StateDB;
  readonly #found: Table<FoundPrefix>;
  readonly #map: BpfMap;

  constructor(db: StateDB, map: BpfMap) {
    this.#db = db;
    this.#found = db.table<FoundPrefix>({ name: 'foundIpcache', key: (row) => row.prefix });
    this.#map = map;
  }

  /** Elements whose key is no prefix, removed when this was adopted: in hexadecimal. */
  removed: readonly string[] = [];

  /**
   * Everything that is there, in steps. An element whose key is no prefix is removed: no agent wrote it. One that was changing when an agent died is
   * what it is to all words, of these revisions, or else unknown to them.
   */
  async adopt(revisions: readonly number[], yieldNow: () => Promise<void>): Promise<[string, number][]> {
    const out: [string, number][] = [];
    const odd: string[] = [];
    const changed: [Uint8Array, Uint8Array][] = [];
    let step: FoundPrefix[] = [];
    const keep = (): void =>
      this.#db.write([this.#found], (txn) => {
        for (const row of step) txn.upsert(this.#found, row);
      });
    for (const [keyBytes, value] of this.#map.entries()) {
      if (step.length === STEP) {
        keep();
        step = [];
        await yieldNow();
      }
      const prefix = nameOf(keyBytes);
      if (prefix.startsWith(ODD)) {
        odd.push(prefix);
        continue;
      }
      const there = ipcacheValue.decode(value);
      const identity = settledIn(there, revisions);
      const settled = there.before === there.identity ? value : ipcacheValue.encode({ identity, bits: there.bits });
      if (settled !== value) changed.push([keyBytes, settled]);
      step.push({ prefix, value: settled });
      out.push([prefix, identity]);
    }
    keep();
    if (changed.length > 0) this.#map.updateBatch(changed);
    for (const name of odd) this.delete(name);
    this.removed = odd;
    return out;
  }

  /** Idempotent. Rows that equal what was adopted are not written again. */
  updateAll(rows: readonly IpcacheRow[]): void {
    const entries = this.#db.write([this.#found], (txn) =>
      rows.flatMap((row): [Uint8Array, Uint8Array][] => {
        const value = elementOf(row);
        const found = txn.delete(this.#found, row.prefix)?.value;
        return found !== undefined && Buffer.compare(found, value) === 0 ? [] : [[keyOf(row.prefix), value]];
      }),
    );
    if (entries.length > 0) this.#map.updateBatch(entries);
  }

  /** Adoption is over: what was found at start is forgotten. */
  forget(): void {
    this.#db.write([this.#found], (txn) => txn.deleteAll(this.#found));
  }

  /** Whether the kernel answers as the row says. */
  holds(row: IpcacheRow): boolean {
    const value = this.#map.lookup(keyOf(row.prefix));
    return value !== undefined && Buffer.compare(value, elementOf(row)) === 0;
  }

  /** The identity that the kernel has for the prefix, or for what is around it. */
  identityOf(prefix: string): number | undefined {
    const value = this.#map.lookup(keyOf(prefix));
    return value === undefined ? undefined : ipcacheValue.decode(value).identity;
  }

  /**
   * What the kernel has; what changes while this is read may be missed, or be as it was. An element whose key is no prefix has a name that
   * no row has, by which it can be deleted.
   */
  *elements(): Generator<readonly [prefix: string, value: IpcacheValue]> {
    for (const [keyBytes, value] of this.#map.entries()) yield [nameOf(keyBytes), ipcacheValue.decode(value)];
  }

  /** Whether it was there. */
  delete(prefix: string): boolean {
    this.#db.write([this.#found], (txn) => txn.delete(this.#found, prefix));
    return this.#map.delete(prefix.startsWith(ODD) ? Buffer.from(prefix.slice(ODD.length), 'hex') : keyOf(prefix));
  }
}

/** What an element is to all words, of these revisions; 0 where it is not the same to all. */
function settledIn(element: IpcacheValue, revisions: readonly number[]): number {
  const [identity = element.identity, ...others] = new Set(revisions.map((revision) => identityIn(element, revision)));
  return others.length === 0 ? identity : 0;
}

function elementOf({ prefix, identity, before }: IpcacheRow): Uint8Array {
  const { bits } = parsePrefix(prefix);
  const other = before === undefined ? {} : { before: before.identity, since: before.since };
  return ipcacheValue.encode({ identity, bits, ...other });
}

function keyOf(prefix: string): Uint8Array {
  const { bytes, bits } = parsePrefix(prefix);
  return ipcacheKey.encode({ address: bytes, bits });
}

/** Begins the name of a key that is no prefix: of an unknown family, of no family at all, with bits beyond its length. */
const ODD = '0x';

function nameOf(keyBytes: Uint8Array): string {
  const { address, bits } = ipcacheKey.decode(keyBytes);
  const family = address.length === 4 ? 4 : 6;
  if (bits >= 0 && bits <= addressBits(family)) {
    const prefix = formatPrefix({ family, bytes: address, bits });
    if (Buffer.compare(keyOf(prefix), keyBytes) === 0) return prefix;
  }
  return `${ODD}${Buffer.from(keyBytes).toString('hex')}`;
}
