import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { buildDatapath, SKB_ACCESS } from './build.ts';
import { PROGRAMS } from './maps.ts';
import { deepest } from './testing/stack.ts';

describe('the datapath source', () => {
  it('includes no header of the C library: many machines have it for their own processor only', () => {
    const made = execFileSync(
      'clang',
      ['-target', 'bpfel', '-M', '-MG', `-I/usr/include/${MULTIARCH}`, join(import.meta.dirname, 'weir.c')],
      { encoding: 'utf8' },
    );
    const headers = made.split(/[\s\\]+/).filter((word) => word.endsWith('.h'));
    expect(headers).toEqual(expect.arrayContaining([expect.stringContaining('linux/bpf.h')]));
    expect(headers.filter((header) => /features\.h$|\/(sys|gnu|bits)\//.test(header))).toEqual([]);
  });

  it.each(SKB_ACCESS)('has programs (%s) whose stack fits kernels that round each frame up to 32 bytes', (access) => {
    const object = readFileSync(buildDatapath({ access }).objectPath);
    for (const program of [PROGRAMS.fromPod, PROGRAMS.toPod]) {
      const { bytes, functions } = deepest(object, program, 32);
      expect([functions.join(' > '), Math.min(bytes, 512)]).toEqual([functions.join(' > '), bytes]);
      expect(functions.length).toBeGreaterThan(2);
      // The frames are the same, and the verifier of this kernel took them.
      expect(deepest(object, program, 16).bytes).toBeLessThanOrEqual(bytes);
    }
  });
});

const MULTIARCH = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }[process.arch as 'x64' | 'arm64'];
