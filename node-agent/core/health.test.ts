import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import type { PolicyRow } from '../tables.ts';
import { AwaitedSets } from './health.ts';

describe('PeerSets that do not come', () => {
  const policy: PolicyRow = { uid: 'u', kind: 'NetworkPolicy', namespace: 'ns', name: 'web', generation: 2, rules: [] };

  it('are a fault of their own after half a minute, which names set and policy, until they are here', () => {
    let now = 0;
    let awaited = new Map<string, PolicyRow>();
    const sets = new AwaitedSets(
      createStateDB({ freeze: true }),
      () => awaited,
      () => now,
    );
    expect(sets.check().ok).toBe(true);
    now = 100_000;
    awaited = new Map([
      ['hash-a', policy],
      ['hash-b', policy],
    ]);
    sets.look();
    now += 29_999;
    expect(sets.check().ok).toBe(true);
    now += 1;
    const { ok, message } = sets.check();
    expect(ok).toBe(false);
    expect(message).toContain('PeerSet hash-a and 1 more, which NetworkPolicy ns/web names, has not come for 30 s');
    awaited = new Map();
    expect(sets.check().ok).toBe(true);
    awaited = new Map([['hash-a', policy]]);
    now += 1_000_000;
    expect(sets.check().ok).toBe(true);
  });
});
