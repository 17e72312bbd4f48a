/** Puts back into the kernel what others took away or changed. */
import { messageOf } from '@weir/process/errors';
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { Pace } from '../derive/contract.ts';
import type { IpcacheRow } from '../tables.ts';
import type { Clock } from './clock.ts';
import { type Fault, UNSEEN } from './faults.ts';
import type { KernelStores } from './kernel-stores.ts';
import type { PinnedDatapath } from './pins.ts';

/** Addresses that are put back at once: about a millisecond. */
const BATCH = 256;

/** Addresses together, as many as BATCH; others each by itself. */
function* batches(faults: readonly Fault[]): Generator<readonly Fault[]> {
  const together = ({ part, of }: Fault): boolean => part === 'address' && of !== UNSEEN;
  for (const fault of faults) if (!together(fault)) yield [fault];
  const addresses = faults.filter(together);
  for (let from = 0; from < addresses.length; from += BATCH) yield addresses.slice(from, from + BATCH);
}

export interface MenderOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache'>;
  readonly kernel: Pick<KernelStores, 'slots' | 'ipcache' | 'endpoints'>;
  readonly clock: Pick<Clock, 'now' | 'yieldNow'>;
  readonly pinned: Pick<PinnedDatapath, 'repin'>;
  /** The kernel refuses it; returns the fault with its error. */
  readonly refused: (fault: Fault, error: string) => Fault;
}

export class Mender {
  readonly #options: MenderOptions;
  readonly #pace: Pace;

  constructor(options: MenderOptions) {
    this.#options = options;
    this.#pace = new Pace(options.clock.now, options.clock.yieldNow);
  }

  /** Puts them back, with breaks; returns those that are left. */
  async mend(faults: readonly Fault[]): Promise<Fault[]> {
    const pace = this.#pace;
    const left: Fault[] = [];
    pace.restart();
    for (const batch of batches(faults)) {
      left.push(...(await this.#mendBatch(batch)));
      if (pace.due()) await pace.yieldNow();
    }
    return left;
  }

  async #mendBatch(batch: readonly Fault[]): Promise<Fault[]> {
    const [fault, ...more] = batch;
    if (fault === undefined) return [];
    const { part, of } = fault;
    // Whether it is as it should be is not known before it can be looked at again.
    if (of === UNSEEN && part !== 'pins') return [...batch];
    try {
      await this.#putBack(batch);
    } catch (error) {
      if (more.length > 0) {
        // Each by itself, to tell those that are refused.
        const left: Fault[] = [];
        for (const each of batch) left.push(...(await this.#mendBatch([each])));
        return left;
      }
      return [this.#options.refused(fault, messageOf(error))];
    }
    return [];
  }

  async #putBack(batch: readonly Fault[]): Promise<void> {
    const { db, tables, kernel, pinned } = this.#options;
    const { endpoints, slots, ipcache } = kernel;
    const addresses: IpcacheRow[] = [];
    using snapshot = db.read();
    for (const { part, of } of batch) {
      if (part === 'pins') pinned.repin();
      else if (part === 'endpoint') endpoints.mend(Number(of));
      else if (part === 'slot') await slots.mend(Number(of));
      else {
        const row = snapshot.get(tables.ipcache, of);
        if (row !== undefined) addresses.push(row);
      }
    }
    if (addresses.length > 0) ipcache.updateAll(addresses);
  }
}
