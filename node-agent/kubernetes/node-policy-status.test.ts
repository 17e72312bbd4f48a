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
const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setTimeout(resolve, 2));
};

describe('NodePolicyStatusWriter', () => {
  /** An edit of a policy that selects an endpoint of the node. */
  const own = (version: string) => ({ revision: 2, policyVersion: version, ownVersion: version });
  const other = (version: string, ownVersion: string) => ({ revision: 2, policyVersion: version, ownVersion });
  const versions = () =>
    client.writes.map(({ object }) => (object as NodePolicyStatus | undefined)?.status.policyVersion);
  const held = (): NodePolicyStatus => client.held.get('nodepolicystatuses/n1') as NodePolicyStatus;
  function start(intervalMs: number, refreshMs?: number): void {
    const refresh = refreshMs === undefined ? {} : { refreshMs };
    const writer = new NodePolicyStatusWriter({ core, client, nodeName: 'n1', connection, intervalMs, ...refresh });
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
      status: { counts: { endpoints: 0, policies: 0 }, failures: [], failureCount: 0, revision: 1 },
    });
  });

  it('never repeats itself', async () => {
    start(0);
    await client.written(1);
    core.setRealised(own('2'));
    await client.written(2);
    core.setRealised({ ...own('2'), revision: 99 });
    await settle();
    core.setRealised(own('3'));
    await client.written(3);
    expect(versions()).toEqual([undefined, '2', '3']);
  });

  it('is small whatever the number of policies, and lists the first failures by uid', async () => {
    const failure = (n: number, message = 'E2BIG') => ({
      ...{ uid: `00000000-0000-4000-8000-${n + 1e11}`, generation: 1, reason: 'KernelRefused', message },
    });
    core.setRealised({ ...own('1000000'), counts: { endpoints: 110, policies: 5_000 } });
    start(0);
    await client.written(1);
    expect(JSON.stringify(client.writes[0]?.object).length).toBeLessThan(1024);
    core.setRealised({ ...own('1000001'), failures: Array.from({ length: 2_020 }, (_, n) => failure(2_019 - n)) });
    await client.written(2);
    expect(held().status).toMatchObject({
      failureCount: 2_020,
      failures: Array.from({ length: 2_000 }, (_, n) =>
        n < 50 ? failure(n) : failure(n, '`weir policy status` on the node has the message'),
      ),
    });
    expect(JSON.stringify(client.writes[1]?.object).length).toBeLessThan(320_000);
  });

  it('holds back what nobody waits for in a large cluster, and nothing else', async () => {
    core.db.write([core.tables.nodes], (txn) => {
      for (let n = 0; n < 200; n += 1) {
        txn.upsert(core.tables.nodes, { name: `node-${n}`, addresses: [], podCidrs: [], kubeApiserver: false });
      }
    });
    start(0);
    await client.written(1);
    core.setRealised(own('7'));
    await client.written(2);
    core.setRealised({ ...other('9', '7'), counts: { endpoints: 3, policies: 3 } });
    core.setRealised(own('11'));
    await client.written(3);
    const failures = [{ uid: 'u', generation: 1, reason: 'KernelRefused', message: 'E2BIG' }];
    core.setRealised({ ...other('12', '11'), failures });
    await client.written(4);
    expect(versions()).toEqual([undefined, '7', '11', '12']);
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
      core.setRealised(own('7'));
      await client.written(2);
      // Nothing but the hold-back uses this timer.
      const real = ['Date', 'hrtime', 'nextTick', 'performance', 'queueMicrotask', 'setImmediate'] as const;
      jest.useFakeTimers({ doNotFake: [...real, 'clearImmediate', 'setTimeout', 'clearTimeout'] });
      core.setRealised(other('9', '7'));
    });
    afterEach(() => {
      jest.useRealTimers();
      jest.restoreAllMocks();
    });

    it('says at its end what is so by then', async () => {
      core.setRealised(other('11', '7'));
      jest.advanceTimersByTime(WAIT_MS);
      await client.written(3);
      expect(versions()).toEqual([undefined, '7', '11']);
    });

    it('is over when something else is said: what comes then waits its whole time', async () => {
      jest.advanceTimersByTime(WAIT_MS - 1);
      core.setRealised(own('11'));
      await client.written(3);
      core.setRealised(other('12', '11'));
      jest.advanceTimersByTime(WAIT_MS - 1);
      await settle();
      core.setRealised(other('13', '11'));
      jest.advanceTimersByTime(1);
      await client.written(4);
      expect(versions()).toEqual([undefined, '7', '11', '13']);
    });
  });

  it('is put right where the object is not as it was left', async () => {
    core.setRealised(own('7'));
    start(0, 60);
    await client.written(1);
    client.held.set('nodepolicystatuses/n1', {
      ...held(),
      status: { ...held().status, policyVersion: '6' },
    } as KubeObject);
    await eventually(async () => held().status.policyVersion === '7', Boolean);
    client.held.delete('nodepolicystatuses/n1');
    await eventually(async () => held()?.status.policyVersion === '7', Boolean);
  });

  it('is written again after a while, for the Node that there is then: the former one may have taken it along', async () => {
    start(0, 50);
    await client.written(1);
    client.nodeUid = 'another-node-uid';
    const owners = await eventually(
      async () => held()?.metadata.ownerReferences as readonly { uid: string }[],
      ([owner]) => owner?.uid === 'another-node-uid',
    );
    expect(owners).toEqual([{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'another-node-uid' }]);
  });

  it('writes the first change at once and folds what follows within the interval', async () => {
    start(200);
    await client.written(1);
    for (let version = 2; version <= 9; version++) core.setRealised(own(String(version)));
    await client.written(2);
    expect(client.writes[1]?.object).toMatchObject({ status: { policyVersion: '9' } });
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
      { object: { metadata: { annotations: { 'weir.dev/removed': 'stamp' } }, status: { failures: [] } } },
    ]);
  });
});
