/** What the audit puts back, when, and what it says of it. Without a kernel. */
import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { createTables } from '../create-tables.ts';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { EVERY } from './afterwards.ts';
import { Audit, type AuditOptions } from './audit.ts';
import type { ContentAudit, Difference } from './content-audit.ts';
import type { LinkLook } from './link-table.ts';

const NOTHING: ContentAudit = {
  nearest: async () => [],
  async *pass() {},
  problem: async () => undefined,
};

/** The differences that each piece of a pass finds. */
type Pieces = readonly (readonly Difference[])[];

/** An audit whose passes over slots find what `passes` says, one after another. */
function world(
  of: {
    readonly passes?: readonly Pieces[];
    readonly nearest?: readonly Difference[];
    readonly address?: ContentAudit;
  } = {},
) {
  const db = createStateDB({ freeze: true });
  const tables = createTables(db);
  const log = recordingLogger();
  const state = {
    settled: new Set<string>(),
    right: new Set<string>(),
    adopted: true,
    unacknowledged: 0,
    broken: false,
    /** Endpoints cannot be looked at. */
    unseen: false,
    /** Nobody can tell which interfaces are back. */
    forkless: false,
    /** Flows cannot be deleted. */
    unclear: false,
    mends: [] as string[],
    told: [] as string[],
    faultsTold: 0,
    /** The repairs' ends: what got new revisions, and the faults that there were then. */
    renewed: [] as { readonly endpoints: readonly number[]; readonly faults: readonly string[] }[],
    order: [] as string[],
    pieces: 0,
    looks: [] as LinkLook[],
  };
  const passes = [...(of.passes ?? [])];
  const slot: ContentAudit = {
    nearest: async () => of.nearest ?? [],
    async *pass() {
      for (const piece of passes.shift() ?? []) {
        state.pieces += 1;
        yield piece;
      }
    },
    problem: async (slot) => (state.right.has(slot) ? undefined : `${slot} is wrong`),
  };
  const audit = new Audit({
    db,
    tables,
    writer: {
      get adopted() {
        return state.adopted;
      },
      rows: {
        unacknowledged: (part) => (part === 'slot' ? state.unacknowledged : 0),
        addressSettled: () => true,
        slotSettled: (slot) => state.settled.has(String(slot)),
      },
      beginRepair: () => void state.order.push('begin'),
      endRepair: async (endpoints) => {
        state.order.push('end');
        state.renewed.push({ endpoints: [...endpoints], faults: audit.faults().map(({ of }) => of) });
      },
    },
    kernel: {
      endpoints: {
        look: () => {
          if (state.unseen) throw new Error('EMFILE');
          return state.looks;
        },
        mend: (id: number) => {
          state.order.push(`mend ${id}`);
          if (state.broken) throw new Error('its owner insists');
        },
        doubt: (id: number) => void state.order.push(`doubt ${id}`),
      } as unknown as AuditOptions['kernel']['endpoints'],
      slots: {
        mend: async (number: number) => {
          state.order.push(`mend ${number}`);
          state.mends.push(String(number));
          if (state.broken) throw new Error('no memory');
        },
      } as unknown as AuditOptions['kernel']['slots'],
      ipcache: {
        updateAll: (rows: readonly IpcacheRow[]) =>
          void state.order.push(`mend ${rows.map(({ prefix }) => prefix).join()}`),
      } as unknown as AuditOptions['kernel']['ipcache'],
      clearFlows: async () => {
        state.order.push('clear');
        if (state.unclear) throw new Error('ENOMEM');
      },
    },
    contents: { address: of.address ?? NOTHING, slot },
    clock: { now: () => 0, yieldNow: async () => undefined },
    pinned: { unpinned: () => [], repin: () => undefined },
    interfaces: {
      guardReturned: async () => {
        if (state.forkless) throw new Error('spawn ip EAGAIN');
      },
      gone: () => undefined,
    },
    onMended: (what) => state.told.push(what),
    onFaults: () => {
      state.faultsTold += 1;
    },
    log,
  });
  const warnings = () => log.lines.filter(({ level }) => level === 'warn');
  const compare = (): Promise<void> => audit.compare((body) => body());
  return { db, tables, audit, compare, state, warnings };
}

const wrong = (slot: number): Difference => ({ of: String(slot), problem: 'its content was changed' });

describe('a slot that cannot be put back', () => {
  it('is tried again in each look, but for one that an edit has yet to reach', async () => {
    const { audit, state, compare } = world({ passes: [[[wrong(1), wrong(2)]]] });
    state.broken = true;
    await compare();
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

  it('or was put back is named in status beside others, as many as three', async () => {
    const { audit, state, compare } = world({ passes: [[[wrong(1), wrong(2), wrong(3), wrong(4)]]] });
    state.broken = true;
    await compare();
    const said = (slot: number): string =>
      `policy slot ${slot}: its content was changed; it cannot be restored: no memory`;
    expect(audit.check().message).toBe(`${said(1)}; ${said(2)}; ${said(3)} (and 1 more)`);
    const mending = world({ passes: [[[wrong(1), wrong(2), wrong(3), wrong(4)]]] });
    await mending.compare();
    const last = [1, 2, 3].map((slot) => `policy slot ${slot}: its content was changed`).join('; ');
    expect(mending.audit.check().message).toContain(`${last} (and 1 more)`);
  });
});

it('an endpoint that cannot be put back stays a fault while no endpoint can be looked at', async () => {
  const { audit, state } = world();
  const faults = () => audit.faults().map(({ of, problem }) => `${of}: ${problem}`);
  state.broken = true;
  state.looks = [{ id: 5, gone: false, faults: ['its programs are not attached'], behind: [] }];
  await audit.look();
  state.unseen = true;
  await audit.look();
  expect(faults()).toEqual(['5: its programs are not attached', '?: cannot be looked at: EMFILE']);
  state.unseen = false;
  await audit.look();
  expect(faults()).toEqual(['5: its programs are not attached']);
});

describe('what a pass finds', () => {
  const pieces: Pieces = [[], [wrong(1), wrong(2)], [wrong(3), wrong(4)], [], [wrong(5)]];

  it('is put back at once, piece by piece between rounds, and told once', async () => {
    const { audit, state, compare, warnings } = world({ passes: [pieces, [[wrong(1)]]] });
    const mended: string[] = [];
    await audit.compare(async (body) => {
      await body();
      mended.push(state.mends.join());
    });
    expect(mended).toEqual(expect.arrayContaining(['', '1,2', '1,2,3,4', '1,2,3,4,5']));
    expect([audit.repairs(), audit.faults()]).toEqual([[expect.objectContaining({ part: 'slot', count: 5 })], []]);
    const text = (slot: number): string => `policy slot ${slot}: its content was changed`;
    expect(state.told).toEqual([`${[1, 2, 3].map(text).join('; ')} (and 2 more)`]);
    expect(warnings().map(({ fields }) => fields)).toEqual([
      { part: 'slot', of: '1', problem: 'its content was changed', more: 1 },
    ]);
    // Nothing of it was left to be told of.
    expect(state.faultsTold).toBe(0);
    // The next pass tells again.
    await compare();
    expect([state.told.slice(1), warnings().length]).toEqual([[text(1)], 2]);
  });

  it('and cannot be put back is a fault until it is', async () => {
    const { audit, state, compare } = world({ passes: [pieces] });
    state.broken = true;
    await compare();
    expect([audit.faults().map(({ of, error }) => [of, error]), state.told, state.faultsTold]).toEqual([
      ['1', '2', '3', '4', '5'].map((of) => [of, 'no memory']),
      [],
      3,
    ]);
  });

  it('is not looked for any more once the agent stops', async () => {
    const { audit, state } = world({ passes: [pieces] });
    await audit.compare(async () => undefined);
    expect([state.pieces, audit.passes()]).toEqual([0, []]);
  });

  it('is unknown while a map cannot be read: that is a fault until the next pass', async () => {
    let fails = true;
    const address: ContentAudit = {
      ...NOTHING,
      async *pass() {
        yield [];
        if (fails) throw new Error('EMFILE');
      },
    };
    const { audit, compare } = world({ address });
    await compare();
    expect(audit.faults()).toEqual([{ part: 'address', of: '?', problem: 'cannot be looked at: EMFILE' }]);
    expect(audit.passes().map(({ part }) => part)).toEqual(['slot']);
    fails = false;
    await compare();
    expect([audit.faults(), audit.passes().length]).toEqual([[], 2]);
  });
});

describe('endpoints that judged by what somebody had edited', () => {
  const endpoint = (id: number, slot: number): EndpointStateRow => ({
    id,
    ifindex: id,
    addresses: [],
    identity: 300,
    labels: {},
    slot,
    enforced: { ingress: true, egress: true },
    revision: 1,
    policies: {},
    state: 'ready',
  });

  it('have a new revision, all that use a slot, before the fault counts as mended', async () => {
    const { audit, state, db, tables, compare } = world({ passes: [[[wrong(1)]]] });
    db.write([tables.endpointStates], (txn) => {
      for (const row of [endpoint(11, 1), endpoint(12, 2), endpoint(13, 1)]) txn.insert(tables.endpointStates, row);
    });
    await compare();
    expect(state.order).toEqual(['begin', 'mend 1', 'end']);
    expect(state.renewed).toEqual([{ endpoints: [11, 13], faults: ['1'] }]);
    expect(audit.faults()).toEqual([]);
  });

  it('have none while it cannot be put back, and one once it is as it should be by itself', async () => {
    const { audit, state, db, tables, compare } = world({ passes: [[[wrong(1)]]] });
    db.write([tables.endpointStates], (txn) => txn.insert(tables.endpointStates, endpoint(11, 1)));
    state.broken = true;
    await compare();
    expect(state.renewed).toEqual([{ endpoints: [], faults: ['1'] }]);
    state.settled.add('1');
    state.right.add('1');
    await audit.look();
    expect([state.renewed.slice(1), audit.faults()]).toEqual([[{ endpoints: [11], faults: ['1'] }], []]);
  });

  it('are in doubt, and lose doubtful flows, where what let packets through unjudged went by itself', async () => {
    const { audit, state } = world();
    state.broken = true;
    state.looks = [{ id: 5, gone: false, faults: ["another's program runs before"], behind: [] }];
    await audit.look();
    expect([state.order, audit.faults().length]).toEqual([['begin', 'mend 5', 'clear', 'end'], 1]);
    state.order.length = 0;
    state.looks = [{ id: 5, gone: false, faults: [], behind: [] }];
    await audit.look();
    expect([state.order, audit.faults()]).toEqual([['begin', 'doubt 5', 'clear', 'end'], []]);
    expect(state.renewed.at(-1)).toEqual({ endpoints: [5], faults: ['5'] });
  });

  it.each([
    ['is found', false],
    ['may be there, as endpoints cannot be looked at', true],
  ])('are in doubt, too, where something else of them %s meanwhile', async (_, unseen) => {
    const { audit, state } = world();
    state.broken = true;
    state.looks = [{ id: 5, gone: false, faults: ["another's program runs before"], behind: [] }];
    await audit.look();
    state.broken = false;
    state.unseen = unseen;
    state.order.length = 0;
    state.looks = [{ id: 5, gone: false, faults: ['its link is not pinned'], behind: [] }];
    await audit.look();
    expect(state.order).toEqual(['begin', 'mend 5', 'doubt 5', 'clear', 'end']);
    // What is new is put back, and doubted, by itself.
    state.unseen = false;
    state.order.length = 0;
    state.looks = [{ id: 6, gone: false, faults: ['its link is not pinned'], behind: [] }];
    await audit.look();
    expect(state.order).not.toContain('doubt 6');
  });

  it('stay a fault until their doubtful flows are deleted, which is tried in each look', async () => {
    const { audit, state } = world();
    state.unclear = true;
    state.looks = [{ id: 5, gone: false, faults: ['its programs are not attached'], behind: [] }];
    await audit.look();
    const error = 'its flows cannot be deleted: ENOMEM';
    expect([audit.faults(), audit.repairs(), state.renewed.at(-1)?.endpoints]).toEqual([
      [expect.objectContaining({ of: '5', error })],
      [],
      [],
    ]);
    state.looks = [{ id: 5, gone: false, faults: [], behind: [] }];
    await audit.look();
    expect(audit.faults()).toEqual([expect.objectContaining({ of: '5', error })]);
    state.unclear = false;
    await audit.look();
    expect([audit.faults(), state.renewed.at(-1)?.endpoints]).toEqual([[], [5]]);
  });

  it('are the one whose element it was, and all of them for an address', async () => {
    const of = '10.0.0.1/32';
    const address: ContentAudit = {
      ...NOTHING,
      async *pass() {
        yield [{ of, problem: 'gone' }];
      },
    };
    const { audit, state, db, tables, compare } = world({ address });
    db.write([tables.ipcache], (txn) => txn.insert(tables.ipcache, { prefix: of, identity: 300, source: 'endpoint' }));
    state.looks = [{ id: 7, gone: false, faults: ['its element in the endpoint map was changed'], behind: [] }];
    await audit.look();
    await compare();
    expect(state.order).toEqual(['begin', 'mend 7', 'clear', 'end', 'begin', `mend ${of}`, 'end']);
    expect(state.renewed).toEqual([
      { endpoints: [7], faults: ['7'] },
      { endpoints: [EVERY], faults: [of] },
    ]);
  });
});

describe('what maps hold', () => {
  it('is not compared while what was found at start may still be there', async () => {
    const { audit, state, compare } = world({ nearest: [wrong(1)], passes: [[[wrong(2)]]] });
    state.adopted = false;
    await audit.look();
    await compare();
    expect([state.mends, audit.passes()]).toEqual([[], []]);
    state.adopted = true;
    await audit.look();
    await compare();
    expect([state.mends, audit.passes().length]).toEqual([['1', '2'], 2]);
  });

  it('is compared while the kernel refuses a part, and status tells of that part', async () => {
    const { audit, state, compare } = world({ passes: [[[wrong(1)], []]] });
    let bodies = 0;
    state.unacknowledged = 3;
    await audit.compare(async (body) => {
      bodies += 1;
      await body();
      // Of addresses there is one, of slots the first piece sees them.
      if (bodies === 2) state.unacknowledged = 0;
    });
    expect([state.mends, audit.passes().map(({ part, left }) => [part, left])]).toEqual([
      ['1'],
      [
        ['address', 0],
        ['slot', 3],
      ],
    ]);
    const left = /what the kernel took into maps are unchanged.*, except 3 entries that the kernel refused/;
    expect(audit.check()).toMatchObject({ ok: true, message: expect.stringMatching(left) });
    await compare();
    expect(audit.check().message).toMatch(/and maps are unchanged; .* compared completely at/);
  });
});

it('looks at everything else where it cannot be told which interfaces are back, and says that', async () => {
  const { audit, state } = world();
  state.forkless = true;
  state.looks = [{ id: 1, gone: false, faults: ['its program is not attached'], behind: [] }];
  await audit.look();
  expect(state.order).toContain('mend 1');
  expect(audit.check()).toMatchObject({ ok: false, message: expect.stringContaining('spawn ip EAGAIN') });
  state.forkless = false;
  state.looks = [];
  await audit.look();
  expect(audit.check().ok).toBe(true);
});
