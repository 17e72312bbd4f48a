/** What the audit puts back, when, and what it says of it. Without a kernel. */
import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { createTables } from '../create-tables.ts';
import { Pace } from '../derive/index.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { Audit, type AuditOptions } from './audit.ts';
import type { ContentAudit, Difference, Step } from './content-audit.ts';

const NOTHING: ContentAudit = {
  nearest: async () => [],
  step: async () => ({ found: [], ended: true }),
  problem: async () => undefined,
};

/** An audit of one kind of content, whose steps find what `steps` says, one after another. */
function world(of: { readonly steps?: readonly Step[]; readonly nearest?: readonly Difference[] } = {}) {
  const db = createStateDB({ freeze: true });
  const tables = createTables(db);
  const log = recordingLogger();
  const state = {
    settled: new Set<string>(),
    broken: false,
    mends: [] as string[],
    told: [] as string[],
    faultsTold: 0,
  };
  const steps = [...(of.steps ?? [])];
  const slot: ContentAudit = {
    nearest: async () => of.nearest ?? [],
    step: async () => steps.shift() ?? { found: [], ended: true },
    problem: async (slot) => `${slot} is wrong`,
  };
  const audit = new Audit({
    db,
    tables,
    writer: { adopted: true, unfinished: false, slotSettled: (slot) => state.settled.has(String(slot)) },
    endpoints: { look: () => [] } as unknown as AuditOptions['endpoints'],
    slots: {
      mend: async (number: number) => {
        state.mends.push(String(number));
        if (state.broken) throw new Error('no memory');
      },
    } as unknown as AuditOptions['slots'],
    ipcache: {} as unknown as AuditOptions['ipcache'],
    contents: { address: NOTHING, slot },
    now: () => 0,
    pace: new Pace(
      () => 0,
      async () => undefined,
    ),
    pinned: { unpinned: () => [], repin: () => undefined },
    clearFlows: async () => undefined,
    onGone: () => undefined,
    onMended: (what) => state.told.push(what),
    onFaults: () => {
      state.faultsTold += 1;
    },
    log,
  });
  const warnings = () => log.lines.filter(({ level }) => level === 'warn');
  return { audit, state, warnings };
}

const wrong = (slot: number): Difference => ({ of: String(slot), problem: 'its content is another one' });

describe('a slot that cannot be put back', () => {
  it('is tried again in each look, but for one that an edit has yet to reach', async () => {
    const { audit, state } = world({ steps: [{ found: [wrong(1), wrong(2)], ended: true }] });
    state.broken = true;
    await audit.step('slot');
    expect([state.mends, audit.faults().map(({ of }) => of)]).toEqual([
      ['1', '2'],
      ['1', '2'],
    ]);
    state.broken = false;
    state.settled.add('2');
    await audit.look();
    expect([state.mends, audit.faults().map(({ of }) => of)]).toEqual([['1', '2', '2'], ['1']]);
    state.settled.add('1');
    await audit.look();
    expect([state.mends, audit.faults()]).toEqual([['1', '2', '2', '1'], []]);
  });
});

describe('what a turn finds', () => {
  const steps: readonly Step[] = [
    { found: [], ended: false },
    { found: [wrong(1), wrong(2)], ended: false },
    { found: [wrong(3), wrong(4)], ended: false },
    { found: [], ended: false },
    { found: [wrong(5)], ended: true },
  ];

  it('is put back at once, without a rest while there is more, and told once', async () => {
    const { audit, state, warnings } = world({ steps: [...steps, { found: [wrong(1)], ended: true }] });
    const results: string[] = [];
    for (const _ of steps) results.push(await audit.step('slot'));
    expect(results).toEqual(['goes on', 'mended', 'mended', 'goes on', 'ended']);
    expect([state.mends, audit.repairs(), audit.faults()]).toEqual([
      ['1', '2', '3', '4', '5'],
      [expect.objectContaining({ part: 'slot', count: 5 })],
      [],
    ]);
    const text = (slot: number): string => `policy slot ${slot}: its content is another one`;
    expect(state.told).toEqual([`${[1, 2, 3].map(text).join('; ')} (and 2 more)`]);
    expect(warnings().map(({ fields }) => fields)).toEqual([
      { part: 'slot', of: '1', problem: 'its content is another one', more: 1 },
    ]);
    // Nothing of it was left to be told of.
    expect(state.faultsTold).toBe(0);
    // The next turn tells anew.
    expect(await audit.step('slot')).toBe('ended');
    expect([state.told.slice(1), warnings().length]).toEqual([[text(1)], 2]);
  });

  it('and cannot be put back is no reason to go on without a rest, and a fault until it is', async () => {
    const { audit, state } = world({ steps });
    state.broken = true;
    const results: string[] = [];
    for (const _ of steps) results.push(await audit.step('slot'));
    expect(results).toEqual(['goes on', 'goes on', 'goes on', 'goes on', 'ended']);
    expect([audit.faults().map(({ of, error }) => [of, error]), state.told, state.faultsTold]).toEqual([
      ['1', '2', '3', '4', '5'].map((of) => [of, 'no memory']),
      [],
      3,
    ]);
  });
});
