/** What is remembered of pods of this node that have gone. */
import { describe, expect, it } from '@jest/globals';
import { basic, type World } from './testing/model-world.ts';

const ENDS = {
  DEL: (world: World) => world.dropEndpoint(2),
  pod: (world: World) =>
    world.db.write([world.tables.localPods], (txn) => txn.delete(world.tables.localPods, 'ns/job')),
  slice: (world: World) =>
    world.db.write([world.tables.remoteEndpoints], (txn) => txn.delete(world.tables.remoteEndpoints, 'ns/job')),
};
type End = keyof typeof ENDS;

function remembered(world: World): number | undefined {
  return world.db.tables().find(({ name }) => name === 'detachedPods')?.rows;
}

describe('a pod of a job', () => {
  it.each<readonly [End, End, End]>([
    ['DEL', 'pod', 'slice'],
    ['DEL', 'slice', 'pod'],
    ['pod', 'DEL', 'slice'],
    ['pod', 'slice', 'DEL'],
    ['slice', 'DEL', 'pod'],
    ['slice', 'pod', 'DEL'],
  ])('is forgotten when its %s, %s and %s have ended', async (...ends) => {
    const world = basic();
    world.pod('job', 'a', [], undefined, ['10.0.0.2']);
    world.endpoint(2, { pod: { namespace: 'ns', name: 'job', uid: 'u-job' } });
    world.remote('job', '10.0.0.2', 256, [], 'u-job');
    await world.plan();
    for (const end of ends) {
      ENDS[end](world);
      await world.plan();
    }
    expect(remembered(world)).toBe(0);
  });

  it('is remembered while its object says that it still has the address', async () => {
    const world = basic();
    world.pod('job', 'a', [], undefined, ['10.0.0.2']);
    world.endpoint(2, { pod: { namespace: 'ns', name: 'job', uid: 'u-job' } });
    await world.plan();
    ENDS.DEL(world);
    await world.plan();
    expect(remembered(world)).toBe(1);
  });
});
