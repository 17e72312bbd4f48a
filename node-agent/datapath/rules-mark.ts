import { createHash } from 'node:crypto';
import { type Mark, MarkFolder } from './mark-folder.ts';

/** The mark of "there are no rules". */
const NONE = 'none';

/**
 * Which rules imported on this node the kernel enforces: an empty folder `rules/DIGEST` beside the pins. The rules themselves are in a
 * file, which may be lost or older than what is enforced; that must not take them away.
 */
export class RulesMark {
  readonly #folder: MarkFolder;
  #begun: string | undefined;

  constructor(root: string) {
    this.#folder = new MarkFolder(root, 'rules');
  }

  /** These rules are about to be enforced, in the place of those before; until `settle` it may be either. */
  begin(rules: readonly unknown[]): void {
    this.#begun = nameOf(rules);
    this.#folder.set([...this.#folder.names, this.#begun]);
  }

  /** These rules are in their file, or cannot be: no others count, unless others have begun meanwhile. */
  settle(rules: readonly unknown[]): void {
    const name = nameOf(rules);
    if (this.#begun === undefined || this.#begun === name) this.#folder.set([name]);
  }

  /** Whether these are rules that the kernel may enforce. Without a mark (another version's, a reboot) any are. */
  allows(rules: readonly unknown[]): boolean {
    const { names } = this.#folder;
    return names.length === 0 || names.includes(nameOf(rules));
  }

  /** Whether it is sure that there were no rules. */
  get none(): boolean {
    const [name, ...others] = this.#folder.names;
    return name === NONE && others.length === 0;
  }

  /** For the audit. */
  get mark(): Mark {
    return this.#folder;
  }
}

function nameOf(rules: readonly unknown[]): string {
  if (rules.length === 0) return NONE;
  return createHash('sha256').update(JSON.stringify(rules)).digest('hex').slice(0, 32);
}
