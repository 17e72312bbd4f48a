/** BPF objects in the agent's image: the datapath's, and those of parts. */
import { buildDatapath, SKB_ACCESS } from '@weir/bpf';
import { AGENT_PARTS } from '../../node-agent/part-list.ts';

/** By name; without `source`: the datapath. */
export const OBJECTS: readonly { readonly name: string; readonly source?: string }[] = [
  { name: 'weir' },
  ...AGENT_PARTS.flatMap(({ objects = [] }) => objects),
];

/** Paths of all of them, with each access to packets. */
export function compiledObjects(): string[] {
  return OBJECTS.flatMap(({ name: _, ...source }) =>
    SKB_ACCESS.map((access) => buildDatapath({ access, ...source }).objectPath),
  );
}
