import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { StateDB, Table } from '@weir/statedb';
import { messageOf } from './config/system-error.ts';
import type { Logger } from './core.ts';
import { decodeNumbers, type NumbersState } from './derive/index.ts';
import { decodeEndpoints } from './endpoint-rows.ts';
import { objects, StateFile, UNREADABLE } from './persist.ts';
import type { EndpointRow } from './tables.ts';

/** How soon a file that could not be written is tried again, in milliseconds. */
const RETRY_MS = 1000;

/** What outlives the agent besides the kernel's content. */
export interface StateContents {
  readonly endpoints: readonly EndpointRow[];
  readonly rules: readonly unknown[];
  readonly numbers: NumbersState;
}
export type StateName = keyof StateContents;

const FILES: Readonly<Record<StateName, string>> = {
  endpoints: 'endpoints.json',
  rules: 'rules.json',
  numbers: 'identities.json',
};
/** The agent's own files in the state folder: the lock's `agent.pid` and `addresses.json` of `cni/` included. */
const NAMES: readonly string[] = [...Object.values(FILES), 'addresses.json', 'agent.pid'];

const DECODE: { readonly [N in StateName]: (json: unknown) => StateContents[N] } = {
  endpoints: decodeEndpoints,
  rules: (json) => objects(json, 'rules'),
  numbers: decodeNumbers,
};

/** One file of the state folder of `node`. */
export function stateFile<N extends StateName>(folder: string, node: string, name: N): StateFile<StateContents[N]> {
  return new StateFile<StateContents[N]>({ path: join(folder, FILES[name]), node, decode: DECODE[name] });
}

/** What a file had at start. */
export type Loaded<T> = { readonly content: T } | 'absent' | 'unreadable';

/** What is not as it should be with a file. Key: `name`. */
interface StateFileRow {
  readonly name: StateName;
  readonly path: string;
  /** Why the newest content is not in it. */
  readonly unsaved?: string;
  /** Why it could not be read at start, and under which name it is kept; undefined when it could not be renamed either. */
  readonly unreadable?: { readonly problem: string; readonly kept?: string };
}

export interface StateFilesOptions {
  readonly folder: string;
  readonly node: string;
  readonly db: StateDB;
  readonly log: Logger;
  /** What each file is to hold now. */
  readonly contents: { readonly [N in StateName]: () => StateContents[N] };
}

/**
 * The files of the state folder. None is needed to enforce: what cannot be read is kept beside under another name, what cannot be
 * written is tried again until it can, and table `stateFiles` says which and why meanwhile.
 */
export class StateFiles {
  readonly #options: StateFilesOptions;
  readonly #table: Table<StateFileRow>;
  readonly #files: { readonly [N in StateName]: StateFile<StateContents[N]> };
  #timer: NodeJS.Timeout | undefined;

  constructor(options: StateFilesOptions) {
    const { folder, node, db } = options;
    this.#options = options;
    this.#table = db.table<StateFileRow>({ name: 'stateFiles', key: ({ name }) => name });
    this.#files = {
      endpoints: stateFile(folder, node, 'endpoints'),
      rules: stateFile(folder, node, 'rules'),
      numbers: stateFile(folder, node, 'numbers'),
    };
  }

  /** A file that cannot be read is set aside, and said. Never throws. */
  load<N extends StateName>(name: N): Loaded<StateContents[N]> {
    try {
      const content = this.#files[name].read();
      return content === undefined ? 'absent' : { content };
    } catch (error) {
      this.refuse(name, error);
      return 'unreadable';
    }
  }

  /** The file is of no use. */
  refuse(name: StateName, error: unknown): void {
    const file = this.#files[name];
    const problem = messageOf(error);
    let kept: string | undefined;
    try {
      kept = file.setAside();
    } catch (failure) {
      this.#options.log.error({ file: file.path, error: messageOf(failure) }, 'a state file cannot be set aside');
    }
    this.#options.log.error(
      { file: file.path, kept, error: problem },
      'a state file cannot be read; what the kernel enforces stays, and decides',
    );
    this.#note(name, (row) => ({ ...row, unreadable: { problem, ...(kept === undefined ? {} : { kept }) } }));
  }

  /** Writes the file, now or as soon as that is possible; whether it is written. Never throws. */
  save(name: StateName): boolean {
    const before = this.#row(name);
    try {
      this.#write(name);
    } catch (error) {
      const unsaved = messageOf(error);
      if (before?.unsaved !== unsaved)
        this.#options.log.warn({ file: this.#files[name].path, error: unsaved }, 'a state file cannot be written');
      this.#note(name, (row) => ({ ...row, unsaved }));
      this.#timer ??= setTimeout(() => this.#retry(), RETRY_MS).unref();
      return false;
    }
    if (before?.unsaved !== undefined) {
      this.#options.log.info({ file: this.#files[name].path }, 'a state file could be written again');
      this.#note(name, ({ unsaved: _, ...row }) => row);
    }
    return true;
  }

  /** In health's words. */
  check(): { readonly name: string; readonly ok: boolean; readonly message: string } {
    using snapshot = this.#options.db.read();
    const rows = [...snapshot.all(this.#table)];
    const unsaved = rows.flatMap((row) => (row.unsaved === undefined ? [] : [row.unsaved]));
    const unreadable = rows.flatMap(({ unreadable: found }) =>
      found === undefined
        ? []
        : [`${found.problem}; ${found.kept === undefined ? 'it is still there' : `kept as ${found.kept}`}`],
    );
    const said = [
      ...unsaved.map((why) => `${why}; it is tried again, and enforcement goes on without`),
      ...unreadable.map((why) => `at start, ${why}; what the kernel enforces decided`),
    ];
    return {
      name: 'state-folder',
      ok: unsaved.length === 0,
      message: said.length === 0 ? 'what outlives a restart is on disk' : said.join('; '),
    };
  }

  /** One try more for what is not on disk. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#retry();
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #retry(): void {
    this.#timer = undefined;
    using snapshot = this.#options.db.read();
    for (const { name, unsaved } of snapshot.all(this.#table)) if (unsaved !== undefined) this.save(name);
  }

  #write<N extends StateName>(name: N): void {
    const file = this.#files[name];
    // What could not be read must not be lost to what replaces it.
    const unreadable = this.#row(name)?.unreadable;
    if (unreadable !== undefined && unreadable.kept === undefined && existsSync(file.path)) {
      const kept = file.setAside();
      this.#note(name, (row) => ({ ...row, unreadable: { ...unreadable, kept } }));
    }
    file.save(this.#options.contents[name]());
  }

  #row(name: StateName): StateFileRow | undefined {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.#table, name);
  }

  #note(name: StateName, change: (row: StateFileRow) => StateFileRow): void {
    const { path } = this.#files[name];
    this.#options.db.write([this.#table], (txn) =>
      txn.upsert(this.#table, change(txn.get(this.#table, name) ?? { name, path })),
    );
  }
}

/** Removes the agent's files, and the folder when nothing else is in it. Succeeds when there is nothing. */
export function removeStateFiles(folder: string): void {
  if (!existsSync(folder)) return;
  const own = (file: string): boolean =>
    NAMES.some((name) => file === name || file === `${name}.next` || file.startsWith(`${name}${UNREADABLE}`));
  for (const file of readdirSync(folder)) if (own(file)) rmSync(join(folder, file), { force: true });
  if (readdirSync(folder).length === 0) rmdirSync(folder);
}
