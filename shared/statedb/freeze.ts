/**
 * Freezes a row deeply, so that a test fails where a row is changed in place. Arrays of bytes cannot be frozen in
 * JavaScript and are left alone; maps and sets keep their entries changeable, only the values in them are frozen.
 */
export function deepFreeze<T>(value: T, seen: WeakSet<object> = new WeakSet()): T {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value) || seen.has(value)) return value;
  seen.add(value);
  Object.freeze(value);
  if (value instanceof Map || value instanceof Set) {
    for (const inner of value.values()) deepFreeze(inner, seen);
    return value;
  }
  for (const inner of Object.values(value)) deepFreeze(inner, seen);
  return value;
}
