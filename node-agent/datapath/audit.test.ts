/** What the audit puts back, when, and what it says of it. Without a kernel. */
import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { createTables } from '../create-tables.ts';
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
    pinned: { unpinned: () => [], repin: () => undefined },
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
