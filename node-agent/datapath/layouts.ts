import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { BpfMap } from 'libbpf-ts';

/** Maps without a mark are from before there were marks. */
const UNMARKED = 1;

/**
 * Which layout a pinned map has: an empty folder `layouts/ID-VERSION` for the map of that id. It is made before the map's pin, so
 * that whatever is pinned at any instant is marked right; the id tells a map from its successor of the same name.
 */
export class LayoutMarks {
  readonly #folder: string;

  constructor(root: string) {
    this.#folder = join(root, 'layouts');
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
  }

  versionOf(map: BpfMap): number {
    for (const { id, version } of this.#marks()) if (id === map.info.id) return version;
    return UNMARKED;
  }

  /** @param version of its layout, see `MapShape` */
  mark(map: BpfMap, version: number): void {
    mkdirSync(join(this.#folder, `${map.info.id}-${version}`), { recursive: true, mode: 0o700 });
  }

  /** Forgets maps that are not pinned any more. */
  keep(maps: Iterable<BpfMap>): void {
    const ids = new Set([...maps].map(({ info }) => info.id));
    for (const { id, version } of this.#marks()) {
      if (!ids.has(id)) rmSync(join(this.#folder, `${id}-${version}`), { recursive: true, force: true });
    }
  }

  #marks(): { readonly id: number; readonly version: number }[] {
    return readdirSync(this.#folder).flatMap((file) => {
      const match = /^(\d+)-(\d+)$/.exec(file);
      return match ? [{ id: Number(match[1]), version: Number(match[2]) }] : [];
    });
  }
}
