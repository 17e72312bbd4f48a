/**
 * 100,000 prefixes into a longest-prefix trie of the kernel: through the reconciler and libbpf-ts, and by the bare system calls with
 * everything prepared, which is what the kernel can do. Both send 1,000 entries a call, in the same order, into an empty map.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createReconciler } from '@weir/reconciler';
import { createStateDB, keys } from '@weir/statedb';
import { type BpfMap, createMap, mapFlags } from 'libbpf-ts';
import { cmd } from '../../shared/libbpf/constants.ts';
import { Attr } from '../../shared/libbpf/syscall.ts';
import { collect, type Measured, median, RUNS } from './statedb-measure.ts';
import { expectRows } from './statedb-tables.ts';

const ROWS = 100_000;
const BATCH = 1000;
const BYTES = 8;
const WARM_UPS = 5;

/** As the map takes them: prefix length and address, identity. */
interface Entry {
  readonly id: number;
  readonly key: Uint8Array;
  readonly value: Uint8Array;
}

/** Distinct addresses of 10.0.0.0/8, scattered (an odd factor permutes the numbers below 2^24), as /32. */
function entries(): readonly Entry[] {
  return Array.from({ length: ROWS }, (_, id) => {
    const key = new Uint8Array(BYTES);
    const view = new DataView(key.buffer);
    view.setUint32(0, 32, true);
    view.setUint32(4, 0x0a000000 + (Math.imul(id, 0x9e3779) & 0xffffff));
    const value = new Uint8Array(BYTES);
    new DataView(value.buffer).setUint32(0, 256 + (id % 1000), true);
    return { id, key, value };
  });
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

function expectHeld(map: BpfMap, all: readonly Entry[]): void {
  for (let at = 0; at < ROWS; at += 97) {
    const { key, value } = all[at] as Entry;
    if (Buffer.compare(map.lookup(key) ?? Buffer.alloc(0), value) !== 0)
      throw new Error(`prefix ${at} is not in the trie`);
  }
}

/** Milliseconds of the bare calls. */
function bare(all: readonly Entry[]): number {
  using map = emptyMap();
  const calls: Attr[] = [];
  for (let first = 0; first < ROWS; first += BATCH) {
    const part = all.slice(first, first + BATCH);
    const keyBytes = Buffer.concat(part.map(({ key }) => key));
    const valueBytes = Buffer.concat(part.map(({ value }) => value));
    calls.push(new Attr().pointer(16, keyBytes).pointer(24, valueBytes).u32(32, BATCH).u32(36, map.fd));
  }
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
    for (const { id, key, value } of all) txn.upsert(table, { id, key, value });
  });
  const reconciler = createReconciler<Entry>({
    name: 'bench',
    db,
    table,
    batchSize: BATCH,
    operations: {
      update: ({ key, value }) => map.update(key, value),
      delete: ({ key }) => {
        map.delete(key);
      },
      updateBatch: (batch) => map.updateBatch(batch.map(({ row }) => [row.key, row.value])),
    },
  });
  const began = performance.now();
  reconciler.start();
  const { failing } = await reconciler.waitUntil(ROWS);
  const took = performance.now() - began;
  await reconciler.stop();
  expectRows('failing', failing.length, 0);
  expectHeld(map, all);
  return took;
}

/** The kernel frees a closed map in the background: that work is not to fall into the next run. */
const SETTLE_MS = 500;

export async function* kernelTrie(): AsyncGenerator<Measured> {
  const all = entries();
  for (let warmUp = 0; warmUp < WARM_UPS; warmUp++) {
    bare(all);
    await reconciled(all);
  }
  const limits: number[] = [];
  const figures: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    await sleep(SETTLE_MS);
    await collect();
    limits.push(bare(all));
    await sleep(SETTLE_MS);
    await collect();
    figures.push(await reconciled(all));
  }
  yield { case: 'kernel-bare', value: (median(limits) * 1e6) / ROWS, unit: 'ns/row' };
  yield { case: 'kernel-reconciled', value: (median(figures) * 1e6) / ROWS, unit: 'ns/row' };
}
