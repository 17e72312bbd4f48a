/** A term: from standing by until leadership is lost, or the process ends. It has parts, tables and metrics of its own. */
import { type PartRow, Parts } from '@weir/process/parts';
import { createStateDB, keys, type StateDB, type Table } from '@weir/statedb';
import { Registry } from 'prom-client';
import type { AnyOperatorPart, OperatorPart, ProcessContext, TermContext } from './parts/contract.ts';

export interface TermOptions {
  readonly context: ProcessContext;
  readonly parts: readonly AnyOperatorPart[];
  /** Those of the process. */
  readonly outer: Parts;
  /** What they count. */
  readonly registry: Registry;
  /** Leadership is lost. */
  readonly onLost: () => void;
  readonly onFatal: (error: Error) => void;
}

export class Term {
  readonly db: StateDB = createStateDB({ countSnapshots: true });
  readonly registry: Registry;
  readonly #options: TermOptions;
  readonly #rows: Table<PartRow>;
  readonly #stop = new AbortController();
  #parts: Parts | undefined;
  #fatal: Error | undefined;

  private constructor(options: TermOptions) {
    this.#options = options;
    this.registry = Registry.merge([options.registry]);
    this.#rows = this.db.table<PartRow>({
      name: 'parts',
      key: ({ name }) => name,
      indexes: [{ name: 'order', keys: ({ order }) => [keys.uint(order)] }],
    });
  }

  /** Builds its parts, and starts none. @throws PartListError */
  static async build(options: TermOptions): Promise<Term> {
    const term = new Term(options);
    const { context, parts, outer, onLost } = options;
    for (const row of outer.rows()) term.changed(row);
    const own: TermContext = { ...context, db: term.db, fail: (error) => term.#fail(error), lost: onLost };
    term.#parts = await Parts.build(parts, own, {
      outer,
      onChange: (row) => term.changed(row),
      onStartFailed: (error) => term.#fail(error),
      onStopFailed: (part, err) => context.log.error({ part, err }, 'part did not stop cleanly'),
    });
    for (const part of term.built) part.metrics?.(term.registry);
    return term;
  }

  get built(): readonly OperatorPart[] {
    return this.#parts?.built ?? [];
  }

  get provided(): Parts['provided'] {
    const parts = this.#parts ?? this.#options.outer;
    return (spec) => parts.provided(spec);
  }

  /** Why it cannot go on. */
  get fatal(): string | undefined {
    return this.#fatal?.message;
  }

  /** Aborted when it is stopped. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** A part has come further; those of the process are in the table, too. */
  changed(row: PartRow): void {
    this.db.write([this.#rows], (txn) => txn.upsert(this.#rows, row));
  }

  /** Returns at once: who stands by may do so for ever. */
  start(): void {
    // A failed start was logged already.
    this.#parts?.start().catch(() => undefined);
  }

  /** Finishes what is being written, as long as it leads, and releases the lease. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#parts?.stop();
  }

  #fail(reason: unknown): void {
    if (this.#stop.signal.aborted) return;
    const error = reason instanceof Error ? reason : new Error(String(reason));
    this.#fatal = error;
    this.#options.context.log.fatal({ err: error }, 'operator cannot go on');
    this.#options.onFatal(error);
  }
}
