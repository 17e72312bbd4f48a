/** What a benchmark reports. One row a figure; the JSON file is an array of these rows. */

export interface Row {
  readonly suite: string;
  readonly case: string;
  readonly value: number;
  readonly unit: string;
  /** The figure to reach; absent for a row that only informs. */
  readonly goal?: number;
  /** The same figure of something else, measured in the same run. */
  readonly peer?: number;
  /** value/goal for a cost, goal/value for a rate: at most 1 means reached. */
  readonly ratio?: number;
}

export interface Figure {
  readonly case: string;
  readonly value: number;
  readonly unit: string;
  readonly goal?: number;
  readonly peer?: number;
  /** `cost` (default): less is better. `rate`: more is better. */
  readonly kind?: 'cost' | 'rate';
}

export function row(suite: string, figure: Figure): Row {
  const { kind = 'cost', goal, value, ...rest } = figure;
  const rounded = Number(value.toPrecision(4));
  if (goal === undefined) return { suite, ...rest, value: rounded };
  return {
    suite,
    ...rest,
    value: rounded,
    goal,
    ratio: Number((kind === 'cost' ? value / goal : goal / value).toPrecision(3)),
  };
}

/** The value below which `share` (0..1) of the samples lie. */
export function quantile(samples: readonly number[], share: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

export function print(rows: readonly Row[]): string {
  const cells = [
    ['case', 'value', 'unit', 'goal', 'peer', 'ratio'],
    ...rows.map((each) => [
      each.case,
      String(each.value),
      each.unit,
      each.goal?.toString() ?? '',
      each.peer?.toPrecision(4) ?? '',
      each.ratio?.toString() ?? '',
    ]),
  ];
  const widths = cells[0]?.map((_, column) => Math.max(...cells.map((line) => line[column]?.length ?? 0))) ?? [];
  return cells
    .map((line) =>
      line
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  '),
    )
    .join('\n');
}
