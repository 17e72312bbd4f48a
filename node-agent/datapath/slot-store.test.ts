/** Large slots: written, trimmed, emptied and put back with breaks, between which nothing else is done to them. On maps of the kernel. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it, jest } from '@jest/globals';
import { classKey, createSlotMaps, slotKey } from '@weir/bpf';
import { type ClassRows, MOST_ROWS } from '@weir/policy';
import { GRACE_MS } from '../derive/contract.ts';
import { type SlotLab, slotLab, slotRow } from './testing/slot-maps.ts';

const LARGE = Array.from({ length: 5000 }, (_, n) => 1000 + n);
const SMALL = LARGE.slice(0, 10);
/** More than one step's time has passed: a break after each. */
const STEPS = LARGE.length / 256;

/** A store whose every step takes long. `inBreaks`: what is done in each break. */
function world() {
  let ms = 0;
  let breaks = 0;
  const state = {
    inBreaks: (): void => undefined,
    pass: (by: number): void => {
      ms += by;
    },
    breaks: (): number => breaks,
  };
  const lab = slotLab({
    now: () => {
      ms += 0.01;
      return ms;
    },
    yieldNow: async () => {
      breaks += 1;
      state.inBreaks();
      await new Promise((resolve) => setImmediate(resolve));
    },
  });
  return { lab, state };
}

/** Elements of a slot that the kernel has. */
function held(lab: SlotLab, slot: number): number {
  using map = lab.policy_classes.openInner(slotKey.encode(slot));
  return map === undefined ? 0 : [...map.keys()].length;
}

describe('CIDRs within one another', () => {
  const [OUTER, MIDDLE, INNER] = [0x0100_0001, 0x0100_0002, 0x0100_0003];
  const PREFIXES = new Map([
    [OUTER, '198.0.0.0/8'],
    [MIDDLE, '198.51.0.0/16'],
    [INNER, '198.51.100.0/24'],
  ]);

  /** A slot that knows a pod, and the changes of CIDRs' elements, in order. */
  async function slot() {
    const changes: string[] = [];
    const note = (what: string, key: Uint8Array): void => {
      const { identity } = classKey.decode(key);
      if (PREFIXES.has(identity)) changes.push(`${what} ${PREFIXES.get(identity)}`);
    };
    const lab = slotLab({
      now: () => 0,
      yieldNow: async () => undefined,
      prefixOf: (identity) => PREFIXES.get(identity),
      create(sizes) {
        const maps = createSlotMaps(sizes);
        const update = maps.classes.update.bind(maps.classes);
        const deleteBatch = maps.classes.deleteBatch.bind(maps.classes);
        jest.spyOn(maps.classes, 'update').mockImplementation((key, value, ...more) => {
          note('add', key);
          return update(key, value, ...more);
        });
        jest.spyOn(maps.classes, 'deleteBatch').mockImplementation((all) => {
          for (const key of all) note('delete', key);
          return deleteBatch(all);
        });
        return maps;
      },
    });
    await lab.slots.apply(slotRow(1, [1000]), () => true);
    return {
      lab,
      told: async (identities: readonly number[], stays = (_: number): boolean => true): Promise<readonly string[]> => {
        await lab.slots.apply(slotRow(1, [1000, ...identities]), stays);
        return changes.splice(0);
      },
    };
  }

  it('get their elements from the inside, and lose them from the outside', async () => {
    const { lab, told } = await slot();
    using _lab = lab;
    expect(await told([MIDDLE, OUTER, INNER])).toEqual(['add 198.51.100.0/24', 'add 198.51.0.0/16', 'add 198.0.0.0/8']);
    expect(await told([])).toEqual(['delete 198.0.0.0/8', 'delete 198.51.0.0/16', 'delete 198.51.100.0/24']);
  });

  it('lose them at once where one within them does, though no address will have them', async () => {
    const { lab, told } = await slot();
    using _lab = lab;
    await told([MIDDLE, OUTER, INNER]);
    expect(await told([MIDDLE], (identity) => identity === INNER)).toEqual([
      'delete 198.0.0.0/8',
      'delete 198.51.100.0/24',
    ]);
    expect(await told([], () => false)).toEqual([]);
  });
});

describe('a large slot', () => {
  it('is made, trimmed and emptied with breaks', async () => {
    const { lab, state } = world();
    using _lab = lab;
    const counted = async (body: () => Promise<unknown>): Promise<number> => {
      const before = state.breaks();
      await body();
      return state.breaks() - before;
    };
    expect(await counted(() => lab.slots.apply(slotRow(1, LARGE), () => true))).toBeGreaterThan(0);
    expect(held(lab, 1)).toBe(LARGE.length);
    // No address has them any more: they go after the grace.
    await lab.slots.apply(slotRow(1, SMALL), () => false);
    expect(held(lab, 1)).toBe(LARGE.length);
    await lab.slots.trim();
    expect(held(lab, 1)).toBe(LARGE.length);
    expect(lab.slots.trimDue()).toBeDefined();
    state.pass(GRACE_MS + 100);
    await lab.slots.trim();
    expect(held(lab, 1)).toBe(SMALL.length);
    // Then the rows that they had.
    state.pass(GRACE_MS + 100);
    await lab.slots.trim();
    expect(lab.slots.trimDue()).toBeUndefined();
    expect(await counted(() => lab.slots.apply(slotRow(1, LARGE), () => true))).toBeGreaterThan(STEPS / 2);
    lab.slots.retire(1);
    state.pass(GRACE_MS + 100);
    const gone: number[] = [];
    await counted(async () => gone.push(...(await lab.slots.trim())));
    expect([gone, held(lab, 1), await lab.slots.fault(1)]).toEqual([[1], 0, undefined]);
  });

  it.each([
    ['emptied', (lab: SlotLab): void => lab.slots.retire(1)],
    ['trimmed', (): void => undefined],
  ])('that is wanted again while it is %s, holds what it is to hold', async (_, begin) => {
    const { lab, state } = world();
    using _lab = lab;
    await lab.slots.apply(slotRow(1, LARGE), () => true);
    await lab.slots.apply(slotRow(1, SMALL), () => false);
    await lab.slots.trim();
    begin(lab);
    state.pass(GRACE_MS + 100);
    let again: Promise<void> | undefined;
    state.inBreaks = () => {
      again ??= lab.slots.apply(slotRow(1, LARGE), () => true);
    };
    await lab.slots.trim();
    expect(again).toBeDefined();
    await again;
    state.inBreaks = () => undefined;
    state.pass(GRACE_MS + 100);
    await lab.slots.trim();
    expect([held(lab, 1), await lab.slots.fault(1), lab.slots.trimDue()]).toEqual([LARGE.length, undefined, undefined]);
  });
});

it('a slot is not made larger than its ceiling: what it had stays', async () => {
  const { lab } = world();
  using _lab = lab;
  await lab.slots.apply(slotRow(1, SMALL), () => true);
  const rows: ClassRows = Array.from({ length: MOST_ROWS }, (_, port) => {
    return { protocol: 6, from: port, to: port, verdict: 'allow', cookie: 1 + port };
  });
  const row = slotRow(1, SMALL, 9);
  const classes = row.compiled.ingress.classes.map(({ members }) => ({ members, rows }));
  const large = { ...row, compiled: { ...row.compiled, ingress: { ...row.compiled.ingress, classes } } };
  await expect(lab.slots.apply(large, () => true)).rejects.toThrow(
    `policy slot 1 would have ${9 * MOST_ROWS + 10} rows, including rows that edits left behind, and a slot has room for ${8 * MOST_ROWS}`,
  );
  expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([SMALL.length, undefined]);
});

it('a slot that is retired once more goes no later', async () => {
  const { lab, state } = world();
  using _lab = lab;
  await lab.slots.apply(slotRow(1, SMALL), () => true);
  lab.slots.retire(1);
  state.pass(GRACE_MS - 10);
  lab.slots.retire(1);
  state.pass(20);
  expect(await lab.slots.trim()).toEqual([1]);
});

describe('an emptied slot', () => {
  it('is told as released also when the kernel then refuses to take the maps of another', async () => {
    const { lab, state } = world();
    using _lab = lab;
    const gone: number[] = [];
    for (const slot of [1, 2, 3]) await lab.slots.apply(slotRow(slot, SMALL), () => true);
    lab.slots.retire(3);
    state.pass(GRACE_MS + 100);
    gone.push(...(await lab.slots.trim()));
    // The maps of 3 are due with the content of the others.
    lab.slots.retire(1);
    lab.slots.retire(2);
    state.pass(4000);
    const refused = jest
      .spyOn(lab.policy_classes, 'deleteInnerAsync')
      .mockRejectedValue(Object.assign(new Error('out of memory'), { code: 'ENOMEM' }));
    gone.push(...(await lab.slots.trim()));
    await expect(lab.slots.trim()).rejects.toThrow('out of memory');
    refused.mockRestore();
    while (lab.slots.numbers().length > 0) {
      state.pass(4000);
      gone.push(...(await lab.slots.trim()));
    }
    expect(gone).toEqual([3, 1, 2]);
  });
});

const MAPS = ['policy_classes', 'policy_verdicts'] as const;

/** The kernel refuses this of the map, as often as it is told. */
function refuse(lab: SlotLab, map: (typeof MAPS)[number], what: 'setInnerAsync' | 'deleteInnerAsync', times = 1): void {
  const refused = Object.assign(new Error(`${what} of ${map}: out of memory`), { code: 'ENOMEM' });
  const spy = jest.spyOn(lab[map], what);
  for (let time = 0; time < times; time += 1) spy.mockRejectedValueOnce(refused);
}

/** Which of the slot's maps the kernel has. */
function present(lab: SlotLab, slot: number): string[] {
  return MAPS.filter((name) => {
    using map = lab[name].openInner(slotKey.encode(slot));
    return map !== undefined;
  });
}

describe.each(MAPS)('a slot whose map in %s the kernel refuses, and not the other', (map) => {
  const refusal = `setInnerAsync of ${map}: out of memory`;

  it('when it grows, is what the kernel has of it, and written there', async () => {
    const { lab } = world();
    using _lab = lab;
    await lab.slots.apply(slotRow(1, SMALL), () => true);
    refuse(lab, map, 'setInnerAsync');
    await expect(lab.slots.apply(slotRow(1, LARGE, 40), () => true)).rejects.toThrow(refusal);
    expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([SMALL.length, undefined]);
    const other = slotRow(1, [...SMALL, 7], 21);
    await lab.slots.apply(other, () => true);
    expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([SMALL.length + 1, undefined]);
    await lab.slots.apply(slotRow(1, LARGE, 40), () => true);
    expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([LARGE.length, undefined]);
  });

  it('when it is made, is not there, and recreated by the next write', async () => {
    const { lab } = world();
    using _lab = lab;
    refuse(lab, map, 'setInnerAsync');
    await expect(lab.slots.apply(slotRow(1, SMALL), () => true)).rejects.toThrow(refusal);
    expect([present(lab, 1), lab.slots.has(1), lab.slots.trimDue()]).toEqual([[], false, undefined]);
    await lab.slots.apply(slotRow(1, SMALL), () => true);
    expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([SMALL.length, undefined]);
  });

  it('when it is made, and stays half-made, is recreated by the next write, or taken out', async () => {
    const { lab, state } = world();
    using _lab = lab;
    const other = MAPS.filter((name) => name !== map)[0] ?? map;
    for (const slot of [1, 2]) {
      refuse(lab, map, 'setInnerAsync');
      refuse(lab, other, 'deleteInnerAsync');
      await expect(lab.slots.apply(slotRow(slot, LARGE), () => true)).rejects.toThrow(refusal);
      expect([present(lab, slot), lab.slots.has(slot)]).toEqual([[other], false]);
    }
    await lab.slots.apply(slotRow(1, SMALL), () => true);
    expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([SMALL.length, undefined]);
    state.pass(4000);
    expect(await lab.slots.trim()).toEqual([]);
    expect([present(lab, 1), present(lab, 2), lab.slots.trimDue()]).toEqual([[...MAPS], [], undefined]);
  });

  it('to take out, is recreated by the next write', async () => {
    const { lab, state } = world();
    using _lab = lab;
    await lab.slots.apply(slotRow(1, SMALL), () => true);
    lab.slots.retire(1);
    state.pass(GRACE_MS + 100);
    expect(await lab.slots.trim()).toEqual([1]);
    state.pass(4000);
    refuse(lab, map, 'deleteInnerAsync');
    await expect(lab.slots.trim()).rejects.toThrow('out of memory');
    expect(present(lab, 1)).toEqual([map]);
    await lab.slots.apply(slotRow(1, SMALL), () => true);
    expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([SMALL.length, undefined]);
  });
});

it('a slot whose maps the kernel both refuses is as it was', async () => {
  const { lab } = world();
  using _lab = lab;
  await lab.slots.apply(slotRow(1, SMALL), () => true);
  for (const map of MAPS) refuse(lab, map, 'setInnerAsync');
  await expect(lab.slots.apply(slotRow(1, LARGE), () => true)).rejects.toThrow('out of memory');
  await lab.slots.apply(slotRow(1, [...SMALL, 7], 21), () => true);
  expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([SMALL.length + 1, undefined]);
});

describe.each(['mend', 'fault'] as const)('%s of a slot', (what) => {
  it('beside edits that make breaks, takes nothing from them and finds nothing wrong', async () => {
    const { lab, state } = world();
    using _lab = lab;
    await lab.slots.apply(slotRow(1, LARGE.slice(0, 3900)), () => true);
    const beside: Promise<unknown>[] = [];
    state.inBreaks = () => {
      state.inBreaks = () => undefined;
      beside.push(lab.slots[what](1));
    };
    await lab.slots.apply(slotRow(1, LARGE.slice(0, 4000)), () => true);
    await lab.slots.apply(slotRow(1, LARGE.slice(0, 4100)), () => true);
    expect(await Promise.all(beside)).toEqual([undefined]);
    expect([held(lab, 1), await lab.slots.fault(1)]).toEqual([4100, undefined]);
  });
});

it('keeps nothing of what was applied before', async () => {
  setFlagsFromString('--expose-gc');
  const gc: () => void = runInNewContext('gc');
  using lab = slotLab({ now: () => 0, yieldNow: async () => undefined });
  const fails = async (): Promise<WeakRef<object>> => {
    const row = {
      ...slotRow(1, SMALL),
      get classes(): never {
        throw new Error('no');
      },
    };
    return lab.slots
      .apply(row, () => true)
      .then(
        () => {
          throw new Error('it was applied');
        },
        (error: object) => new WeakRef(error),
      );
  };
  const error = await fails();
  await lab.slots.apply(slotRow(1, SMALL), () => true);
  await lab.slots.apply(slotRow(1, LARGE), () => true);
  for (let tries = 0; tries < 10 && error.deref() !== undefined; tries += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    gc();
  }
  expect(error.deref()).toBeUndefined();
});
