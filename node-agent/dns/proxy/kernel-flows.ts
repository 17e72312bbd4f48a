import { join } from 'node:path';
import { CT_KEYS, ctAge, ctValue, DIRECTION, listenerOf, PROTOCOL } from '@weir/bpf';
import { formatAddress, parseAddress } from '@weir/net';
import type { StateDB } from '@weir/statedb';
import type { Flows, FlowVerdict, Transport } from './contract.ts';
import { PinnedMap } from './pinned-map.ts';
import type { Flow } from './sockets.ts';
import type { NameRow, ProxyTables } from './tables.ts';

const STEP = 512;

/** The connection tables: which listener the kernel gave a flow, and which addresses have connections. */
export class KernelFlows implements Flows {
  readonly #db: StateDB;
  readonly #tables: ProxyTables;
  readonly #maps: Readonly<Record<4 | 6, PinnedMap>>;

  constructor(db: StateDB, tables: ProxyTables, bpfRoot: string) {
    this.#db = db;
    this.#tables = tables;
    this.#maps = {
      4: new PinnedMap(join(bpfRoot, 'ct4'), { keySize: CT_KEYS.ct4.size, valueSize: ctValue.size }),
      6: new PinnedMap(join(bpfRoot, 'ct6'), { keySize: CT_KEYS.ct6.size, valueSize: ctValue.size }),
    };
  }

  flowOf(transport: Transport, { source, destination }: Flow): FlowVerdict | undefined {
    const map = this.#maps[source.family].get();
    if (map === undefined) return undefined;
    using snapshot = this.#db.read();
    // An address may be said of two while one takes it over from the other: the kernel knows whose flow it is.
    for (const { endpoint } of snapshot.list(this.#tables.endpoints, 'address', formatAddress(source.address))) {
      const key = CT_KEYS[source.family === 4 ? 'ct4' : 'ct6'].encode({
        src: source.address,
        dst: destination.address,
        sport: source.port,
        dport: destination.port,
        endpoint,
        protocol: PROTOCOL[transport],
        direction: DIRECTION.egress,
      });
      const bytes = map.lookup(key);
      if (bytes === undefined) continue;
      const value = ctValue.decode(bytes);
      const listener = listenerOf(value);
      if (!value.denied && listener !== 0) return { endpoint, listener };
    }
    return undefined;
  }

  /** Which of the names' endpoints have connections to their addresses. Reads the tables in steps. */
  async connected(names: readonly NameRow[]): Promise<ReadonlySet<NameRow>> {
    const wanted = new Map<string, NameRow[]>();
    for (const row of names) {
      const key = connectionKey(row.endpoint, parseAddress(row.address).bytes);
      const rows = wanted.get(key) ?? [];
      wanted.set(key, rows);
      rows.push(row);
    }
    const found = new Set<NameRow>();
    for (const family of [4, 6] as const) {
      let seen = 0;
      const now = process.hrtime.bigint();
      const codec = CT_KEYS[family === 4 ? 'ct4' : 'ct6'];
      for (const [bytes, value] of this.#maps[family].get()?.entries() ?? []) {
        seen += 1;
        if (seen % STEP === 0) await new Promise((resolve) => setImmediate(resolve));
        const key = codec.decode(bytes);
        const rows = key.direction === DIRECTION.egress ? wanted.get(connectionKey(key.endpoint, key.dst)) : undefined;
        if (rows === undefined || ctAge(key, ctValue.decode(value), now) !== 'live') continue;
        for (const row of rows) found.add(row);
      }
    }
    return found;
  }

  close(): void {
    this.#maps[4].close();
    this.#maps[6].close();
  }
}

function connectionKey(endpoint: number, address: Uint8Array): string {
  return `${endpoint} ${Buffer.from(address).toString('latin1')}`;
}
