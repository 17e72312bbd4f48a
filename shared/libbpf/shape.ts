import { constants } from 'node:os';
import { percpuStride, possibleCpus } from './cpus.ts';
import { BpfError, BufferLengthError, ENOTSUPP } from './errors.ts';
import type { MapInfo } from './types.ts';

/** What a map's type says about its buffers and operations: shared by the kernel's maps and the in-memory ones. */
export class MapShape {
  readonly info: MapInfo;
  readonly keySize: number;
  /** Bytes of a value as lookup and update see it: one copy a possible CPU in per-CPU maps. */
  readonly valueBytes: number;
  readonly isMapInMap: boolean;
  readonly isPercpu: boolean;

  constructor(info: MapInfo) {
    this.info = info;
    this.keySize = info.keySize;
    this.isPercpu = info.type === 'percpu_hash' || info.type === 'percpu_array';
    this.isMapInMap = info.type === 'array_of_maps' || info.type === 'hash_of_maps';
    this.valueBytes = this.isPercpu ? percpuStride(info.valueSize) * possibleCpus() : info.valueSize;
  }

  describe(): string {
    return `map "${this.info.name}" (${this.info.type})`;
  }

  checkKey(key: Uint8Array): void {
    if (key.length !== this.keySize) {
      throw new BufferLengthError(`a key of ${this.describe()}`, this.keySize, key.length);
    }
  }

  checkValue(value: Uint8Array): void {
    if (value.length !== this.valueBytes) {
      const each = this.isPercpu ? ` (${possibleCpus()} CPUs, ${percpuStride(this.info.valueSize)} bytes each)` : '';
      throw new BufferLengthError(`a value of ${this.describe()}${each}`, this.valueBytes, value.length);
    }
  }

  /** Ring buffers have no entries. */
  checkHasEntries(operation: string): void {
    if (this.info.type === 'ringbuf') {
      throw new BpfError({
        operation: `${operation} ${this.describe()}`,
        errno: ENOTSUPP,
        fix: 'a ring buffer has records, not entries: read it with RingBufferReader',
      });
    }
  }

  /** A raw update of a map in a map would take a descriptor number: `setInner` is the only way. */
  checkPlainUpdate(): void {
    this.checkHasEntries('update');
    if (this.isMapInMap) {
      throw new BpfError({
        operation: `update ${this.describe()}`,
        errno: constants.errno.EINVAL,
        fix: 'its values are maps: use setInner',
      });
    }
  }

  checkMapInMap(operation: string): void {
    if (!this.isMapInMap) {
      throw new BpfError({
        operation: `${operation} ${this.describe()}`,
        errno: constants.errno.EINVAL,
        fix: 'only array_of_maps and hash_of_maps hold maps',
      });
    }
  }
}
