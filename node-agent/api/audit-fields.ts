/** What the line of the log for a call that writes says of it: each route that writes has `config: { audit }`. */
import { clipped } from '@weir/process/printable';
import { isObject, type Json } from './input.ts';

const LONGEST_TEXT = 200;
const LONGEST_LABEL = 63;
const MOST_LABELS = 20;

/** What of a call says what it does; undefined: it only reads. For a body that nobody has looked at yet. */
export type Audit = (call: {
  readonly params: unknown;
  readonly query: Json;
  readonly body: unknown;
}) => object | undefined;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Of a route that writes: what of its calls is logged. */
    audit?: Audit;
  }
}

export function labelList(name: string, value: unknown): object {
  const texts = new Set([value ?? []].flat().map(labelText));
  if (texts.size === 0) return {};
  const shown = [...texts].slice(0, MOST_LABELS).map((text) => clipped(text, LONGEST_LABEL));
  return { [name]: texts.size > MOST_LABELS ? [...shown, `… and ${texts.size - MOST_LABELS} more`] : shown };
}

/** As people write it; a rule has it as an object, too. */
function labelText(label: unknown): string {
  if (!isObject(label)) return textOf(label);
  const { source, key, value } = label;
  return `${source === undefined ? '' : `${textOf(source)}:`}${textOf(key)}${value === undefined ? '' : `=${textOf(value)}`}`;
}

/** Empty where there is no such value. */
export function some(name: string, value: unknown): object {
  return value === undefined || value === null || value === '' ? {} : { [name]: clipped(textOf(value), LONGEST_TEXT) };
}

export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

export function member(from: unknown, key: string): unknown {
  return isObject(from) && Object.hasOwn(from, key) ? from[key] : undefined;
}
