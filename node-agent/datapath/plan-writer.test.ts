/** In which order plans reach the kernel when it refuses a part of them. Without a kernel. */
import { describe, expect, it } from '@jest/globals';
import { CIDR_BASE } from '@weir/identity';
import { createStateDB } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import { createTables } from '../create-tables.ts';
import type { Plan } from '../derive/contract.ts';
import type { EndpointStateRow, IpcacheRow, SlotRow } from '../tables.ts';
import { quiet } from '../testing/fake-core.ts';
import { PlanWriter, type PlanWriterOptions } from './plan-writer.ts';

const state = (id: number): EndpointStateRow => ({
  id,
  ifindex: id,
  addresses: [`10.0.0.${id}`],
  identity: 300,
  labels: {},
  slot: 0,
  enforced: { ingress: true, egress: true },
  revision: 1,
  policies: {},
  state: 'ready',
});
const pod = (prefix: string): IpcacheRow => ({ prefix, identity: 300, source: 'endpoint' });
const cidr = (prefix: string, number: number): IpcacheRow => ({
  prefix,
  identity: CIDR_BASE + number,
  source: 'cidr',
});
const slot = { slot: 5 } as unknown as SlotRow;

/** A writer whose kernel takes everything but what is in `refused`: prefixes, `word N`, `slot N`, `purge N`, or that `flows` be deleted. */
function world() {
  const db = createStateDB();
  const tables = createTables(db);
  const refused = new Set<string>();
  const order: string[] = [];
  const take = (what: string): void => {
    if (refused.has(what)) throw new Error(`no room for ${what}`);
    order.push(what);
  };
  /** By endpoint. */
  const words = new Map<number, EndpointStateRow>();
  /** What the kernel has for addresses. */
  const had = new Map<string, number>();
  /** What addresses were given. */
  const given: IpcacheRow[] = [];
  /** Endpoints whose flows were judged again, under which revision. */
  const judged = new Map<number, { readonly refused: number; readonly revision: number }>();
  const edited: number[] = [];
  /** Identities that slots are to remember nothing of, and what the kernel had taken by then. */
  const forgotten: (readonly [readonly number[], readonly string[]])[] = [];
  const bumped = new Map<number, EndpointStateRow>();
  let revision = 10;
  let marked = false;
  let flows = Promise.resolve();
  const fakes = {
    model: {
      addressed: () => false,
      forgetCidrs: (prefixes: readonly string[]) => {
        if (prefixes.length > 0) order.push(`forget ${prefixes.join()}`);
      },
      keepAddresses: (kept: Iterable<readonly [string, number]>) =>
        order.push(`keep ${[...kept].map(([prefix]) => prefix).join()}`),
      slotOutgrown: () => undefined,
      slotReleased: () => undefined,
      states: () => [state(1), state(2)],
      bump: (ids: Iterable<number>) =>
        [...ids].map((id) => {
          revision += 1;
          const row = { ...state(id), ...words.get(id), revision };
          bumped.set(id, row);
          return row;
        }),
      state: (id: number) => bumped.get(id),
      withholdAddresses: () => undefined,
      renewed: () => undefined,
    },
    numbers: {
      dirty: false,
      revision: () => {
        revision += 1;
        return revision;
      },
    },
    kernel: {
      slots: {
        apply: async (row: SlotRow) => take(`slot ${row.slot}`),
        content: () => undefined,
        forget: async (identities: ReadonlySet<number>) => void forgotten.push([[...identities], [...order]]),
        trim: async () => [],
        slots: () => [],
        has: () => true,
        retire: () => undefined,
      },
      ipcache: {
        updateAll: (rows: readonly IpcacheRow[]) => {
          for (const row of rows) {
            take(row.prefix);
            given.push(row);
          }
        },
        identityOf: (prefix: string) => had.get(prefix),
        delete: (prefix: string) => {
          order.push(`delete ${prefix}`);
          return true;
        },
        forget: () => undefined,
      },
      endpoints: {
        update: (row: EndpointStateRow) => {
          take(`word ${row.id}`);
          words.set(row.id, row);
        },
        word: (id: number) => words.get(id),
        wasJudgedAnew: ({ id, revision: of }: EndpointStateRow) => judged.get(id)?.refused === of,
        judgeAnew: ({ id, revision: refused }: EndpointStateRow, under: number) => {
          judged.set(id, { refused, revision: under });
          order.push(`judge ${id}`);
        },
        editedFound: () => edited,
        doubt: (id: number) => order.push(`doubt ${id}`),
        delete: (id: number, { everywhere }: { readonly everywhere: boolean }) =>
          void order.push(`remove ${id}${everywhere ? '' : ' here'}`),
        renew: () => {
          take('renew');
          return new Map();
        },
        strays: () => [],
        uses: () => false,
      },
      conntrack: {
        purge: async (ids: ReadonlySet<number>) => {
          take(`purge ${[...ids].join()}`);
          await flows;
          order.push('purged');
          return { entries: 0, deleted: 0 };
        },
      },
      mark: {
        begin: () => {
          marked = true;
        },
        end: () => order.push('end'),
      },
    },
  };
  const writer = new PlanWriter({
    db,
    tables,
    model: fakes.model,
    numbers: fakes.numbers,
    kernel: {
      ...fakes.kernel,
      clearFlows: async () => {
        if (refused.has('flows')) throw new Error('flows stay');
      },
    },
    clock: {
      now: () => 0,
      yieldNow: async () => undefined,
      quiesce: async () => void order.push('quiesce'),
    },
    saveNumbers: async () => true,
    onAdopted: () => undefined,
    log: quiet,
  } as unknown as PlanWriterOptions);
  const carryOut = async (plan: Partial<Plan>, { signal } = new AbortController()): Promise<string[]> => {
    order.length = 0;
    const nothing = {
      rules: true,
      slots: [],
      ipcache: [],
      moved: new Map(),
      endpoints: [],
      ipcacheGone: [],
      leaving: [],
      afterGone: [],
      endpointsGone: [],
    };
    await writer.carryOut({ ...nothing, slotsGone: [], again: false, ...plan }, signal);
    // A batch that is refused is tried row by row.
    return [...new Set(order)];
  };
  /** Rounds until one has done it. */
  const until = async (what: string): Promise<string[]> =>
    await eventually(
      () => carryOut({}),
      (done) => done.includes(what),
    );
  const holdFlows = (): (() => void) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    flows = promise;
    return resolve;
  };
  return {
    db,
    tables,
    marks: () => marked,
    model: fakes.model,
    writer,
    words,
    edited,
    given,
    had,
    judged,
    forgotten,
    refused,
    order,
    carryOut,
    until,
    holdFlows,
  };
}

describe('while the kernel refuses an address', () => {
  it('endpoints whose decisions differ get new revisions, and each one that it takes later gives them to all', async () => {
    const { writer, refused, carryOut, until } = world();
    await carryOut({ ipcache: [pod('10.0.0.9/32')], endpoints: [state(1), state(2)] });
    refused.add('192.0.2.0/24').add('198.51.100.0/24');
    const rows = [cidr('192.0.2.0/24', 1), cidr('198.51.100.0/24', 2)];
    const cut = await carryOut({ ipcache: rows, ipcacheGone: ['10.0.0.9/32'], afterGone: [1] });
    expect(cut).toEqual(['quiesce', 'delete 10.0.0.9/32', 'word 1', 'forget 10.0.0.9/32']);
    // No more often than there is a reason.
    expect(await carryOut({})).toEqual([]);
    refused.delete('192.0.2.0/24');
    expect(await until('192.0.2.0/24')).toEqual(['192.0.2.0/24', 'word 1', 'word 2']);
    expect(await carryOut({})).toEqual([]);
    refused.delete('198.51.100.0/24');
    expect(await until('198.51.100.0/24')).toEqual(['198.51.100.0/24', 'word 1', 'word 2', 'end']);
    expect(await carryOut({})).toEqual(['end']);
    await writer.stop();
  });
});

it('an endpoint whose slot the kernel takes later judges its flows again, as others have let them through meanwhile', async () => {
  const { model, writer, refused, carryOut, until } = world();
  model.states = () => [{ ...state(1), slot: 5 }, state(2)];
  refused.add('slot 5');
  expect(await carryOut({ slots: [slot] })).toEqual([]);
  // The reconciler's own delays, of 50 ms to 2 s.
  expect(writer.rows.retryInMs).toBeGreaterThanOrEqual(0);
  expect(writer.rows.retryInMs).toBeLessThanOrEqual(2000);
  refused.clear();
  expect(await until('slot 5')).toEqual(['slot 5', 'word 1', 'end']);
  expect(writer.rows.retryInMs).toBe(undefined);
  expect(await carryOut({})).toEqual(['end']);
  await writer.stop();
});

it('an address that the kernel refuses keeps none of those after it away', async () => {
  const { writer, refused, carryOut } = world();
  refused.add('10.0.0.8/32');
  expect(await carryOut({ ipcache: [pod('10.0.0.8/32'), pod('10.0.0.9/32')] })).toContain('10.0.0.9/32');
  expect(writer.ipcache.failing().map(({ key }) => key)).toEqual(['10.0.0.8/32']);
  await writer.stop();
});

it('slots forget whom an address is given to, before it is', async () => {
  const { writer, forgotten, carryOut } = world();
  await carryOut({ slots: [slot], ipcache: [pod('10.0.0.8/32'), pod('10.0.0.9/32'), cidr('192.0.2.0/24', 1)] });
  expect(forgotten).toEqual([[[300, CIDR_BASE + 1], ['slot 5']]]);
  await carryOut({ endpoints: [state(1)] });
  expect(forgotten).toHaveLength(1);
  await writer.stop();
});

it('an endpoint that only lost its interface keeps what another network namespace has of it', async () => {
  const { db, tables, writer, carryOut } = world();
  await carryOut({ endpoints: [state(1), state(2)] });
  const { id, ifindex, addresses } = state(1);
  const at = '2026-01-01T00:00:00Z';
  const lost = { id, ifindex, addresses, interfaceName: 'veth1', gone: at, createdAt: at };
  db.write([tables.endpoints], (txn) => txn.insert(tables.endpoints, lost));
  expect(await carryOut({ endpointsGone: [1, 2] })).toEqual(expect.arrayContaining(['remove 1 here', 'remove 2']));
  await writer.stop();
});

describe('while the kernel refuses', () => {
  it.each([
    ['a slot', 'slot 5', { slots: [slot] }],
    ['an endpoint', 'word 1', { endpoints: [state(1)] }],
  ] as const)(
    '%s, rules that are still in force keep their CIDRs, and nobody else an address',
    async (_, what, plan) => {
      const { writer, refused, carryOut, until } = world();
      await carryOut({ ipcache: [cidr('192.0.2.0/24', 1), pod('10.0.0.9/32')], endpoints: [state(2)] });
      refused.add(what);
      const ipcacheGone = ['192.0.2.0/24', '10.0.0.9/32'];
      const mixed = await carryOut({ ...plan, ipcacheGone, afterGone: [2] });
      expect(mixed).toEqual(['keep 192.0.2.0/24', 'quiesce', 'delete 10.0.0.9/32', 'word 2', 'forget 10.0.0.9/32']);
      expect(writer.keeps).toBe(true);
      const again = { ipcacheGone: ['192.0.2.0/24'], afterGone: [2] };
      expect(await carryOut(again)).toEqual(['keep 192.0.2.0/24']);
      refused.clear();
      expect(await until(what)).toContain(what);
      const released = await carryOut(again);
      expect(released.filter((step) => step !== 'quiesce')).toEqual([
        'delete 192.0.2.0/24',
        'word 2',
        'forget 192.0.2.0/24',
        'end',
      ]);
      expect(writer.keeps).toBe(false);
      await writer.stop();
    },
  );
});

it('waits for packets that read an older word, also where it was retried, before addresses go', async () => {
  const { writer, refused, carryOut, until } = world();
  await carryOut({ ipcache: [pod('10.0.0.8/32'), pod('10.0.0.9/32')], endpoints: [state(2)] });
  refused.add('word 1');
  await carryOut({ endpoints: [state(1)], ipcacheGone: ['10.0.0.8/32'] });
  refused.clear();
  await until('word 1');
  expect(await carryOut({ ipcacheGone: ['10.0.0.9/32'] })).toEqual([
    'quiesce',
    'delete 10.0.0.9/32',
    'forget 10.0.0.9/32',
    'end',
  ]);
  expect(await carryOut({})).toEqual(['end']);
  await writer.stop();
});

describe('where an endpoint gets other rules', () => {
  const moved = new Map([['10.0.0.8/32', 301]]);
  const ipcache = [pod('10.0.0.8/32'), cidr('192.0.2.0/24', 1)];
  const plan = { ipcache, moved, endpoints: [{ ...state(1), slot: 5, revision: 2 }] };
  it('an address is what it was to words of before, and CIDRs have their numbers before', async () => {
    const { writer, given, had, words, carryOut } = world();
    had.set('10.0.0.8/32', 301);
    await carryOut({ endpoints: [{ ...state(1), slot: 4 }, state(2)] });
    const wrote = await carryOut(plan);
    expect(wrote.filter((what) => what !== '192.0.2.0/24')).toEqual(['10.0.0.8/32', 'word 1', 'quiesce', 'end']);
    expect(wrote.indexOf('192.0.2.0/24')).toBeLessThan(wrote.indexOf('word 1'));
    const [first, last] = given.filter(({ prefix }) => prefix === '10.0.0.8/32');
    expect(first).toMatchObject({ identity: 300, before: { identity: 301 } });
    expect(words.get(1)?.revision).toBeGreaterThanOrEqual(first?.before?.since ?? Infinity);
    expect(last).toMatchObject({ identity: 300 });
    expect(last?.before).toBeUndefined();
    await writer.stop();
  });

  it('an endpoint whose word is refused knows nobody at the address meanwhile, and all others are of the new world', async () => {
    const { writer, given, had, judged, words, refused, carryOut, until } = world();
    had.set('10.0.0.8/32', 301);
    await carryOut({ endpoints: [{ ...state(1), slot: 4 }, state(2)] });
    refused.add('word 1');
    await carryOut(plan);
    const [, last] = given.filter(({ prefix }) => prefix === '10.0.0.8/32');
    expect(last).toMatchObject({ identity: 300, before: { identity: 0 } });
    expect(words.get(1)?.revision).toBeLessThan(last?.before?.since ?? 0);
    // The kernel takes no word of it, so that its flows cannot be judged anew either.
    expect(judged.size).toBe(0);
    expect(words.get(2)?.revision).toBeGreaterThanOrEqual(last?.before?.since ?? Infinity);
    refused.clear();
    await until('word 1');
    await carryOut({});
    expect(given.at(-1)).toMatchObject({ prefix: '10.0.0.8/32', identity: 300 });
    expect(given.at(-1)?.before).toBeUndefined();
    await writer.stop();
  });

  it('who has none yet, or comes, keeps nobody waiting', async () => {
    const { writer, carryOut } = world();
    await carryOut({ endpoints: [state(1)] });
    const endpoints = [
      { ...state(1), slot: 5, revision: 2 },
      { ...state(3), slot: 5 },
    ];
    expect(await carryOut({ ipcache: [pod('10.0.0.8/32')], moved, endpoints })).toEqual([
      'quiesce',
      '10.0.0.8/32',
      'word 1',
      'word 3',
      'end',
    ]);
    await writer.stop();
  });
});

it('a repair before the first plan leaves the mark of the agent before, which may have died in a round', async () => {
  const { writer, order, carryOut } = world();
  writer.beginRepair();
  await writer.endRepair([1]);
  expect(order).not.toContain('end');
  expect(await carryOut({})).toContain('end');
  writer.beginRepair();
  order.length = 0;
  await writer.endRepair([1]);
  expect(order).toContain('end');
  await writer.stop();
});

it('a repair before the first plan has endpoints that are as they were found judge their flows again', async () => {
  const { writer, order, carryOut } = world();
  writer.beginRepair();
  await writer.endRepair([1]);
  expect(order).toEqual(['renew', 'word 1']);
  expect(await carryOut({ endpoints: [state(1)] })).toEqual(['word 1', 'end']);
  await writer.stop();
});

it('flows that an edited element let through before the first plan are judged again by it', async () => {
  const { writer, words, edited, carryOut } = world();
  edited.push(1);
  expect(await carryOut({ endpoints: [state(1), state(2)] })).toEqual(['doubt 1', 'word 2', 'word 1', 'end']);
  expect([words.get(1)?.revision, words.get(2)?.revision]).toEqual([11, 1]);
  expect(await carryOut({ endpoints: [{ ...state(2), revision: 3 }] })).toEqual(['word 2', 'end']);
  await writer.stop();
});

it('a repair while a plan has broken off gives no new revisions: the plan does, when it is carried out', async () => {
  const { writer, refused, order, carryOut } = world();
  await carryOut({ endpoints: [state(1)] });
  refused.add('flows');
  await expect(carryOut({ endpoints: [state(2)] })).rejects.toThrow('flows stay');
  order.length = 0;
  writer.beginRepair();
  await writer.endRepair([1]);
  expect(order).toEqual([]);
  refused.clear();
  expect(await carryOut({ endpoints: [state(2)] })).toEqual(['word 2', 'word 1', 'end']);
  await writer.stop();
});

describe('the flows of an endpoint that is gone', () => {
  it('are deleted beside the rounds, which an agent that dies meanwhile leaves marked', async () => {
    const { writer, order, carryOut, holdFlows } = world();
    await carryOut({ endpoints: [state(1), state(2)] });
    const release = holdFlows();
    expect(await carryOut({ endpointsGone: [1] })).toEqual(['remove 1', 'purge 1']);
    expect(await carryOut({ endpoints: [{ ...state(2), revision: 2 }] })).toEqual(['word 2']);
    // Another one goes meanwhile: its flows have their own turn.
    expect(await carryOut({ endpointsGone: [2] })).toEqual(['remove 2']);
    order.length = 0;
    release();
    await eventually(
      async () => order.join(),
      (done) => done === 'purged,purge 2,purged,end',
    );
    await writer.stop();
  });

  it('go before an endpoint with its id begins, and before the agent ends', async () => {
    const { writer, order, carryOut, holdFlows } = world();
    await carryOut({ endpoints: [state(1)] });
    const release = holdFlows();
    await carryOut({ endpointsGone: [1] });
    const round = carryOut({ endpoints: [state(1)] });
    const other = new Promise((resolve) => setTimeout(resolve, 20));
    await other;
    expect(order).toEqual([]);
    release();
    await round;
    expect(order.indexOf('purged')).toBeLessThan(order.indexOf('word 1'));
    const hold = holdFlows();
    await carryOut({ endpointsGone: [1] });
    let stopped = false;
    const stop = writer.stop().then(() => {
      stopped = true;
    });
    await other;
    expect(stopped).toBe(false);
    hold();
    await stop;
    expect(order).toContain('purged');
  });

  it('leave the mark of a repair that is under way when they are deleted', async () => {
    const { writer, order, carryOut, holdFlows } = world();
    await carryOut({ endpoints: [state(1), state(2)] });
    const release = holdFlows();
    await carryOut({ endpointsGone: [1] });
    writer.beginRepair();
    order.length = 0;
    release();
    await eventually(
      async () => order.join(),
      (done) => done.startsWith('purged'),
    );
    await new Promise((resolve) => setImmediate(resolve));
    expect(order).toEqual(['purged']);
    await writer.endRepair([2]);
    expect(order).toEqual(['purged', 'word 2', 'end']);
    await writer.stop();
  });

  it('stay due, and the mark with them, when deleting them stops early', async () => {
    const { writer, order, carryOut, holdFlows } = world();
    await carryOut({ endpoints: [state(1)] });
    const release = holdFlows();
    const ending = new AbortController();
    await carryOut({ endpointsGone: [1] }, ending);
    ending.abort();
    release();
    await eventually(
      async () => order.join(),
      (done) => done.includes('purged'),
    );
    await new Promise((resolve) => setImmediate(resolve));
    expect([writer.unfinished, order]).toEqual([true, ['remove 1', 'purge 1', 'purged']]);
    expect(await carryOut({ endpoints: [state(1)] })).toEqual(['purge 1', 'purged', 'word 1', 'end']);
    await writer.stop();
  });

  it('keep an endpoint with its id from beginning when deleting them stops early', async () => {
    const { writer, order, carryOut, holdFlows } = world();
    await carryOut({ endpoints: [state(1)] });
    const release = holdFlows();
    const ending = new AbortController();
    await carryOut({ endpointsGone: [1] }, ending);
    const begins = carryOut({ endpoints: [state(1)] }, ending);
    ending.abort(new Error('the agent ends'));
    release();
    await expect(begins).rejects.toThrow('the agent ends');
    expect(order).not.toContain('word 1');
    await writer.stop();
  });

  it('keep an endpoint with its id from beginning for as long as they cannot be deleted', async () => {
    const { writer, refused, order, carryOut } = world();
    await carryOut({ endpoints: [state(1)] });
    refused.add('purge 1');
    await carryOut({ endpointsGone: [1] });
    for (let n = 0; n < 3; n += 1) {
      await expect(carryOut({ endpoints: [state(1)] })).rejects.toThrow('no room for purge 1');
      expect(order).not.toContain('word 1');
    }
    refused.clear();
    const done = await eventually(
      () => carryOut({ endpoints: [state(1)] }).catch((): string[] => []),
      (steps) => steps.includes('word 1'),
    );
    expect(done.indexOf('purged')).toBeLessThan(done.indexOf('word 1'));
    await writer.stop();
  });

  it('that cannot be deleted break a plan off before it begins, so that a repair does not overtake it', async () => {
    const { writer, refused, order, carryOut } = world();
    await carryOut({ endpoints: [state(1), state(2)] });
    refused.add('purge 1');
    await carryOut({ endpointsGone: [1] });
    await expect(carryOut({ endpoints: [state(2)] })).rejects.toThrow('no room for purge 1');
    writer.beginRepair();
    await writer.endRepair([2]);
    expect(order).toEqual([]);
    refused.clear();
    expect(await carryOut({ endpoints: [state(2)] })).toContain('word 2');
    await writer.stop();
  });

  it('are deleted once more where the kernel refused that, and a round says so', async () => {
    const { writer, refused, carryOut, until } = world();
    await carryOut({ endpoints: [state(1)] });
    refused.add('purge 1');
    expect(await carryOut({ endpointsGone: [1] })).toEqual(['remove 1']);
    await expect(until('never')).rejects.toThrow('no room for purge 1');
    refused.clear();
    await eventually(
      () => carryOut({}).catch(String),
      (done) => done.includes('end'),
    );
    await writer.stop();
  });
});

describe('a plan that knows no rules', () => {
  const early = { rules: false, moved: new Map([['10.0.0.9/32', 301]]) };

  it('gives what was found new revisions where addresses have changed, and leaves the mark and what nobody wants', async () => {
    const { writer, carryOut, marks } = world();
    expect(await carryOut({ rules: false })).toEqual([]);
    const done = await carryOut({ ...early, ipcache: [pod('10.0.0.9/32')], endpoints: [state(1)] });
    expect(done.filter((what) => !what.startsWith('quiesce'))).toEqual(['10.0.0.9/32', 'renew', 'word 1', 'word 2']);
    expect(await carryOut({ rules: false, ipcacheGone: ['10.0.0.9/32'] })).toEqual(
      expect.arrayContaining(['delete 10.0.0.9/32', 'renew']),
    );
    expect([marks(), writer.adopted, writer.unfinished]).toEqual([true, false, false]);
    expect(await carryOut({ endpoints: [state(1)], afterGone: [1] })).not.toContain('renew');
    expect(writer.adopted).toBe(true);
    await writer.stop();
  });

  it('gives them once more when the kernel takes an address that it had refused', async () => {
    const { writer, carryOut, refused } = world();
    refused.add('10.0.0.9/32');
    expect(await carryOut({ ...early, ipcache: [pod('10.0.0.9/32')] })).toContain('renew');
    expect(await carryOut({ rules: false })).toEqual([]);
    refused.clear();
    const again = await eventually(
      () => carryOut({ rules: false }),
      (order) => order.includes('10.0.0.9/32'),
    );
    expect(again).toContain('renew');
    await writer.stop();
  });
});
