import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';

/** The mark of "there are no rules". */
const NONE = 'none';

/**
 * Which rules imported on this node the kernel enforces: an empty folder `rules/DIGEST` beside the pins. The rules themselves are in a
 * file, which may be lost or older than what is enforced; that must not take them away.
 */
export class RulesMark {
  readonly #folder: string;
  #begun: string | undefined;

  constructor(root: string) {
    this.#folder = join(root, 'rules');
  }

  /** These rules are about to be enforced, in the place of those before; until `settle` it may be either. */
  begin(rules: readonly unknown[]): void {
    this.#begun = nameOf(rules);
    mkdirSync(join(this.#folder, this.#begun), { recursive: true, mode: 0o700 });
  }

  /** These rules are in their file, or cannot be: no others count, unless others have begun meanwhile. */
  settle(rules: readonly unknown[]): void {
    const name = nameOf(rules);
    if (this.#begun !== undefined && this.#begun !== name) return;
    for (const other of this.#names()) if (other !== name) rmdirSync(join(this.#folder, other));
  }

  /** Whether these are rules that the kernel may enforce. Without a mark (another version's, a reboot) any are. */
  allows(rules: readonly unknown[]): boolean {
    const names = this.#names();
    return names.length === 0 || names.includes(nameOf(rules));
  }

  /** Whether it is sure that there were no rules. */
  get none(): boolean {
    const [name, ...others] = this.#names();
    return name === NONE && others.length === 0;
  }

  #names(): string[] {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    return readdirSync(this.#folder);
  }
}

function nameOf(rules: readonly unknown[]): string {
  if (rules.length === 0) return NONE;
  return createHash('sha256').update(JSON.stringify(rules)).digest('hex').slice(0, 32);
}
