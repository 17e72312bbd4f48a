import { constants } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { BpfError } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';
import { RingConsumer } from './ring.ts';
import { ACKED, type RingBatch, type RingWorkerData, STOP } from './ring-protocol.ts';

/**
 * The thread of a RingBufferReader: waits for records, copies them into batches, and posts them. It never has more than
 * `maxOutstanding` batches unhandled: then it waits, the ring fills, and programs see (and count) that there is no room.
 */

const POLLIN = 1;
/** A wait in the kernel cannot be interrupted by the ending of the process: it is cut into pieces of this length. */
const WAIT_MS = 200;

function main(data: RingWorkerData): void {
  const port = parentPort;
  if (port === null) throw new Error('ring-worker runs as a worker thread of RingBufferReader only');
  const control = new Int32Array(data.control);
  const consumer = new RingConsumer(data.fd, data.size);
  let posted = 0;
  try {
    while (Atomics.load(control, STOP) === 0) {
      const acked = Atomics.load(control, ACKED);
      if (posted - acked >= data.maxOutstanding) {
        Atomics.wait(control, ACKED, acked, WAIT_MS);
        continue;
      }
      const batch = collect(consumer, data.batchRecords);
      if (batch === undefined) {
        waitForRecords(data.fd, data.wakeFd);
        continue;
      }
      posted += 1;
      port.postMessage(batch, [batch.bytes]);
    }
  } finally {
    consumer.close();
  }
}

/** Up to `limit` records one after another, each behind its length as a u32; undefined when there are none. */
function collect(consumer: RingConsumer, limit: number): RingBatch | undefined {
  const records: Uint8Array[] = [];
  let size = 0;
  consumer.drain((record) => {
    records.push(record);
    size += 4 + record.length;
  }, limit);
  if (records.length === 0) return undefined;
  const bytes = new Uint8Array(size);
  const lengths = new DataView(bytes.buffer);
  let at = 0;
  for (const record of records) {
    lengths.setUint32(at, record.length, true);
    bytes.set(record, at + 4);
    at += 4 + record.length;
  }
  return { bytes: bytes.buffer, counts: consumer.counts };
}

function waitForRecords(fd: number, wakeFd: number): void {
  const fds = Buffer.alloc(16);
  fds.writeInt32LE(fd, 0);
  fds.writeInt16LE(POLLIN, 4);
  fds.writeInt32LE(wakeFd, 8);
  fds.writeInt16LE(POLLIN, 12);
  const ready = Number(libcFunction('int poll(void *fds, unsigned long count, int timeout)')(fds, 2, WAIT_MS));
  if (ready < 0 && lastErrno() !== constants.errno.EINTR) {
    throw new BpfError({ operation: 'wait for records of a ring buffer', errno: lastErrno() });
  }
}

main(workerData as RingWorkerData);
