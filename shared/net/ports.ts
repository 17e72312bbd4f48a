import { PortError } from './errors.ts';

/** A block of ports that share their first `bits` bits (of 16): `bits` 16 is one port, 0 is all. */
export interface PortPrefix {
  readonly port: number;
  readonly bits: number;
}

/**
 * The fewest aligned power-of-two blocks that cover exactly from..to (spec section 4), ascending: 80..89 is 80/13 and 88/15.
 * @throws PortError unless 0 <= from <= to <= 65535.
 */
export function portPrefixes(from: number, to: number): PortPrefix[] {
  if (!Number.isInteger(from) || !Number.isInteger(to) || from < 0 || to > 0xffff || from > to) {
    throw new PortError(`${from}..${to}`, 'is no interval of ports: 0 <= from <= to <= 65535 is needed');
  }
  const blocks: PortPrefix[] = [];
  let next = from;
  while (next <= to) {
    let size = next === 0 ? 0x10000 : next & -next;
    while (next + size - 1 > to) size /= 2;
    blocks.push({ port: next, bits: 16 - Math.log2(size) });
    next += size;
  }
  return blocks;
}
