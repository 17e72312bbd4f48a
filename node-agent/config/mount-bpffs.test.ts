import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { runCommand } from '../host/command.ts';
import { mountBpffs, mountPointOf } from './mount-bpffs.ts';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-bpffs-'));
});
afterEach(() => rm(folder, { recursive: true }));

describe('mountBpffs', () => {
  it('mounts once, in the namespace of process 1', async () => {
    const lines: string[] = [];
    const run: typeof runCommand = (command, args) => {
      lines.push([command, ...args].join(' '));
      // Process 1 of this machine may be in another mount namespace: the mount is made here.
      return runCommand(args[1] ?? '', args.slice(2));
    };
    const options = { bpfRoot: join(folder, 'weir'), hostProc: '/no/such/proc', run };
    try {
      expect(await mountBpffs(options)).toBe(`a BPF filesystem is mounted at ${folder} of the node`);
      expect(await mountBpffs(options)).toBe(`${folder} is a BPF filesystem already`);
    } finally {
      await runCommand('umount', [folder]);
    }
    expect(lines).toEqual([`nsenter --mount=/proc/1/ns/mnt mount -t bpf bpf ${folder}`]);
  });

  it('says what to do when it cannot', async () => {
    const refused = mountBpffs({
      bpfRoot: join(folder, 'weir'),
      hostProc: folder,
      run: () => Promise.reject(new Error('EPERM')),
    });
    await expect(refused).rejects.toThrow(
      `could not be mounted at ${folder} of the node: EPERM; run "mount -t bpf bpf ${folder}" on the node`,
    );
    const vain = mountBpffs({ bpfRoot: join(folder, 'weir'), hostProc: folder, run: () => Promise.resolve('') });
    await expect(vain).rejects.toThrow(`${folder} is no BPF filesystem`);
  });

  it('knows where the pins are mounted', () => {
    expect(mountPointOf('/sys/fs/bpf/weir')).toBe('/sys/fs/bpf');
    expect(mountPointOf('/sys/fs/bpf/a/weir')).toBe('/sys/fs/bpf');
    expect(mountPointOf('/run/bpf/weir')).toBe('/run/bpf');
  });
});
