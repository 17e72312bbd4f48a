import { percpuStride } from './cpus.ts';
import { BufferLengthError } from './errors.ts';

/** Helpers for the values of per-CPU maps: all CPUs' copies one after another, each padded to 8 bytes. */
export const percpu = { split, join, sumU64 };

function checkTotal(value: Uint8Array, valueSize: number): number {
  const stride = percpuStride(valueSize);
  if (value.length === 0 || value.length % stride !== 0) {
    throw new BufferLengthError(
      `a per-CPU value of ${valueSize} bytes a CPU`,
      Math.max(1, Math.ceil(value.length / stride)) * stride,
      value.length,
    );
  }
  return stride;
}

/** Each CPU's copy, `valueSize` bytes long, as views into `value`. */
function split(value: Uint8Array, valueSize: number): Uint8Array[] {
  const stride = checkTotal(value, valueSize);
  const copies: Uint8Array[] = [];
  for (let at = 0; at < value.length; at += stride) copies.push(value.subarray(at, at + valueSize));
  return copies;
}

/** The value that gives each CPU its copy. */
function join(copies: readonly Uint8Array[], valueSize: number): Uint8Array {
  const stride = percpuStride(valueSize);
  const value = new Uint8Array(stride * copies.length);
  copies.forEach((copy, cpu) => {
    if (copy.length !== valueSize) throw new BufferLengthError(`the copy of CPU ${cpu}`, valueSize, copy.length);
    value.set(copy, cpu * stride);
  });
  return value;
}

/** Sums over CPUs of a value that is an array of u64 counters. Sums wrap at 2^64 as the kernel's do. */
function sumU64(value: Uint8Array, valueSize: number): bigint[] {
  if (valueSize % 8 !== 0) throw new BufferLengthError('a per-CPU array of u64', (valueSize + 7) & ~7, valueSize);
  const stride = checkTotal(value, valueSize);
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  const sums: bigint[] = [];
  for (let field = 0; field < valueSize; field += 8) {
    let sum = 0n;
    for (let at = field; at < value.length; at += stride) sum += view.getBigUint64(at, true);
    sums.push(BigInt.asUintN(64, sum));
  }
  return sums;
}
