/** DNS rules and `toFQDNs` from `kubectl apply` to packets. */
import { spawn } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Peer } from '../../bpf/testing/veth.ts';
import type { FlowEvent, FlowExplanation, FqdnCacheModel } from '../../node-agent/api/models.ts';
import { RESOLVER } from '../../node-agent/dns/proxy/testing/talk.ts';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const [API, OTHER] = ['203.0.113.9', '198.51.100.7'] as const;
const API6 = '2001:db8:7::9';
const ZONE = {
  'api.example.com': [
    { type: 'CNAME', ttl: 60, data: 'edge.example.net' },
    { name: 'edge.example.net', type: 'A', ttl: 60, data: API },
  ],
  'six.example.com': [{ type: 'AAAA', ttl: 60, data: API6 }],
  'other.example.com': [{ type: 'A', ttl: 60, data: OTHER }],
  'secret.example.org': [{ type: 'A', ttl: 60, data: OTHER }],
};

const CLIENT = `
import { Resolver } from 'node:dns/promises';
import { createInterface } from 'node:readline';
createInterface({ input: process.stdin }).on('line', async (line) => {
  const { server, name, type, timeout = 30_000 } = JSON.parse(line);
  const resolver = new Resolver({ timeout, tries: 1 });
  resolver.setServers([server]);
  try {
    console.log(JSON.stringify(await resolver.resolve(name, type)));
  } catch (error) {
    console.log(JSON.stringify(error.code));
  }
});
console.log('"ready"');
`;

const policy = {
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'client', namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { app: 'client' } },
    egress: [
      {
        toEndpoints: [{ matchLabels: { app: 'dns' } }],
        toPorts: [{ ports: [{ port: '53', protocol: 'ANY' }], rules: { dns: [{ matchPattern: '*.example.com' }] } }],
      },
      {
        toFQDNs: [{ matchName: 'api.example.com' }, { matchName: 'six.example.com' }],
        toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }],
      },
    ],
  },
};

let cluster: Cluster;
const peers: Peer[] = [];

function inPod(pod: string, module: string, ...args: string[]): Peer {
  const { netns } = cluster.sandbox(pod);
  const command = ['netns', 'exec', netns, process.execPath, '--input-type=module', '-e', module, ...args];
  const peer = new Peer(spawn('ip', command, { stdio: ['pipe', 'pipe', 'inherit'] }));
  peers.push(peer);
  return peer;
}

beforeAll(async () => {
  cluster = await Cluster.start({ outside: [API, OTHER, API6], dnsProxies: true });
  await cluster.createPods([
    { name: 'client', labels: { app: 'client' }, node: 1 },
    { name: 'near', labels: { app: 'dns' }, node: 1 },
    { name: 'far', labels: { app: 'dns' }, node: 2 },
  ]);
  for (const name of ['near', 'far']) {
    const server = inPod(name, RESOLVER, ...cluster.sandbox(name).addresses);
    expect(await server.line()).toBe('"ready"');
    await server.ask(JSON.stringify({ zone: ZONE }));
  }
});
afterAll(async () => {
  for (const peer of peers) await peer.stop();
  await cluster?.stop();
});

describe.each(['near', 'far'])('a pod that asks a server, %s', (where) => {
  let client: Peer;
  beforeAll(async () => {
    client = inPod('client', CLIENT);
    expect(await client.line()).toBe('"ready"');
    await cluster.applyObjects([policy]);
    await cluster.programmed('cnp/client');
  });
  const ask = async (name: string, type = 'A', family: 0 | 1 = 0): Promise<unknown> => {
    const server = cluster.sandbox(where).addresses[family] ?? '';
    return JSON.parse(await client.ask(JSON.stringify({ server, name, type })));
  };
  const reach = (to: string) => cluster.probe('client', to, { port: 80, protocol: 'tcp' });

  it('gets the names that a rule has, and no others; may reach their addresses, and no others', async () => {
    await eventually(
      () => ask('other.example.com'),
      (answer) => JSON.stringify(answer) === JSON.stringify([OTHER]),
    );
    expect(await ask('secret.example.org')).toBe('EREFUSED');
    expect(await reach(OTHER)).toBe('dropped');
    expect(await ask('api.example.com')).toEqual([API]);
    // It was in the kernel before the answer came.
    expect(await reach(API)).toBe('reached');
    expect(await reach(OTHER)).toBe('dropped');
    expect(await ask('six.example.com', 'AAAA', 1)).toEqual([API6]);
    expect(await reach(API6)).toBe('reached');
  });

  it('is seen by a monitor, with the names', async () => {
    const node = cluster.node(1);
    const follow = async (): Promise<readonly FlowEvent[]> => {
      let isFollowing = true;
      const following = node.weir(['-o', 'json', 'monitor', '--timeout', '4s']).finally(() => {
        isFollowing = false;
      });
      while (isFollowing) {
        expect(await ask('secret.example.org')).toBe('EREFUSED');
        expect(await ask('api.example.com')).toEqual([API]);
        expect(await cluster.probe('client', API, { port: 81, protocol: 'tcp' })).toBe('dropped');
      }
      const lines = (await following).stdout.split('\n').filter((line) => line !== '');
      return lines.map((line) => JSON.parse(line) as FlowEvent);
    };
    const find = (all: readonly FlowEvent[], name: string) => all.find(({ question }) => question?.name === name);
    const toPort = (all: readonly FlowEvent[]) => all.find(({ destinationPort }) => destinationPort === 81);
    // A busy machine may let it hear nothing for all of its time.
    const events = await eventually(
      follow,
      (all) =>
        toPort(all) !== undefined &&
        ['secret.example.org', 'api.example.com'].every((name) => find(all, name) !== undefined),
    );
    const about = (name: string) => find(events, name);
    expect(about('secret.example.org')).toMatchObject({
      ...{ verdict: 'dns', reason: 'refused', protocol: 'UDP', destinationPort: 53 },
      source: { name: 'default/client' },
      destination: { name: `default/${where}` },
      message: expect.stringMatching(/^A secret\.example\.org: no rule lets the pod ask for it /),
    });
    expect(about('api.example.com')).toMatchObject({ reason: 'answered', question: { type: 'A', rcode: 'NOERROR' } });
    expect(toPort(events)).toMatchObject({
      verdict: 'dropped',
      destination: { address: API, hostNames: ['api.example.com'] },
    });
  });

  it('is shown by API and `weir`, and can be forgotten', async () => {
    const node = cluster.node(1);
    expect((await node.weir(['fqdn', 'cache', 'list', '-p', 'api.*.com'])).stdout).toMatch(
      new RegExp(`^\\d+ +api.example.com +${API} +60 s +`, 'm'),
    );
    expect((await node.weir(['fqdn', 'names'])).stdout).toMatch(/^MatchName: api.example.com +\d+/m);
    const explain = async (to: string) => {
      const { stdout } = await node.weir(['-o', 'json', 'explain', 'default/client', to, '80/tcp']);
      const answers = [JSON.parse(stdout) as FlowExplanation | readonly FlowExplanation[]].flat();
      return answers.flatMap(({ ends }) => ends.map(({ verdict, kernel }) => [verdict, kernel?.verdict]));
    };
    expect(await explain(API)).toEqual([['allowed', 'allowed']]);
    expect(await explain('api.example.com')).toEqual([['allowed', 'allowed']]);
    expect(await explain('other.example.com')).toEqual([['denied', 'denied']]);
    expect(await explain(OTHER)).toEqual([['denied', 'denied']]);
    const { body } = await cluster.node(1).call('GET', '/v1/fqdn/cache?matchpattern=api.*.com');
    expect(body as FqdnCacheModel[]).toMatchObject([{ fqdn: 'api.example.com', ips: [API] }]);

    expect((await node.weir(['fqdn', 'cache', 'clean', '-p', 'api.example.com'])).stdout).toContain('forgotten');
    await eventually(
      () => reach(API),
      (result) => result === 'dropped',
    );
    expect(await ask('api.example.com')).toEqual([API]);
    expect(await reach(API)).toBe('reached');
  });
});

it('a rule that comes later lets its pods reach what another pod of the node has looked up, by another pattern', async () => {
  await cluster.createPods([{ name: 'later', labels: { app: 'later' }, node: 1 }]);
  const client = inPod('client', CLIENT);
  expect(await client.line()).toBe('"ready"');
  const [server] = cluster.sandbox('near').addresses;
  expect(JSON.parse(await client.ask(JSON.stringify({ server, name: 'api.example.com', type: 'A' })))).toEqual([API]);
  const toFQDNs = [{ matchPattern: 'api.*.com' }];
  const toPorts = [{ ports: [{ port: '80', protocol: 'TCP' }] }];
  await cluster.applyObjects([
    {
      ...policy,
      metadata: { name: 'later', namespace: 'default' },
      spec: { endpointSelector: { matchLabels: { app: 'later' } }, egress: [{ toFQDNs, toPorts }] },
    },
  ]);
  await cluster.programmed('cnp/later');
  const reach = (pod: string) => cluster.probe(pod, API, { port: 80, protocol: 'tcp' });
  await eventually(
    () => reach('later'),
    (result) => result === 'reached',
  );
  expect(await reach('client')).toBe('reached');
});

describe('while the agent, or the proxy, is away', () => {
  let client: Peer;
  beforeAll(async () => {
    client = inPod('client', CLIENT);
    expect(await client.line()).toBe('"ready"');
  });
  const ask = async (name: string, timeout?: number): Promise<unknown> => {
    const [server] = cluster.sandbox('far').addresses;
    return JSON.parse(await client.ask(JSON.stringify({ server, name, type: 'A', timeout })));
  };
  const reach = (to: string) => cluster.probe('client', to, { port: 80, protocol: 'tcp' });
  const answers = () =>
    eventually(
      () => ask('other.example.com', 1500),
      (answer) => JSON.stringify(answer) === JSON.stringify([OTHER]),
    );

  it('goes on by what is in force, and closed without a proxy', async () => {
    const node = cluster.node(1);
    await node.agent.kill9();
    expect(await ask('api.example.com')).toEqual([API]);
    expect(await reach(API)).toBe('reached');
    expect(await ask('secret.example.org')).toBe('EREFUSED');

    await node.dnsProxy.kill9();
    expect(await ask('other.example.com', 1500)).toBe('ETIMEOUT');
    expect(await reach(API)).toBe('reached');
    expect(await reach(OTHER)).toBe('dropped');

    // It knows the rules and names by its own files.
    node.launchDnsProxy();
    await answers();
    expect(await ask('secret.example.org')).toBe('EREFUSED');
    expect(await reach(API)).toBe('reached');

    await node.startAgent();
    await answers();
    expect(await ask('api.example.com')).toEqual([API]);
    expect(await reach(API)).toBe('reached');
    expect(await reach(OTHER)).toBe('dropped');
    await eventually(
      async () => (await node.weir(['status'])).stdout,
      (text) => /^DNS proxy: +Ok/m.test(text),
    );
  });

  it('is said in the status of the policies that need the proxy', async () => {
    const node = cluster.node(1);
    const programmed = async () =>
      (
        await cluster.kubectl([
          ...['get', 'cnp', 'client', '-o'],
          'jsonpath={.status.conditions[?(@.type=="Programmed")].reason} {.status.failures[*].reason} {.status.failures[*].message}',
        ])
      ).trim();
    await cluster.programmed('cnp/client');
    await node.dnsProxy.kill9();
    expect(await eventually(programmed, (text) => text.startsWith('NodeFailed'))).toMatch(
      /^NodeFailed DnsProxyFailing DNS rules let nothing pass, and no address of a name is learned, as the DNS proxy fails: /,
    );
    node.launchDnsProxy();
    await eventually(programmed, (text) => text === 'Programmed');
    await answers();
  });
});
