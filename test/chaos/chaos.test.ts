import { existsSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import { CLUSTERS, remains } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';
import { chaos, passed, print, UnknownActionError } from './index.ts';
import { Random } from './random.ts';
import { settle } from './settle.ts';
import { Stage } from './stage.ts';

/** Any would do; this one plays every kind of change and most faults within a minute. */
const SEED = 1;

describe('chaos', () => {
  it('a minute of edits and faults: no packet is judged wrongly', async () => {
    const report = await chaos({ seed: SEED, minutes: 1 });
    expect(passed(report) ? '' : print(report)).toBe('');
    // An account of nothing proves nothing.
    expect(report.rounds).toBeGreaterThan(2);
    expect(report.packets.arrive).toBeGreaterThan(1000);
    expect(report.packets['not arrive']).toBeGreaterThan(1000);
  }, 300_000);

  it('finds enforcement that is taken away for a moment, and cleans up after itself', async () => {
    const stage = await Stage.start({ nodes: 1, intervalMs: 50, stateDiskBytes: 1 << 20, log: () => undefined });
    try {
      await stage.addNamespace('default', {});
      for (const app of ['a', 'b']) await stage.createPod({ namespace: 'default', node: 1, labels: { app } });
      await stage.createPolicy('default', { subject: {}, allow: { ingress: [{}] }, deny: {} });
      expect(await settle(stage, 60)).toEqual([]);
      const denied = () => Promise.resolve(stage.ledger.account.packets['not arrive']);
      expect(await eventually(denied, (count) => count > 20, 60)).toBeGreaterThan(20);
      expect(stage.ledger.account).toMatchObject({ wrongAllows: 0, wrongDrops: 0 });

      stage.removeLinks(1, { known: false });
      const found = () => Promise.resolve(stage.ledger.account);
      const { wrongAllows, wrongDrops, findings } = await eventually(found, (account) => account.wrongAllows > 0, 60);
      expect(wrongAllows).toBeGreaterThan(0);
      expect(wrongDrops).toBe(0);
      expect(findings[0]?.text).toMatch(/^wrong allow: (packet|echo) \d+ .*default\/p\d/);
      expect(findings[0]?.text).toContain('"ingress":[{}]');
      expect(findings[0]?.text).toMatch(/s pod default\/p1 on node-1/);
    } finally {
      await stage.stop();
    }
    expect(remains(stage.cluster.id)).toEqual([]);
    expect(existsSync(`${CLUSTERS}/${stage.cluster.id}`)).toBe(false);
  }, 180_000);

  it('refuses an action that there is not, before it starts anything', async () => {
    await expect(chaos({ seed: 1, minutes: 1, without: ['earthquake'] })).rejects.toThrow(UnknownActionError);
  });
});

it('a seed repeats its choices', () => {
  const choices = (seed: number): readonly unknown[] => {
    const random = new Random(seed);
    const list = ['a', 'b', 'c', 'd'];
    return Array.from({ length: 50 }, () => [
      random.next(),
      random.between(1, 3),
      random.pick(list),
      random.some(list, 2),
    ]);
  };
  expect(choices(7)).toEqual(choices(7));
  expect(choices(7)).not.toEqual(choices(8));
});
