/** Rows of a class as the kernel's trie holds them: blocks of ports, each with one decision. */
import { portPrefixes } from '@weir/net';
import {
  type ClassRows,
  type CompiledPolicy,
  DENY,
  type Decision,
  type Direction,
  decisionKey,
  opens,
  sameDecision,
} from '@weir/policy';
import type { PerDirection, VerdictBlock } from '../tables.ts';

/** What is decided of ports, whichever rule decides. */
export type PortDecision = Decision & { readonly protocol: number; readonly from: number; readonly to: number };

type RuledPorts = PortDecision & Pick<VerdictBlock, 'cookie'>;

export const DIRECTIONS: readonly Direction[] = ['ingress', 'egress'];

export function both<T>(of: (direction: Direction) => T): PerDirection<T> {
  return { ingress: of('ingress'), egress: of('egress') };
}

/** The blocks of a class, ascending. */
export function blocksOf(rows: ClassRows): VerdictBlock[] {
  const blocks: VerdictBlock[] = [];
  for (const { from, to, ...decided } of rows) {
    for (const { port, bits } of portPrefixes(from, to)) blocks.push({ ...decided, port, bits });
  }
  return blocks;
}

/** The ports of each decision, ascending: the opposite of `blocksOf`. */
export function rangesOf(blocks: readonly VerdictBlock[]): RuledPorts[] {
  const ranges = blocks.map(({ port, bits, ...decided }) => ({
    ...decided,
    from: port,
    to: port + 2 ** (16 - bits) - 1,
  }));
  ranges.sort((a, b) => a.protocol - b.protocol || a.from - b.from);
  return joined(ranges, (a, b) => a.cookie === b.cookie && sameDecision(a, b));
}

/** The ports by which something passes. */
export function passing(ranges: readonly RuledPorts[]): PortDecision[] {
  const passed = ranges.filter((range) => opens(range, DENY)).map(({ cookie: _, ...range }) => range);
  return joined(passed, sameDecision);
}

/** Neighbours that are the same are one. Ranges ascend. */
function joined<T extends PortDecision>(ranges: readonly T[], same: (a: T, b: T) => boolean): T[] {
  const out: (T & { to: number })[] = [];
  for (const range of ranges) {
    const last = out.at(-1);
    const next = last?.protocol === range.protocol && last.to + 1 === range.from;
    if (next && same(last, range)) last.to = range.to;
    else out.push({ ...range });
  }
  return out;
}

/** Equal keys = equal decisions for every packet. */
export function blocksKey(blocks: readonly VerdictBlock[]): string {
  return blocks
    .map((block) =>
      block.prefix === undefined
        ? `${block.protocol}/${block.port}/${block.bits}=${block.cookie}${decisionKey(block)}`
        : `${block.prefix} ${block.identity}=${block.cookie}`,
    )
    .sort()
    .join(' ');
}

export function rowsKey(rows: ClassRows): string {
  return blocksKey(blocksOf(rows));
}

/** Equal keys = the same packets pass in the same way, whichever rules decide. */
export function passingKey(ranges: readonly RuledPorts[]): string {
  return passing(ranges)
    .map((range) => `${range.protocol}/${range.from}-${range.to}${decisionKey(range)}`)
    .join(' ');
}

/** Equal keys = equal decisions for every address. */
export function addressesKey({ addresses }: CompiledPolicy['ingress']): string {
  return addresses
    .map(({ prefix, identity, rows }) => `${prefix} ${identity} ${rowsKey(rows)}`)
    .sort()
    .join('|');
}

function sameAddresses(a: CompiledPolicy['ingress'], b: CompiledPolicy['ingress']): boolean {
  return a.addresses === b.addresses || addressesKey(a) === addressesKey(b);
}

/** Whether everything is equal that a membership change cannot alter: a difference needs a new slot. */
export function sameScopes(a: CompiledPolicy, b: CompiledPolicy): boolean {
  return DIRECTIONS.every((direction) => {
    const [one, other] = [a[direction], b[direction]];
    if (!one.enforced || !other.enforced) return one.enforced === other.enforced;
    const same = (scope: keyof typeof one.scope): boolean =>
      one.scope[scope] === other.scope[scope] || rowsKey(one.scope[scope]) === rowsKey(other.scope[scope]);
    return same('unknown') && same('pod') && same('world') && sameAddresses(one, other);
  });
}
