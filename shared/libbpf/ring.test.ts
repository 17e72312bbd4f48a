import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { createMap } from './map.ts';
import { loadObject } from './object.ts';
import { skbContext } from './program.ts';
import { RingBufferReader } from './ring-reader.ts';
import { buildProgram } from './test-kit.ts';
import type { BpfObject } from './types.ts';

let built: ReturnType<typeof buildProgram>;
beforeAll(() => {
  built = buildProgram('basic');
});
afterAll(() => built[Symbol.dispose]());

const packet = new Uint8Array(64);
function call(object: BpfObject, name: string, mark = 0, repeat = 1): number {
  return object.program(name).testRun({ data: packet, context: skbContext({ mark }), repeat }).returnValue;
}
const numberOf = (record: Uint8Array): number => (record[0] === undefined ? -1 : Buffer.from(record).readUInt32LE(0));
const fail = (error: unknown): void => {
  throw error;
};
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}

describe('RingBufferReader.drain', () => {
  it('gives every record once, in order, across the end of the ring', () => {
    using object = loadObject(built.path);
    const numbers: number[] = [];
    const lengths = new Set<number>();
    const handler = (record: Uint8Array): void => {
      numbers.push(numberOf(record));
      lengths.add(record.length);
    };
    const reader = new RingBufferReader({ map: object.map('events'), handler, onError: fail });
    // 4096 bytes of ring; records of 72 and 24 bytes with headers, so that the end falls inside of records.
    for (let round = 0; round < 60; round++) {
      for (let i = 0; i < 1 + (round % 17); i++) expect(call(object, 'emit', (round + i) % 2)).toBe(0);
      expect(reader.drain()).toBe(1 + (round % 17));
    }
    expect(numbers).toEqual(numbers.map((_, i) => i));
    expect([...lengths].sort((a, b) => a - b)).toEqual([12, 64]);
    expect(numbers.length * 48).toBeGreaterThan(4096 * 4);
    expect(reader.counts).toMatchObject({ records: numbers.length, discarded: 0 });
    expect(reader.drain()).toBe(0);
  });

  it('skips and counts discarded records, and shows how full the ring was', () => {
    using object = loadObject(built.path);
    const seen: number[] = [];
    const handler = (record: Uint8Array): number => seen.push(numberOf(record));
    const reader = new RingBufferReader({ map: object.map('events'), handler, onError: fail });
    call(object, 'emit', 0, 2);
    call(object, 'discard', 0, 3);
    call(object, 'emit', 0, 1);
    expect(reader.drain()).toBe(3);
    expect(seen).toEqual([0, 1, 2]);
    expect(reader.counts).toEqual({ records: 3, bytes: 36, discarded: 3, highWater: 3 * 24 + 3 * 32 });
    // Full: the program is told, and the reader shows it.
    call(object, 'emit', 0, 500);
    expect(call(object, 'emit', 0)).toBe(1);
    expect(reader.drain()).toBe(Math.floor(4095 / 24));
    expect(reader.counts.highWater).toBeGreaterThan(4096 - 24 * 2);
    expect(reader.capacity).toBe(4096);
  });

  it('does not give a record twice after its handler threw', () => {
    using object = loadObject(built.path);
    const reader = new RingBufferReader({ map: object.map('events'), handler: () => {}, onError: fail });
    call(object, 'emit', 0, 3);
    expect(() => reader.drain(() => fail(new Error('handler')))).toThrow('handler');
    const rest: number[] = [];
    reader.drain((record) => rest.push(numberOf(record)));
    expect(rest).toEqual([1, 2]);
  });

  it('wants a ring buffer', () => {
    using map = createMap({ name: 'm', type: 'array', keySize: 4, valueSize: 4, maxEntries: 1 });
    expect(() => new RingBufferReader({ map, handler: () => {}, onError: fail })).toThrow('not a ringbuf');
  });
});

describe('RingBufferReader.start', () => {
  it('delivers many records in order through a small ring, and ends', async () => {
    using object = loadObject(built.path);
    const numbers: number[] = [];
    const errors: unknown[] = [];
    const reader = new RingBufferReader({
      map: object.map('events'),
      handler: (record) => {
        numbers.push(numberOf(record));
        if (numbers.length === 5) throw new Error('one bad record');
      },
      onError: (error) => errors.push(error),
      batchRecords: 7,
      intervalMs: 1,
    });
    reader.start();
    expect(() => reader.start()).toThrow('runs already');
    let accepted = 0;
    while (accepted < 3000) {
      if (call(object, 'emit', accepted % 2) === 0) accepted += 1;
      else await new Promise((resolve) => setImmediate(resolve));
    }
    await until(() => numbers.length >= accepted);
    reader.stop();
    reader.stop();
    expect(numbers).toHaveLength(accepted);
    // Refused records leave gaps in the numbers; order and uniqueness must hold.
    expect(numbers.every((n, i) => i === 0 || n > (numbers[i - 1] ?? -1))).toBe(true);
    expect(errors).toEqual([expect.objectContaining({ message: 'one bad record' })]);
    expect(reader.counts.records).toBe(accepted);
  });

  it('leaves unread records in the ring on stop, for the next start', async () => {
    using object = loadObject(built.path);
    const numbers: number[] = [];
    const handler = (record: Uint8Array): number => numbers.push(numberOf(record));
    const reader = new RingBufferReader({ map: object.map('events'), handler, onError: fail });
    reader.start();
    reader.stop();
    call(object, 'emit', 0, 10);
    expect(numbers).toEqual([]);
    reader.start();
    await until(() => numbers.length === 10);
    reader.stop();
    expect(numbers).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(reader.counts).toMatchObject({ records: 10, bytes: 120 });
  });

  it('looks at once when the pace changes, and at the new pace from then on', async () => {
    using object = loadObject(built.path);
    const numbers: number[] = [];
    const handler = (record: Uint8Array): number => numbers.push(numberOf(record));
    const reader = new RingBufferReader({ map: object.map('events'), handler, onError: fail, intervalMs: 3_600_000 });
    reader.pace(3_600_001);
    call(object, 'emit');
    expect(numbers).toEqual([]);
    reader.start();
    await until(() => numbers.length === 1);
    call(object, 'emit');
    reader.pace(1);
    await until(() => numbers.length === 2);
    call(object, 'emit');
    await until(() => numbers.length === 3);
    expect(() => reader.pace(0)).toThrow('intervalMs must be a whole number of at least 1, got 0');
    reader.stop();
  });

  it('looks no more when its handler stops it', async () => {
    using object = loadObject(built.path);
    const numbers: number[] = [];
    const reader: RingBufferReader = new RingBufferReader({
      map: object.map('events'),
      handler: (record) => {
        numbers.push(numberOf(record));
        reader.stop();
      },
      onError: fail,
      batchRecords: 1,
    });
    call(object, 'emit', 0, 3);
    reader.start();
    await until(() => numbers.length > 0);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(numbers).toEqual([0]);
    expect(() => reader.start()).not.toThrow();
    reader.stop();
  });

  it('does not keep the process alive', () => {
    const script = `
      import { createMap, RingBufferReader } from ${JSON.stringify(new URL('./index.ts', import.meta.url).href)};
      const map = createMap({ name: 'r', type: 'ringbuf', keySize: 0, valueSize: 0, maxEntries: 4096 });
      const reader = new RingBufferReader({ map, handler: () => {}, onError: (error) => { throw error; } });
      reader.start();
      reader.stop();
      console.log('done');
    `;
    const args = ['--input-type=module', '-e', script];
    const out = execFileSync(process.execPath, args, { encoding: 'utf8', timeout: 120_000, cwd: import.meta.dirname });
    expect(out).toBe('done\n');
  });

  it('tells of a ring that cannot be read, and looks no more', async () => {
    using object = loadObject(built.path);
    const errors: unknown[] = [];
    const reader = new RingBufferReader({
      map: object.map('events'),
      handler: () => {},
      onError: (error) => errors.push(error),
    });
    reader.close();
    reader.start();
    await until(() => errors.length > 0);
    expect(errors).toEqual([expect.objectContaining({ errnoName: 'EBADF' })]);
    expect(() => reader.start()).not.toThrow();
  });
});
