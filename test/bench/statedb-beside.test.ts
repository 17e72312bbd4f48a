import { describe, expect, it } from '@jest/globals';
import type { Figure } from './report.ts';
import { beside, type Line } from './statedb-beside.ts';
import type { Measure } from './statedb-programs.ts';

/** A program that prints these values of figure `x`, one a run. */
function printing(order: string[], who: string, values: readonly number[]): Measure {
  let run = 0;
  return async () => {
    order.push(who);
    return [{ case: 'x', value: values[run++] ?? Number.NaN, unit: 'ns' }];
  };
}

async function figures(line: Partial<Line>, own: Measure, peer?: Measure, times = 3): Promise<readonly Figure[]> {
  const out: Figure[] = [];
  const cases = [{ name: 'c', times, lines: [{ figure: 'x', title: 'X', ...line }] }];
  for await (const figure of beside(cases, own, peer)) out.push(figure);
  return out;
}

describe('ours beside a peer', () => {
  it('runs them in turn and compares the medians', async () => {
    const order: string[] = [];
    const own = printing(order, 'own', [5, 1, 3]);
    const peer = printing(order, 'peer', [40, 20, 30]);
    expect(await figures({ target: 99 }, own, peer)).toEqual([
      { case: 'X', value: 3, unit: 'ns', kind: 'cost', goal: 30, peer: 30 },
    ]);
    expect(order).toEqual(['peer', 'own', 'peer', 'own', 'peer', 'own']);
  });

  it('takes the target for the goal where there is no peer, and says so', async () => {
    expect(await figures({ target: 99, kind: 'rate' }, printing([], 'own', [1, 2, 3]))).toEqual([
      { case: 'X (goal from targets.md)', value: 2, unit: 'ns', kind: 'rate', goal: 99 },
    ]);
  });

  it('keeps a goal that does not come from the peer', async () => {
    const [figure] = await figures({ goal: 354 }, printing([], 'own', [1]), printing([], 'peer', [400]), 1);
    expect(figure).toMatchObject({ case: 'X', goal: 354, peer: 400 });
  });

  it('allows slack, and a peer that our own program measures', async () => {
    const own: Measure = async () => [
      { case: 'x', value: 11, unit: 'ns' },
      { case: 'bare', value: 10, unit: 'ns' },
    ];
    const [figure] = await figures({ peerFigure: 'bare', slack: 1.2 }, own, undefined, 1);
    expect(figure).toMatchObject({ value: 11, goal: 12, peer: 10 });
  });

  it('refuses a program that does not print the figure', async () => {
    await expect(figures({ figure: 'y' }, printing([], 'own', [1]), undefined, 1)).rejects.toThrow('"y"');
  });
});
