/** What the kernel refuses leaves everything else as it should be. On the real kernel. */
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, jest } from '@jest/globals';
import { slotKey } from '@weir/bpf';
import { openPinnedMap } from 'libbpf-ts';
import { eventually } from '../../test/eventually.ts';
import type { Core } from '../core.ts';
import { IpcacheStore, SlotStore } from '../datapath/index.ts';
import { dropsOf, Lab, type LabPod } from '../datapath/testing/lab.ts';
import type { IpcacheRow } from '../tables.ts';
import { createCore } from './create-core.ts';

let lab: Lab;
let core: Core;
let server: LabPod;
let peer: LabPod;

beforeEach(async () => {
  lab = new Lab();
  server = await lab.pod('s');
  peer = await lab.pod('p');
  core = createCore(lab.options({ kernel: { auditMs: 20 } }));
  await core.start();
  await core.upsertEndpoint(server.endpoint(2, { 'k8s:app': 'server' }));
});

afterEach(async () => {
  jest.restoreAllMocks();
  await core.stop();
  lab.close();
});

const failures = (): number => core.reconcilers().reduce((sum, each) => sum + each.metrics().failing, 0);
async function rules(ingress: object[], more: object[] = []): Promise<void> {
  const rule = { endpointSelector: { matchLabels: { app: 'server' } }, labels: [{ key: 'p' }], ingress };
  const { revision, problems } = core.importRules([rule, ...more], { replace: true });
  expect(problems).toEqual([]);
  await core.waitPolicyRevision(revision);
}

it('rules that stay in force, as the kernel refuses their successors, keep the CIDRs that they name', async () => {
  await rules([{ fromCIDRSet: [{ cidr: '0.0.0.0/0', except: [`${peer.address}/32`] }] }]);
  expect(await peer.reaches(server)).toBe(false);
  const refused = jest.spyOn(SlotStore.prototype, 'apply').mockRejectedValue(new Error('no memory'));
  await rules([{ fromCIDR: ['192.0.2.0/24'] }]);
  await eventually(
    async () => refused.mock.calls.length,
    (calls) => calls > 3,
  );
  expect(failures()).toBeGreaterThan(0);
  expect(await peer.reaches(server)).toBe(false);
  const named = (): boolean => {
    using snapshot = core.db.read();
    return snapshot.has(core.tables.ipcache, `${peer.address}/32`);
  };
  expect(named()).toBe(true);
  refused.mockRestore();
  expect(
    await eventually(
      async () => [failures(), named()],
      ([count, there]) => count === 0 && there === false,
    ),
  ).toEqual([0, false]);
  expect(await peer.reaches(server)).toBe(false);
  expect(core.health().ok).toBe(true);
});

it('an address that the kernel refuses keeps neither connections of deleted peers alive nor the audit away', async () => {
  await core.upsertEndpoint(peer.endpoint(3, { 'k8s:app': 'peer' }));
  await rules([{ fromEndpoints: [{ matchLabels: { app: 'peer' } }] }]);
  expect(await peer.dial(server)).toBe(true);
  await peer.say(server);
  await eventually(
    () => server.heard(),
    (bytes) => bytes === 1,
  );
  const update = Reflect.get(IpcacheStore.prototype, 'updateAll') as (
    this: IpcacheStore,
    rows: readonly IpcacheRow[],
  ) => void;
  jest.spyOn(IpcacheStore.prototype, 'updateAll').mockImplementation(function (this: IpcacheStore, rows) {
    if (rows.some(({ prefix }) => prefix.startsWith('203.0.113.'))) throw new Error('no room');
    update.call(this, rows);
  });
  await rules(
    [{ fromEndpoints: [{ matchLabels: { app: 'peer' } }] }],
    [{ endpointSelector: { matchLabels: { app: 'tenant' } }, ingress: [{ fromCIDR: ['203.0.113.1/32'] }] }],
  );
  const tenant = await lab.pod('t');
  // It waits: its rules name the address.
  const waiting = expect(core.upsertEndpoint(tenant.endpoint(4, { 'k8s:app': 'tenant' }))).rejects.toThrow(
    'the kernel refuses 203.0.113.1/32',
  );
  await eventually(
    async () => failures(),
    (count) => count > 0,
  );
  expect(failures()).toBeGreaterThan(0);

  using snapshot = core.db.read();
  const slot = [...snapshot.all(core.tables.endpointStates)].find(({ id }) => id === 2)?.slot ?? 0;
  {
    using classes = openPinnedMap(join(lab.root, 'policy_classes'));
    classes.delete(slotKey.encode(slot));
  }
  const repaired = (): boolean => core.repairs().some(({ part }) => part === 'slot');
  expect(
    await eventually(
      async () => repaired(),
      (done) => done,
    ),
  ).toBe(true);
  await peer.say(server);
  expect(
    await eventually(
      () => server.heard(),
      (bytes) => bytes === 2,
    ),
  ).toBe(2);

  await core.deleteEndpoint(3);
  const before = dropsOf(lab.root);
  await peer.say(server);
  expect(
    await eventually(
      async () => dropsOf(lab.root) > before,
      (dropped) => dropped,
    ),
  ).toBe(true);
  expect(await server.heard()).toBe(2);
  expect(failures()).toBeGreaterThan(0);
  await waiting;
});
