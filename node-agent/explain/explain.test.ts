/** `GET /v1/policy/explain` on the kernel: what it answers, and what it leaves behind. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { ipcacheKey, ipcacheValue } from '@weir/bpf';
import { labelsKey, podIdentityLabels } from '@weir/labels';
import { parseAddress } from '@weir/net';
import type { RuleProtocol } from '@weir/policy';
import fastify from 'fastify';
import { eventually } from '../../test/eventually.ts';
import type { FlowExplanation } from '../api/models.ts';
import { createCore } from '../core/create-core.ts';
import type { Core } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { Datapath } from '../datapath/index.ts';
import { Lab, type LabPod } from '../datapath/testing/lab.ts';
import { explainLive, type LiveExplainer } from './explain.ts';
import { explainRoute } from './part.ts';

let lab: Lab;
let datapath: Datapath;
let core: Core;
let client: LabPod;
let server: LabPod;

beforeEach(async () => {
  lab = new Lab();
  const options = lab.options();
  datapath = new Datapath(options);
  datapath.start();
  core = createCore(options, datapath);
  await core.start();
  client = await lab.pod('c');
  server = await lab.pod('s');
  const { localPods, namespaces, identities } = core.tables;
  core.db.write([localPods, namespaces, identities], (txn) => {
    txn.upsert(namespaces, { name: 'a', labels: {} });
    for (const { id, name, address } of [
      { id: 256, name: 'client', address: client.address },
      { id: 257, name: 'server', address: server.address },
    ]) {
      const labels = podIdentityLabels({
        namespace: 'a',
        podLabels: { app: name },
        serviceAccount: 'default',
        cluster: options.clusterName,
      });
      txn.upsert(identities, { id, labels, labelsKey: labelsKey(labels) });
      txn.upsert(localPods, {
        namespace: 'a',
        name,
        uid: `uid-${name}`,
        labels: { app: name },
        serviceAccount: 'default',
        namedPorts: name === 'server' ? [{ name: 'web', port: 8080, protocol: 'TCP' }] : [],
        addresses: [address],
      });
    }
  });
  const pod = (name: string) => ({ pod: { namespace: 'a', name } });
  await core.upsertEndpoint({ ...client.endpoint(1, {}), ...pod('client') });
  await core.upsertEndpoint({ ...server.endpoint(2, {}), ...pod('server') });
});

afterEach(async () => {
  await core.stop();
  datapath.stop();
  lab.close();
});

const explainer = (): LiveExplainer => ({
  core,
  nodeName: 'n1',
  mode: 'default',
  allowLocalhost: true,
  kernel: {
    program: (direction) => {
      const { pinned } = datapath.open('test');
      return direction === 'egress' ? pinned.fromPod : pinned.toPod;
    },
    map: (name) => datapath.map(name),
    inNode: (body) => datapath.inNode(body),
  },
});

function explain(
  source: string,
  destination: string,
  port: string | number,
  protocol: RuleProtocol = 'TCP',
): FlowExplanation {
  return explainLive({ source, destination, protocol, port: String(port) }, explainer());
}

/** `direction policies/kernel`. */
const ends = (answer: FlowExplanation): string[] =>
  answer.ends.map(({ direction, verdict, kernel }) => `${direction} ${verdict}/${kernel?.verdict ?? 'not asked'}`);

const flows = (): number => [...core.map('ct4').keys(), ...core.map('ct6').keys()].length;

async function enforce(...rules: readonly object[]): Promise<void> {
  core.deleteRules([]);
  const { revision, problems } = core.importRules(
    rules.map((rule) => ({ endpointSelector: { matchLabels: { app: 'server' } }, ...rule })),
  );
  expect(problems).toEqual([]);
  expect(await core.waitPolicyRevision(revision)).toMatchObject({ failing: [] });
}

const CLIENT = { fromEndpoints: [{ matchLabels: { app: 'client' } }] };
const ports = (port: string, protocol: string) => ({ toPorts: [{ ports: [{ port, protocol }] }] });

it('is of one mind with the kernel on a pod that nobody knows yet: closed without a rule', async () => {
  const fresh = await lab.pod('u');
  await core.upsertEndpoint(fresh.endpoint(3, { 'reserved:init': '' }));
  expect(ends(explain(`address/${fresh.address}`, 'pod/a/server', 80))[0]).toBe('egress denied/denied');
});

it('is of one mind with the kernel, and leaves no flow behind', async () => {
  expect(ends(explain('pod/a/client', 'pod/a/server', 80))).toEqual([
    'egress allowed/allowed',
    'ingress allowed/allowed',
  ]);
  await enforce({
    ingress: [
      { ...CLIENT, ...ports('7777', 'UDP') },
      { ...CLIENT, ...ports('80', 'TCP') },
      { ...CLIENT, ...ports('9', 'SCTP') },
      { ...CLIENT, icmps: [{ fields: [{ type: 8 }] }] },
    ],
    ingressDeny: [ports('81', 'TCP')],
  });
  for (const [port, protocol, verdict] of [
    [7777, 'UDP', 'allowed'],
    [7778, 'UDP', 'denied'],
    [80, 'TCP', 'allowed'],
    [81, 'TCP', 'denied'],
    [82, 'TCP', 'denied'],
    [9, 'SCTP', 'allowed'],
    [10, 'SCTP', 'denied'],
    [8, 'ICMP', 'allowed'],
    [13, 'ICMP', 'denied'],
  ] as const) {
    const answer = explain(`address/${client.address}`, `address/${server.address}`, port, protocol);
    expect([port, protocol, ...ends(answer)]).toEqual([
      port,
      protocol,
      'egress allowed/allowed',
      `ingress ${verdict}/${verdict}`,
    ]);
  }
  expect(flows()).toBe(0);
});

it('asks the kernel nothing where the DNS proxy decides, which no test packet reaches', async () => {
  await enforce({
    endpointSelector: { matchLabels: { app: 'client' } },
    egress: [{ toPorts: [{ ports: [{ port: '53', protocol: 'ANY' }], rules: { dns: [{ matchPattern: '*' }] } }] }],
  });
  for (const protocol of ['UDP', 'TCP'] as const)
    expect(ends(explain('pod/a/client', 'pod/a/server', 53, protocol))).toEqual([
      'egress allowed/not asked',
      'ingress allowed/allowed',
    ]);
  expect(ends(explain('pod/a/client', 'pod/a/server', 54))[0]).toBe('egress denied/denied');
});

it('names the rules', async () => {
  await enforce({ ingress: [CLIENT], ingressDeny: [ports('81', 'TCP')] });
  const [, ingress] = explain('pod/a/client', 'pod/a/server', 81).ends;
  expect(ingress).toMatchObject({
    at: 'a/server',
    reason: 'explicit-deny',
    deciding: [{ policy: expect.stringMatching(/^BareRules /), path: '[0].ingressDeny[0]', says: 'deny' }],
    others: [{ path: '[0].ingress[0]', says: 'allow' }],
  });
});

it('knows ports by the names of the pods of this node', async () => {
  await enforce({ ingress: [{ ...CLIENT, ...ports('web', 'TCP') }] });
  expect(ends(explain('pod/a/client', 'pod/a/server', 'web'))).toEqual([
    'egress allowed/allowed',
    'ingress allowed/allowed',
  ]);
  expect(ends(explain('pod/a/client', 'pod/a/server', 8081))[1]).toBe('ingress denied/denied');
});

it('knows the own numbers that pods of equal labels give a name, as rules of NetworkPolicies mean them', async () => {
  const labels = podIdentityLabels({
    namespace: 'a',
    podLabels: { app: 'db' },
    serviceAccount: 'default',
    cluster: lab.options().clusterName,
  });
  const common = { direction: 'egress', verdict: 'allow', peers: [{ peerSet: 'db' }], defaultDeny: true } as const;
  const { tables, db } = core;
  const ports = [{ protocol: 'TCP', name: 'web', each: true }] as const;
  const rule = { ...common, subject: 'client', path: 'spec.egress[0]', cookie: 5, ports };
  db.write([tables.remoteEndpoints, tables.identities, tables.peerSets, tables.policies], (txn) => {
    txn.upsert(tables.identities, { id: 258, labels, labelsKey: labelsKey(labels) });
    for (const [app, id] of [
      ['client', 256],
      ['db', 258],
    ] as const) {
      const selector = { requirements: [{ key: 'k8s:app', operator: 'In', values: [app] }] } as const;
      txn.upsert(tables.peerSets, { hash: app, selector, identities: [id], origin: 'cluster' });
    }
    for (const [name, address, port] of [
      ['db-1', '10.99.0.1', 8080],
      ['db-2', '10.99.0.2', 9090],
    ] as const)
      txn.upsert(tables.remoteEndpoints, {
        namespace: 'a',
        name,
        addresses: [address],
        identity: 258,
        node: '192.0.2.9',
        namedPorts: [{ name: 'web', port, protocol: 'TCP' }],
      });
    const policy = { uid: 'u', kind: 'NetworkPolicy', namespace: 'a', name: 'p', generation: 1 } as const;
    txn.upsert(tables.policies, { ...policy, rules: [rule] });
  });
  const acknowledged = async () => {
    using reader = db.read();
    return reader.get(tables.kernelEndpoints, tableKey.endpoint(1))?.acknowledged;
  };
  await eventually(acknowledged, (state) => state?.enforced.egress === true);
  expect(
    [
      ['db-1', 8080],
      ['db-1', 9090],
      ['db-2', 8080],
      ['db-2', 9090],
      ['db-2', 'web'],
    ].map(([name, port]) => [name, port, ...ends(explain('pod/a/client', `pod/a/${name}`, port ?? ''))]),
  ).toEqual([
    ['db-1', 8080, 'egress allowed/allowed'],
    ['db-1', 9090, 'egress denied/denied'],
    ['db-2', 8080, 'egress denied/denied'],
    ['db-2', 9090, 'egress allowed/allowed'],
    ['db-2', 'web', 'egress allowed/allowed'],
  ]);
});

describe('ends that are no pods', () => {
  it.each([
    ['world', 'world', 'allowed'],
    ['world', 'host', 'allowed'],
    ['host', 'world', 'denied'],
    ['cluster', 'world', 'denied'],
  ])('a rule for %s, and %s: %s', async (entity, source, verdict) => {
    core.db.write([core.tables.nodes], (txn) =>
      txn.upsert(core.tables.nodes, { name: 'n1', addresses: [], podCidrs: [], kubeApiserver: false }),
    );
    await enforce({ ingress: [{ fromEntities: [entity] }] });
    const [ingress] = explain(`entity/${source}`, 'pod/a/server', 80).ends;
    expect(ingress).toMatchObject({ direction: 'ingress', verdict });
    if (source === 'world') expect(ingress?.kernel).toMatchObject({ verdict });
    else expect(ingress?.kernel).toEqual({ reason: 'no address of one family stands for both ends' });
  });

  it('an address in a CIDR', async () => {
    await enforce({ ingress: [{ fromCIDRSet: [{ cidr: '198.51.100.0/24', except: ['198.51.100.8/29'] }] }] });
    expect(ends(explain('address/198.51.100.1', 'pod/a/server', 80))).toEqual(['ingress allowed/allowed']);
    expect(ends(explain('address/198.51.100.9', 'pod/a/server', 80))).toEqual(['ingress denied/denied']);
  });
});

it('tells where the kernel does something else', async () => {
  await enforce({ ingress: [CLIENT] });
  // Somebody else writes the map: the client is a stranger until the audit comes.
  const { bytes } = parseAddress(client.address);
  core
    .map('ipcache')
    .update(ipcacheKey.encode({ address: bytes, bits: 32 }), ipcacheValue.encode({ identity: 999, bits: 32 }));
  expect(ends(explain('pod/a/client', 'pod/a/server', 80))).toEqual([
    'egress allowed/allowed',
    'ingress allowed/denied',
  ]);
});

it.each([
  ['pod/a/none', 'pod/a/server', '80', /this node knows no pod a\/none/],
  ['entity/world', 'entity/host', '80', /neither end is a pod of this node/],
  ['pod/a/client', 'pod/a/server', 'http', /a\/server has no TCP port "http"/],
  ['address/1.2.3', 'pod/a/server', '80', /"1\.2\.3" is no address/],
  ['pod/a', 'pod/a/server', '80', /"pod\/a" is no end of a flow/],
])('refuses %s -> %s %s', (source, destination, port, message) => {
  expect(() => explain(source, destination, port)).toThrow(message);
});

it('answers over the API', async () => {
  const app = fastify();
  explainRoute(app, explainer);
  await enforce({ ingress: [{ ...CLIENT, ...ports('80', 'TCP') }] });
  const ask = async (query: Readonly<Record<string, string>>) => {
    const { statusCode, body } = await app.inject({ url: '/policy/explain', query });
    return [statusCode, JSON.parse(body) as FlowExplanation & { readonly message: string }] as const;
  };
  const question = { source: 'pod/a/client', destination: 'pod/a/server', protocol: 'TCP', port: '81' };
  const [status, answer] = await ask(question);
  expect([status, answer.verdict, ...ends(answer)]).toEqual([
    200,
    'denied',
    'egress allowed/allowed',
    'ingress denied/denied',
  ]);
  expect(await ask({ ...question, protocol: 'tcp' })).toMatchObject([
    400,
    { message: expect.stringContaining('none of ICMP,') },
  ]);
  expect(await ask({ ...question, source: '' })).toMatchObject([
    400,
    { message: expect.stringContaining('"source" is absent') },
  ]);
  expect((await ask({ ...question, source: 'pod/a/none' }))[0]).toBe(404);
  await app.close();
});
