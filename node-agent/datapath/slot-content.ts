/** What a slot holds, between rows of the tables and entries of its two inner maps. */
import {
  classKey,
  classValue,
  DIRECTION,
  isVerdictPrefix,
  VERDICT,
  VERDICT_KIND,
  type VerdictValue,
  verdictKey,
  verdictPrefix,
  verdictPrefixValue,
  verdictValue,
} from '@weir/bpf';
import { formatPrefix, parsePrefix } from '@weir/net';
import { ALLOW, DENY, type Decision, type Direction, type Pieces } from '@weir/policy';
import type { BpfMap } from 'libbpf-ts';
import {
  ADDRESS_CLASSES,
  ADDRESSES,
  blocksKey,
  both,
  DIRECTIONS,
  FIRST_CLASS,
  type KernelSlot,
} from '../derive/contract.ts';
import type { PerDirection, SlotContent, VerdictBlock } from '../tables.ts';

export function count(maps: PerDirection<ReadonlyMap<number, unknown>>): number {
  return maps.ingress.size + maps.egress.size;
}

export function countBlocks(rows: SlotContent['rows']): number {
  let total = 0;
  for (const direction of DIRECTIONS) for (const blocks of rows[direction].values()) total += blocks.length;
  return total;
}

export function classEntry(direction: Direction, identity: number, number: number): [Uint8Array, Uint8Array] {
  const key = { identity, direction: DIRECTION[direction] };
  return [classKey.encode(key), classValue.encode({ ...key, class: number })];
}

export function verdictEntry(direction: Direction, number: number, block: VerdictBlock): [Uint8Array, Uint8Array] {
  if (block.prefix !== undefined) {
    const { bytes: address, bits } = parsePrefix(block.prefix);
    const key = verdictPrefix.encode({ direction: DIRECTION[direction], address, bits });
    return [key, verdictPrefixValue.encode({ identity: block.identity ?? 0, class: block.cookie })];
  }
  const ofAddresses = number >= ADDRESS_CLASSES;
  return [
    verdictKey.encode({
      class: ofAddresses ? number - ADDRESS_CLASSES : number,
      direction: DIRECTION[direction] | (ofAddresses ? VERDICT_KIND.byAddress : 0),
      protocol: block.protocol,
      port: block.port,
      portBits: block.bits,
    }),
    verdictValue.encode({ ...decisionBytes(block), cookie: block.cookie }),
  ];
}

function decisionBytes(decision: Decision): Omit<VerdictValue, 'cookie'> {
  const verdict = VERDICT[decision.verdict];
  if (decision.verdict !== 'redirect') return { verdict };
  const { port, priority } = decision.listener;
  return { verdict, proxyPort: port, priority };
}

/** The kernel drops by a value that it does not know: so this is a deny. */
function decisionIn({ verdict, proxyPort = 0, priority = 0 }: VerdictValue): Decision {
  if (verdict === VERDICT.redirect) return { verdict: 'redirect', listener: { port: proxyPort, priority } };
  if (proxyPort !== 0) return DENY;
  if (verdict === VERDICT.allow) return ALLOW;
  return verdict === VERDICT.authenticate ? { verdict: 'authenticate' } : DENY;
}

/** What is in the maps, an element a piece: nobody may write into them meanwhile. */
export function* readSlot(
  classes: BpfMap,
  verdicts: BpfMap,
): Pieces<{
  readonly elements: PerDirection<Map<number, number>>;
  readonly rows: PerDirection<Map<number, readonly VerdictBlock[]>>;
}> {
  const elements = both(() => new Map<number, number>());
  const rows = both(() => new Map<number, VerdictBlock[]>());
  for (const [, bytes] of classes.entries()) {
    const { identity, direction, class: number } = classValue.decode(bytes);
    elements[direction === DIRECTION.ingress ? 'ingress' : 'egress'].set(identity, number);
    yield;
  }
  for (const [keyBytes, valueBytes] of verdicts.entries()) {
    if (isVerdictPrefix(keyBytes)) {
      const { identity, class: cookie } = verdictPrefixValue.decode(valueBytes);
      const { direction, address, bits } = verdictPrefix.decode(keyBytes);
      const prefix = formatPrefix({ family: address.length === 16 ? 6 : 4, bytes: address, bits });
      const block = { protocol: 0, port: 0, bits: 0, ...DENY, cookie, prefix, ...(identity === 0 ? {} : { identity }) };
      append(rows[direction === DIRECTION.ingress ? 'ingress' : 'egress'], ADDRESSES, block);
      yield;
      continue;
    }
    const key = verdictKey.decode(keyBytes);
    const value = verdictValue.decode(valueBytes);
    const ofAddresses = (key.direction & VERDICT_KIND.byAddress) !== 0;
    const ofDirection = rows[(key.direction & 1) === DIRECTION.ingress ? 'ingress' : 'egress'];
    const block = {
      protocol: key.protocol,
      port: key.port,
      bits: key.portBits,
      ...decisionIn(value),
      cookie: value.cookie ?? 0,
    };
    append(ofDirection, ofAddresses ? key.class + ADDRESS_CLASSES : key.class, block);
    yield;
  }
  return { elements, rows };
}

function append<T>(lists: Map<number, T[]>, number: number, item: T): void {
  const list = lists.get(number);
  if (list) list.push(item);
  else lists.set(number, [item]);
}

/** Whether both hold the same, an element a piece. */
export function* sameContent(a: SlotContent, b: SlotContent): Pieces<boolean> {
  for (const direction of DIRECTIONS) {
    const elements = a.elements[direction];
    if (elements.size !== b.elements[direction].size) return false;
    for (const [identity, number] of elements) {
      if (b.elements[direction].get(identity) !== number) return false;
      yield;
    }
    // A class may have no rows, which is no entry.
    const rowsOf = (of: SlotContent, number: number): string => blocksKey(of.rows[direction].get(number) ?? []);
    for (const number of new Set([...a.rows[direction].keys(), ...b.rows[direction].keys()])) {
      if (rowsOf(a, number) !== rowsOf(b, number)) return false;
      yield;
    }
  }
  return true;
}

export function meaning(content: SlotContent): KernelSlot {
  const rowsOf = (direction: Direction, number: number): string => blocksKey(content.rows[direction].get(number) ?? []);
  return {
    scope: both((direction) => [rowsOf(direction, 0), rowsOf(direction, 1), rowsOf(direction, 2)] as const),
    classes: both((direction) => new Map(content.elements[direction])),
    addresses: both((direction) =>
      (content.rows[direction].get(ADDRESSES) ?? [])
        .map(
          ({ prefix = '', identity, cookie }) => `${prefix} ${identity} ${rowsOf(direction, ADDRESS_CLASSES + cookie)}`,
        )
        .sort()
        .join('|'),
    ),
    rows: both((direction) => {
      // A class without rows is one too: its number must not be given to others while elements have it.
      const numbers = new Set([...content.rows[direction].keys(), ...content.elements[direction].values()]);
      return new Map(
        [...numbers].filter((n) => n >= FIRST_CLASS && n < ADDRESS_CLASSES).map((n) => [n, rowsOf(direction, n)]),
      );
    }),
  };
}
