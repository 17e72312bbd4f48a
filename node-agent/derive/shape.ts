import { createHash } from 'node:crypto';
import { type CompileInput, portNamesOf, type ResolvedRule } from '@weir/policy';
import type { ContainerPort } from '../tables.ts';
import { portNameKey } from './peer-port-names.ts';

/** Rules that decide alike for all endpoints which they select. */
export interface Shape {
  readonly key: string;
  readonly rules: readonly ResolvedRule[];
  readonly mode: CompileInput['mode'];
  readonly allowLocalhost: boolean;
  /** Numbers that the endpoints themselves give the port names of the ingress rules. */
  readonly ownPorts: ReadonlyMap<string, number>;
}

/** The shape of an endpoint without identity: both directions denied. */
export const DENY_ALL: Shape = {
  key: 'deny-all',
  rules: [],
  mode: 'always',
  allowLocalhost: false,
  ownPorts: new Map(),
};

export function shapeOf(
  rules: readonly (readonly [key: string, rule: ResolvedRule])[],
  mode: CompileInput['mode'],
  allowLocalhost: boolean,
  namedPorts: readonly ContainerPort[],
): Shape | undefined {
  if (mode === 'never' || (mode === 'default' && rules.length === 0)) return undefined;
  const sorted = [...rules].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const hash = createHash('sha256').update(mode);
  for (const [key] of sorted) hash.update(key);
  const shaped = sorted.map(([, rule]) => rule);
  const ownPorts = new Map<string, number>();
  for (const { protocol, name } of portNamesOf(shaped).ingress) {
    // Of containers that give one name to several ports the first counts, as where Kubernetes looks a name up.
    const number = namedPorts.find((each) => each.name === name && each.protocol === protocol)?.port;
    if (number === undefined) continue;
    ownPorts.set(portNameKey(protocol, name), number);
    hash.update(` ${protocol}/${name}=${number}`);
  }
  return { key: hash.digest('hex'), rules: shaped, mode, allowLocalhost, ownPorts };
}
