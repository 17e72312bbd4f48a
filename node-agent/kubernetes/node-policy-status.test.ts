import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { ApiError, type KubeObject, type NodePolicyStatus } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import { NotStartedError } from '../errors.ts';
import { FakeCore, quiet, recordingLogger } from '../testing/fake-core.ts';
import { Connection } from './connection.ts';
import { NodePolicyStatusWriter } from './node-policy-status.ts';
import { FakeClient } from './testing/fake-client.ts';

let core: FakeCore;
let client: FakeClient;
let connection: Connection;
const stops: (() => Promise<void>)[] = [];

beforeEach(() => {
  core = new FakeCore();
  client = new FakeClient();
  connection = new Connection(createStateDB({ freeze: true }), quiet);
});
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
  connection.stop();
});
/** Waits until the connection says so. */
const said = (message: RegExp) =>
  eventually(
    async () => connection.status().message,
    (now) => message.test(now),
  );
/** Lets everything that is already due happen. */
const settle = () => new Promise((resolve) => setTimeout(resolve, 20));

describe('NodePolicyStatusWriter', () => {
  const realised = (generation: number, revision = generation) => ({
    revision,
    policies: new Map([['u', { generation, endpoints: 1, at: 1_000 }]]),
    failures: [],
  });
  const versions = () =>
    client.writes.map(({ object }) => {
      const { status } = (object ?? {}) as Partial<NodePolicyStatus>;
      return status?.policyVersion;
    });
  function start(intervalMs: number, refreshMs?: number): void {
    const refresh = refreshMs === undefined ? {} : { refreshMs };
    const common = { core, client, nodeName: 'n1', connection, heldLookMs: 5 };
    const writer = new NodePolicyStatusWriter({ ...common, intervalMs, ...refresh });
    stops.push(() => writer.stop());
    writer.start();
  }

  it('is created at the start, owned by its node, but not before the inputs are complete', async () => {
    const done = core.db.initialiser(core.tables.policies, 'test');
    start(0);
    await settle();
    expect(client.writes).toEqual([]);
    core.db.write([core.tables.policies], (txn) => done(txn));
    await client.written(1);
    expect(client.writes[0]?.object).toEqual({
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'NodePolicyStatus',
      metadata: { name: 'n1', ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'node-uid' }] },
      status: { policies: {}, failures: [], revision: 1 },
    });
  });

  it('says again what it said before where somebody must act first, and nothing before it knows that', async () => {
    core.db.initialiser(core.tables.policies, 'test');
    core.heldBy = { reason: 'ImportedRulesUnknown', message: 'nobody knows', lasting: false };
    client.objects.set('nodepolicystatuses', [
      {
        apiVersion: 'weir.dev/v1alpha1',
        kind: 'NodePolicyStatus',
        metadata: { name: 'n1' },
        status: {
          policies: { u: { generation: 3, endpoints: 1, at: 5 } },
          failures: [],
          revision: 9,
          policyVersion: '7',
        },
      } as NodePolicyStatus,
    ]);
    start(0);
    await client.written(1);
    using snapshot = core.db.read();
    expect([...snapshot.all(core.tables.earlierReport)]).toEqual([
      { node: 'n1', policies: { u: { generation: 3, endpoints: 1, at: 5 } }, policyVersion: '7' },
    ]);
  });

  it('says so, too, where inputs do not come; not what is on its way after an outage', async () => {
    const done = core.db.initialiser(core.tables.policies, 'test');
    const had = jest.spyOn(core, 'held');
    const held = { reason: 'InputsIncomplete', message: 'peerSets', lasting: true } as const;
    // One answer of three: what was missing has come, and something else has not.
    let asked = 0;
    had.mockImplementation(() => {
      asked += 1;
      return asked % 3 === 0 ? undefined : held;
    });
    start(0);
    await settle();
    await eventually(
      async () => asked,
      (times) => times > 30,
    );
    expect(client.writes).toEqual([]);
    had.mockImplementation(() => held);
    await client.written(1);
    using snapshot = core.db.read();
    expect([...snapshot.all(core.tables.earlierReport)]).toEqual([{ node: 'n1', policies: {} }]);
    core.db.write([core.tables.policies], (txn) => done(txn));
  });

  it('never repeats itself', async () => {
    start(0);
    await client.written(1);
    core.setRealised(realised(2));
    await client.written(2);
    core.setRealised(realised(2, 99));
    await settle();
    core.setRealised(realised(3));
    await client.written(3);
    expect(
      client.writes.map(
        ({ object }) =>
          (object as unknown as { status: { policies: { u?: { generation: number } } } }).status.policies.u?.generation,
      ),
    ).toEqual([undefined, 2, 3]);
  });

  it('says how far it has read, also where that is all that has changed', async () => {
    start(0);
    await client.written(1);
    core.setRealised({ ...realised(2), policyVersion: '7' });
    await client.written(2);
    core.setRealised({ ...realised(2), policyVersion: '7' });
    await settle();
    core.setRealised({ ...realised(2), policyVersion: '9' });
    await client.written(3);
    expect(versions()).toEqual([undefined, '7', '9']);
  });

  it('holds back what says only how far it has read in a large cluster, and nothing else', async () => {
    core.db.write([core.tables.nodes], (txn) => {
      for (let n = 0; n < 200; n += 1) {
        txn.upsert(core.tables.nodes, { name: `node-${n}`, addresses: [], podCidrs: [], kubeApiserver: false });
      }
    });
    start(0);
    await client.written(1);
    core.setRealised({ ...realised(2), policyVersion: '7' });
    await client.written(2);
    core.setRealised({ ...realised(2), policyVersion: '9' });
    core.setRealised({ ...realised(3), policyVersion: '11' });
    await client.written(3);
    expect(versions()).toEqual([undefined, '7', '11']);
  });

  describe('what is held back in a large cluster', () => {
    const WAIT_MS = 2_000;
    beforeEach(async () => {
      core.db.write([core.tables.nodes], (txn) => {
        for (let n = 0; n < 200; n += 1)
          txn.upsert(core.tables.nodes, { name: `node-${n}`, addresses: [], podCidrs: [], kubeApiserver: false });
      });
      jest.spyOn(Math, 'random').mockReturnValue(0.5);
      start(0);
      await client.written(1);
      core.setRealised({ ...realised(2), policyVersion: '7' });
      await client.written(2);
      // Nothing but the hold-back uses this timer.
      const real = ['Date', 'hrtime', 'nextTick', 'performance', 'queueMicrotask', 'setImmediate'] as const;
      jest.useFakeTimers({ doNotFake: [...real, 'clearImmediate', 'setTimeout', 'clearTimeout'] });
      core.setRealised({ ...realised(2), policyVersion: '9' });
    });
    afterEach(() => {
      jest.useRealTimers();
      jest.restoreAllMocks();
    });

    it('says at its end what is so by then', async () => {
      core.setRealised({ ...realised(2), policyVersion: '11' });
      jest.advanceTimersByTime(WAIT_MS);
      await client.written(3);
      expect(versions()).toEqual([undefined, '7', '11']);
      expect((client.held.get('nodepolicystatuses/n1') as NodePolicyStatus).status.policies.u?.generation).toBe(2);
    });

    it('is over when something else is said: what comes then waits its whole time', async () => {
      jest.advanceTimersByTime(WAIT_MS - 1);
      core.setRealised({ ...realised(3), policyVersion: '11' });
      await client.written(3);
      core.setRealised({ ...realised(3), policyVersion: '12' });
      jest.advanceTimersByTime(WAIT_MS - 1);
      await settle();
      core.setRealised({ ...realised(3), policyVersion: '13' });
      jest.advanceTimersByTime(1);
      await client.written(4);
      expect(versions()).toEqual([undefined, '7', '11', '13']);
    });
  });

  it('says only how far it has read in a write of that alone, and all of it where the object is not as it was left', async () => {
    start(0, 60);
    core.setRealised({ ...realised(2), policyVersion: '7' });
    const verbs = (): string[] => client.writes.map(({ verb }) => verb);
    const held = (): NodePolicyStatus => client.held.get('nodepolicystatuses/n1') as NodePolicyStatus;
    await eventually(async () => held()?.status.policyVersion === '7', Boolean);
    const full = client.writes.length;
    core.setRealised({ ...realised(2), revision: 3, policyVersion: '9' });
    await eventually(async () => held().status.policyVersion === '9', Boolean);
    expect(verbs()[full]).toBe('patch');
    expect(client.writes[full]?.bytes).toBeLessThan(100);
    expect(held().status).toMatchObject({ policies: { u: { generation: 2 } }, revision: 3 });
    // A refresh of what is there says as little.
    await client.written(full + 3);
    expect(new Set(verbs().slice(full))).toEqual(new Set(['patch']));
    // Somebody writes into the report, or deletes it.
    client.held.set('nodepolicystatuses/n1', { ...held(), status: { ...held().status, policies: {} } } as KubeObject);
    await eventually(async () => held().status.policies.u?.generation === 2, Boolean);
    client.held.delete('nodepolicystatuses/n1');
    await eventually(async () => held()?.status.policies.u?.generation === 2, Boolean);
    core.setRealised({ ...realised(3), policyVersion: '9' });
    await eventually(async () => held().status.policies.u?.generation === 3, Boolean);
  });

  it('takes back how far it had read, which an apply leaves there, where that is not known any more', async () => {
    const held = (): NodePolicyStatus => client.held.get('nodepolicystatuses/n1') as NodePolicyStatus;
    core.setRealised({ ...realised(2), policyVersion: '7' });
    start(0);
    await client.written(1);
    core.setRealised({ ...realised(2), policyVersion: '9' });
    await eventually(async () => held().status.policyVersion === '9', Boolean);
    core.setRealised(realised(3));
    await eventually(async () => held().status.policies.u?.generation === 3, Boolean);
    await client.written(4);
    expect(held().status).toEqual({
      policies: { u: { generation: 3, endpoints: 1, at: 1_000 } },
      failures: [],
      revision: 3,
    });
  });

  it.each([undefined, '7'])(
    'is written again after a while, for the Node that there is then: the former one may have taken it along (read up to %s)',
    async (policyVersion) => {
      core.setRealised({ ...realised(2), policyVersion });
      start(0, 50);
      await client.written(1);
      client.nodeUid = 'another-node-uid';
      const owners = await eventually(
        async () => client.held.get('nodepolicystatuses/n1')?.metadata.ownerReferences as readonly { uid: string }[],
        ([owner]) => owner?.uid === 'another-node-uid',
      );
      expect(owners).toEqual([{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'another-node-uid' }]);
    },
  );

  it('writes the first change at once and folds what follows within the interval', async () => {
    start(200);
    await client.written(1);
    for (let generation = 2; generation <= 9; generation++) core.setRealised(realised(generation));
    await client.written(2);
    expect(client.writes[1]?.object).toMatchObject({ status: { policies: { u: { generation: 9 } } } });
  });

  it('tries again when the API server fails, and says so once', async () => {
    const log = recordingLogger();
    connection = new Connection(createStateDB({ freeze: true }), log);
    client.failure = new ApiError('down', { status: 503, reason: 'ServiceUnavailable' });
    start(0);
    await said(/still enforcing/);
    client.failure = undefined;
    await client.written(1);
    await said(/^connected$/);
    expect(log.lines.map((line) => line.level).filter((level) => level !== 'debug')).toEqual(['warn', 'info']);
  });

  it('a node that is cleared before it had its inputs still says its last word, and ends nobody', async () => {
    // The core ends its waiters when it is removed.
    const { promise: cleared, reject } = Promise.withResolvers<never>();
    core.waitPolicyRevision = () => cleared;
    const writer = new NodePolicyStatusWriter({ core, client, nodeName: 'n1', connection, intervalMs: 1 });
    stops.push(() => writer.stop());
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on('unhandledRejection', note);
    writer.start();
    reject(new NotStartedError('wait for a policy revision'));
    await new Promise((resolve) => setImmediate(resolve));
    await writer.markRemoved('stamp');
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
    expect(client.writes).toMatchObject([
      { object: { metadata: { annotations: { 'weir.dev/removed': 'stamp' } }, status: { policies: {} } } },
    ]);
  });
});
