/** Endpoints that come and go under traffic, on the real kernel. */
import { afterEach, describe, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import type { LabPod } from '../datapath/testing/lab.ts';
import { POD_HOOKS, SOCKET_HOOKS } from './programs.ts';
import { SERVICE, ServiceLab } from './testing/service-lab.ts';

const CHANGES = 1000;
/** Of the order of endpoints, so that a run can be repeated. */
const SEED = 38;

let node: ServiceLab;
afterEach(async () => {
  await node.stop();
  node.lab.close();
});

/** Numbers from 0 to 1 that follow from the seed. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

describe.each([
  ['at sockets', SOCKET_HOOKS],
  ['at interfaces', POD_HOOKS],
] as const)('%s', (_, hooks) => {
  it(`${CHANGES} changes lose no connection to an endpoint that stays, and no datagram`, async () => {
    node = new ServiceLab(hooks);
    const client = await node.lab.pod('c');
    const stays: LabPod = await node.lab.pod('s');
    const others = [await node.lab.pod('o'), await node.lab.pod('p')];
    node.cgroup = node.lab.cgroup(client);
    await node.start();
    await node.core.upsertEndpoint(client.endpoint(1, { 'k8s:app': 'client' }));
    await node.told([stays]);
    expect(await client.dial(stays, SERVICE)).toBe(true);
    await client.startStream(stays, SERVICE);
    const next = random(SEED);
    for (let change = 1; change <= CHANGES; change += 1) {
      const backends = [stays, ...others.filter(() => next() < 0.5)].sort(() => next() - 0.5);
      await node.told(backends);
      if (change % 50 !== 0) continue;
      await client.say(stays, SERVICE);
    }
    const { sent, lost } = await client.endStream();
    expect(sent).toBeGreaterThan(100);
    expect(lost).toBe(0);
    const heard = await eventually(
      () => stays.heard(),
      (bytes) => bytes >= CHANGES / 50,
    );
    expect(heard).toBe(CHANGES / 50);
  });
});
