import { mapFlags } from './constants.ts';
import { ArgumentError, BpfError } from './errors.ts';
import { lastErrno, libcFunction, memoryView } from './native.ts';
import type { BpfMap } from './types.ts';

const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_SHARED = 1;
/** Addresses of user space are below this; MAP_FAILED is far above. */
const USER_SPACE_END = 2 ** 52;

const MMAP = 'uintptr_t mmap(void *address, size_t length, int protection, int flags, int fd, long offset)';
const MUNMAP = 'int munmap(uintptr_t address, size_t length)';

/** An array map's elements as memory of this process: what is stored here, programs see at once, and the other way round. */
export interface MappedArray extends Disposable {
  /** All elements in order, `stride` bytes each, from an address aligned to a page. Empty once closed. */
  readonly bytes: Uint8Array;
  /** Bytes from one element to the next: the value size rounded up to 8. */
  readonly stride: number;
  /**
   * Unmaps. Every view of the memory, also those made by others, is detached first: it has length 0, `Atomics` on it
   * throw, plain reads give undefined and plain writes do nothing.
   */
  close(): void;
}

/**
 * Maps an array's elements for reading and writing. The mapping does not need the map's descriptor afterwards. Use
 * `Atomics` on a BigUint64Array or Uint32Array for stores that programs must see whole; the system calls of the map copy
 * bytes without that guarantee.
 * @throws ArgumentError when the map is not an array made with mapFlags.MMAPABLE
 * @throws BpfError EPERM when the map was frozen, ENOMEM
 */
export function mapArray(map: BpfMap): MappedArray {
  const { name, type, flags, valueSize, maxEntries } = map.info;
  if (type !== 'array' || (flags & mapFlags.MMAPABLE) === 0) {
    const what = type === 'array' ? 'an array without mapFlags.MMAPABLE' : `of type ${type}`;
    throw new ArgumentError(
      `map "${name}" is ${what}: only an array that was made with mapFlags.MMAPABLE can be mapped into memory`,
    );
  }
  const stride = (valueSize + 7) & ~7;
  const length = stride * maxEntries;
  const address = Number(libcFunction(MMAP)(null, length, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, 0));
  if (address >= USER_SPACE_END) {
    throw new BpfError({ operation: `map ${length} bytes of array "${name}" into memory`, errno: lastErrno() });
  }
  const memory = memoryView(BigInt(address), length);
  const bytes = new Uint8Array(memory);
  const close = (): void => {
    if (memory.detached) return;
    // A view that outlived the mapping would crash the process.
    memory.transfer(0);
    if (Number(libcFunction(MUNMAP)(address, length)) === 0) return;
    throw new BpfError({ operation: `unmap ${length} bytes of array "${name}"`, errno: lastErrno() });
  };
  return { bytes, stride, close, [Symbol.dispose]: close };
}
