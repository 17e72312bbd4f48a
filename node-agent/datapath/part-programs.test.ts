/** Programs of a part on the real kernel: at pods' interfaces around judging, at sockets, at an interface of the node. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import type { MapSpec, ProgramObject } from '@weir/bpf';
import { type BpfMap, inNetns, listTcx, mapFlags, openPinnedMap } from 'libbpf-ts';
import { eventually } from '../../test/eventually.ts';
import { createCore } from '../core/create-core.ts';
import type { Core } from '../core.ts';
import { Flows } from '../flows/flows.ts';
import type { FlowEvent } from '../flows/types.ts';
import { number, stageProgram } from './stages.ts';
import { Lab, type LabPod, silent } from './testing/lab.ts';

const LOOPBACK = 1;
const OTHER = '10.96.0.10';
const addresses: MapSpec = {
  name: 'sample_addrs',
  type: 'hash',
  keySize: 4,
  valueSize: 4,
  maxEntries: 16,
  flags: mapFlags.NO_PREALLOC,
  version: 1,
  describe: (key, value) => ({ key: { address: [...key].join('.') }, value: { address: [...value].join('.') } }),
};
const object: ProgramObject = {
  name: 'sample',
  source: join(import.meta.dirname, '../../test/parts/sample.c'),
  hooks: [
    { at: 'from-pod', program: 'sample_from_pod' },
    { at: 'to-pod', program: 'sample_to_pod' },
    { at: 'cgroup', program: 'sample_connect', attach: 'connect4' },
    { at: 'interfaces', program: 'sample_uplink', direction: 'ingress', interfaces: () => interfaces },
  ],
};

let lab: Lab;
let core: Core;
let client: LabPod;
let server: LabPod;
let cgroup = '';
let interfaces: readonly number[] = [];

const bytes = (address: string): Uint8Array => Uint8Array.from(address.split('.'), Number);

async function start(objects: readonly ProgramObject[]): Promise<void> {
  core = createCore(
    lab.options({ kernel: { maps: [addresses], cgroupRoot: cgroup, auditMs: 50 }, brought: () => ({ objects }) }),
  );
  await core.start();
}

/** What the client may send: to the server's port, or to nobody. */
async function allow(app: string): Promise<void> {
  core.deleteRules([]);
  const { revision, problems } = core.importRules([
    {
      endpointSelector: { matchLabels: { app: 'client' } },
      egress: [{ toEndpoints: [{ matchLabels: { app } }] }],
      labels: [{ key: 'name', value: 'test', source: 'unspec' }],
    },
  ]);
  expect(problems).toEqual([]);
  await core.waitPolicyRevision(revision);
}

const uplink = (): number[] => inNetns(lab.netns, () => listTcx(LOOPBACK, 'ingress').map(({ program }) => program));
const stages = (): BpfMap => openPinnedMap(join(lab.root, 'stages'));
const asksOther = (): Promise<boolean> => client.reaches(server, undefined, OTHER);

beforeEach(async () => {
  interfaces = [LOOPBACK];
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
  cgroup = lab.cgroup(client);
  await start([object]);
  await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  core.map('sample_addrs').update(bytes(OTHER), bytes(server.address));
  core.map('sample_addrs').update(bytes(server.address), bytes(OTHER));
});
afterEach(async () => {
  await core.stop();
  lab.close();
});

it('run before a packet is judged and after it was: policy sees the pod behind another address', async () => {
  await allow('server');
  expect(await asksOther()).toBe(true);
  expect(await client.dial(server, OTHER)).toBe(true);
  await allow('nobody');
  expect(await asksOther()).toBe(false);
  expect(uplink()).toHaveLength(1);
});

it('send events of their own kind to those who follow', async () => {
  await allow('server');
  const seen: FlowEvent[] = [];
  const flows = new Flows({
    db: core.db,
    services: core.tables.services,
    naming: core.naming,
    map: () => core.map('events'),
    kinds: () => [
      {
        kind: 16,
        verdict: 'readdressed',
        decode: (record, names) => ({
          ...{ time: names.time(0n), verdict: 'readdressed', direction: 'egress', endpoint: 0, protocol: 'UDP' },
          ...{ source: names.peer(record.slice(12, 16), 0), destination: names.peer(bytes(server.address), 0) },
          ...{ reason: 'sample', message: '', policies: [], revision: 0 },
        }),
      },
    ],
    log: silent,
  });
  flows.start();
  const following = flows.events.subscribe((event) => seen.push(event));
  expect(await asksOther()).toBe(true);
  await eventually(
    async () => seen,
    (events) => events.some(({ verdict }) => verdict === 'readdressed'),
  );
  expect(seen.find(({ verdict }) => verdict === 'readdressed')).toMatchObject({
    source: { address: OTHER },
    destination: { address: server.address, name: 'endpoint 2' },
  });
  following.unsubscribe();
  flows.stop();
});

it('go on without an agent, and are adopted, replaced and taken away by the next', async () => {
  await allow('server');
  await core.stop();
  expect(await asksOther()).toBe(true);
  await start([object]);
  expect(await asksOther()).toBe(true);
  expect(readdirSync(join(lab.root, 'hooks')).sort()).toEqual([
    'sample-sample_connect-connect4',
    `sample-sample_uplink-ingress-${LOOPBACK}`,
  ]);
  await core.stop();
  await start([]);
  expect(readdirSync(join(lab.root, 'hooks'))).toEqual([]);
  expect(uplink()).toEqual([]);
  using map = stages();
  expect([stageProgram(map, 'from-pod'), stageProgram(map, 'to-pod')]).toEqual([undefined, undefined]);
  expect(await asksOther()).toBe(false);
});

it('are put back where somebody took them away', async () => {
  await allow('server');
  const [before] = uplink();
  using map = stages();
  map.delete(number(0));
  for (const file of readdirSync(join(lab.root, 'hooks'))) rmSync(join(lab.root, 'hooks', file));
  await eventually(
    async () => uplink(),
    (now) => now.length === 1 && now[0] === before,
  );
  await eventually(async () => stageProgram(map, 'from-pod') !== undefined, Boolean);
  expect(await asksOther()).toBe(true);
  expect(core.repairs().map(({ part }) => part)).toContain('pins');
});

it('follow interfaces of the node as they come and go, and nobody is blamed for that', async () => {
  const pin = (at: number): string => `sample-sample_uplink-ingress-${at}`;
  const pins = async (): Promise<string[]> => readdirSync(join(lab.root, 'hooks')).sort();
  interfaces = [LOOPBACK, client.ifindex];
  await eventually(pins, (all) => all.includes(pin(client.ifindex)));
  interfaces = [client.ifindex, 4_000_000];
  await eventually(pins, (all) => !all.includes(pin(LOOPBACK)));
  expect(await pins()).toEqual(['sample-sample_connect-connect4', pin(client.ifindex)]);
  expect(core.repairs()).toEqual([]);
  expect(core.health().ok).toBe(true);
  // One that is not there keeps no agent from starting.
  await core.stop();
  await start([object]);
});

it('may not have one program at one hook twice, and leave nothing at a hook that is another kind now', async () => {
  const uplink = object.hooks.filter(({ at }) => at === 'interfaces');
  await core.stop();
  await expect(start([{ ...object, hooks: [...uplink, ...uplink] }])).rejects.toThrow('at one hook twice');
  await start([{ ...object, hooks: [{ at: 'to-pod', program: 'sample_uplink' }] }]);
  expect(readdirSync(join(lab.root, 'hooks'))).toEqual([]);
});

it('keep what runs where another cannot be attached', async () => {
  await core.stop();
  const wrong: ProgramObject = {
    ...object,
    hooks: object.hooks.map((hook) => (hook.at === 'cgroup' ? { ...hook, attach: 'connect6' } : hook)),
  };
  await expect(start([wrong])).rejects.toThrow('EINVAL');
  expect(readdirSync(join(lab.root, 'hooks'))).toContain('sample-sample_connect-connect4');
  await start([object]);
});

it('drop what cannot go on to be judged', async () => {
  await allow('server');
  using map = stages();
  // The audit may put the entry back before the packet comes.
  await eventually(async () => {
    map.delete(number(2));
    return !(await asksOther());
  }, Boolean);
  await eventually(asksOther, Boolean);
});

it('end when the node is cleaned up', async () => {
  await core.remove();
  expect(uplink()).toEqual([]);
  expect(await client.dial(server)).toBe(true);
  expect(await client.dial(server, OTHER)).toBe(false);
});
