/** Services at the sockets of pods, on the real kernel. */
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { createCore } from '../core/create-core.ts';
import type { Core } from '../core.ts';
import { Datapath } from '../datapath/index.ts';
import { Lab, type LabPod, silent } from '../datapath/testing/lab.ts';
import { SERVICE_MAPS } from './maps.ts';
import { SOCKET_HOOKS, SOURCE } from './programs.ts';
import { Services } from './services.ts';
import type { SliceEndpoint } from './types.ts';

const SERVICE = '10.96.0.10';

let lab: Lab;
let core: Core;
let datapath: Datapath;
let services: Services;
let client: LabPod;
let server: LabPod;
let other: LabPod;
let cgroup = '';

async function start(): Promise<void> {
  const options = lab.options();
  datapath = new Datapath({
    ...options,
    kernel: { ...options.kernel, maps: SERVICE_MAPS, cgroupRoot: cgroup },
    objects: () => [{ ...SOURCE, hooks: SOCKET_HOOKS }],
  });
  datapath.start();
  core = createCore(options, datapath);
  services = new Services({
    db: core.db,
    map: (name) => datapath.map(name),
    nodes: core.tables.nodes,
    nodeName: 'lab',
    nodeNetns: lab.netns,
    log: silent,
  });
  services.start();
  await core.start();
}

async function stop(): Promise<void> {
  await services.stop();
  await core.stop();
  datapath.stop();
}

/** The Service and its endpoints are these. */
async function told(...backends: readonly LabPod[]): Promise<void> {
  const { db } = core;
  const { objects, slices } = services.tables;
  const ports = (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 7777 }));
  const endpoints = backends.map(
    ({ address }): SliceEndpoint => ({ addresses: [address], ready: true, serving: true, terminating: false }),
  );
  db.write([objects, slices], (txn) => {
    const name = { namespace: 'ns', name: 'web' };
    txn.upsert(objects, { ...name, clusterAddresses: [SERVICE], ports, publishNotReady: false });
    txn.upsert(slices, { ...name, service: 'ns/web', endpoints, ports });
  });
  await services.settled();
}

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

const asks = (pod: LabPod): Promise<boolean> => client.reaches(pod, undefined, SERVICE);
const dials = (): Promise<boolean> => client.dial(server, SERVICE);

beforeEach(async () => {
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
  other = await lab.pod('o');
  cgroup = lab.cgroup(client);
  await start();
  await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  await core.upsertEndpoint(other.endpoint(3, { 'k8s:app': 'other' }));
});
afterEach(async () => {
  await stop();
  lab.close();
});

it('policy judges the backend that a client reaches by a Service', async () => {
  await told(server);
  await allow('server');
  expect(await dials()).toBe(true);
  expect(await asks(server)).toBe(true);
  await allow('other');
  expect(await asks(server)).toBe(false);
  await told(other);
  expect(await asks(other)).toBe(true);
});

it('a Service without backends refuses at once, and goes on when the agent is gone', async () => {
  await told();
  expect(await dials()).toBe(false);
  await told(server);
  expect(await dials()).toBe(true);
  await stop();
  expect(await dials()).toBe(true);
  await start();
  await told(server);
  expect(await dials()).toBe(true);
});

it('has its frontends and nothing else after its objects are gone', async () => {
  await told(server, other);
  const { objects } = services.tables;
  core.db.write([objects], (txn) => void txn.delete(objects, 'ns/web'));
  await eventually(
    async () => SERVICE_MAPS.map(({ name }) => [...datapath.map(name).keys()].length).slice(0, 3),
    (counts) => counts.every((count) => count === 0),
  );
});
