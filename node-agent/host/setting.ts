import { readFileSync, writeFileSync } from 'node:fs';

/**
 * Writes a file of /proc/sys unless it has that value already: where a node was set up so, it may be read-only. Whether it had
 * another. Files of net/ are those of the calling thread's network namespace.
 */
export function setSetting(path: string, value: string): boolean {
  if (readFileSync(path, 'utf8').trim() === value) return false;
  writeFileSync(path, value);
  return true;
}
