/**
 * The operator: parts of the process, and one term after another, for as long as the process lives.
 *
 * Guarantees: loss of leadership ends no process. The term that led is stopped, and a new one stands by and competes for
 * the lease; it reads everything anew, because another may have led meanwhile. The parts of the process stay: probes call it ready for as long as it
 * reaches the lease.
 */
import { newId } from '@weir/process/id';
import { Parts } from '@weir/process/parts';
import type { StateDB } from '@weir/statedb';
import { Registry } from 'prom-client';
import type { Operator, OperatorOptions } from './contract.ts';
import { healthPart } from './health-part.ts';
import { writersPart } from './kubernetes/writers-part.ts';
import { leasePart } from './lease-part.ts';
import { OPERATOR_PARTS } from './part-list.ts';
import type { AnyOperatorPart, BaseConfig, OperatorPart, OperatorView, ProcessContext } from './parts/contract.ts';
import { viewOf } from './parts/view.ts';
import { syncLoopPart } from './sync-loop-part.ts';
import { tablesPart } from './tables-part.ts';
import { Term } from './term.ts';

export type { Operator, OperatorOptions } from './contract.ts';

/** Builds the parts, and starts none. An operator that was stopped is not started again: make a new one. @throws PartListError */
export function createOperator(options: OperatorOptions): Promise<Operator> {
  return Terms.build(options);
}

class Terms implements Operator {
  readonly #options: OperatorOptions;
  readonly #termParts: readonly AnyOperatorPart[];
  readonly #registry = new Registry();
  readonly #context: ProcessContext;
  #process: Parts | undefined;
  #term: Term | undefined;
  #change: Promise<void> = Promise.resolve();
  #stopped = false;

  private constructor(options: OperatorOptions, termParts: readonly AnyOperatorPart[], config: BaseConfig) {
    this.#options = options;
    this.#termParts = termParts;
    const { client, logger } = options;
    this.#context = { config, client, log: logger, operator: this.#view() };
  }

  static async build(options: OperatorOptions): Promise<Terms> {
    const { parts = OPERATOR_PARTS, logger } = options;
    const of = (life: AnyOperatorPart['life']) => parts.filter((part) => part.life === life);
    const terms = new Terms(options, of('term'), configOf(parts, options.config));
    const outer = await Parts.build(of('process'), terms.#context, {
      onChange: (row) => terms.#term?.changed(row),
      onStopFailed: (part, err) => logger.error({ part, err }, 'part did not stop cleanly'),
    });
    terms.#process = outer;
    for (const part of terms.#built()) part.metrics?.(terms.#registry);
    terms.#term = await terms.#newTerm(outer);
    return terms;
  }

  get db(): StateDB {
    return this.#now.db;
  }

  get registry(): Registry {
    return this.#now.registry;
  }

  get leading(): boolean {
    return this.#now.provided(leasePart)?.leading ?? false;
  }

  get healthPort(): number | undefined {
    return this.#now.provided(healthPart)?.port;
  }

  get metricsPort(): number | undefined {
    return this.#now.provided(healthPart)?.metricsPort;
  }

  async start(): Promise<void> {
    if ((await this.#process?.start()) === true) this.#now.start();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#change;
    try {
      await this.#term?.stop();
    } finally {
      await this.#process?.stop();
    }
  }

  async ready(): Promise<void> {
    const { db, signal, provided } = this.#now;
    const tables = provided(tablesPart);
    if (tables !== undefined) await db.initialisedWatch(tables.statuses).wait(signal);
  }

  async settled(signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    const { provided } = this.#now;
    await provided(syncLoopPart)?.calm();
    return (await provided(writersPart)?.settled(signal)) ?? new Map();
  }

  get #now(): Term {
    if (this.#term === undefined) throw new Error('the operator is not built');
    return this.#term;
  }

  #built(): readonly OperatorPart[] {
    return [...(this.#process?.built ?? []), ...(this.#term?.built ?? [])];
  }

  #view(): OperatorView {
    const all = viewOf(
      () => this.#built(),
      () => this.registry,
    );
    return {
      ...all,
      unready: () => this.#now.fatal ?? (this.#stopped ? 'stopping' : all.unready()),
      unhealthy: () => this.#now.fatal ?? all.unhealthy(),
    };
  }

  #newTerm(outer: Parts): Promise<Term> {
    const onFatal = (error: Error): void => this.#options.onFatal?.(error);
    return Term.build({
      context: this.#context,
      parts: this.#termParts,
      outer,
      registry: this.#registry,
      onLost: () => {
        this.#change = this.#next(outer).catch((error: unknown) => {
          onFatal(error instanceof Error ? error : new Error(String(error)));
        });
      },
      onFatal,
    });
  }

  async #next(outer: Parts): Promise<void> {
    await this.#now.stop();
    if (this.#stopped) return;
    this.#term = await this.#newTerm(outer);
    if (!this.#stopped) this.#term.start();
  }
}

/** Defaults of flags and settings, and what is given. */
function configOf(parts: readonly AnyOperatorPart[], given: object = {}): BaseConfig {
  const flags = parts.flatMap((part) => Object.entries(part.flags ?? {}));
  const defaults = Object.fromEntries(flags.map(([name, { defaultValue }]) => [name, defaultValue]));
  const base: BaseConfig = { clusterName: 'default', namespace: 'kube-system', identity: newId(), now: Date.now };
  return Object.assign(base, defaults, ...parts.map(({ settings }) => settings), given);
}
