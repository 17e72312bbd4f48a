import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmdirSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { attachCgroup, cgroupIdOf, openPinnedCgroupLink } from './cgroup.ts';
import { loadObject } from './object.ts';
import { openPinnedLink } from './tcx.ts';
import { buildProgram, removePins } from './test-kit.ts';
import type { BpfObject } from './types.ts';

const pins = `/sys/fs/bpf/wt${process.pid}-cgroup`;
let built: ReturnType<typeof buildProgram>;
let object: BpfObject;
let cgroup = '';

beforeAll(() => {
  built = buildProgram('cgroup');
  object = loadObject(built.path);
  const [, root] = /^\S+ (\S+) cgroup2 /m.exec(readFileSync('/proc/mounts', 'utf8')) ?? [];
  if (root === undefined) throw new Error('no cgroup of version 2 is mounted: mount -t cgroup2 none /sys/fs/cgroup');
  cgroup = join(root, `wt${process.pid}-libbpf`);
  mkdirSync(cgroup);
});
afterAll(() => {
  removePins(pins);
  object?.close();
  built?.[Symbol.dispose]();
  if (cgroup !== '') rmdirSync(cgroup);
});

/** What a process of the cgroup gets when it connects to a port of the loopback interface on which nobody listens. */
function connect(): string {
  const script =
    "require('net').connect(4444,'127.0.0.1').on('error',(e)=>{process.stdout.write(e.code);}).on('connect',()=>process.exit(1))";
  const shell = 'echo $$ > "$0/cgroup.procs" && exec "$1" -e "$2"';
  const { stdout, stderr } = spawnSync('sh', ['-c', shell, cgroup, process.execPath, script], { encoding: 'utf8' });
  return stdout || stderr;
}

const withErrno = (errnoName: string): Error => expect.objectContaining({ errnoName }) as unknown as Error;

describe('a link of a cgroup', () => {
  it('runs for its processes, is replaced, pinned, opened again and detached', () => {
    expect(connect()).toBe('ECONNREFUSED');
    const link = attachCgroup(object.program('refuse'), cgroup, 'connect4');
    expect(link).toMatchObject({ attach: 'connect4', cgroupId: cgroupIdOf(cgroup) });
    expect(link.programId()).toBe(object.program('refuse').info().id);
    expect(connect()).toBe('EPERM');
    link.replace(object.program('allow'));
    expect(connect()).toBe('ECONNREFUSED');

    link.pin(join(pins, 'link'));
    link.close();
    {
      using again = openPinnedCgroupLink(join(pins, 'link'));
      expect(again).toMatchObject({ attach: 'connect4', cgroupId: cgroupIdOf(cgroup) });
      again.replace(object.program('refuse'));
    }
    expect(connect()).toBe('EPERM');
    openPinnedCgroupLink(join(pins, 'link')).detach();
    expect(connect()).toBe('ECONNREFUSED');
    unlinkSync(join(pins, 'link'));
  });

  it('says what is wrong', () => {
    const program = object.program('allow');
    expect(() => attachCgroup(program, '/tmp', 'connect4')).toThrow(withErrno('EBADF'));
    expect(() => attachCgroup(program, cgroup, 'connect6')).toThrow(withErrno('EINVAL'));
    expect(() => attachCgroup(program, '/no/such', 'connect4')).toThrow('ENOENT');
    expect(() => openPinnedCgroupLink(join(pins, 'absent'))).toThrow(withErrno('ENOENT'));
    using link = attachCgroup(program, cgroup, 'connect4');
    link.pin(join(pins, 'other'));
    expect(() => openPinnedLink(join(pins, 'other'))).toThrow(/a link of type 3, not a tcx link/);
    execFileSync('rm', [join(pins, 'other')]);
  });
});
