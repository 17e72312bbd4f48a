/** The real server's transcripts, kept as one file for each group of cases. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Transcript } from './types.ts';

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), 'golden');

const BIOME = join(FOLDER, '../../../../node_modules/.bin/biome');

const fileOf = (group: string): string => join(FOLDER, `${group}.json`);

/** @throws Error with how to record it, when there is none. */
export function readGolden(group: string): Transcript {
  try {
    return JSON.parse(readFileSync(fileOf(group), 'utf8')) as Transcript;
  } catch (error) {
    throw new Error(
      `no transcript of the real server for "${group}": record it with UPDATE_GOLDEN=1 npm run test:real -- test/real/conformance.test.ts`,
      { cause: error },
    );
  }
}

/** Replaces what is kept, formatted as the linter wants it. */
export function writeGolden(group: string, transcript: Transcript): void {
  const file = fileOf(group);
  writeFileSync(file, `${JSON.stringify(transcript, null, 2)}\n`);
  const done = spawnSync(BIOME, ['format', '--write', file], { encoding: 'utf8' });
  if (done.status !== 0) throw new Error(`${file} is written but not formatted: ${done.stderr || String(done.error)}`);
}
