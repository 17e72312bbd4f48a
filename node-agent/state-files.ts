import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { decodeNumbers, type NumbersState } from './derive/index.ts';
import { decodeEndpoints } from './endpoint-rows.ts';
import { objects, StateFile } from './persist.ts';
import type { EndpointRow } from './tables.ts';

/** The agent's own files in the state folder, `agent.pid` of the lock included. */
const NAMES = ['endpoints.json', 'rules.json', 'identities.json', 'agent.pid'] as const;

/** What outlives the agent besides the kernel's content. */
export class StateFiles {
  readonly endpoints: StateFile<readonly EndpointRow[]>;
  readonly rules: StateFile<readonly unknown[]>;
  readonly numbers: StateFile<NumbersState>;

  constructor(folder: string) {
    this.endpoints = new StateFile({ path: join(folder, 'endpoints.json'), decode: decodeEndpoints, empty: [] });
    this.rules = new StateFile({
      path: join(folder, 'rules.json'),
      decode: (json) => objects(json, 'rules'),
      empty: [],
    });
    this.numbers = new StateFile({
      path: join(folder, 'identities.json'),
      decode: decodeNumbers,
      empty: { cidrs: {}, labels: {}, revisions: 0 },
    });
  }
}

/** Removes the agent's files, and the folder when nothing else is in it. Succeeds when there is nothing. */
export function removeStateFiles(folder: string): void {
  if (!existsSync(folder)) return;
  for (const name of NAMES) {
    rmSync(join(folder, name), { force: true });
    rmSync(join(folder, `${name}.next`), { force: true });
  }
  if (readdirSync(folder).length === 0) rmdirSync(folder);
}
