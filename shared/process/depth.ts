import { clipped } from './printable.ts';

/**
 * Objects of a tenant may be nested as deep as the API server takes (10,000 levels of JSON), and whoever compares, freezes, prints or
 * clones one by recursion ends with the stack. Nothing that Weir reads has more than 20 levels.
 */
export const DEEPEST = 100;

/** What stands in the place of what was nested deeper: a text where only lists and objects were, so that a reader finds it of the wrong type. */
export const TOO_DEEP = `(nested deeper than ${DEEPEST} levels)`;

/** Takes away, in place, what is nested deeper than DEEPEST levels. Returns the object. */
export function withoutDepths<T>(value: T): T {
  if (typeof value === 'object' && value !== null) prune(value as Record<string, unknown>, DEEPEST);
  return value;
}

function prune(value: Record<string, unknown>, left: number): void {
  for (const key of Object.keys(value)) {
    const child = value[key];
    if (typeof child !== 'object' || child === null) continue;
    if (left > 0) prune(child as Record<string, unknown>, left - 1);
    // Not an assignment: the key may be __proto__.
    else Object.defineProperty(value, key, { value: TOO_DEEP, enumerable: true, configurable: true, writable: true });
  }
}

/** The keys that lead to the first value nested deeper than DEEPEST levels, the outermost of them; undefined without one. */
export function depthIn(value: unknown): readonly string[] | undefined {
  return seek(value, DEEPEST)?.slice(0, SHOWN);
}

/**
 * JSON is nested deeper than 100 levels.
 * @fix Write it flatter: nothing that Weir reads is that deep.
 */
export class DepthError extends Error {
  readonly code = 'ERR_WEIR_TOO_DEEP';

  /** @param keys as `depthIn` tells them */
  constructor(keys: readonly string[]) {
    super(
      `${keys.map((key) => clipped(key, 40)).join('.')}: nested deeper than ${DEEPEST} levels: nothing that is read here is`,
    );
    this.name = 'DepthError';
  }
}

/** JSON.parse of what somebody else wrote. @throws SyntaxError, DepthError */
export function parseShallow(text: string): unknown {
  const value: unknown = JSON.parse(text);
  const keys = depthIn(value);
  if (keys !== undefined) throw new DepthError(keys);
  return value;
}

/** Keys that tell a reader where to look. */
const SHOWN = 6;

function seek(value: unknown, left: number): string[] | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (left < 0) return [];
  for (const key of Object.keys(value)) {
    const rest = seek((value as Record<string, unknown>)[key], left - 1);
    if (rest !== undefined) return [key, ...rest];
  }
  return undefined;
}
