/**
 * Rows as JSON and back, exactly. What JSON does not have is tagged: `{"$": "bigint", "v": "1"}`; so is an object that
 * has a property `$` of its own.
 */
import { StateDBError } from '../errors.ts';

/**
 * A row that is to be dumped holds a value that has no form as JSON.
 * @fix Keep such rows to plain objects, arrays, primitives, Map, Set, Date, Error and Uint8Array.
 */
export class UnserialisableError extends StateDBError {
  readonly code = 'ERR_STATEDB_UNSERIALISABLE';
  constructor(path: string, what: string) {
    super(
      `${path} is ${what}; rows to dump hold plain objects, arrays, primitives, Map, Set, Date, Error and Uint8Array only`,
    );
  }
}

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const tag = ($: string, v?: Json): Json => (v === undefined ? { $ } : { $, v });

/** `path` names the value in errors. Throws `UnserialisableError`. */
export function encode(value: unknown, path: string): Json {
  return encodeIn(value, path, []);
}

function encodeIn(value: unknown, path: string, within: readonly object[]): Json {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value;
    case 'number':
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : tag('number', Object.is(value, -0) ? '-0' : `${value}`);
    case 'bigint':
      return tag('bigint', `${value}`);
    case 'undefined':
      return tag('undefined');
    case 'object':
      break;
    default:
      throw new UnserialisableError(path, `a ${typeof value}`);
  }
  if (value === null) return null;
  if (within.includes(value)) throw new UnserialisableError(path, 'part of itself');
  const inside = [...within, value];
  const inner = (each: unknown, step: string | number): Json =>
    encodeIn(each, typeof step === 'number' ? `${path}[${step}]` : `${path}.${step}`, inside);
  if (Array.isArray(value)) return Array.from(value, (each: unknown, i) => inner(each, i));
  const prototype: unknown = Object.getPrototypeOf(value);
  const entries = (): [string, Json][] => Object.entries(value).map(([key, each]) => [key, inner(each, key)]);
  if (prototype === Object.prototype) {
    return Object.hasOwn(value, '$') ? tag('object', entries()) : Object.fromEntries(entries());
  }
  if (prototype === null) return tag('bare', entries());
  if (value instanceof Map)
    return tag(
      'map',
      [...value].map(([k, v], i) => [inner(k, i), inner(v, i)]),
    );
  if (value instanceof Set) return tag('set', [...value].map(inner));
  if (value instanceof Date) return tag('date', Number.isNaN(value.getTime()) ? null : value.getTime());
  if (value instanceof Uint8Array) return tag('bytes', [...value]);
  if (value instanceof Error) return tag('error', [value.name, value.message]);
  throw new UnserialisableError(path, `a ${(prototype as { constructor: { name?: string } }).constructor.name}`);
}

/** Undoes `encode`. Throws `TypeError` or `SyntaxError` for what `encode` did not make. */
export function decode(json: unknown): unknown {
  if (typeof json !== 'object' || json === null) return json;
  if (Array.isArray(json)) return json.map(decode);
  const object = json as { readonly [key: string]: unknown };
  if (!Object.hasOwn(object, '$')) return fromEntries(Object.entries(object));
  const { $, v } = object;
  switch ($) {
    case 'number':
      return Number(text(v));
    case 'bigint':
      return BigInt(text(v));
    case 'undefined':
      return undefined;
    case 'object':
      return fromEntries(pairs(v));
    case 'bare':
      return Object.assign(Object.create(null), fromEntries(pairs(v)));
    case 'map':
      return new Map(pairs(v).map(([key, value]) => [decode(key), decode(value)]));
    case 'set':
      return new Set(list(v).map(decode));
    case 'date':
      return new Date(v === null ? Number.NaN : integer(v, -8.64e15, 8.64e15));
    case 'bytes':
      return Uint8Array.from(list(v).map((byte) => integer(byte, 0, 255)));
    case 'error': {
      const [name, message] = list(v).map(text);
      return Object.assign(new Error(message), { name });
    }
    default:
      throw new TypeError(`${JSON.stringify($)} is no known tag`);
  }
}

/** Also right for a property `__proto__`. */
function fromEntries(entries: readonly (readonly [unknown, unknown])[]): object {
  return Object.fromEntries(entries.map(([key, value]) => [String(key), decode(value)]));
}

function text(v: unknown): string {
  if (typeof v !== 'string') throw new TypeError('the value of a tag is not a string');
  return v;
}

function integer(v: unknown, min: number, max: number): number {
  if (typeof v !== 'number' || !Number.isInteger(v) || v < min || v > max) {
    throw new TypeError(`${String(v)} is not an integer from ${min} to ${max}`);
  }
  return v;
}

function list(v: unknown): readonly unknown[] {
  if (!Array.isArray(v)) throw new TypeError('the value of a tag is not a list');
  return v;
}

function pairs(v: unknown): readonly (readonly [unknown, unknown])[] {
  return list(v).map((pair) => {
    const [key, value] = list(pair);
    return [key, value];
  });
}
