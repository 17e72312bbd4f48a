import { constants } from 'node:os';
import { describe, expect, it } from '@jest/globals';
import { parsePossible, possibleCpus } from './cpus.ts';
import { BpfError, errnoName, LibraryMissingError, verifierExcerpt } from './errors.ts';
import { percpu } from './percpu.ts';
import { kernelNames, probe } from './probe.ts';

describe('possible CPUs', () => {
  it('reads the kernel list', () => {
    expect(['0', '0-3', '0-1,4-7', '0,2\n'].map(parsePossible)).toEqual([1, 4, 8, 3]);
    expect(() => parsePossible('')).toThrow('possible CPUs');
    expect(possibleCpus()).toBeGreaterThan(0);
  });
});

describe('percpu', () => {
  it('sums u64 fields, wrapping as the kernel does', () => {
    const cpu = (a: bigint, b: bigint): Uint8Array => new Uint8Array(BigUint64Array.of(a, b).buffer);
    const value = percpu.join([cpu(1n, 2n ** 64n - 1n), cpu(10n, 3n)], 16);
    expect(percpu.sumU64(value, 16)).toEqual([11n, 2n]);
    expect(percpu.split(value, 16)).toEqual([cpu(1n, 2n ** 64n - 1n), cpu(10n, 3n)]);
    expect(() => percpu.sumU64(value.subarray(1), 16)).toThrow('must be exactly 32 bytes');
    expect(() => percpu.sumU64(new Uint8Array(16), 12)).toThrow('u64');
    expect(() => percpu.join([new Uint8Array(3)], 4)).toThrow('the copy of CPU 0');
  });
});

describe('errors', () => {
  it('name the errno, the operation and the fix', () => {
    expect([2, 95, 11, 524, 4001, 9999].map(errnoName)).toEqual([
      'ENOENT',
      'EOPNOTSUPP',
      'EAGAIN',
      'ENOTSUPP',
      'LIBBPF_FORMAT',
      'E9999',
    ]);
    const error = new BpfError({ operation: 'create map "m"', errno: constants.errno.EPERM });
    expect(error).toMatchObject({ code: 'ERR_BPF_SYSCALL', errno: 1, errnoName: 'EPERM', operation: 'create map "m"' });
    expect(error.message).toMatch(/^create map "m": EPERM \(1\): .*CAP_BPF/);
    expect(new LibraryMissingError('libbpf.so.1', new Error('no file')).message).toMatch(
      /libbpf\.so\.1: no file.*libbpf1/,
    );
  });

  it('keep the end of a verifier log without its statistics', () => {
    const log = `${Array.from({ length: 40 }, (_, i) => `${i}: (b7) r0 = ${i}`).join('\n')}
R0 !read_ok
processed 41 insns (limit 1000000) max_states_per_insn 0 total_states 0
verification time 10 usec
`;
    expect(verifierExcerpt(log, 3)).toBe('38: (b7) r0 = 38\n39: (b7) r0 = 39\nR0 !read_ok');
  });
});

describe('probe', () => {
  it('names each feature once, and gives a fix exactly for what is missing', () => {
    const features = probe({ bpffs: '/proc' });
    const byName = Object.fromEntries(features.map((f) => [f.feature, f]));
    expect(Object.keys(byName)).toHaveLength(features.length);
    expect(byName.bpffs).toMatchObject({ ok: false, fix: expect.stringContaining('mount -t bpf bpf /proc') });
    for (const name of ['libbpf', 'bpf system call', 'lpm_trie', 'array_of_maps', 'ring buffer']) {
      expect(byName[name]).toEqual({ feature: name, ok: true, fix: '' });
    }
    for (const { ok, fix } of features) expect(fix === '').toBe(ok);
  });

  it('finds what the kernel names, whole names only', () => {
    expect(['sk_buff', 'sk_buf', 'k_buff'].map(kernelNames)).toEqual([true, false, false]);
  });
});
