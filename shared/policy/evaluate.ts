import { scopeOf } from '@weir/identity';
import { ALLOW, DENY } from './decision.ts';
import type { ClassRows, CompiledDirection, CompiledPolicy, Decision, Direction } from './types.ts';

export type Evaluation = Decision & {
  /** Cookie of the deciding rule; 0 when no rule decided. */
  readonly cookie: number;
  /** `row`: a row of the class. `no-match`: none, so the packet drops. `not-enforced`: the direction passes everything. */
  readonly by: 'row' | 'no-match' | 'not-enforced';
};

/**
 * Judges one new flow by a compiled policy, as the datapath does: class of the identity, then the row of (protocol, port).
 * `protocol` is the IP protocol number; `port` the destination port, the type for ICMP (1, 58); others have none.
 */
export function evaluate(
  compiled: CompiledPolicy,
  flow: { readonly direction: Direction; readonly identity: number; readonly protocol: number; readonly port: number },
): Evaluation {
  const direction = compiled[flow.direction];
  if (!direction.enforced) return { ...ALLOW, cookie: 0, by: 'not-enforced' };
  const listed = [1, 6, 17, 58, 132].includes(flow.protocol);
  const protocol = listed ? flow.protocol : 0;
  const port = listed ? flow.port : flow.protocol;
  const row = rowsOfIdentity(direction, flow.identity).find(
    (candidate) => candidate.protocol === protocol && candidate.from <= port && port <= candidate.to,
  );
  if (row === undefined) return { ...DENY, cookie: 0, by: 'no-match' };
  const { protocol: _, from: __, to: ___, ...decided } = row;
  return { ...decided, by: 'row' };
}

/** The rows that apply to an identity: of the class that lists it, else of its scope. */
export function rowsOfIdentity(direction: CompiledDirection, identity: number): ClassRows {
  const found = direction.classes.find(({ members }) => members.includes(identity));
  if (found !== undefined) return found.rows;
  const scope = scopeOf(identity);
  return scope === 'pod' || scope === 'world' ? direction.scope[scope] : direction.scope.unknown;
}
