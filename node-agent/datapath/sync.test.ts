import { expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { quiet } from '../testing/fake-core.ts';
import { SyncLoop } from './sync.ts';

it('makes a round when the engine has something to conclude by the passing of time', async () => {
  let plans = 0;
  const engine = {
    pull: () => false,
    awaited: () => new Map(),
    plan: async () => {
      plans += 1;
      return { again: false };
    },
    onPending: () => () => undefined,
    failing: false,
    // Twice, soon after the round before.
    dueAt: () => (plans < 3 ? performance.now() + 5 : undefined),
  };
  const writer = { carryOut: async () => undefined, stop: async () => undefined, unfinished: false };
  const loop = new SyncLoop({
    engine,
    writer,
    slots: { trimDue: () => undefined },
    prepare: () => undefined,
    breathe: async () => undefined,
    now: () => performance.now(),
    complete: () => true,
    policyRevision: () => 1,
    onRound: () => undefined,
    log: quiet,
  } as unknown as ConstructorParameters<typeof SyncLoop>[0]);
  loop.schedule();
  expect(
    await eventually(
      async () => plans,
      (count) => count === 3,
    ),
  ).toBe(3);
  await loop.idle();
  expect(loop.busy).toBe(false);
  await loop.stop();
});
