import { type ChildProcess, spawn } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { resources } from '@weir/kube';
import { namespace } from '../../operator/testing.ts';
import { confined } from '../seccomp/profiles.ts';
import { createWorld, eventually, type World } from './world.ts';

interface Main {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  readonly output: () => string;
}

describe('main', () => {
  let world: World;
  const children: Main[] = [];
  beforeEach(async () => {
    world = await createWorld();
    await world.client.create(resources.Namespace, namespace('weir'));
  });
  afterEach(async () => {
    for (const { child, exited } of children.splice(0)) {
      child.kill('SIGKILL');
      await exited;
    }
    await world.stop();
  });

  /** Runs the program under the chart's seccomp profile; `module`: JavaScript that it runs first. */
  function start(name: string, module = '', more: readonly string[] = []): Main {
    const main = new URL('../../operator/main.ts', import.meta.url).pathname;
    const preload = `--import=data:text/javascript,${encodeURIComponent(module)}`;
    const flags = ['--kubeconfig', world.kubeconfig, '--leader-namespace', 'weir', '--health-address', '127.0.0.1:0'];
    const [command, ...args] = confined('operator', [preload, main, ...flags, ...more]);
    const child = spawn(command, args, {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, POD_NAME: name },
    });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
    const exited = new Promise<number | null>((resolve) => child.on('close', (code) => resolve(code)));
    const started = { child, exited, output: () => output };
    children.push(started);
    return started;
  }

  /** Name of the process that holds the lease; '' when it was released. */
  const holder = async (): Promise<string | undefined> =>
    (await world.client.get(resources.Lease, 'weir-operator', 'weir')).spec?.holderIdentity?.replace(/-[0-9a-z]+$/, '');
  const leads = (name: string): Promise<void> => eventually(async () => expect(await holder()).toBe(name));
  const says = ({ output }: Main, message: string): Promise<void> =>
    eventually(async () => expect(output()).toContain(`"${message}"`));

  it.each([[['--nope']], [['stray']], [['--identity-gc-grace', '5']], [['uninstall', '--nope']]])(
    'ends with 2 for wrong arguments: %j',
    async (args) => {
      expect(await start('wrong', '', args).exited).toBe(2);
    },
  );

  it('leads, stops cleanly on SIGTERM, and leaves the lease free', async () => {
    const one = start('one');
    await leads('one');
    await says(one, 'inputs complete');
    const lease = await world.client.get(resources.Lease, 'weir-operator', 'weir');
    one.child.kill('SIGTERM');
    expect(await one.exited).toBe(0);
    expect(await holder()).toBe('');
    for (const line of one.output().trim().split('\n'))
      expect(JSON.parse(line)).toMatchObject({ msg: expect.any(String), instance: lease.spec?.holderIdentity });
  });

  it.each([
    ['uncaughtException', "throw new Error('broken')"],
    ['unhandledRejection', "void Promise.reject(new Error('broken'))"],
  ])('ends by an %s, and leaves the lease free', async (event, statement) => {
    const one = start('one', `process.on('SIGUSR2', () => { ${statement}; })`);
    await says(one, 'inputs complete');
    one.child.kill('SIGUSR2');
    expect(await one.exited).toBe(1);
    expect(one.output()).toContain(`"event":"${event}"`);
    expect(await holder()).toBe('');
  });

  it('another leads after a leader that hangs, which stands by when it thaws, and leads after one that is killed', async () => {
    const one = start('one');
    await says(one, 'inputs complete');
    const two = start('two');
    await says(two, 'leader seen');
    one.child.kill('SIGSTOP');
    await leads('two');
    await says(two, 'inputs complete');
    one.child.kill('SIGCONT');
    await says(one, 'leadership lost: nothing is written until this replica leads again');
    two.child.kill('SIGKILL');
    await leads('one');
    expect(one.child.exitCode).toBeNull();
  });
});
