/** Lines of the agent, and of the journal, to messages. */
import { type Check, type DnsName, type NameGone, readShaped, type Shapes, type ToProxy, text } from '../protocol.ts';

/** A line of the journal: what the agent said, or a name. */
export type Kept = ToProxy | DnsName | NameGone;

const MOST = 0xffff_ffff;
const number: Check = (value) => Number.isInteger(value) && Number(value) >= 0 && Number(value) <= MOST;
const time: Check = (value) => Number.isSafeInteger(value) && Number(value) >= 0;
const texts: Check = (value) => Array.isArray(value) && value.every(text);
/** In lower case, as names are. One with a dot too many is of no name, and no reason to hear no more. */
const pattern: Check = (value) => typeof value === 'string' && text(value) && value.toLowerCase() === value;
const patterns: Check = (value) => Array.isArray(value) && value.every(pattern);
/** Ascending, at least one. */
const set: Check = (value) =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.every((one, at) => number(one) && (at === 0 || one > value[at - 1]));

const SHAPES: Shapes<Kept> = {
  listener: { listener: number, names: patterns },
  'listener-gone': { listener: number },
  endpoint: { endpoint: number, addresses: texts },
  'endpoint-gone': { endpoint: number },
  selector: { selector: number, pattern },
  'selector-gone': { selector: number },
  identity: { identity: number, selectors: set },
  'identity-gone': { identity: number },
  complete: {},
  forget: { pattern },
  name: { endpoint: number, name: text, address: text, seen: time, expires: time, ttl: number },
  'name-gone': { endpoint: number, name: text, address: text },
};

/** Undefined: it is none. */
export function readKept(line: string): Kept | undefined {
  return readShaped(line, SHAPES);
}

/** The same of what the agent may say. */
export function readToProxy(line: string): ToProxy | undefined {
  const kept = readKept(line);
  return kept === undefined || kept.type === 'name' || kept.type === 'name-gone' ? undefined : kept;
}
