import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '@weir/process/errors';
import type { Draft, StateDB, Table } from '@weir/statedb';
import { decodeEndpoints } from '../core/endpoint-rows.ts';
import type { Logger } from '../core.ts';
import { decodeNumbers, type NumbersState } from '../derive/index.ts';
import { StateSaveError } from '../errors.ts';
import type { EndpointRow } from '../tables.ts';
import { type AddressRecord, decodeAddresses } from './address-record.ts';
import { isGone, type Loaded, objects, StateFile, UNREADABLE } from './persist.ts';

/** How soon a file that could not be written is tried again, in milliseconds. */
const RETRY_MS = 1000;
/** How long anybody waits for the disk, in milliseconds: safety and new rules need none. */
const PATIENCE_MS = 1000;
/** A disk that is only slow needs no person. */
const CALL_MS = 30_000;

/** What outlives the agent besides the kernel's content. */
export interface StateContents {
  readonly endpoints: readonly EndpointRow[];
  readonly rules: readonly unknown[];
  readonly numbers: NumbersState;
  readonly addresses: AddressRecord;
}
export type StateName = keyof StateContents;

const FILES: Readonly<Record<StateName, string>> = {
  endpoints: 'endpoints.json',
  rules: 'rules.json',
  numbers: 'identities.json',
  addresses: 'addresses.json',
};
const NAMED = Object.keys(FILES) as readonly StateName[];
/** What these files are called in the state folder. */
export const STATE_FILES: readonly string[] = Object.values(FILES);
/** The agent's own files in the state folder: the lock's `agent.pid` included. */
const NAMES: readonly string[] = [...STATE_FILES, 'agent.pid'];

const DECODE: { readonly [N in StateName]: (json: unknown) => StateContents[N] } = {
  endpoints: decodeEndpoints,
  rules: (json) => objects(json, 'rules'),
  numbers: decodeNumbers,
  addresses: decodeAddresses,
};

/** One file of the state folder of `node`. */
export function stateFile<N extends StateName>(folder: string, node: string, name: N): StateFile<StateContents[N]> {
  return new StateFile<StateContents[N]>({ path: join(folder, FILES[name]), node, decode: DECODE[name] });
}

/** A file that has been on disk, or cannot be. Key: `name`. */
interface StateFileRow {
  readonly name: StateName;
  readonly path: string;
  /** It has been on disk: whoever removes it is noticed. */
  readonly present?: true;
  /** When it was last noticed that somebody had removed it: ISO 8601. */
  readonly removed?: string;
  /** Why the newest content is not in it. */
  readonly unsaved?: string;
  /** The disk has not answered since: ISO 8601. The newest content is written once it does. */
  readonly unanswered?: string;
  /** Why it was of no use at start, and under which name it is kept, or will be once it can be renamed. */
  readonly unreadable?: { readonly problem: string; readonly name: string; readonly kept: boolean };
}

export interface StateFilesOptions {
  readonly folder: string;
  readonly node: string;
  readonly db: StateDB;
  readonly log: Logger;
  /** How long a disk may not answer until a person is called, in milliseconds. Default 30,000. */
  readonly callMs?: number;
}

/** One file, and how far it has been written. */
interface Writing<T> {
  readonly file: StateFile<T>;
  /** The wanted content; undefined: not provided yet, and nothing is written. */
  content: (() => T) | undefined;
  /** Something has changed since the last writing began. */
  changed: boolean;
  /** Since when something is to be written, or is being written: ISO 8601. */
  since: string | undefined;
  /** The last writing: resolves to whether it is on disk, however long that takes. */
  last: Promise<boolean>;
}

/**
 * The files of the state folder. None is needed to enforce: what cannot be read is kept beside under another name; what cannot be written is
 * removed, as an old file is worse than none, and tried again until it can; what others remove is written again; and table `stateFiles` says
 * which and why. Changes that come while a file is written are written together, next. A disk that does not answer keeps nobody waiting.
 */
export class StateFiles {
  readonly #options: StateFilesOptions;
  readonly #table: Table<StateFileRow>;
  readonly #writings: { readonly [N in StateName]: Writing<StateContents[N]> };
  /** Settles with the last writing of any file. */
  #disk: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #looking = false;
  /** Nothing may be saved any more. */
  #stopped = false;
  /** Nor is anything written that still waits. */
  #ended = false;

  constructor(options: StateFilesOptions) {
    this.#options = options;
    this.#table = options.db.table<StateFileRow>({ name: 'stateFiles', key: ({ name }) => name });
    this.#writings = {
      endpoints: this.#writing('endpoints'),
      rules: this.#writing('rules'),
      numbers: this.#writing('numbers'),
      addresses: this.#writing('addresses'),
    };
  }

  /** Sets what the file contains from now on. Until then nothing is written. */
  provide<N extends StateName>(name: N, content: () => StateContents[N]): void {
    this.#writings[name].content = content;
  }

  path(name: StateName): string {
    return this.#writings[name].file.path;
  }

  /** Sets a file aside that cannot be used, and logs it. Never throws. */
  load<N extends StateName>(name: N): Loaded<StateContents[N]> {
    try {
      const loaded = this.#writings[name].file.read();
      if (loaded === 'absent') return loaded;
      this.#note(name, (row) => {
        row.present = true;
      });
      return loaded;
    } catch (error) {
      this.refuse(name, error);
      return 'unreadable';
    }
  }

  /** The file is of no use. */
  refuse(name: StateName, error: unknown): void {
    const { file } = this.#writings[name];
    const problem = messageOf(error);
    const aside = file.nameAside();
    let kept: string | undefined;
    try {
      file.setAside(aside);
      kept = aside;
    } catch (failure) {
      this.#options.log.error({ file: file.path, error: messageOf(failure) }, 'cannot set a state file aside');
    }
    this.#options.log.error(
      { file: file.path, kept, error: problem },
      'ignoring a state file; what the kernel enforces stays and decides',
    );
    this.#note(name, (row) => {
      delete row.present;
      row.unreadable = { problem, name: aside, kept: kept !== undefined };
    });
  }

  /**
   * What the file is to hold has changed: it is written, now or as soon as that is possible. Resolves to whether it is on disk; false, too,
   * when the disk has not answered for PATIENCE_MS: the writing goes on. Never rejects.
   */
  save(name: StateName): Promise<boolean> {
    const writing = this.#writings[name];
    if (this.#stopped || writing.content === undefined) return Promise.resolve(false);
    if (!writing.changed) {
      writing.changed = true;
      writing.since ??= new Date().toISOString();
      writing.last = writing.last.then(() => this.#alone(() => this.#write(name)));
    }
    return this.#outcome(name);
  }

  /** Resolves when all that has changed until now is on disk, or the disk has refused it or has not answered for PATIENCE_MS. */
  async saved(): Promise<void> {
    await Promise.all(NAMED.map((name) => this.#outcome(name)));
  }

  /** Why the newest content of the file is not on disk; undefined: it is. */
  unsaved(name: StateName): string | undefined {
    const row = this.#row(name);
    if (row?.unanswered !== undefined) return unansweredText(row.path, row.unanswered);
    return row?.unsaved === undefined ? undefined : `${row.path} cannot be written (${row.unsaved})`;
  }

  /** Writes files again that somebody has removed. Never rejects. */
  async look(): Promise<void> {
    // A disk may be slow to answer.
    if (this.#looking || this.#stopped) return;
    this.#looking = true;
    try {
      for (const { name, path } of this.#rows().filter(({ present }) => present === true))
        if (await isGone(path)) this.#gone(name, path);
    } finally {
      this.#looking = false;
    }
  }

  /** For `weir status` and readiness. */
  check(): { readonly name: string; readonly ok: boolean; readonly message: string } {
    const rows = this.#rows();
    const unanswered = rows.flatMap(({ unanswered: since, path }) =>
      since === undefined ? [] : [unansweredText(path, since)],
    );
    const paths = new Map<string, string[]>();
    for (const { unsaved: why, path } of rows) if (why !== undefined) paths.set(why, [...(paths.get(why) ?? []), path]);
    const unsaved = Array.from(paths, ([why, files]) => `${files.join(', ')} cannot be written (${why})`);
    const removed = rows.flatMap(({ path, removed: at, present }) =>
      at === undefined || present !== true ? [] : [`${path} was removed by somebody and written again at ${at}`],
    );
    const unreadable = rows.flatMap(({ unreadable: found }) =>
      found === undefined ? [] : [`${found.problem}; ${found.kept ? `kept as ${found.name}` : 'it is still there'}`],
    );
    const lines = [
      ...unanswered.map((why) => `${why}; enforcement goes on without it`),
      ...unsaved.map((why) => `${why}; retrying, and enforcement goes on without it`),
      ...removed,
      ...unreadable.map((why) => `at start, ${why}; what the kernel enforces decided`),
    ];
    return {
      name: 'state-folder',
      ok: unsaved.length === 0 && unanswered.length === 0,
      message: lines.length === 0 ? 'all that outlives a restart is on disk' : lines.join('; '),
    };
  }

  /** One try more for what is not on disk. No writing begins afterwards; one that the disk does not answer may end later. */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    clearTimeout(this.#timer);
    this.#retry();
    this.#stopped = true;
    await this.saved();
    this.#ended = true;
  }

  #writing<N extends StateName>(name: N): Writing<StateContents[N]> {
    const { folder, node } = this.#options;
    return {
      file: stateFile(folder, node, name),
      content: undefined,
      changed: false,
      since: undefined,
      last: Promise.resolve(true),
    };
  }

  /** Of the last writing, as far as anybody waits for it. */
  async #outcome(name: StateName): Promise<boolean> {
    const { last } = this.#writings[name];
    // Whoever asks while the disk is known not to answer need not find that out.
    if (this.#row(name)?.unanswered !== undefined) return false;
    const { promise: impatience, resolve } = Promise.withResolvers<false>();
    const timer = setTimeout(() => {
      this.#unanswered(name);
      resolve(false);
    }, PATIENCE_MS);
    try {
      return await Promise.race([last, impatience]);
    } finally {
      clearTimeout(timer);
    }
  }

  #retry(): void {
    this.#timer = undefined;
    for (const { name, unsaved } of this.#rows()) if (unsaved !== undefined) void this.save(name);
  }

  /**
   * One file after another: a writing that the disk does not answer holds one of the few threads of this process, by which policy slots are put
   * into the kernel, too.
   */
  #alone(write: () => Promise<boolean>): Promise<boolean> {
    const written = this.#disk.then(write);
    this.#disk = written;
    return written;
  }

  async #write<N extends StateName>(name: N): Promise<boolean> {
    const writing = this.#writings[name];
    const { file, content } = writing;
    // What changes from here on is for the next one.
    writing.changed = false;
    try {
      if (content === undefined || this.#ended) return false;
      this.#keepUnreadable(name);
      await file.save(content());
      this.#written(name);
      return true;
    } catch (error) {
      const reason = error instanceof StateSaveError ? error.reason : messageOf(error);
      this.#refused(name, `${reason}${await file.discard()}`);
      return false;
    } finally {
      writing.since = writing.changed ? new Date().toISOString() : undefined;
    }
  }

  /** What could not be read must not be lost to what replaces it. */
  #keepUnreadable(name: StateName): void {
    const [{ file }, unreadable] = [this.#writings[name], this.#row(name)?.unreadable];
    if (unreadable === undefined || unreadable.kept || !existsSync(file.path)) return;
    file.setAside(unreadable.name);
    this.#note(name, (row) => {
      if (row.unreadable !== undefined) row.unreadable.kept = true;
    });
  }

  #written(name: StateName): void {
    const before = this.#row(name);
    const trouble = before?.unsaved !== undefined || before?.unanswered !== undefined;
    if (trouble)
      this.#options.log.info({ file: this.#writings[name].file.path }, 'writing a state file succeeds again');
    if (trouble || before?.present !== true)
      this.#note(name, (row) => {
        delete row.unsaved;
        delete row.unanswered;
        row.present = true;
      });
  }

  #unanswered(name: StateName): void {
    const { file, since } = this.#writings[name];
    if (since === undefined || this.#row(name)?.unanswered !== undefined) return;
    const { log, callMs = CALL_MS } = this.#options;
    this.#note(name, (row) => {
      row.unanswered = since;
    });
    setTimeout(() => {
      if (this.#row(name)?.unanswered === since)
        log.warn({ file: file.path, since }, 'the disk does not answer while a state file is written');
    }, callMs - PATIENCE_MS).unref();
  }

  #refused(name: StateName, unsaved: string): void {
    if (this.#row(name)?.unsaved !== unsaved)
      this.#options.log.warn(
        { file: this.#writings[name].file.path, error: unsaved },
        'a state file cannot be written',
      );
    this.#note(name, (row) => {
      delete row.present;
      delete row.unanswered;
      row.unsaved = unsaved;
    });
    if (this.#stopped) return;
    this.#timer ??= setTimeout(() => this.#retry(), RETRY_MS).unref();
  }

  #gone(name: StateName, path: string): void {
    if (this.#stopped) return;
    this.#options.log.warn({ file: path }, 'somebody removed a state file; writing it again');
    this.#note(name, (row) => {
      delete row.present;
      row.removed = new Date().toISOString();
    });
    void this.save(name);
  }

  #rows(): readonly StateFileRow[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.all(this.#table)];
  }

  #row(name: StateName): StateFileRow | undefined {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.#table, name);
  }

  #note(name: StateName, change: (row: Draft<StateFileRow>) => void): void {
    const { path } = this.#writings[name].file;
    this.#options.db.write([this.#table], (txn) => {
      if (!txn.has(this.#table, name)) txn.insert(this.#table, { name, path });
      txn.edit(this.#table, name, change);
    });
  }
}

function unansweredText(path: string, since: string): string {
  const seconds = Math.max(1, Math.round((Date.now() - Date.parse(since)) / 1000));
  return `${path}: a write has been under way for ${seconds} s: the disk does not answer`;
}

/** Removes the agent's files, and the folder when nothing else is in it. Succeeds when there is nothing. */
export function removeStateFiles(folder: string): void {
  if (!existsSync(folder)) return;
  const own = (file: string): boolean =>
    NAMES.some((name) => file === name || file === `${name}.next` || file.startsWith(`${name}${UNREADABLE}`));
  for (const file of readdirSync(folder)) if (own(file)) rmSync(join(folder, file), { force: true });
  if (readdirSync(folder).length === 0) rmdirSync(folder);
}
