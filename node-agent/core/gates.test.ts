/** An agent that starts and learns who has which address, and not by which rules: rules go by who that is now. On the real kernel. */
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { labelsKey, podIdentityLabels } from '@weir/labels';
import { eventually } from '../../test/eventually.ts';
import type { Core } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { dropsOf, foundBy, Lab, type LabPod } from '../datapath/testing/lab.ts';
import type { EndpointRow, PolicyRow } from '../tables.ts';
import { createCore } from './create-core.ts';

const IDENTITIES = new Map([
  ['client', 300],
  ['server', 301],
  ['stranger', 302],
]);

let lab: Lab;
/** A pod of another node, as far as this one knows. */
let client: LabPod;
let server: LabPod;
/** Revision by which the server was judged. */
let judged: number;
const cores: Core[] = [];

beforeEach(async () => {
  lab = new Lab();
  client = await lab.pod('c');
  server = await lab.pod('s');
});

afterEach(async () => {
  for (const each of cores.splice(0)) await each.stop();
  lab.close();
});

/** What the API server says: whose labels the client has, and the server. */
interface World {
  readonly client?: string | undefined;
  readonly server?: string;
  /** Peer sets never come to the end of their list. */
  readonly incomplete?: boolean;
}

function labelsOf(app: string): Record<string, string> {
  return {
    ...podIdentityLabels({
      namespace: 'default',
      namespaceLabels: {},
      podLabels: { app },
      serviceAccount: '',
      cluster: 'default',
    }),
  };
}

function tell(core: Core, world: World): void {
  const { db, tables } = core;
  const { server: serves = 'server', client: asks } = world;
  db.write(Object.values(tables), (txn) => {
    txn.upsert(tables.namespaces, { name: 'default', labels: {} });
    txn.upsert(tables.nodes, {
      name: 'lab',
      addresses: ['192.0.2.1'],
      podCidrs: ['10.88.2.0/24'],
      kubeApiserver: false,
    });
    txn.upsert(tables.localPods, {
      namespace: 'default',
      name: 'server',
      uid: 'u-server',
      labels: { app: serves },
      serviceAccount: '',
      namedPorts: [],
      addresses: [server.address],
    });
    for (const [app, id] of IDENTITIES) {
      const labels = labelsOf(app);
      txn.upsert(tables.identities, { id, labels, labelsKey: labelsKey(labels) });
      const selector = { requirements: [{ key: 'k8s:app', operator: 'In' as const, values: [app] }] };
      txn.upsert(tables.peerSets, { hash: app, selector, identities: [id], origin: 'cluster' });
    }
    txn.upsert(tables.policies, policy(1, 'server', 'client'));
    // Strangers take from nobody.
    txn.upsert(tables.policies, policy(2, 'stranger', 'server'));
    const pods = [
      { name: 'client', address: client.address, app: asks },
      { name: 'server', address: server.address, app: serves },
    ];
    for (const { name, address, app } of pods) {
      const identity = IDENTITIES.get(app ?? '');
      if (identity === undefined) {
        txn.delete(tables.remoteEndpoints, `default/${name}`);
        continue;
      }
      txn.upsert(tables.remoteEndpoints, {
        namespace: 'default',
        name,
        addresses: [address],
        identity,
        node: name === 'server' ? '192.0.2.1' : '192.0.2.9',
        namedPorts: [],
        podUid: `u-${name}`,
      });
    }
  });
}

function policy(number: number, subject: string, peer: string): PolicyRow {
  return {
    uid: `p${number}`,
    kind: 'CiliumNetworkPolicy',
    namespace: 'default',
    name: `p${number}`,
    generation: 1,
    rules: [
      {
        subject,
        direction: 'ingress',
        verdict: 'allow',
        peers: [{ peerSet: peer }],
        defaultDeny: true,
        cookie: number,
        path: 'spec.ingress[0]',
      },
    ],
  };
}

async function started(world: World): Promise<Core> {
  const core = createCore(lab.options());
  cores.push(core);
  if (world.incomplete) core.db.initialiser(core.tables.peerSets, 'reflector');
  tell(core, world);
  await core.start();
  return core;
}

/** The server takes from clients, and has heard one byte of a connection with one. */
async function connected(): Promise<Core> {
  const core = await started({ client: 'client' });
  const endpoint: EndpointRow = {
    id: 2,
    ifindex: server.ifindex,
    interfaceName: server.interfaceName,
    addresses: [server.address],
    pod: { namespace: 'default', name: 'server', uid: 'u-server' },
    createdAt: '2026-01-01T00:00:00Z',
  };
  judged = (await core.upsertEndpoint(endpoint)).revision;
  expect(await client.reaches(server)).toBe(true);
  expect(await client.dial(server)).toBe(true);
  await client.say(server);
  await eventually(
    () => server.heard(),
    (bytes) => bytes === 1,
  );
  return core;
}

/** Waits until the kernel knows whose address it is, and judges the server's flows again where that has changed. */
async function known(core: Core, { address }: LabPod, identity: number | undefined, changed = true): Promise<void> {
  await eventually(
    async () => {
      using snapshot = core.db.read();
      const server = snapshot.get(core.tables.kernelEndpoints, tableKey.endpoint(2));
      const { revision } = server?.acknowledged ?? server?.found ?? {};
      return [snapshot.get(core.tables.ipcache, `${address}/32`)?.identity, revision !== judged] as const;
    },
    ([now, anew]) => now === identity && anew === changed,
  );
}

/** The byte does not arrive: a packet of it is dropped, and what was heard stays. */
async function cut(): Promise<void> {
  const before = dropsOf(lab.root);
  await client.say(server);
  await eventually(
    async () => dropsOf(lab.root),
    (drops) => drops > before,
  );
  expect(await server.heard()).toBe(1);
}

it.each([
  ['relabelled', 'stranger', 0],
  ['deleted', undefined, undefined],
] as const)(
  'a remote pod that was %s meanwhile has other rights, and what it had opened has none',
  async (_, app, id) => {
    await (await connected()).stop();
    const core = await started({ client: app, incomplete: true });
    await known(core, client, id);
    expect(await client.reaches(server)).toBe(false);
    await cut();
    await core.stop();
    // One that dies there leaves it so, too.
    const next = await started({ client: app, incomplete: true });
    expect(await client.reaches(server)).toBe(false);
    await next.stop();
    const last = await started({ client: 'client' });
    await last.waitPolicyRevision(last.policyRevision());
    expect(await client.reaches(server)).toBe(true);
  },
);

it('a remote pod that is gone before rules are known, and back with them, has the rights that it had', async () => {
  await (await connected()).stop();
  const core = createCore(lab.options());
  cores.push(core);
  const listed = core.db.initialiser(core.tables.peerSets, 'reflector');
  tell(core, {});
  await core.start();
  await known(core, client, undefined);
  expect(await client.reaches(server)).toBe(false);
  tell(core, { client: 'client' });
  core.db.write([core.tables.peerSets], (txn) => listed(txn));
  await core.waitPolicyRevision(core.policyRevision());
  expect(await client.reaches(server)).toBe(true);
});

it('a pod of this node that was relabelled meanwhile is closed, until its rules are known', async () => {
  await (await connected()).stop();
  const core = await started({ client: 'client', server: 'stranger', incomplete: true });
  await known(core, server, 0);
  expect(await client.reaches(server)).toBe(false);
  await cut();
  using snapshot = core.db.read();
  expect(snapshot.get(core.tables.kernelEndpoints, tableKey.endpoint(2))?.acknowledged).toMatchObject({
    ...{ identity: 0, slot: 0, enforced: { ingress: true, egress: true }, state: 'waiting-for-identity' },
    reason: expect.stringContaining('closed until every policy has been read'),
  });
  await core.stop();
  const next = await started({ client: 'client', server: 'stranger', incomplete: true });
  expect(foundBy(next, 2)).toMatchObject({ identity: 0, slot: 0 });
  expect(await client.reaches(server)).toBe(false);
  await next.stop();
  const last = await started({ client: 'client' });
  await last.waitPolicyRevision(last.policyRevision());
  expect(await client.reaches(server)).toBe(true);
});

it('everybody else keeps what there was, while changes come', async () => {
  await (await connected()).stop();
  const core = await started({ client: 'client', incomplete: true });
  await known(core, client, 300, false);
  expect(await client.reaches(server)).toBe(true);
  await client.say(server);
  await eventually(
    () => server.heard(),
    (bytes) => bytes === 2,
  );
  tell(core, { client: 'stranger' });
  await known(core, client, 0);
  expect(await client.reaches(server)).toBe(false);
  expect(foundBy(core, 2)).toMatchObject({ identity: 301 });
});

it('while a policy misses a PeerSet the rules of before stay, and what is missing is named', async () => {
  await (await connected()).stop();
  const core = createCore(lab.options());
  cores.push(core);
  tell(core, { client: 'client' });
  const { peerSets } = core.tables;
  const set = core.db.write([peerSets], (txn) => txn.delete(peerSets, 'client'));
  await core.start();
  await known(core, client, 300, false);
  expect(core.health().checks.find(({ name }) => name === 'inputs')).toMatchObject({
    ok: false,
    message: expect.stringContaining('PeerSet client, which CiliumNetworkPolicy default/p1 names'),
  });
  expect(await client.reaches(server)).toBe(true);
  if (set === undefined) throw new Error('there was no such set');
  core.db.write([peerSets], (txn) => txn.upsert(peerSets, set));
  await core.waitPolicyRevision(core.policyRevision());
  expect(core.health()).toMatchObject({ ok: true });
});
