/** Changes of API objects that nobody honest makes, for tests that put them where objects are read. */

/** Keys from the outermost object to a value in it. */
export type Path = readonly string[];

/** Of every value in it, and of one unknown field of every object. */
export function* pathsIn(value: unknown, path: Path = []): Generator<Path> {
  if (path.length > 0) yield path;
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value)) yield [...path, 'unknown'];
  for (const [key, child] of Object.entries(value)) yield* pathsIn(child, [...path, key]);
}

/** A copy with `value` at the path. */
export function withAt(whole: unknown, [key, ...rest]: Path, value: unknown): unknown {
  if (key === undefined) return value;
  const copy = Object.assign(Array.isArray(whole) ? [] : {}, whole) as Record<string, unknown>;
  copy[key] = withAt(copy[key], rest, value);
  return copy;
}

/** `leaf` in lists and objects in each other, so many levels deep. */
export function nested(depth: number, leaf: unknown = 1): unknown {
  let value = leaf;
  for (let at = 0; at < depth; at += 1) value = at % 2 === 0 ? [value] : { x: value };
  return value;
}
