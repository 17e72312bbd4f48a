/** BPF objects in the agent's image: the datapath's, and those of parts. */
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { buildDatapath, objectFor, SKB_ACCESS } from '@weir/bpf';
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

/** Copies all of them into a folder, as an image has them. Returns the datapath's. */
export function placeObjects(folder: string): string {
  mkdirSync(folder, { recursive: true });
  for (const { name, ...source } of OBJECTS)
    for (const access of SKB_ACCESS)
      copyFileSync(buildDatapath({ access, ...source }).objectPath, objectFor(access, join(folder, `${name}.o`)));
  return join(folder, 'weir.o');
}
