import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';

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
});

const MULTIARCH = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }[process.arch as 'x64' | 'arm64'];
