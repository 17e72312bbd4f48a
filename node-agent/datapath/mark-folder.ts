import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { FOLDERS } from './pins.ts';

/** Something beside the pins that the next agent goes by, and that the audit looks at as it does at pins. */
export interface Mark {
  /** Its folder under the root of the pins. */
  readonly name: string;
  /** Whether it is as it was made. @throws Error when it cannot be read */
  readonly kept: boolean;
  /** Makes it as it was. @throws Error when it cannot be made */
  keep(): void;
}

/**
 * Empty folders whose names say something of what is pinned: as pins do, they outlive the agent and not the boot. What they are to be is
 * known from the first reading on, so that it can be put back whoever removes it.
 */
export class MarkFolder implements Mark {
  readonly name: string;
  readonly #folder: string;
  #names: readonly string[] | undefined;

  constructor(root: string, name: (typeof FOLDERS)[number]) {
    this.name = name;
    this.#folder = join(root, name);
  }

  get names(): readonly string[] {
    this.#names ??= this.#found();
    return this.#names;
  }

  /** These from now on, and no others. @throws Error when they cannot be made: they are to be, all the same */
  set(names: readonly string[]): void {
    this.#names = [...new Set(names)];
    this.keep();
  }

  get kept(): boolean {
    const found = new Set(this.#found());
    return found.size === this.names.length && this.names.every((name) => found.has(name));
  }

  /** New ones first: a crash in between leaves too many, which is as if nobody knew which of them it is. */
  keep(): void {
    const { names } = this;
    for (const name of names) mkdirSync(join(this.#folder, name), { recursive: true, mode: 0o700 });
    for (const other of this.#found())
      if (!names.includes(other)) rmSync(join(this.#folder, other), { recursive: true, force: true });
  }

  #found(): string[] {
    return existsSync(this.#folder) ? readdirSync(this.#folder) : [];
  }
}
