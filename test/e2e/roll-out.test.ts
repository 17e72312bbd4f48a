/** A roll-out that changes the number of a named port, under open connections: what policies by that name allow meanwhile, and what is told. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import type { OpenStream } from '../cluster/pod/conversation.ts';
import { eventually } from '../eventually.ts';

const peer = { matchLabels: { app: 'web' } };
const POLICIES = [
  {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name: 'cli-out', namespace: 'default' },
    spec: {
      endpointSelector: { matchLabels: { app: 'cli' } },
      egress: [{ toEndpoints: [peer], toPorts: [{ ports: [{ port: 'http', protocol: 'TCP' }] }] }],
    },
  },
  {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: { name: 'kcli-out', namespace: 'default' },
    spec: {
      podSelector: { matchLabels: { app: 'kcli' } },
      policyTypes: ['Egress'],
      egress: [{ to: [{ podSelector: peer }], ports: [{ port: 'http' }] }],
    },
  },
];
const web = (name: string, http: `${number}/tcp`) => ({
  name,
  labels: { app: 'web' },
  node: 2,
  // Both are served: only the name differs.
  tcp: [8080, 9090],
  portNames: { http },
});

let cluster: Cluster;
const streams = new Map<string, OpenStream>();

beforeAll(async () => {
  cluster = await Cluster.start();
  await cluster.createPods([
    web('web-1', '8080/tcp'),
    { name: 'cli', labels: { app: 'cli' }, node: 1 },
    { name: 'kcli', labels: { app: 'kcli' }, node: 1 },
  ]);
  await cluster.applyObjects(POLICIES);
  await cluster.programmed('cnp/cli-out');
  await eventually(
    () => reach('kcli', 'web-1'),
    (ports) => ports.length === 1,
  );
});
afterAll(() => cluster?.stop());

/** The ports of a pod that a client reaches. */
async function reach(client: string, to: string): Promise<readonly number[]> {
  const ports = [8080, 9090];
  const results = await Promise.all(ports.map((port) => cluster.probe(client, to, { port, protocol: 'tcp' })));
  return ports.filter((_, index) => results[index] === 'reached');
}

const resolvedRefs = (): Promise<string> =>
  cluster.kubectl([
    ...['get', 'cnp/cli-out', '-o'],
    'jsonpath={range .status.conditions[?(@.type=="ResolvedRefs")]}{.status} {.reason} {.message}{end}',
  ]);

/** Of type Warning: `POLICY REASON COUNT MESSAGE`. */
const warnings = async (): Promise<readonly string[]> =>
  (
    await cluster.kubectl([
      ...['get', 'events', '--field-selector', 'type=Warning', '-o'],
      'jsonpath={range .items[*]}{.involvedObject.name} {.reason} {.count} {.message}{"\\n"}{end}',
    ])
  )
    .split('\n')
    .filter((line) => line !== '');

async function explained(client: string, to: string, port: number): Promise<string> {
  const { code, stdout } = await cluster
    .node(1)
    .weir(['explain', `default/${client}`, `default/${to}`, `${port}`, '-o', 'json']);
  const [end] = (JSON.parse(stdout) as { readonly ends: { verdict: string; kernel: { verdict: string } }[] }).ends;
  return `${code} ${end?.verdict}/${end?.kernel.verdict}`;
}

/** Echoes that a client's stream has had. */
async function echoed(client: string): Promise<number> {
  return (await streams.get(client)?.report())?.echoed ?? 0;
}

it('begins with one number, by which both policies allow', async () => {
  const { address } = await cluster.host('web-1');
  for (const client of ['cli', 'kcli']) {
    expect([client, await reach(client, 'web-1')]).toEqual([client, [8080]]);
    streams.set(client, await (await cluster.host(client)).process.stream('tcp', address, 8080));
  }
  expect(await warnings()).toEqual([]);
});

it('with two numbers the NetworkPolicy allows each pod its own, and connections stay', async () => {
  await cluster.createPods([web('web-2', '9090/tcp')]);
  await eventually(
    () => reach('kcli', 'web-2'),
    (ports) => ports.join() === '9090',
  );
  const before = await echoed('kcli');
  expect(await reach('kcli', 'web-1')).toEqual([8080]);
  await eventually(
    () => echoed('kcli'),
    (count) => count > before,
  );
  expect((await streams.get('kcli')?.report())?.closed).toBe(false);
  const words = [explained('kcli', 'web-1', 8080), explained('kcli', 'web-1', 9090), explained('kcli', 'web-2', 9090)];
  expect(await Promise.all(words)).toEqual(['0 allowed/allowed', '1 denied/denied', '0 allowed/allowed']);
});

it('meanwhile the CiliumNetworkPolicy allows neither, and its status and one Event say so', async () => {
  const told = await eventually(resolvedRefs, (text) => text.startsWith('False'));
  expect(told).toBe(
    'False PortNameAmbiguous spec.egress[0]: port name "http" (TCP) is 8080 (pod default/web-1), 9090 (pod default/web-2), of pods of equal labels; until pods of equal labels agree, an allow by the name reaches none of them',
  );
  // The status tells it when the operator knows, and nodes follow.
  for (const pod of ['web-1', 'web-2'])
    await eventually(
      () => reach('cli', pod),
      (ports) => ports.length === 0,
    );
  const before = await echoed('cli');
  expect(await reach('cli', 'web-1')).toEqual([]);
  expect(await echoed('cli')).toBe(before);
  expect(await explained('cli', 'web-1', 8080)).toBe('1 denied/denied');
  const events = await eventually(warnings, (all) => all.length > 0);
  expect(events).toEqual([`cli-out ${told.slice('False '.length).replace(' ', ' 1 ')}`]);
});

it('ends when the old pod goes: the new number is allowed, and nothing more is told', async () => {
  await cluster.deletePod('web-1');
  await eventually(resolvedRefs, (text) => text.startsWith('True Resolved'));
  for (const client of ['cli', 'kcli'])
    await eventually(
      () => reach(client, 'web-2'),
      (ports) => ports.join() === '9090',
    );
  expect((await warnings()).map((line) => line.split(' ').slice(0, 3).join(' '))).toEqual([
    'cli-out PortNameAmbiguous 1',
  ]);
});
