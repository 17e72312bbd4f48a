import { describe, expect, it, jest } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { quiet } from '../testing/fake-core.ts';
import { SyncLoop } from './sync-loop.ts';

const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A loop whose rounds do `carryOut`. */
function world(of: {
  readonly carryOut?: () => Promise<void>;
  readonly dueAt?: (plans: number) => number | undefined;
  readonly again?: (plans: number) => boolean;
  readonly prepare?: () => void;
  readonly onPending?: (callback: () => void) => () => void;
  readonly onLost?: (error: Error) => void;
  readonly complete?: () => 'nothing' | 'addresses' | 'rules';
  readonly awaited?: () => ReadonlyMap<string, string>;
}) {
  const state = { plans: 0, early: 0, onRound: (): void => undefined };
  const model = {
    pull: () => false,
    awaited: of.awaited ?? (() => new Map()),
    plan: async ({ rules }: { readonly rules: boolean }) => {
      state.plans += 1;
      if (!rules) state.early += 1;
      return { rules, again: of.again?.(state.plans) ?? false };
    },
    onPending: of.onPending ?? (() => () => undefined),
    failing: false,
    dueAt: () => of.dueAt?.(state.plans),
  };
  const writer = {
    carryOut: of.carryOut ?? (async () => undefined),
    stop: async () => undefined,
    unfinished: false,
    rows: { retryInMs: undefined as number | undefined },
    keeps: false,
  };
  const loop = new SyncLoop({
    model,
    writer,
    slots: { trimDue: () => undefined },
    prepare: of.prepare ?? (() => undefined),
    clock: { now: () => performance.now(), yieldNow: async () => undefined },
    complete: of.complete ?? (() => 'rules'),
    policyRevision: () => 1,
    onRound: () => state.onRound(),
    onLost: of.onLost,
    log: quiet,
  } as unknown as ConstructorParameters<typeof SyncLoop>[0]);
  return { loop, state, writer };
}

it('makes a round when the model has something to compute by the passing of time', async () => {
  // Twice, soon after the round before.
  const { loop, state } = world({ dueAt: (plans) => (plans < 3 ? performance.now() + 5 : undefined) });
  loop.schedule();
  expect(
    await eventually(
      async () => state.plans,
      (count) => count === 3,
    ),
  ).toBe(3);
  await loop.idle();
  expect(loop.busy).toBe(false);
  await loop.stop();
});

it('goes on after a report that throws, and says so', async () => {
  const { loop, state } = world({});
  state.onRound = () => {
    state.onRound = () => undefined;
    throw new Error('no report');
  };
  loop.schedule();
  await loop.idle();
  expect([state.plans, loop.busy, String(loop.broken)]).toEqual([1, false, 'Error: no report']);
  loop.schedule();
  await loop.idle();
  expect([state.plans, loop.broken]).toEqual([2, undefined]);
  await loop.stop();
});

it('computes nothing more once a plan broke, and says so to who can restart', async () => {
  const lost: Error[] = [];
  const { loop, state } = world({
    again: () => {
      throw new Error('no plan');
    },
    onLost: (error) => lost.push(error),
  });
  for (const round of [1, 2]) {
    loop.schedule();
    await eventually(
      async () => String(loop.broken),
      (broken) => broken.includes('a plan broke off: no plan'),
    );
    expect([round, state.plans, loop.reached, lost.length]).toEqual([round, 1, 0, 1]);
  }
  await loop.stop();
});

it('rests after a round that broke before it took its inputs in, though they are pending', async () => {
  let rounds = 0;
  const { loop, state } = world({
    prepare: () => {
      rounds += 1;
      if (rounds < 3) throw new Error('not now');
    },
    onPending: (callback) => {
      if (state.plans === 0) queueMicrotask(callback);
      return () => undefined;
    },
  });
  loop.schedule();
  await loop.idle();
  expect([rounds, String(loop.broken)]).toEqual([1, 'Error: not now']);
  await eventually(
    async () => state.plans,
    (plans) => plans > 0,
  );
  expect([rounds, loop.broken]).toEqual([3, undefined]);
  await loop.stop();
});

it('rests as long as rows do that the kernel refuses, and no longer than until something changes', async () => {
  let pending: (() => void) | undefined;
  const { loop, state, writer } = world({
    onPending: (callback) => {
      pending = callback;
      return () => undefined;
    },
  });
  writer.unfinished = true;
  writer.rows.retryInMs = 60_000;
  const waits = jest.spyOn(globalThis, 'setTimeout');
  loop.schedule();
  await loop.idle();
  const [[, wait] = []] = waits.mock.calls;
  waits.mockRestore();
  expect([state.plans, wait]).toEqual([1, 60_000]);
  writer.rows.retryInMs = 0;
  pending?.();
  await eventually(
    async () => state.plans,
    (plans) => plans >= 3,
  );
  await loop.stop();
});

it('makes a round when a body has left something to do', async () => {
  const { loop, state, writer } = world({
    carryOut: async () => {
      writer.unfinished = false;
    },
  });
  writer.unfinished = true;
  // Others come meanwhile, again and again.
  const plans = await eventually(
    async () => {
      for (let bodies = 0; bodies < 10; bodies += 1) await loop.exclusively(tick);
      return state.plans;
    },
    (count) => count > 0,
  );
  expect(plans).toBe(1);
  await loop.stop();
});

it.each([
  ['at once where the kernel refuses nothing any more', false, 2],
  ['after a while where it still does', true, 1],
])('CIDRs that were kept go in another round, %s', async (_, unfinished, plans) => {
  const { loop, state, writer } = world({ again: (count) => count === 1 });
  Object.assign(writer, { keeps: true, unfinished });
  loop.schedule();
  await loop.idle();
  expect(state.plans).toBe(plans);
  await loop.stop();
});

describe('exclusively', () => {
  it('comes after each round, and a round after each body, while both are due without end', async () => {
    const order: string[] = [];
    const { loop } = world({
      carryOut: async () => {
        order.push('round');
        if (order.length < 20) loop.schedule();
        await tick();
      },
    });
    loop.schedule();
    await Promise.all(Array.from({ length: 5 }, () => loop.exclusively(() => void order.push('body'))));
    expect(order.slice(0, 10)).toEqual(Array.from({ length: 5 }, () => ['round', 'body']).flat());
    await loop.idle();
    await loop.stop();
  });

  it.each([0, 1, 2, 3, 4, 5])('overlaps no round that is asked for %d promises after one', async (hops) => {
    let round = false;
    let body = false;
    let overlaps = 0;
    const { loop, state } = world({
      carryOut: async () => {
        round = true;
        if (body) overlaps += 1;
        await tick();
        round = false;
      },
    });
    let bodies = 0;
    const exclusive = async (): Promise<void> => {
      body = true;
      bodies += 1;
      if (round) overlaps += 1;
      for (let ticks = 0; ticks < 5; ticks += 1) await tick();
      body = false;
    };
    loop.schedule();
    const first = loop.exclusively(exclusive);
    state.onRound = () => {
      state.onRound = () => undefined;
      void (async () => {
        for (let hop = 0; hop < hops; hop += 1) await Promise.resolve();
        loop.schedule();
      })();
    };
    await first;
    loop.schedule();
    await loop.exclusively(exclusive);
    await loop.idle();
    expect([bodies, overlaps]).toEqual([2, 0]);
    expect(state.plans).toBeGreaterThanOrEqual(2);
    await loop.stop();
  });

  it('rejects with what its body throws, and does nothing once the loop is stopped', async () => {
    const { loop, state } = world({});
    await expect(
      loop.exclusively(() => {
        throw new Error('no');
      }),
    ).rejects.toThrow('no');
    loop.schedule();
    let ran = false;
    const waiting = loop.exclusively(() => {
      ran = true;
    });
    await loop.stop();
    await waiting;
    await loop.exclusively(() => {
      ran = true;
    });
    expect([ran, state.plans, loop.busy]).toEqual([false, 0, false]);
  });
});

it('plans addresses once it is known who has them, and rules once those are; only then a policy revision is reached', async () => {
  let complete: 'nothing' | 'addresses' | 'rules' = 'nothing';
  const awaited = new Map([['hash', 'policy']]);
  const { loop, state } = world({ complete: () => complete, awaited: () => awaited });
  const round = async (): Promise<readonly number[]> => {
    loop.schedule();
    await loop.idle();
    return [state.plans, state.early, loop.reached];
  };
  expect(await round()).toEqual([0, 0, 0]);
  complete = 'addresses';
  expect(await round()).toEqual([1, 1, 0]);
  complete = 'rules';
  expect(await round()).toEqual([2, 2, 0]);
  awaited.clear();
  expect(await round()).toEqual([3, 2, 1]);
  await loop.stop();
});
