import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { type AnyPartSpec, orderOf, type Part, PartListError, type PartRow, type PartSpec, Parts } from './parts.ts';

type Log = string[];

function spec(name: string, needs: readonly AnyPartSpec[] = [], more: Partial<Part> = {}): AnyPartSpec {
  return {
    name,
    needs: Object.fromEntries(needs.map((need) => [need.name, need])),
    build: (_given: unknown, log: Log) => ({
      start: () => void log.push(`+${name}`),
      stop: () => void log.push(`-${name}`),
      ...more,
    }),
  };
}

const states = (parts: Parts): unknown => Object.fromEntries(parts.rows().map(({ name, state }) => [name, state]));

describe('parts', () => {
  it('start after what they need, in the order of the list, and stop in the opposite order', async () => {
    const log: Log = [];
    const a = spec('a');
    const c = spec('c');
    const parts = await Parts.build([a, spec('b', [c]), c, spec('d', [a])], log);
    expect(log).toEqual([]);
    await parts.start();
    await parts.stop();
    expect(log).toEqual(['+a', '+c', '+b', '+d', '-d', '-b', '-c', '-a']);
  });

  it('are given what others provide, and nothing of one that is off', async () => {
    const number = { name: 'number', build: () => ({ provides: 7 }) };
    const off: PartSpec<unknown, { provides: string } | undefined, Record<never, never>> = {
      name: 'off',
      build: () => undefined,
    };
    const seen: unknown[] = [];
    const asks: PartSpec<unknown, Part, { of: typeof number; off: typeof off }> = {
      name: 'asks',
      needs: { of: number, off },
      build: ({ of, off: text }) => {
        const typed: [number, string | undefined] = [of, text];
        seen.push(typed);
        return {};
      },
    };
    const parts = await Parts.build([asks, off, number], undefined);
    expect(seen).toEqual([[7, undefined]]);
    await parts.start();
    expect(states(parts)).toEqual({ number: 'running', off: 'off', asks: 'running' });
  });

  it('say what waits for what, and where a start has come to', async () => {
    const gate = Promise.withResolvers<void>();
    const rows: PartRow[] = [];
    const slow = spec('slow', [], { start: () => gate.promise });
    const last = spec('last', [slow]);
    const parts = await Parts.build([slow, last], [], { onChange: (row) => rows.push(row) });
    const started = parts.start();
    expect(parts.rows()).toMatchObject([
      { name: 'slow', state: 'starting', waitsFor: [] },
      { name: 'last', state: 'waiting', waitsFor: ['slow'], needs: ['slow'] },
    ]);
    gate.resolve();
    await started;
    expect(rows.filter(({ name }) => name === 'last')).toMatchObject([
      { state: 'waiting', waitsFor: ['slow'] },
      { state: 'waiting', waitsFor: [] },
      { state: 'starting' },
      { state: 'running' },
    ]);
  });

  it('that do not start take those before them down again, and themselves', async () => {
    const log: Log = [];
    const a = spec('a');
    const bad = spec('bad', [a], { start: () => Promise.reject(new Error('no such interface')) });
    const parts = await Parts.build([a, bad, spec('c')], log);
    await expect(parts.start()).rejects.toThrow('no such interface');
    expect(log).toEqual(['+a', '-bad', '-a']);
    expect(parts.rows()).toMatchObject([
      { state: 'stopped' },
      { state: 'failed', message: 'no such interface' },
      { state: 'waiting' },
    ]);
  });

  it('that take too long are named, with those that wait for them', async () => {
    const never = { ...spec('never', [], { start: () => new Promise<void>(() => undefined) }), startWithinMs: 5 };
    const parts = await Parts.build([never, spec('b', [never]), spec('c', [never])], []);
    await expect(parts.start()).rejects.toThrow('part never did not start within 0.005 s; b, c wait for it');
  });

  it('are all stopped, though one fails or hangs', async () => {
    const log: Log = [];
    const failed: string[] = [];
    const hangs = { ...spec('hangs', [], { stop: () => new Promise<void>(() => undefined) }), stopWithinMs: 5 };
    const bad = spec('bad', [], { stop: () => Promise.reject(new Error('busy')) });
    const parts = await Parts.build([spec('a'), hangs, bad], log, { onStopFailed: (name) => failed.push(name) });
    await parts.start();
    await expect(parts.stop()).rejects.toThrow('busy');
    expect([log, failed]).toEqual([
      ['+a', '+hangs', '+bad', '-a'],
      ['bad', 'hangs'],
    ]);
    expect(states(parts)).toEqual({ a: 'stopped', hangs: 'failed', bad: 'failed' });
  });

  it('of a wrong list are refused by name', () => {
    const a: AnyPartSpec & { needs?: Record<string, AnyPartSpec> } = { ...spec('a'), needs: {} };
    const b = spec('b', [a]);
    const c = spec('c', [b]);
    expect(() => orderOf([a, spec('a')])).toThrow('two parts are called a');
    expect(() => orderOf([b])).toThrow('part b needs part a, which is not in the list');
    expect(() => orderOf([spec('a'), b])).toThrow(PartListError);
    a.needs = { c };
    expect(() => orderOf([c, a, b])).toThrow('circle: c -> b -> a -> c');
  });

  it('keep the order of any list that needs allow', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.nat(), { maxLength: 3 }), { maxLength: 8 }),
        fc.infiniteStream(fc.nat()),
        (shape, picks) => {
          const made: AnyPartSpec[] = [];
          for (const [index, needs] of shape.entries())
            made.push(
              spec(
                `p${index}`,
                index === 0 ? [] : ([...new Set(needs.map((need) => made[need % index]))] as AnyPartSpec[]),
              ),
            );
          const list: AnyPartSpec[] = [];
          for (const each of made) list.splice((picks.next().value ?? 0) % (list.length + 1), 0, each);
          const ordered = orderOf(list);
          expect(new Set(ordered)).toEqual(new Set(list));
          for (const [at, each] of ordered.entries())
            for (const need of Object.values(each.needs ?? {}) as AnyPartSpec[])
              expect(ordered.indexOf(need)).toBeLessThan(at);
          // A list that is in order already stays as it is.
          expect(orderOf(ordered)).toEqual(ordered);
        },
      ),
    );
  });
});
