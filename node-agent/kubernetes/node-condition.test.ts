import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { ApiError, type KubeNode, type NodeCondition } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import type { Logger } from '../core.ts';
import type { NodeProblem } from '../parts/contract.ts';
import { quiet, recordingLogger } from '../testing/fake-core.ts';
import { Connection } from './connection.ts';
import { NodeConditionWriter } from './node-condition.ts';
import { FakeClient } from './testing/fake-client.ts';

const TWO = { reason: 'AddressConflict', message: 'two have 10.0.0.9' };

let client: FakeClient;
let connection: Connection;
let problems: readonly NodeProblem[];
let looks: number;
/** Only every other look finds the problems. */
let fleeting: boolean;
const stops: (() => Promise<void>)[] = [];

beforeEach(() => {
  client = new FakeClient();
  connection = new Connection(createStateDB({ freeze: true }), quiet);
  problems = [];
  looks = 0;
  fleeting = false;
});
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
  connection.stop();
});

function start(log: Logger = quiet): NodeConditionWriter {
  const writer = new NodeConditionWriter({
    ...{ db: createStateDB({ freeze: true }), client, nodeName: 'n1', connection, log },
    ...{ lookMs: 5, intervalMs: 5, againMs: 20 },
    problems: () => {
      looks += 1;
      return fleeting && looks % 2 === 0 ? [] : problems;
    },
  });
  writer.start();
  stops.push(() => writer.stop());
  return writer;
}
const conditions = (): readonly NodeCondition[] | undefined =>
  (client.held.get('nodes/n1') as KubeNode | undefined)?.status?.conditions;
const says = (status: string): Promise<unknown> =>
  eventually(
    async () => conditions()?.[0],
    (condition) => condition?.status === status,
  );
/** Resolves after so many more looks. */
const looked = (more: number): Promise<unknown> => {
  const until = looks + more;
  return eventually(
    async () => looks,
    (now) => now >= until,
  );
};

describe('NodeConditionWriter', () => {
  it('names what is wrong, and ends it', async () => {
    start();
    // Whichever part is asked first.
    problems = [
      { reason: 'Samples', message: 'too many' },
      { reason: 'RoutesMissing', message: 'no route to n2' },
      TWO,
    ];
    await says('True');
    const [condition] = conditions() ?? [];
    expect(condition).toMatchObject({
      type: 'WeirProblem',
      reason: 'AddressConflict',
      message: 'two have 10.0.0.9; no route to n2; too many',
    });
    expect(condition?.lastTransitionTime).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    problems = [];
    await says('False');
    expect(conditions()).toMatchObject([{ reason: 'NoProblem', message: 'nothing is wrong any more' }]);
  });

  it('writes nothing for a node that never had a problem', async () => {
    start();
    await looked(5);
    expect(client.applied).toBe(0);
  });

  it('writes nothing for what one look alone found', async () => {
    fleeting = true;
    problems = [TWO];
    start();
    await looked(10);
    expect(client.applied).toBe(0);
  });

  it('ends what an agent before it said, and keeps the time since when it is so', async () => {
    const before = { type: 'WeirProblem', status: 'True', reason: 'Other', lastTransitionTime: '2026-01-01T00:00:00Z' };
    const node = (condition: NodeCondition): KubeNode => ({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'n1' },
      status: { conditions: [condition] },
    });
    client.held.set('nodes/n1', node(before));
    problems = [TWO];
    start();
    await eventually(
      async () => conditions()?.[0]?.reason,
      (reason) => reason === 'AddressConflict',
    );
    expect(conditions()).toMatchObject([{ lastTransitionTime: '2026-01-01T00:00:00Z' }]);
    problems = [];
    await says('False');
    expect(conditions()?.[0]?.lastTransitionTime).not.toBe('2026-01-01T00:00:00Z');
  });

  it('goes when Weir leaves the node', async () => {
    const writer = start();
    problems = [TWO];
    await says('True');
    await writer.remove();
    expect(conditions()).toEqual([]);
  });

  it('tries again what the API server did not take', async () => {
    client.failure = new ApiError('down', { status: 503, reason: 'ServiceUnavailable' });
    client.get = () => Promise.reject(client.failure ?? new Error('unreachable'));
    const real = new FakeClient();
    problems = [TWO];
    start();
    await eventually(
      async () => connection.status().ok,
      (ok) => !ok,
    );
    client.failure = undefined;
    client.get = real.get.bind(client);
    await says('True');
    await eventually(
      async () => connection.status().ok,
      (ok) => ok,
    );
  });

  it('says it again to a Node that was recreated, or is there only later, and ends it after it was refused for a while', async () => {
    const real = client.get.bind(client);
    client.get = () => Promise.reject(new ApiError('none', { status: 404, reason: 'NotFound' }));
    problems = [TWO];
    start();
    await looked(5);
    client.get = real;
    await says('True');
    client.held.delete('nodes/n1');
    await says('True');
    client.failure = new ApiError('may not', { status: 403, reason: 'Forbidden' });
    problems = [];
    await looked(5);
    client.failure = undefined;
    await says('False');
  });

  it('says once that it may not write, and is then silent; the connection is well', async () => {
    const log = recordingLogger();
    const { lines } = log;
    client.failure = new ApiError('may not', { status: 403, reason: 'Forbidden' });
    problems = [TWO];
    start(log);
    await eventually(
      async () => lines.length,
      (count) => count > 0,
    );
    problems = [{ ...TWO, message: 'now three' }];
    await looked(5);
    expect(lines).toHaveLength(1);
    expect(JSON.stringify(lines)).toContain(
      'cannot write condition WeirProblem of the node: the agent has no permission',
    );
    expect(connection.status().ok).toBe(true);
  });
});
