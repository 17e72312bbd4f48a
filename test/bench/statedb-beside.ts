/** Ours beside a peer, case by case; the peer may be ours too, with something less around it. */
import type { Figure } from './report.ts';
import { type Measured, median } from './statedb-measure.ts';
import type { Measure } from './statedb-programs.ts';

/** One figure of a case. */
export interface Line {
  /** The name that the programs print. */
  readonly figure: string;
  /** The peer's figure comes from our own program, under this name. */
  readonly peerFigure?: string;
  readonly title: string;
  /** The peer's figure where it cannot be measured (shared targets). */
  readonly target?: number;
  /** The goal whatever the peer has here. */
  readonly goal?: number;
  /** Times the peer's figure is good enough. Default 1. */
  readonly slack?: number;
  readonly kind?: 'cost' | 'rate';
}

export interface Case {
  readonly name: string;
  readonly lines: readonly Line[];
  /** Runs of each side. */
  readonly times: number;
}

/** Runs peer and ours in turn; medians of both. */
export async function* beside(cases: readonly Case[], own: Measure, peer: Measure | undefined): AsyncGenerator<Figure> {
  for (const { name, lines, times } of cases) {
    const ours: Measured[] = [];
    const theirs: Measured[] = [];
    for (let time = 0; time < times; time++) {
      if (peer !== undefined) theirs.push(...(await peer(name)));
      ours.push(...(await own(name)));
    }
    for (const line of lines) yield figureOf(line, ours, theirs);
  }
}

function figureOf(line: Line, ours: readonly Measured[], theirs: readonly Measured[]): Figure {
  const { figure, peerFigure, title, target, slack = 1, kind = 'cost' } = line;
  const own = find(ours, figure);
  if (own === undefined) throw new Error(`no figure "${figure}" was printed`);
  const peer = (peerFigure === undefined ? find(theirs, figure) : find(ours, peerFigure))?.value;
  const goal = line.goal ?? (peer === undefined ? target : peer * slack);
  const standIn = goal !== undefined && goal === target && peer === undefined;
  return {
    case: standIn ? `${title} (goal from targets.md)` : title,
    value: own.value,
    unit: own.unit,
    kind,
    ...(goal === undefined ? {} : { goal: rounded(goal) }),
    ...(peer === undefined ? {} : { peer: rounded(peer) }),
  };
}

/** To four digits, as rows are printed. */
function rounded(value: number): number {
  return Number(value.toPrecision(4));
}

/** A figure's median over the processes that measured it; undefined when none did. */
function find(measured: readonly Measured[], figure: string): Measured | undefined {
  const found = measured.filter((each) => each.case === figure);
  return found[0] && { ...found[0], value: median(found.map(({ value }) => value)) };
}
