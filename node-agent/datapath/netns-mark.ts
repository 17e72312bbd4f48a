import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { netnsCookie } from 'libbpf-ts';
import { NetnsMismatchError } from '../errors.ts';
import { filtered } from './clsact-links.ts';
import type { InNode } from './link-table.ts';
import { liveLinks } from './live-links.ts';

/**
 * Of which network namespace the pins' interfaces are: an empty folder `netns/COOKIE` beside the pins. Interface indexes mean nothing in
 * another one, and there every endpoint's interface would seem gone. Pins end with the boot, and no two namespaces of a boot have one cookie.
 *
 * Where the mark is missing (a version before it, or lost) or is of a namespace that may have ended, the links decide: each knows
 * whether its interface lives, and the chain of that interface whether it is here.
 */
export class NetnsMark {
  readonly #root: string;
  readonly #folder: string;
  readonly #inNode: InNode;

  constructor(root: string, inNode: InNode) {
    this.#root = root;
    this.#folder = join(root, 'netns');
    this.#inNode = inNode;
  }

  /** @throws NetnsMismatchError when what is pinned enforces interfaces of another network namespace, and none of this one */
  check(): void {
    const [recorded] = this.#recorded();
    const here = this.#inNode(netnsCookie);
    if (recorded === String(here)) return;
    const links = liveLinks(this.#root, this.#inNode);
    const filters = filtered(join(this.#root, 'links'), this.#inNode);
    if (links.here.size + filters.here.size > 0) return;
    // Marks of filters outlive interfaces: alone they do not tell.
    const elsewhere = links.away.size + (recorded === undefined ? 0 : filters.unseen.size);
    if (elsewhere === 0) return;
    throw new NetnsMismatchError(this.#root, {
      here,
      ...(recorded === undefined ? {} : { recorded }),
      endpoints: elsewhere,
    });
  }

  get kept(): boolean {
    const names = this.#recorded();
    return names.length === 1 && names[0] === String(this.#inNode(netnsCookie));
  }

  /** What is pinned is of this namespace. */
  keep(): void {
    const cookie = String(this.#inNode(netnsCookie));
    mkdirSync(join(this.#folder, cookie), { recursive: true, mode: 0o700 });
    for (const other of this.#recorded())
      if (other !== cookie) rmSync(join(this.#folder, other), { recursive: true, force: true });
  }

  #recorded(): string[] {
    return existsSync(this.#folder) ? readdirSync(this.#folder).sort() : [];
  }
}
