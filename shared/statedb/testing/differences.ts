/** Two results, compared deeply and shown by what differs. */

/** A result: by key, or in order. Values and keys of any kind, compared by what they hold. */
export type Result = ReadonlyMap<unknown, unknown> | readonly unknown[];

const LINES = 20;

/** The keys (or places) at which the two differ, one line for each value; none when they are equal. */
export function differences(incremental: Result, recomputed: Result): string[] {
  const [mine, right] = [entriesOf(incremental), entriesOf(recomputed)];
  const lines: string[] = [];
  let differing = 0;
  for (const key of new Set([...right.keys(), ...mine.keys()])) {
    if (mine.get(key) === right.get(key)) continue;
    if (++differing > LINES) continue;
    if (right.has(key)) lines.push(`  - ${key}: ${right.get(key)}`);
    if (mine.has(key)) lines.push(`  + ${key}: ${mine.get(key)}`);
  }
  if (differing > LINES) lines.push(`  ... and ${differing - LINES} more keys`);
  return lines;
}

function entriesOf(result: Result): ReadonlyMap<string, string> {
  const entries: Iterable<readonly [unknown, unknown]> =
    result instanceof Map ? result : Array.from(result, (v, i) => [i, v]);
  return new Map(Array.from(entries, ([key, value]) => [show(key), show(value)]));
}

/** The same text for equal values, another for others. Properties, and the entries of maps and sets, have no order. */
function show(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (Object.is(value, -0)) return '-0';
  if (value === null || value === undefined || typeof value === 'number' || typeof value === 'boolean')
    return `${value}`;
  if (typeof value !== 'object') throw new TypeError(`a ${typeof value} cannot be compared; results hold data only`);
  if (Array.isArray(value)) return `[${Array.from(value, show).join(', ')}]`;
  const maker: unknown = value.constructor;
  const name = typeof maker === 'function' ? maker.name : 'null';
  if (value instanceof Date) return `${name}(${value.getTime()})`;
  if (ArrayBuffer.isView(value) && 'join' in value) return `${name}(${(value as Uint8Array).join(' ')})`;
  const pairs = (entries: Iterable<readonly [unknown, unknown]>): string[] =>
    Array.from(entries, ([key, each]) => `${typeof key === 'string' ? JSON.stringify(key) : show(key)}: ${show(each)}`);
  const parts =
    value instanceof Set ? Array.from(value, show) : pairs(value instanceof Map ? value : Object.entries(value));
  return `${name === 'Object' ? '' : `${name} `}{${parts.sort().join(', ')}}`;
}
