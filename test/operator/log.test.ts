/** What the operator's log says of requests that are refused again and again. */
import { afterEach, expect, it } from '@jest/globals';
import { resources } from '@weir/kube';
import { type Logger, pino } from 'pino';
import { cnp } from '../../operator/testing.ts';
import { createWorld, eventually, type World } from './world.ts';

const RULE = { endpointSelector: {}, ingress: [{}] };
let world: World | undefined;
afterEach(async () => world?.stop());

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

function logged(): { readonly lines: Line[]; readonly logger: Logger } {
  const lines: Line[] = [];
  return {
    lines,
    logger: pino({ level: 'debug' }, { write: (line: string) => void lines.push(JSON.parse(line) as Line) }),
  };
}

it.each([403, 500])(
  'requests that fail with %d are told once a minute, in one line without a stack',
  async (status) => {
    world = await createWorld();
    const { api, client } = world;
    const { lines, logger } = logged();
    api.faults.fail(status, { userAgent: 'weir-operator', verb: 'apply', resource: 'peersets' });
    await world.operator({ logger });
    for (const name of ['a', 'b', 'c'])
      await client.create(resources.CiliumNetworkPolicy, cnp(`default/${name}`, RULE));
    const failed = () =>
      lines.filter(({ msg, writer }) => msg === 'write failed' && String(writer).toLowerCase().includes('peer'));
    await eventually(async () => expect(failed().length).toBeGreaterThan(5));
    const loud = failed().filter(({ level }) => Number(level) >= 40);
    expect(loud).toEqual([expect.objectContaining({ level: 40, error: expect.any(String), key: expect.any(String) })]);
    expect(JSON.stringify(failed())).not.toContain('stack');
  },
);

it('who has led and then meets silence is told of its address once, not of one that never answered, nor of what ended with its term', async () => {
  world = await createWorld();
  const { api, client } = world;
  const { lines, logger } = logged();
  const operator = await world.operator({
    logger,
    leaderElect: true,
    leaderNamespace: 'default',
    leaderName: 'weir-operator',
    identity: 'one',
    // Longer than a busy machine lets a process stand.
    leaseDurationMs: 8_000,
    renewDeadlineMs: 6_000,
    retryPeriodMs: 50,
  });
  await eventually(async () => expect(operator.leading).toBe(true));
  await operator.ready();
  await operator.settled();
  const { db } = operator;
  api.faults.delay(20_000, { userAgent: 'weir-operator' });
  // Writes are under way, and others wait for them, when the lease is lost.
  for (const name of ['a', 'b', 'c']) await client.create(resources.CiliumNetworkPolicy, cnp(`default/${name}`, RULE));
  await eventually(async () => expect(operator.db).not.toBe(db));
  const unreached = () => lines.filter(({ msg }) => msg === 'leader election failed to reach the lease');
  const before = unreached().length;
  await eventually(async () => expect(unreached().length).toBeGreaterThan(before + 1));
  const loud = lines.filter(({ level }) => level >= 40);
  expect(loud.map(({ msg }) => msg)).toEqual([
    'leadership lost: nothing is written until this replica leads again',
    'leader election failed to reach the lease',
  ]);
  expect(loud[1]?.error).toMatch(/^(GET|PUT) http:\/\/127\.0\.0\.1:\d+\/.*leases.*: no answer within 3000 ms$/);
  expect(JSON.stringify(lines)).not.toMatch(/stack|"fix"/);
});

it('a request for the lease that fails while there is time for another is told to nobody', async () => {
  world = await createWorld();
  const { api } = world;
  const { lines, logger } = logged();
  const operator = await world.operator({
    logger,
    leaderElect: true,
    ...{ leaderNamespace: 'default', leaderName: 'weir-operator', identity: 'one' },
    ...{ leaseDurationMs: 3_600_000, renewDeadlineMs: 3_000_000, retryPeriodMs: 20 },
  });
  await eventually(async () => expect(operator.leading).toBe(true));
  api.faults.fail(503, { userAgent: 'weir-operator', resource: 'leases', verb: 'update' }, 3);
  const failed = () => lines.filter(({ msg }) => msg === 'leader election failed to reach the lease');
  await eventually(async () => expect(failed()).toHaveLength(3));
  expect(new Set(failed().map(({ level }) => level))).toEqual(new Set([20]));
});
