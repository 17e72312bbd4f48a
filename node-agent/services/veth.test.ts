/** Services at pods' interfaces: pods whose sockets no hook sees, on the real kernel. */
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { DIRECTION, type Direction, metricsKey, reasonNumber, sumMetrics } from '@weir/bpf';
import type { LabPod } from '../datapath/testing/lab.ts';
import { POD_HOOKS } from './programs.ts';
import { POD_PORT, SERVICE, ServiceLab } from './testing/service-lab.ts';

/** Nobody listens there. */
const SILENT_PORT = 7779;

let node: ServiceLab;
let client: LabPod;
let server: LabPod;
let other: LabPod;

beforeEach(async () => {
  node = new ServiceLab(POD_HOOKS);
  client = await node.lab.pod('c');
  server = await node.lab.pod('s');
  other = await node.lab.pod('o');
  await node.start();
  await node.core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
  await node.core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
  await node.core.upsertEndpoint(other.endpoint(3, { 'k8s:app': 'other' }));
});
afterEach(async () => {
  await node.stop();
  node.lab.close();
});

const talk = (how: { bytes?: number; patienceMs?: number } = {}): Promise<string> =>
  client.talk(SERVICE, POD_PORT, how);
/** Where no answer is to come. */
const BRIEF = { patienceMs: 1500 };

function dropped(reason: string, direction: Direction = 'egress'): bigint {
  const key = metricsKey.encode({ reason: reasonNumber(reason), direction: DIRECTION[direction] });
  const value = node.datapath.map('metrics').lookup(key);
  return value === undefined ? 0n : sumMetrics(value).packets;
}

it('policy judges the backend that a packet to a Service goes to, and its answers come from the Service', async () => {
  await node.told([server]);
  expect(await client.dial(server, SERVICE)).toBe(true);
  expect(await talk()).toBe('answered');
  await node.allow('server');
  expect(await client.dial(server, SERVICE)).toBe(true);
  expect(await talk()).toBe('answered');
  await node.allow('other');
  expect(await talk(BRIEF)).toBe('silent');
  await node.told([other]);
  expect(await client.dial(other, SERVICE)).toBe(true);
  expect(await talk()).toBe('answered');
});

it('translates ports, and datagrams in fragments, both ways', async () => {
  await node.told([server], {
    ports: [
      { name: 'tcp', protocol: 'TCP', port: 80 },
      { name: 'udp', protocol: 'UDP', port: 80 },
    ],
  });
  await node.allow('server');
  expect(await client.talk(SERVICE, 80)).toBe('answered');
  expect(await client.talk(SERVICE, 80, { bytes: 4000 })).toBe('answered');
  expect(await client.talk(SERVICE, 80, { bytes: 60_000 })).toBe('answered');
});

it('refuses at once what has no backend, and what its backend refuses', async () => {
  await node.told([]);
  expect(await talk()).toBe('refused');
  expect(await client.dial(server, SERVICE)).toBe(false);
  expect(dropped('no-backend')).toBeGreaterThanOrEqual(2n);
  await node.told([server], { targetPort: SILENT_PORT });
  await node.allow('server');
  expect(await talk()).toBe('refused');
});

it('what goes to a Service and cannot be translated is dropped where egress is enforced, whatever the world may', async () => {
  await node.told([server]);
  const before = dropped('no-service');
  expect(await client.talk(SERVICE, 4242, BRIEF)).toBe('silent');
  expect(dropped('no-service')).toBe(before);
  await node.allow('server', { toEntities: ['world'] });
  expect(await client.talk(SERVICE, 4242, BRIEF)).toBe('silent');
  expect(dropped('no-service')).toBe(before + 1n);
  expect(await talk()).toBe('answered');
});

it('a pod reaches itself through its Service, whatever policy says', async () => {
  await node.told([client]);
  await node.allow('other');
  expect(await client.dial(client, SERVICE)).toBe(true);
  expect(await talk()).toBe('answered');
  expect(await talk({ bytes: 4000 })).toBe('answered');
});
