import { existsSync, unlinkSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ensureBpffs } from './bpffs.ts';
import { BpfError, VerifierError } from './errors.ts';
import { createMap, openPinnedMap } from './map.ts';
import { address, bytes, u32 } from './map-conformance.ts';
import { loadObject } from './object.ts';
import { percpu } from './percpu.ts';
import { openPinnedProgram, skbContext } from './program.ts';
import { openPinnedLink } from './tcx.ts';
import { buildProgram, removePins } from './test-kit.ts';
import type { BpfProgram } from './types.ts';

const pins = `/sys/fs/bpf/wt${process.pid}-object`;
let basic: ReturnType<typeof buildProgram>;
let refused: ReturnType<typeof buildProgram>;
beforeAll(() => {
  ensureBpffs('/sys/fs/bpf', { mount: true });
  basic = buildProgram('basic');
  refused = buildProgram('refused');
});
afterAll(() => {
  removePins(pins);
  basic[Symbol.dispose]();
  refused[Symbol.dispose]();
});

const packet = new Uint8Array(64);
const run = (program: BpfProgram, mark = 0): number =>
  program.testRun({ data: packet, context: skbContext({ mark }) }).returnValue;
const withErrno = (errnoName: string): Error => expect.objectContaining({ errnoName }) as unknown as Error;
const withCode = (code: string): Error => expect.objectContaining({ code }) as unknown as Error;
function thrown(body: () => unknown): unknown {
  try {
    body();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

describe('loadObject', () => {
  it('loads every program and map by its name', () => {
    using object = loadObject(basic.path);
    expect(Object.keys(object.programs)).toEqual(['give_answer', 'match', 'emit', 'discard']);
    expect(Object.keys(object.maps)).toEqual(['counters', 'totals', 'tries', 'events', '.rodata', '.bss']);
    expect(object.map('tries').info).toMatchObject({ type: 'array_of_maps', keySize: 4, valueSize: 4, maxEntries: 4 });
    expect(object.program('match').info()).toMatchObject({
      name: 'match',
      type: 3,
      tag: expect.stringMatching(/^[0-9a-f]{16}$/),
    });
    expect(run(object.program('give_answer'))).toBe(7);
    expect(() => object.program('nope')).toThrow('it has: give_answer, match, emit, discard');
    expect(() => object.map('toString')).toThrow(withCode('ERR_BPF_ARGUMENT'));
  });

  it('replaces .rodata, whole or not at all', () => {
    const rodata = Buffer.alloc(16);
    rodata.writeUInt32LE(33, 0);
    rodata.writeBigUInt64LE(5n, 8);
    using object = loadObject(basic.path, { rodata });
    object.map('counters').update(u32(9), bytes(8, 0));
    expect(run(object.program('give_answer'), 9)).toBe(33);
    expect(object.map('counters').lookup(u32(9))).toEqual(Uint8Array.from([5, 0, 0, 0, 0, 0, 0, 0]));
    expect(() => loadObject(basic.path, { rodata: new Uint8Array(15) })).toThrow(
      expect.objectContaining({ code: 'ERR_BPF_BUFFER_LENGTH', expected: 16, actual: 15 }) as unknown as Error,
    );
  });

  it('shares maps that it has, whatever their room', () => {
    using shared = createMap({ name: 'shared', type: 'hash', keySize: 4, valueSize: 8, maxEntries: 7 });
    using object = loadObject(basic.path, { sharedMaps: { counters: shared, absent: shared } });
    expect(object.map('counters').info.id).toBe(shared.info.id);
    using wrong = createMap({ name: 'wrong', type: 'hash', keySize: 4, valueSize: 4, maxEntries: 64 });
    expect(() => loadObject(basic.path, { sharedMaps: { counters: wrong } })).toThrow('its valueSize is 4');
  });

  it('reuses a map of the same shape, refuses others', () => {
    const shape = { name: 'kept', type: 'hash', keySize: 4, valueSize: 8, maxEntries: 99 } as const;
    using kept = createMap(shape);
    using object = loadObject(basic.path, { reuseMaps: { counters: kept }, maxEntries: { counters: 99 } });
    expect(object.map('counters').info.id).toBe(kept.info.id);
    kept.update(u32(1), bytes(8, 0));
    run(object.program('give_answer'), 1);
    expect(kept.lookup(u32(1))?.[0]).toBe(1);
    const load = (): unknown => loadObject(basic.path, { reuseMaps: { counters: kept } });
    expect(load).toThrow('its maxEntries is 99, the object wants 64');
    for (const other of [{ keySize: 8 }, { valueSize: 4 }, { type: 'lru_hash' as const }, { flags: 1 }]) {
      using wrong = createMap({ ...shape, maxEntries: 64, ...other });
      expect(() => loadObject(basic.path, { reuseMaps: { counters: wrong } })).toThrow(withErrno('EINVAL'));
    }
    expect(() => loadObject(basic.path, { reuseMaps: { none: kept } })).toThrow(withCode('ERR_BPF_ARGUMENT'));
  });

  it('sets max_entries before the load', () => {
    using object = loadObject(basic.path, { maxEntries: { counters: 3 } });
    expect(object.map('counters').info.maxEntries).toBe(3);
    expect(() => loadObject(basic.path, { maxEntries: { counters: 0 } })).toThrow(withCode('ERR_BPF_ARGUMENT'));
    expect(() => loadObject(basic.path, { maxEntries: { none: 1 } })).toThrow(withCode('ERR_BPF_ARGUMENT'));
  });

  it('programs see the inner maps that are put into an outer one', () => {
    using object = loadObject(basic.path);
    const match = object.program('match');
    expect(run(match, 2)).toBe(255);
    using trie = createMap({ name: 'trie', type: 'lpm_trie', keySize: 8, valueSize: 4, maxEntries: 8, flags: 1 });
    trie.update(address(8, 10), u32(41));
    trie.update(address(24, 10, 1, 2), u32(42));
    object.map('tries').setInner(u32(2), trie);
    expect(run(match, 2)).toBe(42);
    trie.delete(address(24, 10, 1, 2));
    expect(run(match, 2)).toBe(41);
    object.map('tries').delete(u32(2));
    expect(run(match, 2)).toBe(255);
  });

  it('counts in per-CPU values sum up', () => {
    using object = loadObject(basic.path);
    object.program('give_answer').testRun({ data: packet, repeat: 5 });
    expect(percpu.sumU64(object.map('totals').lookup(u32(0)) ?? new Uint8Array(), 16)).toEqual([5n, 5n * 64n]);
  });

  it('shows what the verifier complains about', () => {
    const error = thrown(() => loadObject(refused.path));
    expect(error).toBeInstanceOf(VerifierError);
    if (!(error instanceof VerifierError)) return;
    expect(error).toMatchObject({ code: 'ERR_BPF_VERIFIER', errnoName: 'EACCES', program: 'unchecked' });
    expect(error.message).toContain('invalid access to packet, off=20');
    expect(error.message).toContain('return data[20];');
    expect(error.excerpt).not.toMatch(/processed \d+ insns/);
    expect(error.log).toMatch(/processed \d+ insns/);
  });

  it('says why a file is no object', () => {
    expect(() => loadObject('/nonexistent.o')).toThrow(withErrno('ENOENT'));
    expect(() => loadObject('/etc/passwd')).toThrow(/libbpf says:[\s\S]*not a proper ELF object/);
  });
});

describe('testRun', () => {
  it('gives the packet back and checks what it is given', () => {
    using object = loadObject(basic.path);
    const program = object.program('give_answer');
    const data = Uint8Array.from({ length: 100 }, (_, i) => i);
    const result = program.testRun({ data, context: skbContext({ mark: 3 }), repeat: 3 });
    expect(result.data).toEqual(data);
    expect(Buffer.from(result.context ?? []).readUInt32LE(8)).toBe(3);
    expect(program.testRun({ data }).context).toBeUndefined();
    expect(() => program.testRun({ data, context: new Uint8Array(8) })).toThrow(withCode('ERR_BPF_BUFFER_LENGTH'));
    expect(() => program.testRun({ data: new Uint8Array(13) })).toThrow(withCode('ERR_BPF_ARGUMENT'));
    expect(() => program.testRun({ data, repeat: 0 })).toThrow(withCode('ERR_BPF_ARGUMENT'));
    expect(() => skbContext({ cb: [1, 2, 3, 4, 5, 6] })).toThrow(withCode('ERR_BPF_ARGUMENT'));
    program.close();
    expect(() => program.testRun({ data })).toThrow(withErrno('EBADF'));
  });
});

describe('pins', () => {
  it('outlive the descriptors, and are never replaced', () => {
    const path = `${pins}/deep/er/counters`;
    {
      using object = loadObject(basic.path);
      object.map('counters').update(u32(1), bytes(8, 6));
      object.map('counters').pin(path);
      object.program('give_answer').pin(`${pins}/program`);
    }
    using map = openPinnedMap(path);
    expect(map.lookup(u32(1))).toEqual(bytes(8, 6));
    using program = openPinnedProgram(`${pins}/program`);
    expect(program.name).toBe('give_answer');
    expect(run(program)).toBe(7);
    const again = thrown(() => map.pin(path));
    expect(again).toBeInstanceOf(BpfError);
    expect(again).toMatchObject({ errnoName: 'EEXIST', message: expect.stringContaining(`unlink ${path}`) });
    expect(() => openPinnedProgram(path)).toThrow('a map is pinned there, not a program');
    expect(() => openPinnedLink(path)).toThrow(withErrno('EINVAL'));
    unlinkSync(path);
    expect(() => openPinnedMap(path)).toThrow(withErrno('ENOENT'));
    map.pin(path);
    expect(existsSync(path)).toBe(true);
  });

  it('need a bpf file system', () => {
    using map = createMap({ name: 'm', type: 'array', keySize: 4, valueSize: 4, maxEntries: 1 });
    expect(() => map.pin('/proc/nope/m')).toThrow(withErrno('ENOENT'));
    expect(() => map.pin(`${basic.path}.pin`)).toThrow('not on a bpf file system');
    expect(() => ensureBpffs('/proc/nope')).toThrow(withErrno('ENODEV'));
    expect(() => ensureBpffs('/proc')).toThrow(withErrno('ENODEV'));
    ensureBpffs('/sys/fs/bpf');
  });
});
