import type { Pod } from './kubernetes-objects.ts';
import { objectsIn, textOf } from './shapes.ts';

/**
 * Most named ports of a pod: every node keeps those of every pod, and a slice of 100 pods that have as many still fits into etcd's 1.5 MiB. No
 * name is ever left out instead: a deny by it would open.
 */
export const MOST_NAMED_PORTS = 256;

/** A port of a pod that has a name. */
export interface NamedContainerPort {
  readonly name: string;
  readonly port: number;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
}

export interface PodPorts {
  /** Each name, protocol and number once, in the order of the specification, containers before sidecars. Empty where they are too many. */
  readonly named: readonly NamedContainerPort[];
  /** By how much they are too many for a pod, in words; undefined: they are not. */
  readonly excess: string | undefined;
}

/** The named ports of a pod's containers, and of those init containers that go on running beside them. */
export function podPorts(spec: Pod['spec']): PodPorts {
  const sidecars = objectsIn(spec?.initContainers).filter(({ restartPolicy }) => restartPolicy === 'Always');
  const byKey = new Map<string, NamedContainerPort>();
  for (const container of [...objectsIn(spec?.containers), ...sidecars]) {
    for (const { name, containerPort, protocol } of objectsIn(container.ports))
      for (const port of namedPort(name, containerPort, protocol))
        byKey.set(`${port.protocol}/${port.name}/${port.port}`, port);
  }
  if (byKey.size <= MOST_NAMED_PORTS) return { named: [...byKey.values()], excess: undefined };
  return { named: [], excess: `${byKey.size} named ports, of at most ${MOST_NAMED_PORTS}` };
}

/** What to do about an `excess`. */
export const PORT_EXCESS_FIX =
  'take the names off ports that no policy names, or spread its containers over several pods';

/** Nothing when it has no name, or is no port that a rule could mean. */
export function namedPort(name: unknown, port: unknown, protocol: unknown = 'TCP'): NamedContainerPort[] {
  const text = textOf(name) ?? '';
  if (text === '' || typeof port !== 'number' || !Number.isInteger(port) || port < 1 || port > 0xffff) return [];
  return protocol === 'TCP' || protocol === 'UDP' || protocol === 'SCTP' ? [{ name: text, port, protocol }] : [];
}
