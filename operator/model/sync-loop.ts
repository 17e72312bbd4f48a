/**
 * Drives the model: changes of the input tables in, in rounds, each of which puts what follows into the desired tables.
 *
 * Guarantees: the first round starts when every input table is complete, and the desired tables are initialised when all
 * that they hold then has been taken in, so that nothing is pruned before; what changes meanwhile waits, so that no edits,
 * however many, delay that. Then changes are queued by their keys, and taken in as the row is in its turn (work.ts); a round takes SHARE_MS,
 * and then yields to other work, such as the renewal of the lease. A kind of policies that cannot be read does not hold the rest up: what is
 * enforced of it stays (Model.completion).
 */
import type { ChangeStream, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { Tables } from '../tables.ts';
import type { Adopted, PolicyObjectKind } from '../types.ts';
import type { Model } from './model.ts';
import type { Piece } from './pieces.ts';
import { machineStopwatch, type Stopwatch, timeShare } from './time-share.ts';

/** Changes of one table that are queued in one round. */
const QUEUED = 1_000;

export interface SyncLoopOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly model: Model;
  /** Read once, when the inputs are complete. */
  readonly adopted: () => Adopted;
  /** Kinds of policies that cannot be read now; table `inputSources` changes when there are fewer. */
  readonly missingKinds: () => ReadonlySet<PolicyObjectKind>;
  /** Milliseconds between collections of unused identities. */
  readonly collectIntervalMs: number;
  readonly onError: (error: Error) => void;
  /** Default: the machine's. */
  readonly stopwatch?: Stopwatch;
}

interface Input {
  /** Queues changes. Returns whether there were any. */
  readonly pull: (txn: WriteTxn) => boolean;
  readonly stream: ChangeStream<unknown>;
}

export class SyncLoop {
  readonly #options: SyncLoopOptions;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  #poke: () => void = () => {};
  #poked = false;
  /** Rounds that changed something; for those who wait until all is calm. */
  #pending = true;
  #calm = Promise.withResolvers<void>();

  constructor(options: SyncLoopOptions) {
    this.#options = options;
  }

  /** The first state is complete. */
  get started(): boolean {
    using snapshot = this.#options.db.read();
    return this.#options.model.isComplete(snapshot);
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** Resolves when every change of the inputs so far is in the desired tables. */
  async calm(): Promise<void> {
    // A table that was written just now wakes the loop in the next iteration of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    if (this.#pending) await this.#calm.promise;
  }

  /** Looks at the status of a policy again, because it is not as it was left: at most once an interval. */
  touchStatus(key: string): void {
    this.#options.model.touchStatus(key);
    this.#poked = true;
    this.#poke();
  }

  async #run(): Promise<void> {
    const { db, tables, model, adopted, collectIntervalMs } = this.#options;
    const signal = this.#stop.signal;
    const inputs: Input[] = [];
    let collectAt = performance.now() + collectIntervalMs;
    try {
      for (const table of [
        tables.policies,
        tables.namespaces,
        tables.pods,
        tables.nodes,
        tables.servicePeers,
        tables.cidrGroups,
        tables.reports,
        tables.resolvedVersions,
      ]) {
        await db.initialisedWatch(table as Table<unknown>).wait(signal);
      }
      const found = adopted();
      model.round((txn) => model.adopt(txn, found));
      {
        using present = db.read();
        inputs.push(...this.#inputs(present));
        await this.#begin(present);
      }
      while (!signal.aborted) {
        this.#poked = false;
        const missing = this.#options.missingKinds();
        const collecting = performance.now() >= collectAt;
        let idle = false;
        const next = model.round((txn) => {
          idle = inputs.filter(({ pull }) => pull(txn)).length === 0 && !model.hasWork(txn);
          if (idle) this.#lookAtKinds(txn, missing);
          if (collecting) model.collect(txn);
        });
        if (collecting) collectAt = performance.now() + collectIntervalMs;
        if (!idle || next.more) await new Promise((resolve) => setImmediate(resolve));
        else {
          if (next.dueInMs === undefined) this.#rest();
          const collectInMs = Math.max(0, collectAt - performance.now());
          await this.#wait(inputs, Math.min(next.dueInMs ?? Infinity, next.eventDueInMs ?? Infinity, collectInMs));
          this.#wake();
        }
      }
    } catch (error) {
      if (!signal.aborted) this.#options.onError(error instanceof Error ? error : new Error(String(error)));
    } finally {
      for (const { stream } of inputs) stream[Symbol.dispose]();
      this.#calm.resolve();
    }
  }

  /** What changes after `present`. */
  #inputs(present: Reader): Input[] {
    const { tables, model } = this.#options;
    return [
      this.#input(present, tables.namespaces, (txn, { name }) => model.changed(txn, 'namespace', name, name)),
      this.#input(present, tables.policies, (txn, { key, namespace = '' }) =>
        model.changed(txn, 'policy', key, namespace),
      ),
      this.#input(present, tables.servicePeers, (txn, { namespace, name }) =>
        model.changed(txn, 'service', `${namespace}/${name}`, namespace),
      ),
      this.#input(present, tables.cidrGroups, (txn, { name }) => model.changed(txn, 'group', name, '')),
      this.#input(present, tables.nodes, (txn, { name }) => model.changed(txn, 'node', name, name)),
      this.#input(present, tables.pods, (txn, { key, namespace }) => model.changed(txn, 'pod', key, namespace)),
      this.#input(present, tables.reports, (txn, row, deleted) =>
        deleted ? model.deleteReport(txn, row.node) : model.setReport(txn, row),
      ),
      this.#input(present, tables.resolvedVersions, (txn, { uid }) => model.resolvedWritten(txn, uid)),
      this.#input(present, tables.inputSources, () => {}),
    ];
  }

  /** Takes in what is there. Policies are read by the Services and groups, pods placed by the namespaces that are there. */
  *#presentRows(present: Reader): Generator<Piece> {
    const { tables, model } = this.#options;
    for (const row of present.all(tables.nodes)) yield (txn) => model.setNode(txn, row);
    for (const row of present.all(tables.policies)) yield (txn) => model.setPolicy(txn, row);
    for (const row of present.all(tables.reports)) yield (txn) => model.setReport(txn, row);
    for (const { uid } of present.all(tables.resolvedVersions)) yield (txn) => model.resolvedWritten(txn, uid);
    for (const row of present.all(tables.pods)) yield (txn) => model.setPod(txn, row);
  }

  #rest(): void {
    this.#pending = false;
    this.#calm.resolve();
  }

  #wake(): void {
    if (this.#pending) return;
    this.#pending = true;
    this.#calm = Promise.withResolvers();
  }

  /** Takes in what the tables hold now, and shows what follows. Changes that come meanwhile wait. */
  async #begin(present: Reader): Promise<void> {
    const { db, model, missingKinds } = this.#options;
    // As it is now: policies of a kind that can be read from now on are among the changes that wait.
    const missing = missingKinds();
    await this.#rounds(this.#presentRows(present));
    using before = db.read();
    await this.#rounds(model.completion(before, missing));
  }

  async #rounds(steps: Iterator<Piece>): Promise<void> {
    const { model, stopwatch = machineStopwatch } = this.#options;
    for (let more = true; more && !this.#stop.signal.aborted; ) {
      model.round((txn) => {
        const hasTime = timeShare(stopwatch);
        do {
          const { value: step, done } = steps.next();
          more = done !== true;
          step?.(txn);
        } while (more && hasTime());
      });
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** All inputs have been taken in. */
  #lookAtKinds(txn: WriteTxn, missing: ReadonlySet<PolicyObjectKind>): void {
    const { model } = this.#options;
    for (const kind of model.keptKinds(txn)) if (!missing.has(kind)) model.kindKnown(txn, kind);
  }

  #input<T>(present: Reader, table: Table<T>, change: (txn: WriteTxn, row: T, deleted: boolean) => void): Input {
    const stream = this.#options.db.changes(table, { name: 'sync-loop', from: present.revision(table) });
    return {
      stream,
      pull: (txn) => {
        const changes = stream.next(QUEUED);
        for (const { row, deleted } of changes) change(txn, row, deleted);
        return changes.length > 0;
      },
    };
  }

  #wait(inputs: readonly Input[], ms: number): Promise<void> {
    return new Promise((resolve) => {
      const undo: (() => void)[] = [];
      const signal = this.#stop.signal;
      let over = false;
      const end = (): void => {
        if (over) return;
        over = true;
        clearTimeout(timer);
        signal.removeEventListener('abort', end);
        for (const take of undo) take();
        // Not within the commit that woke us.
        setImmediate(resolve);
      };
      const timer = setTimeout(end, Math.min(ms, 0x7fffffff));
      if (signal.aborted || this.#poked) end();
      else signal.addEventListener('abort', end);
      this.#poke = end;
      for (const { stream } of inputs) {
        const watch = stream.watch();
        if (watch.fired) end();
        if (!over) undo.push(watch.onFire(end));
      }
    });
  }
}
