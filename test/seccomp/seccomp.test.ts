/**
 * The chart's seccomp profiles hold what is not needed, also from root. That the programs do their work under them: node-agent/agent.test.ts and
 * test/operator/main.test.ts run them so, test/real/hardened.test.ts on a real cluster.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { attempt } from '../cluster/run.ts';
import { confined, profileOf } from './profiles.ts';

interface Profile {
  readonly defaultAction: string;
  readonly syscalls: readonly {
    readonly names: readonly string[];
    readonly action: string;
    readonly comment: string;
  }[];
}

const COMPONENTS = ['agent', 'operator'] as const;
const profile = (component: (typeof COMPONENTS)[number]): Profile =>
  JSON.parse(readFileSync(profileOf(component), 'utf8')) as Profile;
const allowed = (component: (typeof COMPONENTS)[number]): Set<string> =>
  new Set(profile(component).syscalls.flatMap(({ names, action }) => (action === 'SCMP_ACT_ALLOW' ? names : [])));

/** What Docker's default profile gives to who has CAP_SYS_ADMIN, or anybody, and what takes a node over or widens the kernel that can be attacked. */
const NEVER = [
  ...[
    'mount',
    'umount2',
    'mount_setattr',
    'fsopen',
    'move_mount',
    'pivot_root',
    'chroot',
    'unshare',
    'mknod',
    'mknodat',
  ],
  ...['ptrace', 'process_vm_readv', 'process_vm_writev', 'perf_event_open', 'userfaultfd', 'io_uring_setup', 'seccomp'],
  ...[
    'init_module',
    'finit_module',
    'delete_module',
    'kexec_load',
    'reboot',
    'swapon',
    'quotactl',
    'syslog',
    'personality',
  ],
  ...['keyctl', 'add_key', 'request_key', 'open_by_handle_at', 'fanotify_init', 'lookup_dcookie', 'setns'],
];

describe('the seccomp profiles', () => {
  it('refuse what they do not name, and name the reason of what they allow', () => {
    for (const component of COMPONENTS) {
      const { defaultAction, syscalls } = profile(component);
      expect(defaultAction).toBe('SCMP_ACT_ERRNO');
      for (const { comment } of syscalls) expect(comment.length).toBeGreaterThan(10);
    }
  });

  it('allow the operator nothing of what takes a node over, and the agent only its part of setns and bpf', () => {
    expect(NEVER.filter((name) => allowed('operator').has(name))).toEqual([]);
    expect(NEVER.filter((name) => allowed('agent').has(name))).toEqual(['setns']);
    expect(allowed('operator').has('bpf')).toBe(false);
    const common = [...allowed('operator')].filter((name) => !allowed('agent').has(name));
    expect(common).toEqual([]);
  });
});

describe.each(COMPONENTS)('under the profile of the %s, root', (component) => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-seccomp-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  /** A program as a child of Node, with its errors. */
  async function run(program: string, ...args: readonly string[]): Promise<string> {
    const script = `const { status, stderr } = require('node:child_process').spawnSync(${JSON.stringify(program)}, ${JSON.stringify(args)}, { encoding: 'utf8' }); console.log(status, stderr)`;
    const [command, ...rest] = confined(component, ['-e', script]);
    const { code, stdout, stderr } = await attempt(command, rest);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    return stdout.trim();
  }

  it('runs programs, and has the filter and no way to new rights', async () => {
    expect(await run('true')).toBe('0');
    const [command, ...rest] = confined(component, [
      ...['-p', `require('node:fs').readFileSync('/proc/self/status', 'utf8')`],
    ]);
    const { stdout } = await attempt(command, rest);
    expect(stdout).toMatch(/^Seccomp:\s2$/m);
    expect(stdout).toMatch(/^NoNewPrivs:\s1$/m);
  });

  it.each([
    ['mounts nothing', 'mount', ['-t', 'tmpfs', 'none', '@']],
    ['makes no namespace', 'unshare', ['--net', 'true']],
    ['enters no mount namespace', 'nsenter', ['--mount=/proc/self/ns/mnt', 'true']],
    ['makes no device', 'mknod', ['@/null', 'c', '1', '3']],
  ])('%s', async (_, program, args) => {
    const said = await run(program, ...args.map((each) => each.replace('@', folder)));
    expect(said).toMatch(/^[1-9]\d* .*(Operation not permitted|permission denied|not permitted)/i);
  });

  it(component === 'agent' ? 'enters network namespaces' : 'enters no network namespace', async () => {
    expect((await run('nsenter', '--net=/proc/self/ns/net', 'true')).startsWith('0')).toBe(component === 'agent');
  });
});
