import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { cgroupProblem } from './preflight.ts';

describe('the cgroup hierarchy', () => {
  it('is recognised by its file system, and what is missing is named with its fix', () => {
    const folder = mkdtempSync(join(tmpdir(), 'weir-cgroup-'));
    expect(cgroupProblem(folder)).toMatch(/is no cgroup v2 hierarchy; name its mount/);
    expect(cgroupProblem(join(folder, 'absent'))).toMatch(/cannot be read \(.*ENOENT.*\); name the mount/);
    execFileSync('mount', ['-t', 'cgroup2', 'none', folder]);
    try {
      expect(cgroupProblem(folder)).toBeUndefined();
    } finally {
      execFileSync('umount', [folder]);
      rmdirSync(folder);
    }
  });
});
