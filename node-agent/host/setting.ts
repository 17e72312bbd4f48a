import { readFileSync, writeFileSync } from 'node:fs';

/** Files of /proc/sys. Those of net/ are of the calling thread's network namespace. */
export interface Settings {
  readonly get: (path: string) => string;
  /** Writes unless it has that value already: where a node was set up so, it may be read-only. Whether it had another. */
  readonly set: (path: string, value: string) => boolean;
}

export const settings: Settings = {
  get: (path) => readFileSync(path, 'utf8').trim(),
  set(path, value) {
    if (settings.get(path) === value) return false;
    writeFileSync(path, value);
    return true;
  },
};
