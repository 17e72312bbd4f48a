import type { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, it } from '@jest/globals';
import { child, type Start, Supervised, worker } from './supervised.ts';

const all: Supervised[] = [];
function supervised(start: Start, onEnd?: (how: string, againInMs: number) => void): Supervised {
  const made = new Supervised({ start, ...(onEnd === undefined ? {} : { onEnd }) });
  all.push(made);
  return made;
}
afterEach(async () => {
  for (const each of all.splice(0)) await each.stop();
});

const node = (script: string, onLine?: (line: string) => void): Start =>
  child({ command: process.execPath, args: ['-e', script], env: { WORD: 'hello' }, ...(onLine ? { onLine } : {}) });

describe('a child process', () => {
  it('is started again, later each time, whatever way it ends', async () => {
    const ends: [string, number][] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const made = supervised(node('process.exit(3)'), (how, againInMs) => {
      ends.push([how, againInMs]);
      if (ends.length === 3) resolve();
    });
    expect(made.problem).toBe('it is not started yet');
    made.start();
    await promise;
    expect(ends).toEqual([100, 200, 400].map((ms) => ['exit code 3', ms]));
    expect(made.problem).toBe('it ended (exit code 3) and is started again soon');
    expect(made.restarts).toBe(3);
  });

  it('says its lines, has its environment, and ends by SIGTERM', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const made = supervised(node('console.error(process.env.WORD);setInterval(()=>{},1000)', resolve));
    made.start();
    expect(await promise).toBe('hello');
    expect(made.problem).toBeUndefined();
    await made.stop();
    expect(made.restarts).toBe(0);
  });

  it('is killed when it does not end', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const script = "process.on('SIGTERM',()=>{});console.error('up');setInterval(()=>{},1000)";
    const made = supervised(node(script, resolve));
    made.start();
    await promise;
    await made.stop();
    expect(made.problem).toContain('signal SIGKILL');
  });

  it('that there is not is tried again', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    supervised(child({ command: '/no/such/program' }), resolve).start();
    expect(await promise).toContain('ENOENT');
  });
});

describe('a worker thread', () => {
  const module = new URL('testing/worker.ts', import.meta.url);

  it('gets its data, is started again when it throws, and stops', async () => {
    const workers: Worker[] = [];
    const said: unknown[] = [];
    const twice = Promise.withResolvers<void>();
    const ends: string[] = [];
    const onStart = (started: Worker): void => {
      workers.push(started);
      started.on('message', (message) => {
        said.push(message);
        if (said.length === 1) started.postMessage('nonsense');
        if (said.length === 2) twice.resolve();
      });
    };
    const made = supervised(worker({ module, data: 7, onStart }), (how) => ends.push(how));
    made.start();
    await twice.promise;
    expect(said).toEqual([7, 7]);
    expect(ends).toEqual(['the worker got nonsense']);
    await made.stop();
    expect(workers.map(({ threadId }) => threadId)).toEqual([-1, -1]);
  });
});
