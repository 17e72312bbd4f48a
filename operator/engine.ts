/**
 * Drives the model: changes of the input tables in, edits of the desired tables out, in rounds.
 *
 * Guarantees: the first round starts when every input table is complete, and makes the desired tables initialised, so
 * that nothing is written or pruned before; a round takes a bounded number of changes and then yields to other work. A kind
 * of policies that cannot be read does not hold the rest up: what is enforced of it stays (Model.adoptionDone).
 */
import type { ChangeStream, InitDone, StateDB, Table } from '@weir/statedb';
import type { Model } from './model.ts';
import type { Desired, Tables } from './tables.ts';
import type { Adopted, Edit, PolicyObjectKind } from './types.ts';

/** Changes of one table in one round. */
const ROUND = 200;

export interface EngineOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly model: Model;
  /** Read once, when the inputs are complete. */
  readonly adopted: () => Adopted;
  /** Kinds of policies that cannot be read now; call `poke` when there are fewer. */
  readonly missingKinds: () => ReadonlySet<PolicyObjectKind>;
  /** Milliseconds between collections of unused identities. */
  readonly collectIntervalMs: number;
  readonly onError: (error: Error) => void;
}

interface Input {
  /** Takes up to ROUND changes into the model; whether there were any. */
  take(): boolean;
  /** Calls back when something is pending; returns how to take that back. */
  onPending(callback: () => void): () => void;
  dispose(): void;
}

export class Engine {
  readonly #options: EngineOptions;
  readonly #done: InitDone[] = [];
  readonly #desired: readonly Table<Desired<never>>[];
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  #started = false;
  #poke: () => void = () => {};
  #poked = false;
  /** Rounds that changed something; for those who wait until all is calm. */
  #pending = true;
  #calm = Promise.withResolvers<void>();

  constructor(options: EngineOptions) {
    this.#options = options;
    const { identities, peerSets, resolved, slices, statuses, events } = options.tables;
    this.#desired = [identities, peerSets, resolved, slices, statuses, events] as unknown as Table<Desired<never>>[];
    for (const table of this.#desired) this.#done.push(options.db.initialiser(table, 'derived'));
  }

  /** The first round is over. */
  get started(): boolean {
    return this.#started;
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
    // A table that was written in this very turn wakes the loop in the next one.
    await new Promise((resolve) => setImmediate(resolve));
    if (this.#pending) await this.#calm.promise;
  }

  /** Looks at a desired object again, because it is not as it was left. */
  touch<T>(table: Table<Desired<T>>, key: string): void {
    this.#options.db.write([table], (txn) => {
      const desired = txn.get(table, key);
      if (desired !== undefined) txn.upsert(table, { row: desired.row, touch: desired.touch + 1 });
    });
  }

  /** The same for the status of a policy, at most once an interval. */
  touchStatus(key: string): void {
    this.#options.model.touchStatus(key);
    this.poke();
  }

  /** Something that is no input table has changed. */
  poke(): void {
    this.#poked = true;
    this.#poke();
  }

  async #run(): Promise<void> {
    const { db, tables, model, adopted, collectIntervalMs } = this.#options;
    const signal = this.#stop.signal;
    const inputs: Input[] = [];
    let collectAt = performance.now() + collectIntervalMs;
    try {
      for (const table of [tables.policies, tables.namespaces, tables.pods, tables.nodes, tables.reports]) {
        await db.initialisedWatch(table as Table<unknown>).wait(signal);
      }
      model.adopt(adopted());
      inputs.push(
        this.#input(tables.namespaces, model.setNamespace.bind(model), (row) => model.deleteNamespace(row.name)),
        this.#input(tables.policies, model.setPolicy.bind(model), (row) => model.deletePolicy(row.key)),
        this.#input(tables.nodes, model.setNode.bind(model), (row) => model.deleteNode(row.name)),
        this.#input(tables.reports, model.setReport.bind(model), (row) => model.deleteReport(row.node)),
        this.#input(tables.pods, model.setPod.bind(model), (row) => model.deletePod(row.key)),
      );
      while (!signal.aborted) {
        this.#poked = false;
        const missing = this.#options.missingKinds();
        const busy = inputs.map((input) => input.take()).includes(true);
        if (!busy) {
          if (!this.#started) model.adoptionDone(missing);
          for (const kind of [...model.missingKinds]) if (!missing.has(kind)) model.kindKnown(kind);
        }
        if (performance.now() >= collectAt) {
          model.collect();
          collectAt = performance.now() + collectIntervalMs;
        }
        // Until the first state is complete nothing is shown: half of it would look like deletions.
        if (this.#started || !busy) this.#write();
        if (busy || model.more) await new Promise((resolve) => setImmediate(resolve));
        else {
          const dueInMs = model.dueInMs;
          if (dueInMs === undefined) this.#rest();
          const collectInMs = Math.max(0, collectAt - performance.now());
          await this.#wait(inputs, Math.min(dueInMs ?? Infinity, model.eventDueInMs ?? Infinity, collectInMs));
          this.#wake();
        }
      }
    } catch (error) {
      if (!signal.aborted) this.#options.onError(error instanceof Error ? error : new Error(String(error)));
    } finally {
      for (const input of inputs) input.dispose();
      this.#calm.resolve();
    }
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

  #input<T>(table: Table<T>, set: (row: T) => void, remove: (row: T) => void): Input {
    const stream: ChangeStream<T> = this.#options.db.changes(table, { name: 'engine' });
    return {
      take() {
        const changes = stream.next(ROUND);
        for (const { row, deleted } of changes) {
          if (deleted) remove(row);
          else set(row);
        }
        return changes.length > 0;
      },
      onPending: (callback) => {
        const watch = stream.watch();
        if (watch.fired) {
          callback();
          return () => {};
        }
        return watch.onFire(callback);
      },
      dispose: () => stream[Symbol.dispose](),
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
      for (const input of inputs) {
        if (!over) undo.push(input.onPending(end));
      }
    });
  }

  #write(): void {
    const { db, tables, model } = this.#options;
    const edits = model.flush();
    const first = !this.#started;
    if (!first && Object.values(edits).every((list) => list.length === 0)) return;
    db.write(this.#desired, (txn) => {
      const edit = <T>(table: Table<Desired<T>>, list: readonly Edit<T>[]): void => {
        for (const { key, row, again } of list) {
          if (row === undefined) txn.delete(table, key);
          else txn.upsert(table, { row, touch: (txn.get(table, key)?.touch ?? 0) + (again === true ? 1 : 0) });
        }
      };
      edit(tables.peerSets, edits.peerSets);
      edit(tables.identities, edits.identities);
      edit(tables.resolved, edits.resolved);
      edit(tables.slices, edits.slices);
      edit(tables.statuses, edits.statuses);
      edit(tables.events, edits.events);
      if (first) for (const done of this.#done) done(txn);
    });
    this.#started = true;
  }
}
