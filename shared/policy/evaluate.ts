import { plainNode, RESERVED_ID, scopeOf } from '@weir/identity';
import { parsePrefix, prefixContains } from '@weir/net';
import { ALLOW, compareRank, DENY } from './decision.ts';
import type { ClassRows, CompiledDirection, CompiledPolicy, CompiledRow, Decision, Direction } from './types.ts';

export type Evaluation = Decision & {
  /** Cookie of the deciding rule; 0 when no rule decided. */
  readonly cookie: number;
  /** `row`: a row of the class, or of the address. `no-match`: none, so the packet drops. `not-enforced`: the direction passes everything. */
  readonly by: 'row' | 'no-match' | 'not-enforced';
};

/**
 * Judges one new flow by a compiled policy, as the datapath does: class of the identity, then the row of (protocol, port); without one, the row
 * of the longest prefix around the address. Of an address that has names, the row of their identity counts, too: the higher rank does.
 * `protocol` is the IP protocol number; `port` the destination port, the type for ICMP (1, 58); others have none.
 */
export function evaluate(
  compiled: CompiledPolicy,
  flow: {
    readonly direction: Direction;
    readonly identity: number;
    /** Identity of the names of the peer's address. */
    readonly names?: number | undefined;
    /** Of the peer. Absent: what rules say of addresses is left out. */
    readonly address?: string | undefined;
    readonly protocol: number;
    readonly port: number;
  },
): Evaluation {
  const direction = compiled[flow.direction];
  if (!direction.enforced) return { ...ALLOW, cookie: 0, by: 'not-enforced' };
  const listed = [1, 6, 17, 58, 132].includes(flow.protocol);
  const protocol = listed ? flow.protocol : 0;
  const port = listed ? flow.port : flow.protocol;
  const find = (rows: ClassRows): CompiledRow | undefined =>
    rows.find((candidate) => candidate.protocol === protocol && candidate.from <= port && port <= candidate.to);
  const known = flow.identity !== RESERVED_ID.unknown;
  const own =
    find(rowsOfIdentity(direction, flow.identity)) ??
    (flow.address === undefined || !known ? undefined : find(rowsOfAddress(direction, flow.address, flow.identity)));
  const ofNames = direction.classes.find(({ members }) => flow.names !== undefined && members.includes(flow.names));
  const named = ofNames && find(ofNames.rows);
  const row = own && named ? higher(own, named) : (own ?? named);
  if (row === undefined) return { ...DENY, cookie: 0, by: 'no-match' };
  const { protocol: _, from: __, to: ___, ...decided } = row;
  return { ...decided, by: 'row' };
}

/** Where both are alike the one of the lower cookie decides. */
function higher(own: CompiledRow, named: CompiledRow): CompiledRow {
  const compared = compareRank(named, own) || ((named.cookie - 1) >>> 0) - ((own.cookie - 1) >>> 0);
  return compared < 0 ? named : own;
}

/** The rows that apply to an identity: of the class that lists it, else of its scope. */
export function rowsOfIdentity(direction: CompiledDirection, identity: number): ClassRows {
  const found = direction.classes.find(({ members }) => members.includes(identity));
  if (found !== undefined) return found.rows;
  if (plainNode(identity) !== identity) return rowsOfIdentity(direction, plainNode(identity));
  const scope = scopeOf(identity);
  return scope === 'pod' || scope === 'world' ? direction.scope[scope] : direction.scope.unknown;
}

/** The rows that apply to an address where its identity has none. */
export function rowsOfAddress({ addresses }: CompiledDirection, address: string, identity: number): ClassRows {
  const own = parsePrefix(address);
  let best: { readonly bits: number; readonly rows: ClassRows } = { bits: -1, rows: [] };
  for (const { prefix, identity: whose = identity, rows } of addresses) {
    const { bits } = parsePrefix(prefix);
    if (bits > best.bits && prefixContains(parsePrefix(prefix), own))
      best = { bits, rows: whose === identity ? rows : [] };
  }
  return best.rows;
}
