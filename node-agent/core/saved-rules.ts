import { isDeepStrictEqual } from 'node:util';
import type { InitDone, StateDB } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { IMPORTED } from '../create-tables.ts';
import type { RoundMark } from '../datapath/index.ts';
import { ImportedRules } from '../derive/index.ts';
import { ImportedRulesError } from '../errors.ts';
import type { StateFiles } from '../state/state-files.ts';

type Mark = Pick<RoundMark, 'changeRules' | 'noteRules' | 'mayHaveRules'>;

export interface SavedRulesOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly files: StateFiles;
  readonly log: Logger;
}

/** Rules imported on this node, and their file. While it is not known which they are, no rules are planned. */
export class SavedRules {
  readonly imported: ImportedRules;
  readonly #options: SavedRulesOptions;
  readonly #known: InitDone;
  #ended = false;

  constructor(options: SavedRulesOptions) {
    const { db, tables } = options;
    this.#options = options;
    this.#known = db.initialiser(tables.policies, IMPORTED);
    this.imported = new ImportedRules(db, tables);
  }

  /** Rules of which the file does not tell stay in force until somebody says which there are. */
  restore(mark: Mark): void {
    const { files, log } = this.#options;
    const loaded = files.load('rules');
    const rules = typeof loaded === 'object' ? loaded.content : [];
    const known = mark.mayHaveRules(rules, typeof loaded === 'object' ? 'file' : loaded);
    const [problem] =
      known && rules.length > 0 ? this.imported.import(rules).filter(({ code }) => code !== 'Warning') : [];
    if (problem !== undefined) files.refuse('rules', new ImportedRulesError(`${problem.path}: ${problem.message}`));
    if (known && problem === undefined) {
      mark.noteRules(rules);
      this.#areKnown();
    } else
      log.warn(
        { file: files.path('rules') },
        'the imported rules are not known; what is enforced stays until they are imported or deleted',
      );
  }

  get unknown(): boolean {
    const { db, tables } = this.#options;
    return db.pendingInitialisers(tables.policies).includes(IMPORTED);
  }

  changed(mark: Mark): void {
    mark.changeRules();
    this.#areKnown();
    const rules = this.#list();
    void this.#options.files.save('rules').then(() => {
      // Others may be on their way to the file; after the end `ended` notes them.
      if (!this.#ended && isDeepStrictEqual(rules, this.#list())) mark.noteRules(rules);
    });
  }

  /** Nothing is written any more. */
  ended(mark: Mark): void {
    this.#ended = true;
    if (!this.unknown) mark.noteRules(this.#list());
  }

  /** Their file is not touched before. */
  #areKnown(): void {
    const { db, tables, files } = this.#options;
    files.provide('rules', () => this.#list());
    db.write([tables.policies], (txn) => this.#known(txn));
  }

  #list(): readonly unknown[] {
    return this.imported.list().map(({ json }) => json);
  }
}
