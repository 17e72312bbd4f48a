/** A part brings all that it has in its own folder and a line in a list: the agent runs with one that nothing else knows of. */
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { Agent } from '../../node-agent/agent.ts';
import { COMMANDS } from '../../node-agent/cli/commands.ts';
import { runCli } from '../../node-agent/cli/program.ts';
import { runCommand } from '../../node-agent/host/command.ts';
import type { AnyAgentPart } from '../../node-agent/parts/contract.ts';
import { AgentProcess } from '../../node-agent/testing/agent-process.ts';
import { TestNamespaces } from '../../node-agent/testing/netns.ts';
import { eventually } from '../eventually.ts';
import { addSampleCommand } from './sample.ts';

let folder = '';
let node = '';
let bpfRoot = '';
let namespaces: TestNamespaces;
const agents: AgentProcess[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-parts-'));
  namespaces = new TestNamespaces('weir-pa');
  node = await namespaces.add('node');
  bpfRoot = `/sys/fs/bpf/${basename(node)}`;
});
afterEach(async () => {
  for (const each of agents.splice(0)) await each.ended('SIGKILL');
  await rm(bpfRoot, { recursive: true, force: true });
  await namespaces.dispose();
  await rm(folder, { recursive: true });
});

function agent(...more: readonly string[]): AgentProcess {
  const args = [
    ...['--node-name', 'n1', '--bpf-root', bpfRoot, '--socket', join(folder, 'sock'), '--ct-entries', '1024'],
    ...['--state-dir', join(folder, 'state'), '--no-kubernetes', '--pod-cidr', '10.86.0.0/24', '--routing', 'none'],
    // A stage has one program, which is the sample's here.
    ...['--services', 'off'],
    ...[
      '--cni-conf-dir',
      join(folder, 'net.d'),
      '--cni-install',
      join(folder, 'bin'),
      '--cni-binary',
      import.meta.filename,
    ],
    ...more,
  ];
  const main = join(import.meta.dirname, 'main.ts');
  const made = new AgentProcess(node, [process.execPath, main, ...args]);
  agents.push(made);
  return made;
}

async function started(...more: readonly string[]): Promise<AgentProcess> {
  const made = agent(...more);
  await made.running();
  return made;
}

async function weir(...args: readonly string[]): Promise<string> {
  let text = '';
  const out = {
    write: (chunk: string): void => {
      text += chunk;
    },
  };
  const code = await runCli({
    args: ['--socket', join(folder, 'sock'), ...args],
    version: '1',
    commands: [...COMMANDS, addSampleCommand],
    out,
    err: out,
    signal: new AbortController().signal,
  });
  expect([code, text]).toEqual([0, text]);
  return text;
}

it('adds a table, a map, a route, a metric, a flag, a command and a row of status, and is named by nothing else', async () => {
  const first = await started('--sample-limit', '1', '--health-address', '127.0.0.1:9879');
  expect(await weir('status')).toMatch(/^Samples: +Ok +0 of 1$/m);
  expect(await weir('sample', 'one', '7')).toBe('sample one is there\n');
  expect(await weir('status', '--verbose')).toMatch(/^Samples: +Warning +1 of 1$/m);
  expect(await weir('status', '--verbose')).toMatch(/^sample +running +\S+ +datapath +- *$/m);
  expect(await weir('table', 'get', 'samples')).toContain('one');
  expect(JSON.parse(await weir('-o', 'json', 'map', 'get', 'sample_counts'))).toEqual([
    { key: { sample: 1 }, value: { size: 7 } },
  ]);
  expect(await weir('map', 'list')).toMatch(/^sample_counts +hash +1 +16 /m);
  const metrics = await runCommand('nsenter', [
    ...[`--net=${node}`, process.execPath, '-e'],
    "fetch('http://127.0.0.1:9879/metrics').then(async (answer) => console.log(await answer.text()))",
  ]);
  expect(metrics).toMatch(/^weir_agent_samples 1$/m);
  expect(metrics).toMatch(/^weir_agent_sample_plans [1-9]/m);
  expect(metrics).toMatch(/^weir_bpf_map_entries\{map="sample_counts"\} 1$/m);

  // Its worker runs, its step was taken, and its addresses are in the ipcache.
  await eventually(
    () => weir('status'),
    (text) => /^Sample worker: +Ok +runs$/m.test(text),
  );
  expect(await weir('table', 'get', 'ipcache')).toMatch(/203\.0\.113\.0\/24.*sample/);

  // Its programs run.
  expect(JSON.parse(await weir('-o', 'json', 'map', 'get', 'stages'))).toEqual(
    [
      ['from-pod', 'sample_from_pod'],
      ['to-pod', 'sample_to_pod'],
      ['judge-sent', 'weir_judge_sent'],
      ['to-proxy', 'weir_to_proxy'],
      ['answer-to-proxy', 'weir_answer'],
    ].map(([stage, program]) => ({ key: { stage }, value: { program, id: expect.any(Number) } })),
  );
  expect(readdirSync(join(bpfRoot, 'hooks')).sort()).toEqual([
    'sample-sample_connect-connect4',
    'sample-sample_uplink-ingress-1',
  ]);

  // Its pin is looked after as any other, and its map outlives the agent.
  const pin = join(bpfRoot, 'sample_counts');
  rmSync(pin);
  await eventually(async () => existsSync(pin), Boolean);
  await first.ended('SIGTERM');
  const second = await started();
  expect(JSON.parse(await weir('-o', 'json', 'map', 'get', 'sample_counts'))).toHaveLength(1);
  await second.ended('SIGTERM');
  // What is no map keeps no agent from starting.
  rmSync(pin);
  mkdirSync(pin);
  const third = await started();
  expect(JSON.parse(await weir('-o', 'json', 'map', 'get', 'sample_counts'))).toEqual([]);
  await third.ended('SIGTERM');

  const cleanup = agent('cleanup');
  await cleanup.ended();
  expect(cleanup.output).toContain('removed the samples\n');
  expect(existsSync(bpfRoot)).toBe(false);
});

function built(parts: readonly AnyAgentPart[]): Promise<Agent> {
  return Agent.build({ config: {} as never, command: 'run', log: {} as never, parts });
}

it('may not take the name of a map, or of a folder, that is there', async () => {
  const map = { type: 'hash', keySize: 4, valueSize: 4, maxEntries: 1, flags: 0, version: 1 } as const;
  const describe = () => ({ key: {}, value: {} });
  for (const [name, why] of [
    ['ipcache', 'two maps are called ipcache'],
    ['links', 'a folder'],
    ['netns', 'a folder'],
    ['next_a', 'under way'],
    ['a.b', 'cannot be pinned'],
  ] as const)
    await expect(built([{ name: 'bad', maps: [{ ...map, name, describe }], build: () => ({}) }])).rejects.toThrow(why);
});

it('may not bring an object of another name, or run programs of an object that nobody brings', async () => {
  const source = '/none.c';
  for (const [objects, why] of [
    [[{ name: 'weir', source }], 'two BPF objects are called weir'],
    [[{ name: 'a.b', source }], 'use up to 15'],
    [[], 'no part brings the BPF object "x"'],
  ] as const)
    await expect(
      built([{ name: 'bad', objects, build: () => ({ hooks: { x: [{ at: 'to-pod', program: 'p' }] } }) }]),
    ).rejects.toThrow(why);
});

it('may not bring events, addresses or steps that clash or have no place', async () => {
  const decode = (): never => {
    throw new Error('not asked for');
  };
  for (const [more, why] of [
    [{ events: [{ kind: 2, verdict: 'x', decode }] }, 'a kind of events is number 2: use 16 to 255'],
    [{ events: [16, 16].map((kind) => ({ kind, verdict: 'x', decode })) }, 'two kinds of events are number 16'],
  ] as const)
    await expect(built([{ name: 'bad', build: () => more }])).rejects.toThrow(why);
});

it('may not give conditions or settings the names of others', async () => {
  const read = () => ({ ok: true, message: '' });
  for (const [more, why] of [
    [{ conditions: [{ name: 'x', title: 'X', read }] }, 'two conditions are called x'],
    [{ settings: { x: 1 } }, 'two settings are called x'],
  ] as const)
    await expect(built(['a', 'b'].map((name) => ({ name, build: () => more })))).rejects.toThrow(why);
});
