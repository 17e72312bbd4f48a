import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf } from '@weir/process/errors';
import { openPinnedLink } from 'libbpf-ts';
import { RemoveError } from '../errors.ts';
import { MARKER, unfilter } from './clsact-links.ts';
import type { InNode } from './link-table.ts';
import { OTHER_PIN } from './links.ts';
import { PIN } from './live-links.ts';
import { detachPinned } from './part-programs.ts';
import { whenPinned } from './pin-files.ts';

export interface RemoveOptions {
  readonly root: string;
  readonly inNode: InNode;
  /** Interfaces that may have a filter of this agent though no mark of it is left: a bpf file system can be lost, a filter stays. */
  readonly interfaces: Iterable<number>;
}

/**
 * Takes away all that an agent has pinned and attached, whichever way and whatever version: programs first, so that no interface
 * is left with programs that find nothing and drop all; then links, programs, maps and the root. Succeeds when there is nothing.
 * Empty clsact qdiscs stay, as others may use them.
 * @throws RemoveError after everything was tried; the root is then left for another try
 */
export function removePinned({ root, inNode, interfaces }: RemoveOptions): void {
  const failures: { readonly what: string; readonly error: unknown }[] = [];
  const attempt = (what: string, body: () => void): void => {
    try {
      body();
    } catch (error) {
      failures.push({ what, error });
    }
  };
  const folder = join(root, 'links');
  const filtered = new Set(interfaces);
  for (const file of existsSync(folder) ? readdirSync(folder) : []) {
    const marker = MARKER.exec(file);
    if (marker) filtered.add(Number(marker[2]));
    const path = join(folder, file);
    if (PIN.test(file) || OTHER_PIN.test(file)) attempt(path, () => whenPinned(() => openPinnedLink(path))?.detach());
  }
  const hooks = join(root, 'hooks');
  for (const file of existsSync(hooks) ? readdirSync(hooks) : [])
    attempt(join(hooks, file), () => detachPinned(join(hooks, file)));
  for (const ifindex of filtered) attempt(`the filters of interface ${ifindex}`, () => inNode(() => unfilter(ifindex)));
  if (failures.length === 0) attempt(root, () => removeFolder(root));
  const [first] = failures;
  if (first) throw new RemoveError(first.what, failures.length, first.error);
}

function removeFolder(root: string): void {
  if (!existsSync(root)) return;
  for (const file of readdirSync(root)) rmSync(join(root, file), { recursive: true, force: true });
  try {
    rmdirSync(root);
  } catch (error) {
    // It is a mount point itself.
    if (codeOf(error) !== 'EBUSY') throw error;
  }
}
