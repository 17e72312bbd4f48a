import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { AwaitedSets, labelsCheck } from './core-health.ts';
import { basic } from './derive/testing/engine-world.ts';
import type { PolicyRow } from './tables.ts';

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

describe('labels that the operator gives no identity', () => {
  it('are said after 5 s, with pod, endpoint and how it is judged meanwhile', async () => {
    const world = basic();
    const { engine } = world;
    const said = (now: number): string => labelsCheck(engine.unnumbered(), now).message;
    const none = 'the labels of every endpoint have an identity';
    await world.plan();
    world.pass(1_000);
    world.pod('web', 'a', [], 'next');
    await world.plan();
    expect([said(5_999), said(6_000)]).toEqual([
      none,
      'the operator has given the labels of pod ns/web (endpoint 1, for 5 s, judged by its former labels) no identity: see that it runs',
    ]);
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256, reason: expect.any(String) });
    world.pass(1_000);
    for (const id of [2, 3, 4]) {
      world.pod(`p${id}`, 'a', [], 'next');
      world.endpoint(id, { pod: { namespace: 'ns', name: `p${id}`, uid: `u-p${id}` } });
    }
    await world.plan();
    expect(said(8_000)).toContain('for 7 s');
    expect(said(8_000)).toContain('(endpoint 2, for 6 s, closed)');
    expect(said(8_000)).toContain('and 1 more no identity');
    world.identity(300, 'a', 'next');
    await world.plan();
    expect(said(60_000)).toBe(none);
  });
});
