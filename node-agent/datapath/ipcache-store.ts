import { ipcacheKey, ipcacheValue } from '@weir/bpf';
import { formatPrefix, parseAddress, parsePrefix } from '@weir/net';
import type { BpfMap } from 'libbpf-ts';
import type { IpcacheRow } from '../tables.ts';

/** Prefix -> identity in the kernel. */
export class IpcacheStore {
  readonly #map: BpfMap;
  readonly #known = new Map<string, Uint8Array>();

  constructor(map: BpfMap) {
    this.#map = map;
  }

  /** Everything that is there, in steps. */
  async adopt(breathe: () => Promise<void>): Promise<[string, number][]> {
    const out: [string, number][] = [];
    for (const [keyBytes, valueBytes] of this.#map.entries()) {
      if (out.length % 1000 === 999) await breathe();
      const { address, bits } = ipcacheKey.decode(keyBytes);
      const prefix = formatPrefix({ family: address.length === 4 ? 4 : 6, bytes: address, bits });
      this.#known.set(prefix, valueBytes);
      out.push([prefix, ipcacheValue.decode(valueBytes).identity]);
    }
    return out;
  }

  /** Idempotent. Rows that the kernel held alike when it was adopted are not written again. */
  updateAll(rows: readonly IpcacheRow[]): void {
    const entries: [Uint8Array, Uint8Array][] = [];
    for (const row of rows) {
      const node = row.node === undefined ? undefined : parseAddress(row.node);
      const value = ipcacheValue.encode({
        identity: row.identity,
        ...(node?.family === 4 ? { node: node.bytes } : {}),
      });
      const known = this.#known.get(row.prefix);
      this.#known.delete(row.prefix);
      if (known === undefined || Buffer.compare(known, value) !== 0) entries.push([keyOf(row.prefix), value]);
    }
    if (entries.length > 0) this.#map.updateBatch(entries);
  }

  /** Adoption is over: what the kernel held at start is no longer remembered. */
  forget(): void {
    this.#known.clear();
  }

  delete(prefix: string): void {
    this.#map.delete(keyOf(prefix));
  }
}

function keyOf(prefix: string): Uint8Array {
  const { bytes, bits } = parsePrefix(prefix);
  return ipcacheKey.encode({ address: bytes, bits });
}
