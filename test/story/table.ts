/** Plain text for people: reachability tables, aligned columns. */

/** One cell: what was seen, and what was expected. */
export interface Cell {
  readonly seen: string;
  readonly right: boolean;
}

/** Columns padded to their widest cell, two spaces between. */
function align(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows)
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, cell.length);
  return rows
    .map((row) =>
      row
        .map((cell, index) => cell.padEnd(widths[index] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** A reachability table: sources down, destinations across. A wrong cell is marked `!`. */
export function reachability(
  sources: readonly string[],
  destinations: readonly string[],
  cell: (from: string, to: string) => Cell | undefined,
): string {
  const header = ['from \\ to', ...destinations];
  const rows = sources.map((from) => [
    from,
    ...destinations.map((to) => {
      const found = cell(from, to);
      if (found === undefined) return '.';
      return found.right ? found.seen : `!${found.seen}`;
    }),
  ]);
  return align([header, ...rows]);
}
