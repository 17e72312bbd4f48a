/** An agent's whole way from rules to real packets, by both families: pods, the world, CIDRs, the node; what is cut, and what the kernel says of it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import type { Core } from '../core.ts';
import { Lab, type LabPod } from '../datapath/testing/lab.ts';
import { createCore } from './create-core.ts';

let lab: Lab;
let core: Core;
let client: LabPod;
let server: LabPod;

const FAMILIES = [
  { family: 'IPv4', of: (pod: LabPod) => pod.address, cidr: '10.88.0.0/16', other: 'fd88::/64', world: 'world-ipv4' },
  { family: 'IPv6', of: (pod: LabPod) => pod.address6, cidr: 'fd88::/64', other: '10.88.0.0/16', world: 'world-ipv6' },
] as const;

const to = (egress: readonly object[]) => ({
  endpointSelector: { matchLabels: { app: 'client' } },
  egress,
  labels: [{ key: 'name', value: 'test', source: 'unspec' }],
});
const UDP = [{ ports: [{ port: '7777', protocol: 'UDP' }] }];

/** Says what comes to port 7778, by either family. */
const LISTENER = `
const { createSocket } = require('node:dgram');
let bound = 0;
for (const [type, any] of [['udp4', '0.0.0.0'], ['udp6', '::']]) {
  const socket = createSocket({ type, ipv6Only: type === 'udp6' });
  socket.on('message', () => process.stdout.write('heard'));
  socket.bind(7778, any, () => { bound += 1; if (bound === 2) process.stdout.write('ready'); });
}`;

async function enforce(...rules: readonly object[]): Promise<void> {
  core.deleteRules([]);
  const { revision, problems } = core.importRules(rules);
  expect(problems).toEqual([]);
  expect(await core.waitPolicyRevision(revision)).toMatchObject({ failing: [] });
}

beforeEach(async () => {
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
  core = createCore(lab.options());
  await core.start();
  await core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
});
afterEach(async () => {
  await core.stop();
  lab.close();
});

describe.each(FAMILIES)('by $family', ({ of, cidr, other, world }) => {
  const reaches = () => client.reaches(server, undefined, of(server));

  it('a pod reaches whom its egress and the other’s ingress allow, and no longer once they do not', async () => {
    expect(await reaches()).toBe(true);
    await enforce(to([{ toEndpoints: [{ matchLabels: { app: 'server' } }], toPorts: UDP }]));
    expect(await reaches()).toBe(true);
    expect(await server.reaches(client, undefined, of(client))).toBe(true);
    await enforce(to([{ toEndpoints: [{ matchLabels: { app: 'server' } }] }]), {
      endpointSelector: { matchLabels: { app: 'server' } },
      ingress: [{ fromEndpoints: [{ matchLabels: { app: 'nobody' } }] }],
    });
    expect(await reaches()).toBe(false);
  });

  it('a connection is cut when policy denies it, and goes on when it allows it again', async () => {
    const open = to([{ toEndpoints: [{ matchLabels: { app: 'server' } }] }]);
    await enforce(open);
    expect(await client.dial(server, of(server))).toBe(true);
    await client.say(server, of(server));
    await eventually(
      () => server.heard(),
      (bytes) => bytes === 1,
    );
    await enforce(to([{ toEndpoints: [{ matchLabels: { app: 'nobody' } }] }]));
    await client.say(server, of(server));
    expect(await reaches()).toBe(false);
    expect(await server.heard()).toBe(1);
    await enforce(open);
    await eventually(
      () => server.heard(),
      (bytes) => bytes === 2,
    );
  });

  it('a peer that gets other labels is judged by these', async () => {
    await enforce(to([{ toEndpoints: [{ matchLabels: { app: 'server' } }] }]));
    expect(await reaches()).toBe(true);
    await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'other' }));
    await eventually(reaches, (reached) => !reached);
  });

  it('a CIDR is no pod, and pods are not the world', async () => {
    for (const member of [
      { toCIDR: [cidr] },
      { toCIDR: [other] },
      { toEntities: [world] },
      { toEntities: ['world'] },
    ]) {
      await enforce(to([member]));
      expect([member, await reaches()]).toEqual([member, false]);
    }
    await enforce(to([{ toEntities: ['cluster'] }]));
    expect(await reaches()).toBe(true);
  });

  it('an endpoint that is gone is nobody any more', async () => {
    await enforce(to([{ toEntities: ['world'] }, { toEndpoints: [{ matchLabels: { app: 'server' } }] }]));
    expect(await reaches()).toBe(true);
    await core.deleteEndpoint(2);
    // An address that nobody has is of the world.
    await enforce(to([{ toEndpoints: [{ matchLabels: { app: 'server' } }] }]));
    await eventually(reaches, (reached) => !reached);
  });

  it('what is said to a group is for the host and all pods, never for the world', async () => {
    const group = of(server).includes(':') ? 'ff02::1' : '224.0.0.1';
    const node = spawn('nsenter', [`--net=${lab.netns}`, process.execPath, '-e', LISTENER], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let heard = '';
    node.stdout.on('data', (bytes: Buffer) => {
      heard += bytes;
    });
    const dropped = () =>
      core
        .metrics()
        .filter(({ reason }) => reason === 'group-address')
        .reduce((sum, { packets }) => sum + packets, 0n);
    try {
      await once(node.stdout, 'data');
      heard = '';
      await enforce(to([{ toEntities: ['world'] }, { toCIDR: ['0.0.0.0/0', '::/0'] }]));
      await client.write(server, group);
      await eventually(async () => dropped() > 0n, Boolean);
      expect(heard).toBe('');
      await enforce(to([{ toEntities: ['host', 'cluster'] }]));
      await client.write(server, group);
      await eventually(
        async () => heard,
        (text) => text === 'heard',
      );
    } finally {
      node.kill();
    }
  });
});
