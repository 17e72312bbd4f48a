/** The CLI as a user runs it: what follows and waits, and what ends it. */
import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { COMPILE_CACHE } from '../../test/compile-cache.ts';
import { eventually } from '../../test/eventually.ts';
import type { FlowEvent } from '../flows/types.ts';
import {
  core,
  fakeAgent,
  folder,
  healAgent,
  type Result,
  socket,
  startAgent,
  stopAgent,
  WEIR,
  weir,
} from '../testing/cli-agent.ts';
import { InterruptedError } from './errors.ts';
import { runCli } from './program.ts';

beforeAll(startAgent);
afterAll(stopAgent);
beforeEach(healAgent);

describe('weir', () => {
  it('follows flow events and ends on a signal', async () => {
    const event = (message: string): FlowEvent => ({
      time: 'T',
      verdict: 'dropped',
      direction: 'ingress',
      endpoint: 7,
      source: { address: '10.1.0.8', identity: 1008, name: 'default/app3' },
      destination: { address: '10.1.0.7', identity: 1007 },
      protocol: 'TCP',
      sourcePort: 1234,
      destinationPort: 80,
      reason: 'policy',
      message,
      policies: ['cnp default/l3-rule'],
      revision: 1,
    });
    const running = weir(['monitor']);
    while (!core.events.observed) await new Promise((resolve) => setTimeout(resolve, 5));
    core.events.next(event('first'));
    const frontend = { address: '10.96.0.2', identity: 2, name: 'world', service: 'default/db' };
    core.events.next({ ...event('second'), destination: frontend });
    const { sourcePort: _source, destinationPort: _destination, ...portless } = event('third');
    const source = { address: 'fd00::8', identity: 1008 };
    core.events.next({ ...portless, protocol: '50', source, destination: { address: 'fd00::7', identity: 1007 } });
    core.events.next({ ...event('fourth'), source, destination: { address: '', identity: 0 } });
    const { sourcePort: _of, ...asked } = event('fifth');
    const server = { address: '10.96.0.10', identity: 1007, hostNames: ['a.example', 'b.example'] };
    core.events.next({ ...asked, verdict: 'dns', protocol: 'UDP', source, destination: server });
    core.events.next(event('STOP'));
    const { code, out } = await running;
    expect(code).toBe(130);
    expect(out.split('\n').slice(0, 5)).toEqual([
      'T DROPPED ingress TCP 10.1.0.8:1234 (default/app3, identity 1008) -> 10.1.0.7:80 (identity 1007) endpoint 7: policy: first [cnp default/l3-rule]',
      'T DROPPED ingress TCP 10.1.0.8:1234 (default/app3, identity 1008) -> 10.96.0.2:80 (world, service default/db, identity 2) endpoint 7: policy: second [cnp default/l3-rule]',
      'T DROPPED ingress 50 fd00::8 (identity 1008) -> fd00::7 (identity 1007) endpoint 7: policy: third [cnp default/l3-rule]',
      'T DROPPED ingress TCP [fd00::8]:1234 (identity 1008) -> (identity 0) endpoint 7: policy: fourth [cnp default/l3-rule]',
      'T DNS ingress UDP fd00::8 (identity 1008) -> 10.96.0.10:80 (a.example and b.example, identity 1007) endpoint 7: policy: fifth [cnp default/l3-rule]',
    ]);
  });

  it.each([
    [['nope'], 'unknown command'],
    [['-o', 'xml', 'status'], 'Allowed choices are text, json'],
    [['policy', 'wait', 'x'], 'not a whole number'],
    [['endpoint', 'get'], "missing required argument 'id'"],
    [['help', 'policy', 'weight'], 'there is no command "policy weight"'],
  ])('exits with 2 for wrong arguments: %j', async (args, message) => {
    let err = '';
    const sink = { write: () => undefined };
    const write = (text: string): void => {
      err += text;
    };
    const code = await runCli({ args, version: '0', out: sink, err: { write }, signal: new AbortController().signal });
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });
  it.each([
    [['help'], /^Usage: weir \[options\] \[command\]/],
    [['help', 'policy'], /^Usage: weir policy \[options\] \[command\]/],
    [['help', 'policy', 'wait'], /^Usage: weir policy wait \[options\] <revision>/],
  ])('helps with the command that is named: %j', async (args, usage) => {
    let out = '';
    const write = (text: string): void => {
      out += text;
    };
    const sink = { write: () => undefined };
    const code = await runCli({ args, version: '0', out: { write }, err: sink, signal: new AbortController().signal });
    expect([code, out]).toEqual([0, expect.stringMatching(usage)]);
  });
  it('passes the exit code on, of arguments that the agent refuses, too', async () => {
    expect((await weir(['nope'])).code).toBe(2);
    expect(await weir(['endpoint', 'get', 'default/app1'])).toMatchObject({
      code: 2,
      err: 'weir: endpoint id "default/app1" is neither a number from 0 to 65535 nor PREFIX:VALUE, as pod-name:NAMESPACE/NAME\n',
    });
    expect((await weir(['policy', 'status', 'nope'])).code).toBe(2);
  });

  it('says when the agent cannot be reached', async () => {
    const { code, err, out } = await weir(['--socket', '/nowhere/weir.sock', 'status']);
    expect([code, out]).toEqual([1, '']);
    expect(err).toContain(
      'cannot reach the Weir agent at /nowhere/weir.sock: there is no such socket: is the agent running',
    );
    expect((await weir(['version', '--socket', '/nowhere'])).out).toContain('not known');
    expect(await weir(['--version', '--socket', '/nowhere'])).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    });
  });

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s ends a command that waits, at once and with exit code %i', async (signal, code) => {
    const asked = Promise.withResolvers<void>();
    const wait = core.waitPolicyRevision.bind(core);
    core.waitPolicyRevision = (revision, stop) => {
      asked.resolve();
      return wait(revision, stop);
    };
    const child = spawn(WEIR, ['policy', 'wait', '99999'], {
      env: { ...process.env, ...COMPILE_CACHE, WEIR_SOCKET: socket },
    });
    const ended = new Promise((resolve) => child.on('close', resolve));
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    await asked.promise;
    core.waitPolicyRevision = wait;
    child.kill(signal);
    expect(await ended).toBe(code);
    expect(err.split('\n')).toEqual([
      expect.stringMatching(
        /^weir: warning: the agent is at revision \d+, and 99999 comes with later changes; numbers /,
      ),
      `weir: interrupted by ${signal}`,
      '',
    ]);
  });

  it.each(['SIGTERM', 'SIGKILL'] as const)('monitor says that the agent has ended, by %s', async (signal) => {
    const path = join(folder, `ending-${signal}`);
    const agent = await fakeAgent(path);
    try {
      const following = weir(['monitor'], '', { WEIR_SOCKET: path });
      await agent.said('GET /v1/monitor?');
      agent.child.kill(signal);
      expect(await following).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringContaining(`weir: the agent at ${path} has ended, and the stream with it`),
      });
    } finally {
      agent.child.kill('SIGKILL');
    }
  });

  it.each(['policy wait 1', 'policy get'])('%s says that the agent has ended before its answer', async (line) => {
    const path = join(folder, 'killed');
    const agent = await fakeAgent(path);
    try {
      const waiting = weir(line.split(' '), '', { WEIR_SOCKET: path });
      await agent.said('GET /v1/policy');
      agent.child.kill('SIGKILL');
      expect(await waiting).toEqual({
        code: 1,
        out: '',
        err: `weir: the agent at ${path} has ended before it answered; ask its successor once that runs\n`,
      });
    } finally {
      agent.child.kill('SIGKILL');
    }
  });

  it.each([
    'status',
    'monitor',
    'policy wait 1',
    // The time that was given is over before the agent's.
    'monitor --timeout 300ms',
    'monitor -e 7 --timeout 300ms',
    'policy wait 1 --timeout 300ms',
    'policy delete --all',
  ])('a frozen agent is not waited for: %s', async (line) => {
    const path = join(folder, 'frozen');
    const agent = await fakeAgent(path);
    try {
      process.kill(agent.child.pid ?? 0, 'SIGSTOP');
      let err = '';
      const code = await runCli({
        args: ['--socket', path, ...line.split(' ')],
        version: '0',
        answerMs: line.includes('--timeout') ? 60_000 : 300,
        out: { write: () => undefined },
        err: {
          write: (text) => {
            err += text;
          },
        },
        signal: new AbortController().signal,
      });
      expect([code, err]).toEqual([
        1,
        `weir: the agent at ${path} (process ${agent.child.pid}) takes connections and has not answered for 0.3 s: ` +
          `it is stopped; \`kill -CONT ${agent.child.pid}\` resumes it` +
          (line.includes('delete') ? `. The agent may still carry out the request: check before you retry\n` : '\n'),
      ]);
    } finally {
      agent.child.kill('SIGKILL');
    }
  });

  it('warns of an endpoint that there is not, and follows it all the same', async () => {
    const end = new AbortController();
    let err = '';
    const running = runCli({
      args: ['--socket', socket, 'monitor', '-e', '77'],
      version: '0',
      out: { write: () => undefined },
      err: {
        write: (text) => {
          err += text;
        },
      },
      signal: end.signal,
    });
    while (!core.events.observed) await new Promise((resolve) => setTimeout(resolve, 5));
    end.abort(new InterruptedError('SIGTERM'));
    expect(await running).toBe(143);
    expect(err).toBe(
      'weir: warning: no endpoint 77 is on this node now; `weir endpoint list` shows those there are\nweir: interrupted by SIGTERM\n',
    );
  });

  it('follows a table, changes and deletions, and says why it cannot', async () => {
    const { services } = core.tables;
    const put = (name: string): unknown =>
      core.db.write([services], (txn) =>
        txn.upsert(services, { namespace: 'default', name, addresses: ['10.96.0.9'] }),
      );
    put('stays');
    const following = weir(['table', 'follow', 'services']);
    await eventually(
      async () => core.db.stats().streams,
      (streams) => streams === 1,
    );
    put('web');
    core.db.write([services], (txn) => txn.delete(services, 'default/web'));
    put('STOP');
    const { code, out } = await following;
    expect(code).toBe(130);
    const rows = out
      .trim()
      .split('\n')
      .map((text) => JSON.parse(text) as object);
    expect(rows[0]).toMatchObject({ row: { name: 'stays' } });
    expect(rows.at(-1)).toMatchObject({ row: { name: 'STOP', addresses: ['10.96.0.9'] } });
    await eventually(
      async () => core.db.stats().streams,
      (streams) => streams === 0,
    );
    expect(await weir(['table', 'follow', 'nodez'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('no table "nodez"'),
    });
  });

  it('names the request that failed by the agent, as its log does', async () => {
    const maps = core.maps.bind(core);
    core.maps = () => {
      throw new Error('the kernel does not answer');
    };
    try {
      expect(await weir(['map', 'list'])).toMatchObject({
        code: 1,
        err: expect.stringMatching(/^weir: the kernel does not answer \(request [0-9a-z]{12} in the agent's log\)\n$/),
      });
    } finally {
      core.maps = maps;
    }
  });

  it('says when the socket is none', async () => {
    const path = join(folder, 'text');
    await writeFile(path, 'text');
    expect(await weir(['--socket', path, 'status'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('it is not a socket'),
    });
  });

  it('waits and follows for as long as it is told', async () => {
    let time = '';
    /** Code 1: the agent has not answered at all in this time, which was too short on this machine. */
    const answered = async (...args: readonly string[]): Promise<Result> => {
      for (let seconds = 1; ; seconds *= 2) {
        time = `${seconds}s`;
        const result = await weir([...args, '--timeout', time]);
        if (result.code !== 1 || seconds > 60) return result;
      }
    };
    const late = await answered('policy', 'wait', '99999');
    expect([late.code, late.out]).toEqual([124, '']);
    expect(late.err.trimEnd().split('\n').at(-1)).toBe(`weir: revision 99999 was not in the kernel after ${time}`);
    expect(await answered('monitor')).toEqual({ code: 0, out: '', err: '' });
    expect(await weir(['policy', 'wait', '1', '--timeout', '1m'])).toMatchObject({ code: 0, err: '' });
    for (const args of [
      ['policy', 'wait', '1', '--timeout', 'soon'],
      ['monitor', '--timeout', '0'],
    ]) {
      const wrong = await weir(args);
      expect(wrong.code).toBe(2);
      expect(wrong.err).toContain('30s, 5m');
    }
  });
});
