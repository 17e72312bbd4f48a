/**
 * 100,000 prefixes into a longest-prefix trie of the kernel: through the reconciler and libbpf-ts, and by the bare system calls with
 * everything prepared, which is what the kernel can do. Both send 1,000 entries a call, in the same order, into an empty map.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type BatchItem, createReconciler } from '@weir/reconciler';
import { createStateDB, keys } from '@weir/statedb';
import { type BpfMap, createMap, type EncodeRow, mapFlags } from 'libbpf-ts';
import { cmd } from '../../shared/libbpf/constants.ts';
import { Attr } from '../../shared/libbpf/syscall.ts';
import { collect, type Measured, median, RUNS } from './statedb-measure.ts';
import { expectRows } from './statedb-tables.ts';

const ROWS = 100_000;
const BATCH = 1000;
const BYTES = 8;
const WARM_UPS = 5;

/** A row as an agent would hold it. */
interface Entry {
  readonly id: number;
  /** IPv4. */
  readonly address: number;
  readonly identity: number;
}

/** Distinct addresses of 10.0.0.0/8, scattered (an odd factor permutes the numbers below 2^24). */
function entries(): readonly Entry[] {
  return Array.from({ length: ROWS }, (_, id) => ({
    id,
    address: 0x0a000000 + (Math.imul(id, 0x9e3779) & 0xffffff),
    identity: 256 + (id % 1000),
  }));
}

/** As the map takes it: prefix length and address, identity. */
function encode({ address, identity }: Entry, keys: DataView, keyAt: number, values: DataView, valueAt: number): void {
  keys.setUint32(keyAt, 32, true);
  keys.setUint32(keyAt + 4, address);
  values.setUint32(valueAt, identity, true);
}

function emptyMap(): BpfMap {
  return createMap({
    name: 'weir_bench_lpm',
    type: 'lpm_trie',
    keySize: BYTES,
    valueSize: BYTES,
    maxEntries: ROWS,
    flags: mapFlags.NO_PREALLOC,
  });
}

const encodeItem: EncodeRow<BatchItem<Entry>> = ({ row }, keys, keyAt, values, valueAt) =>
  encode(row, keys, keyAt, values, valueAt);

/** Keys and values of rows, as the kernel takes a batch. */
function encoded(rows: readonly Entry[]): { readonly keys: Buffer; readonly values: Buffer } {
  const keys = Buffer.alloc(rows.length * BYTES);
  const values = Buffer.alloc(rows.length * BYTES);
  const views = [keys, values].map((buffer) => new DataView(buffer.buffer, buffer.byteOffset, buffer.length));
  const [keyView, valueView] = views as [DataView, DataView];
  for (const [at, row] of rows.entries()) encode(row, keyView, at * BYTES, valueView, at * BYTES);
  return { keys, values };
}

function expectHeld(map: BpfMap, all: readonly Entry[]): void {
  for (let at = 0; at < ROWS; at += 97) {
    const { keys: key, values: value } = encoded(all.slice(at, at + 1));
    if (Buffer.compare(map.lookup(key) ?? Buffer.alloc(0), value) !== 0)
      throw new Error(`prefix ${at} is not in the trie`);
  }
}

/** The kernel frees a closed map in the background, and V8 what was made to begin with: neither is to fall into what is measured. */
async function settle(): Promise<void> {
  await sleep(500);
  await collect();
}

/** Milliseconds of the bare calls. */
async function bare(all: readonly Entry[]): Promise<number> {
  using map = emptyMap();
  const calls: Attr[] = [];
  for (let first = 0; first < ROWS; first += BATCH) {
    const { keys: keyBytes, values: valueBytes } = encoded(all.slice(first, first + BATCH));
    calls.push(new Attr().pointer(16, keyBytes).pointer(24, valueBytes).u32(32, BATCH).u32(36, map.fd));
  }
  await settle();
  const began = performance.now();
  for (const call of calls) call.call(cmd.MAP_UPDATE_BATCH, 'update the trie');
  const took = performance.now() - began;
  expectHeld(map, all);
  return took;
}

/** Milliseconds from the reconciler's start until the kernel has every row of the table. */
async function reconciled(all: readonly Entry[]): Promise<number> {
  using map = emptyMap();
  const db = createStateDB();
  const table = db.table<Entry>({ name: 'prefixes', key: (row) => keys.uint(row.id) });
  db.write([table], (txn) => {
    for (const row of all) txn.upsert(table, { ...row });
  });
  const reconciler = createReconciler<Entry>({
    name: 'bench',
    db,
    table,
    batchSize: BATCH,
    operations: {
      update: (row) => map.updateRows([row], encode),
      delete: (row) => {
        map.delete(encoded([row]).keys);
      },
      updateBatch: (batch) => map.updateRows(batch, encodeItem),
    },
  });
  await settle();
  const began = performance.now();
  reconciler.start();
  const { failing } = await reconciler.waitUntil(ROWS);
  const took = performance.now() - began;
  await reconciler.stop();
  expectRows('failing', failing.length, 0);
  expectHeld(map, all);
  return took;
}

export async function* kernelTrie(): AsyncGenerator<Measured> {
  const all = entries();
  for (let warmUp = 0; warmUp < WARM_UPS; warmUp++) {
    await bare(all);
    await reconciled(all);
  }
  const limits: number[] = [];
  const figures: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    limits.push(await bare(all));
    figures.push(await reconciled(all));
  }
  yield { case: 'kernel-bare', value: (median(limits) * 1e6) / ROWS, unit: 'ns/row' };
  yield { case: 'kernel-reconciled', value: (median(figures) * 1e6) / ROWS, unit: 'ns/row' };
}
