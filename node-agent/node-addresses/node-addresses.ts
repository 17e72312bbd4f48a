import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '@weir/process/errors';
import type { InitDone, StateDB, Table } from '@weir/statedb';
import type { Logger } from '../core.ts';
import { CommandError, type RunCommand, runCommand } from '../host/command.ts';
import { localAddressesIn } from './local-table.ts';
import type { LocalAddressRow } from './types.ts';

/** How often is looked, whatever the kernel tells. */
const LOOK_MS = 5000;
/** A family without any local route, or that the kernel does not have. */
const NO_TABLE = /FIB table does not exist|not supported/;

export interface NodeAddressesOptions {
  readonly db: StateDB;
  /** Runs something in the node's network namespace. */
  readonly inNode: <T>(body: () => T) => T;
  readonly log: Logger;
  readonly run?: RunCommand;
  readonly lookMs?: number;
}

/** Knows what the node's local routing table holds (contract: types.ts). */
export class NodeAddresses {
  /** Complete once it has been read. */
  readonly table: Table<LocalAddressRow>;
  readonly #options: NodeAddressesOptions;
  #known: InitDone | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  /** The next look has not begun. */
  #due = false;
  #problem: string | undefined;

  constructor(options: NodeAddressesOptions) {
    const { db } = options;
    this.#options = options;
    this.table = db.table<LocalAddressRow>({
      name: 'localAddresses',
      key: ({ prefix }) => prefix,
      equals: isDeepStrictEqual,
    });
    this.#known = db.initialiser(this.table, 'kernel');
  }

  async start(): Promise<void> {
    this.look();
    await this.#looking;
    this.#timer = setInterval(() => this.look(), this.#options.lookMs ?? LOOK_MS);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
  }

  /** The table may have changed. */
  look(): void {
    if (this.#due) return;
    this.#due = true;
    this.#looking = this.#looking.then(() => this.#look());
  }

  /** Why it is not known; undefined while it is. */
  problem(): string | undefined {
    return this.#problem;
  }

  async #look(): Promise<void> {
    const { log } = this.#options;
    this.#due = false;
    try {
      const rows = (await Promise.all([this.#list('-4'), this.#list('-6')])).flat();
      this.#take(rows);
      this.#problem = undefined;
    } catch (error) {
      const problem = messageOf(error);
      if (problem !== this.#problem) log.error({ error: problem }, "cannot read the node's local routing table");
      this.#problem = problem;
    }
  }

  async #list(family: '-4' | '-6'): Promise<readonly LocalAddressRow[]> {
    const { inNode, run = runCommand } = this.#options;
    // The child is in the namespace from its start; what waits for it need not be.
    const { printed } = inNode(() => ({ printed: run('ip', [family, '-json', 'route', 'show', 'table', 'local']) }));
    try {
      return localAddressesIn(await printed);
    } catch (error) {
      if (error instanceof CommandError && NO_TABLE.test(error.stderr)) return [];
      throw error;
    }
  }

  #take(rows: readonly LocalAddressRow[]): void {
    const wanted = new Set(rows.map(({ prefix }) => prefix));
    this.#options.db.write([this.table], (txn) => {
      for (const { prefix } of txn.all(this.table)) if (!wanted.has(prefix)) txn.delete(this.table, prefix);
      for (const row of rows) txn.upsert(this.table, row);
      this.#known?.(txn);
    });
    this.#known = undefined;
  }
}
