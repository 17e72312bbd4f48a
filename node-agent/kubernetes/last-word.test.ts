import { expect, it } from '@jest/globals';
import type { KubeClient, KubePatcher } from '@weir/kube';
import { NotStartedError } from '../errors.ts';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { Connection } from './connection.ts';
import { NodePolicyStatusWriter } from './node-policy-status.ts';

it('a node that is cleared before it had its inputs still says its last word, and ends nobody', async () => {
  const said: unknown[] = [];
  const client = {
    get: async () => ({ metadata: { name: 'n1', uid: 'u' } }),
    apply: async (_: unknown, object: object) => {
      said.push(object);
      return object;
    },
  } as unknown as KubeClient & KubePatcher;
  const core = new FakeCore();
  // The core ends its waiters when it is removed.
  const { promise: cleared, reject } = Promise.withResolvers<never>();
  core.waitPolicyRevision = () => cleared;
  const connection = new Connection(core.db, quiet);
  const writer = new NodePolicyStatusWriter({ core, client, nodeName: 'n1', connection, intervalMs: 1, heldLookMs: 5 });
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', note);
  writer.start();
  reject(new NotStartedError('wait for a policy revision'));
  await new Promise((resolve) => setImmediate(resolve));
  await writer.markRemoved('stamp');
  process.off('unhandledRejection', note);
  expect(unhandled).toEqual([]);
  expect(said).toMatchObject([
    { metadata: { annotations: { 'weir.dev/removed': 'stamp' } }, status: { policies: {} } },
  ]);
  await writer.stop();
});
