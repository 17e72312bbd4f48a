/** How soon another leads after a leader that was killed: default options, in virtual time. */
import { afterEach, beforeEach, expect, it, jest } from '@jest/globals';
import { ApiError } from './errors.ts';
import type { Lease } from './kubernetes-objects.ts';
import { LeaderElector } from './leader.ts';
import type { FencingClient } from './types.ts';

/** What docs promise of a leader that is killed. */
const FAIL_OVER_MS = 5_000;
/** Between two renewals, jitter included. */
const LONGEST_PERIOD_MS = 840;
/** Parts of a period. */
const PHASES = 12;

/** One Lease with optimistic locking. */
class Api {
  #lease: Lease | undefined;
  #version = 0;

  get holder(): string {
    return this.#lease?.spec?.holderIdentity ?? '';
  }

  /** @param alive whether requests of this client arrive; one that does not is never answered. */
  client(alive: () => boolean): Pick<FencingClient, 'within'> {
    const arriving = async <T>(answer: () => T): Promise<T> => (alive() ? answer() : new Promise<never>(() => {}));
    const write = (lease: Lease): Lease => {
      this.#version += 1;
      this.#lease = { ...lease, metadata: { ...lease.metadata, resourceVersion: String(this.#version) } };
      return this.#lease;
    };
    const client = {
      get: () =>
        arriving(() => {
          if (this.#lease === undefined) throw new ApiError('none', { status: 404, reason: 'NotFound' });
          return this.#lease;
        }),
      create: (_: unknown, lease: Lease) => arriving(() => write(lease)),
      replace: (_: unknown, lease: Lease) =>
        arriving(() => {
          if (lease.metadata.resourceVersion !== this.#lease?.metadata.resourceVersion)
            throw new ApiError('another was faster', { status: 409, reason: 'Conflict' });
          return write(lease);
        }),
    };
    return { within: () => client as unknown as ReturnType<FencingClient['within']> };
  }
}

interface Replica {
  readonly elector: LeaderElector;
  kill(): void;
}

function replica(api: Api, identity: string, onElected: () => void = () => undefined): Replica {
  let alive = true;
  const elector = new LeaderElector({
    client: api.client(() => alive),
    namespace: 'ns',
    name: 'op',
    identity,
    onElected,
    onLost: () => undefined,
  });
  elector.start();
  return {
    elector,
    kill: () => {
      alive = false;
    },
  };
}

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

// Whatever part of the period the two are in, and whether they wait as short or as long as they may.
it.each([0, 0.5, 0.999])(
  'after a leader that is killed another leads within 5 s, and never beside it (random: %d)',
  async (random) => {
    for (let phase = 0; phase < PHASES ** 2; phase += 1) {
      const [joins, dies] = [phase % PHASES, Math.floor(phase / PHASES)].map(
        (part) => (part * LONGEST_PERIOD_MS) / PHASES,
      );
      jest.spyOn(Math, 'random').mockReturnValue(random);
      const api = new Api();
      const one = replica(api, 'one');
      await jest.advanceTimersByTimeAsync(joins ?? 0);
      let elected = Number.NaN;
      let together = false;
      const two = replica(api, 'two', () => {
        elected = performance.now();
        together = one.elector.leading;
      });
      await jest.advanceTimersByTimeAsync(20_000 + (dies ?? 0));
      expect([api.holder, two.elector.leading]).toEqual(['one', false]);
      const killed = performance.now();
      one.kill();
      await jest.advanceTimersByTimeAsync(2 * FAIL_OVER_MS);
      expect(api.holder).toBe('two');
      expect(elected - killed).toBeLessThanOrEqual(FAIL_OVER_MS);
      expect(together).toBe(false);
      await two.elector.stop();
    }
  },
);

it('after a leader that stops another leads at its next look', async () => {
  const api = new Api();
  const one = replica(api, 'one');
  await jest.advanceTimersByTimeAsync(100);
  const two = replica(api, 'two');
  await jest.advanceTimersByTimeAsync(20_000);
  await one.elector.stop();
  expect(api.holder).toBe('');
  await jest.advanceTimersByTimeAsync(LONGEST_PERIOD_MS);
  expect([api.holder, two.elector.leading]).toEqual(['two', true]);
  await two.elector.stop();
});
