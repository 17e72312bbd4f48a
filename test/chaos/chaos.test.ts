import { existsSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import { STATE_FILES } from '@weir/node-agent/state/state-files.ts';
import { CLUSTERS, remains } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';
import { action } from './actions/action.ts';
import { Deck } from './deck.ts';
import { chaos, passed, print, UnknownActionError } from './index.ts';
import { Random } from './random.ts';
import { settle } from './settle.ts';
import { Stage } from './stage.ts';

/** Any would do: each action is played at least once. */
const SEED = 1;

/** What must really have come about in a run. */
const EFFECTS = [
  ...['agent killed', 'operator killed', 'leader killed', 'leader frozen past its lease'],
  ...['agent frozen', 'operator frozen'],
  ...['request failed', 'request delayed', 'answer lost'],
  ...['watch cut', 'watch torn', 'event held', 'watch expired'],
  ...['state file lost', 'state file torn', 'state file older', 'state file empty'],
  ...STATE_FILES.map((name) => `${name} spoiled`),
  ...['disk full', 'disk read-only', 'socket removed', 'link removed', 'map pin removed'],
  ...['policy created', 'policy edited', 'policy deleted', 'pod relabelled', 'namespace relabelled'],
  ...['pod created', 'pod deleted', 'address reused'],
];

describe('chaos', () => {
  it('a minute of edits and faults: no packet is judged wrongly', async () => {
    const report = await chaos({ seed: SEED, minutes: 1 });
    expect(passed(report) ? '' : print(report)).toBe('');
    // An account of nothing proves nothing.
    expect(EFFECTS.filter((effect) => (report.effects[effect] ?? 0) === 0)).toEqual([]);
    expect(report.vain).toEqual([]);
    expect(report.rounds).toBeGreaterThan(2);
    expect(report.packets.arrive).toBeGreaterThan(1000);
    expect(report.packets['not arrive']).toBeGreaterThan(1000);
  }, 600_000);

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
  });

  it('refuses an action that there is not, before it starts anything', async () => {
    await expect(chaos({ seed: 1, minutes: 1, without: ['earthquake'] })).rejects.toThrow(UnknownActionError);
  });
});

describe('a deck', () => {
  const play = (): Promise<void> => Promise.resolve();
  const actions = ['a', 'b', 'c'].map((name) => action(name, 1, play, `${name} took place`));

  it('deals each action once before it deals by chance, and again what took no effect', () => {
    const deck = new Deck(actions, new Random(1));
    const names = (count: number, atLeast: number): string => {
      const dealt = deck.deal(count, atLeast).map(({ name }) => name);
      return dealt.toSorted().join(' ');
    };
    expect(names(0, 3)).toBe('a b c');
    deck.review({ 'a took place': 1, 'c took place': 2 });
    expect(deck.due.map(({ name }) => name)).toEqual(['b']);
    expect(names(1, 3)).toBe('b');
    deck.review({ 'a took place': 1, 'b took place': 1, 'c took place': 2 });
    expect(deck.due).toEqual([]);
    expect([deck.deal(0, 3).length, deck.deal(5, 3).length]).toEqual([0, 5]);
  });

  it('without actions deals none', () => {
    expect(new Deck([], new Random(1)).deal(2, 2)).toEqual([]);
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
      random.shuffled(list),
    ]);
  };
  expect(choices(7)).toEqual(choices(7));
  expect(choices(7)).not.toEqual(choices(8));
});
