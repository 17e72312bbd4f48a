/** Freezing of rows, so that a test fails where a row is changed in place. */
const MUTATORS = ['set', 'add', 'delete', 'clear'] as const;

/**
 * Freezes a value deeply: a change in place throws a TypeError, also of a Map or Set. The content of typed arrays cannot be
 * frozen in JavaScript; where it is part of a key, `MutatedRowError` tells when the row is next written.
 */
export function deepFreeze<T>(value: T, seen: WeakSet<object> = new WeakSet()): T {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value) || seen.has(value)) return value;
  seen.add(value);
  if (value instanceof Map || value instanceof Set) {
    for (const [key, inner] of value.entries()) {
      deepFreeze(key, seen);
      deepFreeze(inner, seen);
    }
    if (Object.isExtensible(value)) for (const name of MUTATORS) Object.defineProperty(value, name, { value: refuse });
  }
  for (const inner of Object.values(value)) deepFreeze(inner, seen);
  return Object.freeze(value);
}

function refuse(): never {
  throw new TypeError('this Map or Set is part of a stored row; store a changed copy of the row instead');
}
