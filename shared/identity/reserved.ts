import type { NumericIdentity } from './types.ts';

/** Reserved numbers (spec 3.1), by name. */
export const RESERVED_ID = {
  unknown: 0,
  host: 1,
  world: 2,
  unmanaged: 3,
  health: 4,
  init: 5,
  'remote-node': 6,
  'kube-apiserver': 7,
  ingress: 8,
  'world-ipv4': 9,
  'world-ipv6': 10,
  'encrypted-overlay': 11,
} as const;

export type ReservedName = keyof typeof RESERVED_ID;

/** Those that a question about a flow may name as one of its ends. */
export const FLOW_ENDS = [
  'world',
  'host',
  'remote-node',
  'kube-apiserver',
  'health',
  'init',
  'ingress',
  'unmanaged',
  'unknown',
] as const satisfies readonly ReservedName[];

export type FlowEnd = (typeof FLOW_ENDS)[number];

/** Labels of each reserved identity but 0, which stands for "no identity" and carries none. */
export const RESERVED: ReadonlyMap<NumericIdentity, Readonly<Record<string, string>>> = new Map(
  (Object.entries(RESERVED_ID) as [ReservedName, number][])
    .filter(([, id]) => id !== 0)
    .map(([name, id]) => [
      id,
      name === 'kube-apiserver'
        ? { 'reserved:kube-apiserver': '', 'reserved:remote-node': '' }
        : { [`reserved:${name}`]: '' },
    ]),
);

const NAMES: ReadonlyMap<number, ReservedName> = new Map(
  (Object.entries(RESERVED_ID) as [ReservedName, number][]).map(([name, id]) => [id, name]),
);

/** `host` for 1; undefined when the number is not reserved. */
export function reservedName(id: NumericIdentity): ReservedName | undefined {
  return NAMES.get(id);
}
