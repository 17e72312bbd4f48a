import { describe, expect, it } from '@jest/globals';
import { Subject } from 'rxjs';
import { bounded } from './follow.ts';

describe('events for a reader that may be slow', () => {
  function reader() {
    const events = new Subject<object>();
    const drained = new Subject<void>();
    const state = { full: false, stalls: 0, lines: '' };
    const following = bounded(events, { full: () => state.full, drained }, () => {
      state.stalls += 1;
    }).subscribe((lines) => {
      state.lines += lines;
    });
    return { events, drained, state, following };
  }

  it('are left out while it is full, and how many is said before the next one', () => {
    const { events, state } = reader();
    events.next({ n: 1 });
    state.full = true;
    events.next({ n: 2 });
    events.next({ n: 3 });
    state.full = false;
    events.next({ n: 4 });
    expect(state).toMatchObject({ lines: '{"n":1}\n{"lost":2}\n{"n":4}\n', stalls: 1 });
  });

  it('are said to be left out when it has caught up, though no other comes', () => {
    const { events, drained, state } = reader();
    drained.next();
    expect(state.lines).toBe('');
    for (let stall = 1; stall <= 2; stall += 1) {
      state.full = true;
      events.next({});
      events.next({});
      state.full = false;
      drained.next();
      drained.next();
      expect(state).toMatchObject({ lines: '{"lost":2}\n'.repeat(stall), stalls: stall });
    }
  });

  it('are not asked for any more when it has gone', () => {
    const { events, drained, following } = reader();
    following.unsubscribe();
    expect([events.observed, drained.observed]).toEqual([false, false]);
  });
});
