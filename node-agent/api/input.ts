import { clipped } from '@weir/process/printable';
import { BadRequestError } from './errors.ts';

export type Json = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function object(value: unknown, what: string): Json {
  if (!isObject(value)) throw new BadRequestError(`${what} must be a JSON object, not ${describe(value)}`);
  return value;
}

/** An optional string member; the empty string counts as absent. */
export function optionalString(from: Json, key: string): string | undefined {
  const value = from[key];
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string') throw new BadRequestError(`"${key}" must be a string, not ${describe(value)}`);
  return value;
}

/** An optional whole number within [min, max]; 0 counts as absent when min > 0. */
export function optionalInteger(from: Json, key: string, min: number, max: number): number | undefined {
  const value = from[key];
  if (value === undefined || value === null || (value === 0 && min > 0)) return undefined;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    throw new BadRequestError(`"${key}" must be a whole number from ${min} to ${max}, not ${describe(value)}`);
  }
  return value;
}

export function stringList(value: unknown, what: string): readonly string[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string' && item !== '')) {
    throw new BadRequestError(`${what} must be a list of non-empty strings, not ${describe(value)}`);
  }
  return value;
}

/** A repeated or comma-separated query parameter. */
export function queryList(query: unknown, key: string): readonly string[] {
  const value = isObject(query) ? query[key] : undefined;
  const parts = Array.isArray(value) ? value : value === undefined ? [] : [value];
  return parts.flatMap((part) => String(part).split(',')).filter((part) => part !== '');
}

export function queryString(query: unknown, key: string): string | undefined {
  return queryList(query, key)[0];
}

/** `?flag`, `?flag=true`, `?flag=1`. */
export function queryFlag(query: unknown, key: string): boolean {
  const value = isObject(query) ? query[key] : undefined;
  if (value === undefined) return false;
  if (value === '' || value === 'true' || value === '1') return true;
  if (value === 'false' || value === '0') return false;
  throw new BadRequestError(`query parameter "${key}" must be true or false, not ${describe(value)}`);
}

export function describe(value: unknown): string {
  return clipped(JSON.stringify(value) ?? 'nothing', 60);
}
