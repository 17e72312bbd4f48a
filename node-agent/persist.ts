/** Files of the state folder. A crash at any instant leaves the old content or the new one, never a part. */
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf, StateFileError } from './errors.ts';

const VERSION = 1;

export interface StateFileOptions<T> {
  readonly path: string;
  /** Checks and types what was read; throws with a sentence that says what is wrong. */
  readonly decode: (json: unknown) => T;
  readonly empty: T;
}

/** One JSON document. `save` returns once it is on disk. */
export class StateFile<T> {
  readonly path: string;
  readonly #decode: (json: unknown) => T;
  readonly #empty: T;

  constructor(options: StateFileOptions<T>) {
    this.path = options.path;
    this.#decode = options.decode;
    this.#empty = options.empty;
  }

  /** @throws StateFileError when it is there and cannot be read back; an absent file is empty. */
  load(): T {
    let text: string;
    try {
      text = readFileSync(this.path, 'utf8');
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return this.#empty;
      throw new StateFileError(this.path, 'cannot be read', error);
    }
    let document: unknown;
    try {
      document = JSON.parse(text);
    } catch (error) {
      throw new StateFileError(this.path, 'is not JSON (it was cut or edited)', error);
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
    try {
      return this.#decode(document.content);
    } catch (error) {
      throw new StateFileError(this.path, error instanceof Error ? error.message : String(error), error);
    }
  }

  /** Temporary file, fsync, rename, fsync of the folder. */
  save(content: T): void {
    const folder = dirname(this.path);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const temporary = `${this.path}.next`;
    const fd = openSync(temporary, 'w', 0o600);
    try {
      writeSync(fd, JSON.stringify({ version: VERSION, content }));
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, this.path);
    const folderFd = openSync(folder, 'r');
    try {
      fsyncSync(folderFd);
    } finally {
      closeSync(folderFd);
    }
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
