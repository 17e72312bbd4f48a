/** Lines of the proxy to messages. It runs as the agent does; but it reads what pods and servers send. */
import { type Check, type FromProxy, readShaped, type Shapes, text } from './protocol.ts';

const number: Check = (value) => Number.isSafeInteger(value) && Number(value) >= 0;
const numbers: Check = (value) => Array.isArray(value) && value.length > 0 && value.every(number);

const NAME = { endpoint: number, name: text, address: text };
const SHAPES: Shapes<FromProxy> = {
  wanted: { selectors: numbers },
  query: {
    endpoint: number,
    name: text,
    qtype: text,
    server: text,
    port: number,
    protocol: text,
    verdict: text,
    micros: number,
  },
  name: { ...NAME, seen: number, expires: number, ttl: number },
  'name-gone': { ...NAME, why: text },
  'names-complete': {},
  oddity: { oddity: text, count: number },
};

/** Undefined: it is none. */
export function readFromProxy(line: string): FromProxy | undefined {
  return readShaped(line, SHAPES);
}
