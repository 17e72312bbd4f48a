/** Where the interfaces of pinned links are. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { BpfError, listTcx, openPinnedLink, type TcDirection, type TcLink, type TcxEntry } from 'libbpf-ts';
import { type InNode, isOurs } from './link-table.ts';

/** The pin of one hook's link. */
export const PIN = /^(\d+)-(?:ingress|egress)$/;
/**
 * Where the pinned links' interfaces are: endpoints with both hooks `here`, in this network namespace, and endpoints with some hook
 * `away`, in another one. A link knows its interface's index as long as that lives, in whichever namespace. `judged`: those that are here
 * and run programs of ours on both hooks.
 */
export function liveLinks(
  root: string,
  inNode: InNode,
): {
  readonly here: Map<number, number>;
  readonly judged: Map<number, number>;
  readonly away: Map<number, number>;
} {
  const folder = join(root, 'links');
  const hooks = new Map<number, { readonly ifindex: number; readonly ours: boolean }[]>();
  const away = new Map<number, number>();
  for (const file of existsSync(folder) ? readdirSync(folder) : []) {
    const match = PIN.exec(file);
    if (match === null) continue;
    const id = Number(match[1]);
    using link = openOrNothing(join(folder, file));
    if (link === undefined || link.ifindex === 0) continue;
    if (isAway(link, inNode)) away.set(id, link.ifindex);
    else {
      const { ifindex, direction } = link;
      hooks.set(id, [...(hooks.get(id) ?? []), { ifindex, ours: isOurs(link.programId(), direction) }]);
    }
  }
  const here = new Map<number, number>();
  const judged = new Map<number, number>();
  for (const [id, [one, other]] of hooks) {
    if (one === undefined || one.ifindex !== other?.ifindex) continue;
    here.set(id, one.ifindex);
    if (one.ours && other.ours) judged.set(id, one.ifindex);
  }
  return { here, judged, away };
}

/** A pin that holds something else tells nothing. */
export function openOrNothing(path: string): TcLink | undefined {
  try {
    return openPinnedLink(path);
  } catch (error) {
    if (error instanceof BpfError) return undefined;
    throw error;
  }
}

/** The link's interface lives, and not in this network namespace. */
export function isAway(link: TcLink, inNode: InNode): boolean {
  const { ifindex, direction } = link;
  if (ifindex === 0) return false;
  const id = link.id();
  return !(inNode(() => chainOf(ifindex, direction))?.some((entry) => entry.link === id) ?? false);
}

/** Undefined without such an interface. */
export function chainOf(ifindex: number, hook: TcDirection): TcxEntry[] | undefined {
  try {
    return listTcx(ifindex, hook);
  } catch (error) {
    if (error instanceof BpfError && error.errnoName === 'ENODEV') return undefined;
    throw error;
  }
}
