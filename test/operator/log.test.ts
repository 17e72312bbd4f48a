/** What the operator's log says of requests that are refused again and again. */
import { afterEach, expect, it } from '@jest/globals';
import { resources } from '@weir/kube';
import { pino } from 'pino';
import { cnp } from '../../operator/testing.ts';
import { createWorld, eventually, type World } from './world.ts';

const RULE = { endpointSelector: {}, ingress: [{}] };
let world: World | undefined;
afterEach(async () => world?.stop());

it.each([403, 500])(
  'requests that fail with %d are told once a minute, in one line without a stack',
  async (status) => {
    world = await createWorld();
    const { api, client } = world;
    const lines: Readonly<Record<string, unknown>>[] = [];
    const logger = pino(
      { level: 'debug' },
      { write: (line: string) => lines.push(JSON.parse(line) as Readonly<Record<string, unknown>>) },
    );
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
