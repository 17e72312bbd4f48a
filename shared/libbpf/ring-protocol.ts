import type { RingCounts } from './ring.ts';

/** What a RingBufferReader and its thread tell each other. */

/** Indexes into the shared control words. */
export const STOP = 0;
export const ACKED = 1;

export interface RingWorkerData {
  readonly fd: number;
  /** Readable when the thread should look at its control words. */
  readonly wakeFd: number;
  readonly size: number;
  readonly control: SharedArrayBuffer;
  readonly batchRecords: number;
  readonly maxOutstanding: number;
}

export interface RingBatch {
  /** Records one after another, each behind its length as a little-endian u32. */
  readonly bytes: ArrayBuffer;
  readonly counts: RingCounts;
}

export function* recordsOf(batch: RingBatch): Generator<Uint8Array> {
  const lengths = new DataView(batch.bytes);
  for (let at = 0; at < batch.bytes.byteLength; ) {
    const length = lengths.getUint32(at, true);
    yield new Uint8Array(batch.bytes, at + 4, length);
    at += 4 + length;
  }
}
