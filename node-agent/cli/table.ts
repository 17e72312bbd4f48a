import { line, printable } from '@weir/process/printable';

/** Rows under a heading, columns aligned by two blanks; no trailing blanks. */
export function formatTable(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [heading, ...rows.map((row) => row.map(printable))];
  const widths = heading.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  return all
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

/** `name: value` lines, values aligned. */
export function formatFields(fields: readonly (readonly [name: string, value: string])[]): string {
  const width = Math.max(...fields.map(([name]) => name.length)) + 1;
  return fields.map(([name, value]) => line(`${`${name}:`.padEnd(width)}  ${value}`.trimEnd())).join('');
}

/** Label texts on one line; a long list ends in a count. */
export function formatLabelCell(labels: readonly string[], most = 4): string {
  const shown = labels.slice(0, most).join(' ');
  return labels.length > most ? `${shown} (+${labels.length - most})` : shown;
}
