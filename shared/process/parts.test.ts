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

  it('that start at once start in the turn in which they are told to', async () => {
    const log: Log = [];
    const parts = await Parts.build([spec('a'), spec('b', [], { start: () => Promise.resolve() }), spec('c')], log);
    const started = parts.start();
    expect(states(parts)).toEqual({ a: 'running', b: 'starting', c: 'waiting' });
    await started;
    await parts.stop();
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

  it('may be stopped while one starts that waits: it is stopped first, its start ends, and no other begins', async () => {
    const log: Log = [];
    const led = Promise.withResolvers<void>();
    const lease = {
      ...spec('lease', [], {
        start: () => led.promise,
        stop: () => {
          log.push('-lease');
          led.reject(new Error('nobody leads'));
        },
      }),
      startWithinMs: Infinity,
    };
    const parts = await Parts.build([spec('a'), lease, spec('c', [lease])], log);
    const started = parts.start();
    await new Promise((resolve) => setImmediate(resolve));
    expect(states(parts)).toEqual({ a: 'running', lease: 'starting', c: 'waiting' });
    await parts.stop();
    expect(await started).toBe(false);
    expect(log).toEqual(['+a', '-lease', '-a']);
    expect(states(parts)).toEqual({ a: 'stopped', lease: 'stopped', c: 'waiting' });
    // What was stopped is not started again.
    expect(await parts.start()).toBe(false);
    expect(log).toEqual(['+a', '-lease', '-a']);
  });

  it('whose start goes on after a stop are waited for: what they need is stopped after it has ended', async () => {
    const log: Log = [];
    const gate = Promise.withResolvers<void>();
    const slow = spec('slow', [], { start: () => gate.promise.then(() => void log.push('+slow')) });
    const parts = await Parts.build([spec('a'), slow], log);
    const started = parts.start();
    await new Promise((resolve) => setImmediate(resolve));
    const stopped = parts.stop();
    const again = parts.stop();
    await new Promise((resolve) => setImmediate(resolve));
    expect(log).toEqual(['+a', '-slow']);
    gate.resolve();
    await Promise.all([stopped, again, started]);
    expect(log).toEqual(['+a', '-slow', '+slow', '-a']);
  });

  it('whose start does not end though they are stopped are named, and the others are stopped', async () => {
    const log: Log = [];
    const never = { ...spec('never', [], { start: () => new Promise<void>(() => undefined) }), stopWithinMs: 5 };
    const parts = await Parts.build([spec('a'), never], log);
    const started = parts.start();
    await new Promise((resolve) => setImmediate(resolve));
    await expect(parts.stop()).rejects.toThrow('part never did not stop within 0.005 s');
    expect(await started).toBe(false);
    expect(log).toEqual(['+a', '-never', '-a']);
  });

  it('stopped before they start never start', async () => {
    const log: Log = [];
    const parts = await Parts.build([spec('a')], log);
    await parts.stop();
    expect([await parts.start(), log]).toEqual([false, []]);
  });

  it('that stop all when they start stay stopped', async () => {
    const log: Log = [];
    let parts: Parts | undefined;
    const ends = spec('ends', [], { start: () => void parts?.stop() });
    parts = await Parts.build([spec('a'), ends, spec('c')], log);
    expect(await parts.start()).toBe(false);
    expect(states(parts)).toEqual({ a: 'stopped', ends: 'stopped', c: 'waiting' });
    expect(log).toEqual(['+a', '-ends', '-a']);
  });

  it('without a limit of time may take any', async () => {
    const gate = Promise.withResolvers<void>();
    const waits = { ...spec('waits', [], { start: () => gate.promise }), startWithinMs: Infinity };
    const parts = await Parts.build([waits], []);
    const started = parts.start();
    // A timer without end would come at once.
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(states(parts)).toEqual({ waits: 'starting' });
    gate.resolve();
    expect(await started).toBe(true);
  });

  it('may need those of a longer life, and stop before them', async () => {
    const log: Log = [];
    const server = spec('server', [], { provides: 9 } as Partial<Part>);
    const outer = await Parts.build([server], log);
    const seen: unknown[] = [];
    const asks: AnyPartSpec = {
      name: 'asks',
      needs: { server },
      build: (given: unknown) => {
        seen.push(given);
        return {};
      },
    };
    for (let term = 0; term < 2; term += 1) {
      const inner = await Parts.build([asks, spec('b', [asks])], log, { outer });
      if (term === 0) {
        expect(inner.rows()).toMatchObject([
          { name: 'asks', order: 1, waitsFor: ['server'] },
          { name: 'b', order: 2 },
        ]);
        await outer.start();
      }
      expect([inner.provided(server), inner.provided(asks), outer.provided(asks)]).toEqual([9, undefined, undefined]);
      const started = inner.start();
      expect(inner.rows()).toMatchObject([{ name: 'asks', waitsFor: [] }, { name: 'b' }]);
      await started;
      await inner.stop();
    }
    await outer.stop();
    expect(seen).toEqual([{ server: 9 }, { server: 9 }]);
    expect(log).toEqual(['+server', '+b', '-b', '+b', '-b', '-server']);
    await expect(Parts.build([spec('server')], log, { outer })).rejects.toThrow('two parts are called server');
  });

  it('are told whether another that did not stop may still use them, by others, too', async () => {
    const log: Log = [];
    const told = (name: string, needs: readonly AnyPartSpec[] = []): AnyPartSpec =>
      spec(name, needs, { stop: (inUse) => void log.push(`-${name} ${inUse}`) });
    const lease = told('lease');
    const client = told('client', [lease]);
    const writer = spec('writer', [client], { stop: () => Promise.reject(new Error('busy')) });
    const parts = await Parts.build([told('other'), lease, client, writer, told('reader', [lease])], log);
    await parts.start();
    await expect(parts.stop()).rejects.toThrow('busy');
    expect(log.filter((line) => line.startsWith('-'))).toEqual([
      '-reader false',
      '-client true',
      '-lease true',
      '-other false',
    ]);
    expect(states(parts)).toMatchObject({ other: 'stopped', lease: 'stopped', writer: 'failed' });
  });

  it('that are told to stop while a start has not returned yet wait for its end', async () => {
    const log: Log = [];
    let stopped: Promise<void> | undefined;
    const start = async (): Promise<void> => {
      stopped = parts.stop().then(() => void log.push('stopped'));
      await new Promise((resolve) => setImmediate(resolve));
      log.push('started');
    };
    const parts = await Parts.build([spec('a', [], { start })], log);
    expect(await parts.start()).toBe(false);
    await stopped;
    expect(log).toEqual(['-a', 'started', 'stopped']);
  });

  it('say that one did not start before the others are stopped', async () => {
    const log: Log = [];
    const onStartFailed = (error: unknown): void => void log.push(`failed: ${String(error)}`);
    const bad = spec('bad', [], { start: () => Promise.reject('no') });
    const parts = await Parts.build([spec('a'), bad], log, { onStartFailed });
    await expect(parts.start()).rejects.toBe('no');
    expect(log).toEqual(['+a', 'failed: no', '-bad', '-a']);
  });

  it('start once', async () => {
    const log: Log = [];
    const parts = await Parts.build([spec('a')], log);
    expect(await Promise.all([parts.start(), parts.start()])).toEqual([true, true]);
    expect(log).toEqual(['+a']);
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
