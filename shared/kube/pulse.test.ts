import { describe, expect, it } from '@jest/globals';
import { ApiError } from './errors.ts';
import { ServerPulse } from './pulse.ts';

const failure = (status: number): ApiError => new ApiError('m', { status, reason: 'r' });

describe('ServerPulse', () => {
  function pulse() {
    const clock = { now: 0 };
    const made = new ServerPulse(() => clock.now);
    const state = { recoveries: 0 };
    const following = made.recoveries.subscribe(() => {
      state.recoveries += 1;
    });
    return { clock, made, state, following };
  }

  it.each([0, 429, 500, 503])(
    'the first answer after a failure with status %i is a recovery, the next is none',
    (status) => {
      const { made, state, following } = pulse();
      made.failed(failure(status));
      made.answered();
      made.answered();
      expect(state.recoveries).toBe(1);
      following.unsubscribe();
      made.failed(failure(status));
      made.answered();
      expect(state.recoveries).toBe(1);
    },
  );

  it('a refusal is an answer', () => {
    const { made, state } = pulse();
    made.failed(failure(503));
    made.failed(failure(403));
    expect(state.recoveries).toBe(1);
    made.failed(failure(404));
    expect(state.recoveries).toBe(1);
  });

  it('a server that fails one kind of requests and answers the others wakes nobody more than once a second', () => {
    const { clock, made, state } = pulse();
    made.answered();
    for (; clock.now < 10_000; clock.now += 100) {
      made.failed(failure(500));
      made.answered();
    }
    expect(state.recoveries).toBe(0);
    for (; clock.now < 20_000; clock.now += 500) {
      made.failed(failure(500));
      if (clock.now % 1_500 === 0) made.answered();
    }
    expect(state.recoveries).toBeLessThanOrEqual(7);
    expect(state.recoveries).toBeGreaterThan(0);
  });
});
