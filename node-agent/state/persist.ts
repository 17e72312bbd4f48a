/** Files of the state folder. A crash or a full disk at any instant leaves the old content or the new one, never a part. */
import { closeSync, constants, fstatSync, openSync, readFileSync, renameSync } from 'node:fs';
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { DepthError, parseShallow } from '@weir/process/depth';
import { codeOf, messageOf } from '@weir/process/errors';
import { makeFolder } from '@weir/process/folders';
import { StateFileError, StateSaveError } from '../errors.ts';

const VERSION = 1;
/** What a file that could not be read is called afterwards, before the time at which that was found. */
export const UNREADABLE = '.unreadable-';

export interface StateFileOptions<T> {
  readonly path: string;
  /** The node whose state it is. A file of another node (a copied disk image) is not read. */
  readonly node: string;
  /** Checks and types what was read; throws with a sentence that says what is wrong. */
  readonly decode: (json: unknown) => T;
}

/** What a file had at start. */
export type Loaded<T> = { readonly content: T } | 'absent' | 'unreadable';

/** One JSON document. `save` resolves once it is on disk; nothing of it waits for a disk on the event loop. */
export class StateFile<T> {
  readonly path: string;
  readonly #node: string;
  readonly #decode: (json: unknown) => T;

  constructor(options: StateFileOptions<T>) {
    this.path = options.path;
    this.#node = options.node;
    this.#decode = options.decode;
  }

  /** @throws StateFileError when it is there and cannot be read back */
  read(): Exclude<Loaded<T>, 'unreadable'> {
    let text: string;
    try {
      text = readWhole(this.path);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return 'absent';
      if (error instanceof StateFileError) throw error;
      throw new StateFileError(this.path, 'cannot be read', error);
    }
    let document: unknown;
    try {
      document = parseShallow(text);
    } catch (error) {
      throw new StateFileError(
        this.path,
        error instanceof DepthError ? error.message : 'is not JSON (it was cut or edited)',
        error,
      );
    }
    if (typeof document !== 'object' || document === null || !('version' in document) || !('content' in document)) {
      throw new StateFileError(this.path, 'has no version and content');
    }
    if (document.version !== VERSION) {
      throw new StateFileError(
        this.path,
        `has version ${JSON.stringify(document.version)}, this agent reads ${VERSION}`,
      );
    }
    // Files of agents that did not write their node down have none.
    if ('node' in document && document.node !== this.#node) {
      throw new StateFileError(this.path, `is of node ${JSON.stringify(document.node)}, this is ${this.#node}`);
    }
    try {
      return { content: this.#decode(document.content) };
    } catch (error) {
      throw new StateFileError(this.path, messageOf(error), error);
    }
  }

  /** A name under which nobody looks for the file; another one each time. */
  nameAside(): string {
    return `${this.path}${UNREADABLE}${new Date().toISOString().replaceAll(':', '')}`;
  }

  setAside(kept: string): void {
    renameSync(this.path, kept);
  }

  /**
   * Temporary file, fsync, rename, fsync of the folder. One at a time. Rejects with StateSaveError: the file is as it was, or, where only
   * the folder's fsync failed, as it was or the new one after a crash.
   */
  async save(content: T): Promise<void> {
    const temporary = `${this.path}.next`;
    const text = JSON.stringify({ version: VERSION, node: this.#node, content });
    try {
      const folder = dirname(this.path);
      await makeFolder(folder, 0o700);
      await withFile(temporary, 'w', (file) => writeAll(file, Buffer.from(text)));
      await rename(temporary, this.path);
      await withFile(folder, 'r', async () => undefined);
    } catch (error) {
      // A part of it would take the room that is missing. The error to report is the one before.
      await rm(temporary, { force: true }).catch(() => undefined);
      throw new StateSaveError(this.path, error);
    }
  }

  /** Removes it, as what it says is not true any more. Returns why it stays, to be added to why it was not written; '' when it is gone. */
  async discard(): Promise<string> {
    try {
      await rm(this.path, { force: true });
      return '';
    } catch (error) {
      const code = codeOf(error);
      return code === 'ENOTDIR' ? '' : `; the old one cannot be removed (${code ?? messageOf(error)})`;
    }
  }
}

/** @throws StateFileError of a pipe or a device, which nobody may ever end */
function readWhole(path: string): string {
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const kind = fstatSync(file);
    if (!kind.isFile() && !kind.isDirectory()) throw new StateFileError(path, 'is no regular file');
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

/** Whether it is certain that there is no such file. */
export async function isGone(path: string): Promise<boolean> {
  try {
    await stat(path);
    return false;
  } catch (error) {
    return codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR';
  }
}

/** A write may take a part and succeed: on a disk that becomes full, the next one says so. */
async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
}

/** Opens, and has the disk hold it before it is closed. */
async function withFile(path: string, flags: string, body: (file: FileHandle) => Promise<void>): Promise<void> {
  const file = await open(path, flags, 0o600);
  try {
    await body(file);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Reads an array whose elements are objects; `what` names one element in the error. */
export function objects(json: unknown, what: string): readonly Record<string, unknown>[] {
  if (!Array.isArray(json)) throw new Error(`holds no list of ${what}`);
  return json.map((element: unknown, index) => {
    if (typeof element !== 'object' || element === null || Array.isArray(element)) {
      throw new Error(`has at ${what} ${index} something that is no object`);
    }
    return element as Record<string, unknown>;
  });
}
