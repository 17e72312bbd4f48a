/** Rules that name ports by name, from the rows of pods to packets. On the real kernel. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { labelsKey, podIdentityLabels } from '@weir/labels';
import type { Core } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { Lab, type LabPod } from '../datapath/testing/lab.ts';
import type { ContainerPort } from '../tables.ts';
import { createCore } from './create-core.ts';

/** Where the lab's pods answer. */
const ANSWERS = 7777;

let lab: Lab;
let core: Core;
let client: LabPod;
let server: LabPod;

/** The pod's row, as the reflector would write it. */
function pod(name: string, app: string, ...ports: readonly number[]): void {
  const namedPorts: ContainerPort[] = ports.map((port) => ({ name: 'echo', port, protocol: 'UDP' }));
  core.db.write([core.tables.localPods], (txn) =>
    txn.upsert(core.tables.localPods, {
      namespace: 'ns',
      name,
      uid: `u-${name}`,
      labels: { app },
      serviceAccount: 'default',
      namedPorts,
      addresses: [],
    }),
  );
}

/** Returns once the client reaches the server, or does not any more; only rules have a revision that can be waited for. */
async function becomes(reached: boolean): Promise<void> {
  while ((await client.reaches(server)) !== reached);
}

function identity(id: number, app: string): void {
  const labels = podIdentityLabels({
    namespace: 'ns',
    namespaceLabels: {},
    podLabels: { app },
    serviceAccount: 'default',
    cluster: 'default',
  });
  core.db.write([core.tables.identities], (txn) =>
    txn.upsert(core.tables.identities, { id, labels, labelsKey: labelsKey(labels) }),
  );
}

async function rules(...list: readonly object[]): Promise<void> {
  core.deleteRules([]);
  const selector = (app: string) => ({ matchLabels: { 'k8s:app': app } });
  expect(core.importRules(list.map((rule) => ({ endpointSelector: selector('server'), ...rule }))).problems).toEqual(
    [],
  );
  await core.waitPolicyRevision(core.policyRevision());
}

const echo = [{ ports: [{ port: 'echo', protocol: 'UDP' }] }];

beforeEach(async () => {
  lab = new Lab();
  core = createCore(lab.options());
  await core.start();
  client = await lab.pod('c');
  server = await lab.pod('s');
  core.db.write([core.tables.namespaces], (txn) => txn.upsert(core.tables.namespaces, { name: 'ns', labels: {} }));
  identity(300, 'client');
  identity(301, 'server');
});

afterEach(async () => {
  await core.stop();
  lab.close();
});

/** The endpoint of a pod whose row is there, or comes later. */
async function endpoint(of: LabPod, id: number, timeoutMs?: number): Promise<void> {
  const { labels: _, ...row } = of.endpoint(id, {});
  const named = { ...row, pod: { namespace: 'ns', name: of.name, uid: `u-${of.name}` } };
  await core.upsertEndpoint(named, timeoutMs === undefined ? {} : { timeoutMs });
}

describe('a port by name', () => {
  it('is the number that the pod gives it, for ingress; open flows end when it gives another', async () => {
    pod('c', 'client');
    pod('s', 'server', ANSWERS);
    await endpoint(client, 1);
    await endpoint(server, 2);
    await rules({ ingress: [{ toPorts: echo }] });
    await becomes(true);
    pod('s', 'server', 9);
    await becomes(false);
    pod('s', 'server');
    await becomes(false);
    await rules({ ingress: [{ fromEntities: ['all'] }], ingressDeny: [{ toPorts: echo }] });
    await becomes(true);
    pod('s', 'server', ANSWERS);
    await becomes(false);
  });

  it('is the number that the peer gives it, for egress', async () => {
    pod('c', 'client');
    pod('s', 'server', 9);
    await endpoint(client, 1);
    await endpoint(server, 2);
    await rules({ endpointSelector: { matchLabels: { 'k8s:app': 'client' } }, egress: [{ toPorts: echo }] });
    await becomes(false);
    pod('s', 'server', ANSWERS);
    await becomes(true);
    await client.startStream(server);
    core.db.write([core.tables.remoteEndpoints], (txn) =>
      txn.upsert(core.tables.remoteEndpoints, {
        namespace: 'ns',
        name: 'twin',
        addresses: ['10.99.0.1'],
        identity: 301,
        node: '192.0.2.9',
        namedPorts: [{ name: 'echo', port: 9, protocol: 'UDP' }],
      }),
    );
    // Two numbers for one identity: neither is allowed, and the open flow ends.
    await becomes(false);
    core.db.write([core.tables.remoteEndpoints], (txn) =>
      txn.delete(core.tables.remoteEndpoints, tableKey.pod('ns', 'twin')),
    );
    await becomes(true);
    const { sent, lost } = await client.endStream();
    expect(lost).toBeGreaterThan(0);
    expect(lost).toBeLessThan(sent);
  });

  it('denies everything to a pod whose names are not known yet', async () => {
    pod('c', 'client');
    await endpoint(client, 1);
    await rules({ ingress: [{ fromEntities: ['all'] }], ingressDeny: [{ toPorts: echo }] });
    await expect(endpoint(server, 2, 2_000)).rejects.toThrow('pod ns/s is not known on this node yet');
    await becomes(false);
    pod('s', 'server', 9);
    await becomes(true);
  });
});
