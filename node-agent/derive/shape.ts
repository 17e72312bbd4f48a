import { createHash } from 'node:crypto';
import type { CompileInput, ResolvedRule } from '@weir/policy';
import type { ContainerPort } from '../tables.ts';
import { portNameKey } from './peer-port-names.ts';
import type { RuleGroup } from './rule-groups.ts';

/** Rules that decide alike for all endpoints which they select. */
export interface Shape {
  readonly key: string;
  readonly groups: readonly RuleGroup[];
  readonly mode: CompileInput['mode'];
  readonly allowLocalhost: boolean;
  /** Numbers that the endpoints themselves give the port names of the ingress rules. */
  readonly ownPorts: ReadonlyMap<string, number>;
}

/** The shape of an endpoint without identity: both directions denied. */
export const DENY_ALL: Shape = {
  key: 'deny-all',
  groups: [],
  mode: 'always',
  allowLocalhost: false,
  ownPorts: new Map(),
};

export function rulesOf({ groups }: Shape): readonly ResolvedRule[] {
  return groups.flatMap(({ rules }) => rules);
}

/** Whether the same rules would mean the same in both. */
export function sameButRules(a: Shape, b: Shape): boolean {
  return (
    a.mode === b.mode &&
    a.allowLocalhost === b.allowLocalhost &&
    a.ownPorts.size === b.ownPorts.size &&
    a.ownPorts.entries().every(([name, number]) => b.ownPorts.get(name) === number)
  );
}

export function shapeOf(
  groups: readonly RuleGroup[],
  mode: CompileInput['mode'],
  allowLocalhost: boolean,
  namedPorts: readonly ContainerPort[],
): Shape | undefined {
  if (mode === 'never' || (mode === 'default' && groups.length === 0)) return undefined;
  const sorted = [...groups].sort(({ key: a }, { key: b }) => (a < b ? -1 : a > b ? 1 : 0));
  const hash = createHash('sha256').update(mode);
  for (const { key } of sorted) hash.update(key);
  const ownPorts = new Map<string, number>();
  for (const { protocol, name } of sorted.flatMap(({ ownNames }) => ownNames)) {
    // Of containers that give one name to several ports the first counts, as where Kubernetes looks a name up.
    const number = namedPorts.find((each) => each.name === name && each.protocol === protocol)?.port;
    if (number !== undefined) ownPorts.set(portNameKey(protocol, name), number);
  }
  for (const [name, number] of ownPorts) hash.update(` ${name}=${number}`);
  return { key: hash.digest('hex'), groups: sorted, mode, allowLocalhost, ownPorts };
}
