import { describe, expect, it } from '@jest/globals';
import { type CompiledPolicy, compile, MOST_ROWS, workOf } from '@weir/policy';
import { compileByShare, type ShareOptions } from './row-shares.ts';
import { rule } from './testing/model-world.ts';
import { WorkBudget } from './work-budget.ts';

const of = (...namespaces: readonly string[]): ReadonlySet<string> => new Set(namespaces);

describe('a budget of work', () => {
  it('is one for each namespace, and lets what is begun be done', () => {
    const budget = new WorkBudget(10);
    budget.spend(of('a'), 9);
    expect([budget.allows(of('a')), budget.allows(of('b'))]).toEqual([true, true]);
    budget.spend(of('a'), 100);
    expect([budget.allows(of('a')), budget.allows(of('b')), budget.allows(of('a', 'b'))]).toEqual([false, true, true]);
    const none = new WorkBudget(0);
    expect(none.allows(of('a'))).toBe(true);
    none.spend(of('a'), 0);
    expect(none.allows(of('a'))).toBe(false);
  });
});

/** A policy of so many ports for everybody, or for the members of a set. */
function compiled(ports: number, members?: number): CompiledPolicy {
  const rules = Array.from({ length: ports }, (_, at) => ({
    ...rule('a', members === undefined ? undefined : 'b', 1 + at),
    ...(members === undefined ? { peers: [{ entity: 'all' as const }] } : {}),
    ports: [{ protocol: 'TCP' as const, from: 1 + 2 * at, to: 1 + 2 * at }],
  }));
  const peerSets = { identities: () => Array.from({ length: members ?? 0 }, (_, at) => 300 + at) };
  return compile({ rules, peerSets, identities: [], mode: 'default', allowLocalhost: true });
}

describe('the work of compiling', () => {
  it('grows by rows, and by members though they have few rows', () => {
    expect(workOf(compiled(400).ingress)).toBeGreaterThan(1.5 * workOf(compiled(200).ingress));
    const [few, many] = [compiled(1, 10), compiled(1, 64_000)].map(({ ingress }) => ingress);
    expect(many?.classes.length).toBe(few?.classes.length);
    // Each is written.
    expect(many && workOf(many)).toBeGreaterThan(32_000);
    expect(few && workOf(few)).toBeLessThan(100);
    // The same members in many sets.
    const peers = Array.from({ length: 400 }, (_, at) => ({ peerSet: `set-${at}` }));
    const identities = (): readonly number[] => Array.from({ length: 250 }, (_, at) => 300 + at);
    const input = { peerSets: { identities }, identities: [], mode: 'default', allowLocalhost: true } as const;
    expect(workOf(compile({ ...input, rules: [{ ...rule('a', undefined, 1), peers }] }).ingress)).toBeGreaterThan(6000);
  });

  /** Shapes of one namespace that are compiled by one plan, of those that wait. */
  async function turns(more: Partial<ShareOptions>, policy = compiled(1)): Promise<readonly string[]> {
    const shapes = ['s1', 's2', 's3', 's4'];
    const { made } = await compileByShare({
      kept: new Map(),
      users: new Map([...shapes, 'urgent'].map((shape) => [shape, of('a')])),
      dirty: of(...shapes, 'urgent'),
      needs: () => ({ rows: [1, 0], most: MOST_ROWS }),
      failing: () => false,
      compile: async () => policy,
      rules: () => 1,
      mayWait: (shape) => shape !== 'urgent',
      work: 1000,
      ...more,
    });
    return [...made.keys()].filter((shape) => shape !== 'urgent');
  }

  it('is of rows, of rules, and of members; what is urgent takes nothing of it', async () => {
    expect(await turns({})).toHaveLength(4);
    expect(await turns({}, compiled(200))).toHaveLength(1);
    expect(await turns({ rules: (shape) => (shape === 'urgent' ? 10_000 : 1) })).toHaveLength(4);
    expect(await turns({ rules: () => 126 })).toHaveLength(2);
    expect(await turns({}, compiled(1, 64_000))).toHaveLength(1);
    // One that fails has been read.
    expect(await turns({ compile: async () => new Error('no compiler takes it'), rules: () => 10_000 })).toHaveLength(
      0,
    );
  });
});
