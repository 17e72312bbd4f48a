/** Rows of a class as the kernel's trie holds them: blocks of ports, each with one decision. */
import { portPrefixes } from '@weir/net';
import type { ClassRows, CompiledPolicy, Direction } from '@weir/policy';
import type { PerDirection, VerdictBlock } from '../tables.ts';

interface PortRange {
  readonly from: number;
  readonly to: number;
}

export const DIRECTIONS: readonly Direction[] = ['ingress', 'egress'];

export function both<T>(of: (direction: Direction) => T): PerDirection<T> {
  return { ingress: of('ingress'), egress: of('egress') };
}

/** The blocks of a class, ascending. */
export function blocksOf(rows: ClassRows): VerdictBlock[] {
  const blocks: VerdictBlock[] = [];
  for (const row of rows) {
    for (const { port, bits } of portPrefixes(row.from, row.to)) {
      blocks.push({ protocol: row.protocol, port, bits, deny: row.verdict === 'deny', cookie: row.cookie });
    }
  }
  return blocks;
}

/** The ports of each decision, ascending: the opposite of `blocksOf`. */
export function rangesOf(blocks: readonly VerdictBlock[]): (Omit<VerdictBlock, 'port' | 'bits'> & PortRange)[] {
  const ranges: (Omit<VerdictBlock, 'port' | 'bits'> & { from: number; to: number })[] = [];
  for (const { port, bits, ...decision } of blocks.toSorted((a, b) => a.protocol - b.protocol || a.port - b.port)) {
    const to = port + 2 ** (16 - bits) - 1;
    const last = ranges.at(-1);
    const goes = last !== undefined && last.to + 1 === port && last.protocol === decision.protocol;
    if (goes && last.deny === decision.deny && last.cookie === decision.cookie) last.to = to;
    else ranges.push({ ...decision, from: port, to });
  }
  return ranges;
}

/** Equal keys = equal decisions for every packet. */
export function blocksKey(blocks: readonly VerdictBlock[]): string {
  return blocks
    .map((block) => `${block.protocol}/${block.port}/${block.bits}${block.deny ? '-' : '+'}${block.cookie}`)
    .sort()
    .join(' ');
}

export function rowsKey(rows: ClassRows): string {
  return blocksKey(blocksOf(rows));
}

/** Equal keys = the same packets are allowed, whichever rules allow them. */
export function allowedKey(rows: ClassRows): string {
  const ranges: { readonly protocol: number; readonly from: number; to: number }[] = [];
  for (const { protocol, from, to, verdict } of rows) {
    if (verdict !== 'allow') continue;
    const last = ranges.at(-1);
    if (last?.protocol === protocol && last.to + 1 === from) last.to = to;
    else ranges.push({ protocol, from, to });
  }
  return ranges.map(({ protocol, from, to }) => `${protocol}/${from}-${to}`).join(' ');
}

/** Whether everything is equal that a membership change cannot alter: a difference needs a new slot. */
export function sameScopes(a: CompiledPolicy, b: CompiledPolicy): boolean {
  return DIRECTIONS.every((direction) => {
    const [one, other] = [a[direction], b[direction]];
    if (!one.enforced || !other.enforced) return one.enforced === other.enforced;
    const same = (scope: keyof typeof one.scope): boolean =>
      one.scope[scope] === other.scope[scope] || rowsKey(one.scope[scope]) === rowsKey(other.scope[scope]);
    return same('unknown') && same('pod') && same('world');
  });
}
