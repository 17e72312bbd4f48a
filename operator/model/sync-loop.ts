/**
 * Drives the model: changes of the input tables in, in rounds, each of which puts what follows into the desired tables.
 *
 * Guarantees: the first round starts when every input table is complete, and the desired tables are initialised when all
 * that they hold then has been taken in, so that nothing is written or pruned before; what changes meanwhile waits, so that no edits,
 * however many, delay that; a round takes changes in for SHARE_MS, but at least one, and then yields to other work, such as the renewal of the lease; the inputs take turns, so that none waits for
 * another whose changes take long, and so do the namespaces of policies and of pods: one with many delays another's by one of its own, and
 * so does one whose labels change, since its pods follow one by one, and all mirrors of static pods together (PodTurns). A kind of policies that cannot be read does not hold the rest up: what is enforced of it stays (Model.completion).
 */
import type { ServicePeers } from '@weir/policy';
import type { Change, ChangeStream, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { Tables } from '../tables.ts';
import type { Adopted, PolicyObjectKind, PolicyRow } from '../types.ts';
import { FairQueue } from './fair-queue.ts';
import type { Model } from './model.ts';
import { PodTurns } from './pod-turns.ts';
import type { Step } from './steps.ts';
import { machineStopwatch, type Stopwatch, timeShare } from './time-share.ts';

/** Changes that are put in their turns at once. */
const QUEUED = 1_000;

export interface SyncLoopOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly model: Model;
  /** Read once, when the inputs are complete. */
  readonly adopted: () => Adopted;
  /** Kinds of policies that cannot be read now; table `input-sources` changes when there are fewer. */
  readonly missingKinds: () => ReadonlySet<PolicyObjectKind>;
  /** Milliseconds between collections of unused identities. */
  readonly collectIntervalMs: number;
  readonly onError: (error: Error) => void;
  /** Default: the machine's. */
  readonly stopwatch?: Stopwatch;
}

/** Takes something into the model; false: there is nothing. */
type Take = (txn: WriteTxn) => boolean;

/** Changes that wait. */
interface Turns<T> {
  put(txn: WriteTxn, change: Change<T>): void;
  /** undefined: none waits. */
  take(txn: WriteTxn): Change<T> | undefined;
}

interface Input {
  /** Takes the next row of those that were there at the start. */
  readonly takePresent: Take;
  /** Takes the next change since. */
  readonly take: Take;
  /** Calls back when something is pending; returns how to take that back. */
  onPending(callback: () => void): () => void;
  dispose(): void;
}

export class SyncLoop {
  readonly #options: SyncLoopOptions;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  #poke: () => void = () => {};
  #poked = false;
  /** The input that was looked at last: where one round ends the next goes on. */
  #turn = 0;
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
    // A table that was written in this very turn wakes the loop in the next one.
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
    const policies = new FairQueue<PolicyRow>(db, {
      name: 'policies',
      keyOf: ({ key }) => key,
      ownerOf: ({ namespace = '' }) => namespace,
    });
    const services = new FairQueue<ServicePeers>(db, {
      name: 'services',
      keyOf: tables.servicePeers.spec.key,
      ownerOf: ({ namespace }) => namespace,
    });
    const pods = new PodTurns(db, tables.nodes);
    const queues = [...policies.tables, ...services.tables, ...pods.tables];
    let collectAt = performance.now() + collectIntervalMs;
    try {
      for (const table of [
        tables.policies,
        tables.namespaces,
        tables.pods,
        tables.nodes,
        tables.servicePeers,
        tables.reports,
        tables.resolvedVersions,
      ]) {
        await db.initialisedWatch(table as Table<unknown>).wait(signal);
      }
      const held = adopted();
      model.round((txn) => model.adopt(txn, held));
      {
        using present = db.read();
        inputs.push(...this.#inputs(present, policies, services, pods));
        await this.#begin(inputs);
      }
      while (!signal.aborted) {
        this.#poked = false;
        const missing = this.#options.missingKinds();
        const collecting = performance.now() >= collectAt;
        let taken = false;
        const next = model.round((txn) => {
          taken = this.#take(
            txn,
            inputs.map(({ take }) => take),
          );
          if (!taken) this.#lookAtKinds(txn, missing);
          if (collecting) model.collect(txn);
        }, queues);
        if (collecting) collectAt = performance.now() + collectIntervalMs;
        if (taken || next.more) await new Promise((resolve) => setImmediate(resolve));
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
      for (const input of inputs) input.dispose();
      this.#calm.resolve();
    }
  }

  /** In the order in which they are taken in. `present` is now, and stays open until all of it has been taken. */
  #inputs(present: Reader, policies: FairQueue<PolicyRow>, services: FairQueue<ServicePeers>, pods: PodTurns): Input[] {
    const { tables, model } = this.#options;
    const placeNext: Take = (txn) => model.placeNext(txn);
    const serviceChanged = model.serviceChanged.bind(model);
    return [
      this.#input(
        present,
        tables.namespaces,
        (txn, { name }) => model.namespaceChanged(txn, name),
        () => {},
      ),
      { takePresent: placeNext, take: placeNext, onPending: () => () => {}, dispose: () => {} },
      this.#input(
        present,
        tables.policies,
        (txn, row) => model.setPolicy(txn, row),
        (txn, { key }) => model.deletePolicy(txn, key),
        policies,
      ),
      {
        ...this.#input(present, tables.servicePeers, serviceChanged, serviceChanged, services),
        // Policies are read by what is there.
        takePresent: () => false,
      },
      this.#input(present, tables.nodes, model.setNode.bind(model), model.deleteNode.bind(model)),
      this.#input(present, tables.reports, model.setReport.bind(model), (txn, { node }) =>
        model.deleteReport(txn, node),
      ),
      this.#input(
        present,
        tables.resolvedVersions,
        (txn, { uid }) => model.resolvedWritten(txn, uid),
        (txn, { uid }) => model.resolvedWritten(txn, uid),
      ),
      this.#input(
        present,
        tables.pods,
        (txn, row) => model.setPod(txn, row),
        (txn, { key }) => model.deletePod(txn, key),
        pods,
      ),
      this.#input(
        present,
        tables.inputSources,
        () => {},
        () => {},
      ),
    ];
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

  /** Takes in while there is time, in turns, at least once; false: there is nothing. */
  #take(txn: WriteTxn, takes: readonly Take[]): boolean {
    const hasTime = timeShare(this.#options.stopwatch ?? machineStopwatch);
    let taken = false;
    let empty = 0;
    while (empty < takes.length && !(taken && empty === 0 && !hasTime())) {
      this.#turn = (this.#turn + 1) % takes.length;
      empty = takes[this.#turn]?.(txn) === true ? 0 : empty + 1;
      taken ||= empty === 0;
    }
    return taken;
  }

  /** Takes in what the tables hold now, and shows what follows. Changes that come meanwhile wait. */
  async #begin(inputs: readonly Input[]): Promise<void> {
    const { db, model, missingKinds, stopwatch = machineStopwatch } = this.#options;
    // As it is now: policies of a kind that can be read from now on are among the changes that wait.
    const missing = missingKinds();
    const takes = inputs.map(({ takePresent }) => takePresent);
    const rounds = async (work: (txn: WriteTxn) => boolean): Promise<void> => {
      for (let more = true; more && !this.#stop.signal.aborted; ) {
        model.round((txn) => {
          more = work(txn);
        });
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    await rounds((txn) => this.#take(txn, takes));
    using before = db.read();
    const steps = model.completion(before, missing);
    await rounds((txn) => {
      const hasTime = timeShare(stopwatch);
      let step: Step | undefined;
      do {
        step = steps.next().value;
        step?.(txn);
      } while (step !== undefined && hasTime());
      return step !== undefined;
    });
  }

  /** All inputs have been taken in. */
  #lookAtKinds(txn: WriteTxn, missing: ReadonlySet<PolicyObjectKind>): void {
    const { model } = this.#options;
    for (const kind of model.keptKinds(txn)) if (!missing.has(kind)) model.kindKnown(txn, kind);
  }

  /** `queue`: changes are taken one of each owner in turn. */
  #input<T>(
    present: Reader,
    table: Table<T>,
    set: (txn: WriteTxn, row: T) => void,
    remove: (txn: WriteTxn, row: T) => void,
    queue?: Turns<T>,
  ): Input {
    const rows = present.all(table);
    let row = rows.next();
    const stream = this.#options.db.changes(table, { name: 'sync-loop', from: present.revision(table) });
    // Should the round fail it is pulled again.
    const next = (txn: WriteTxn): Change<T> | undefined => {
      if (queue === undefined) return stream.next(1)[0];
      for (const change of stream.next(QUEUED)) queue.put(txn, change);
      return queue.take(txn);
    };
    return {
      ...inputOf(stream),
      takePresent(txn) {
        if (row.done === true) return false;
        set(txn, row.value);
        row = rows.next();
        return true;
      },
      take(txn) {
        const change = next(txn);
        if (change === undefined) return false;
        if (change.deleted) remove(txn, change.row);
        else set(txn, change.row);
        return true;
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
      for (const input of inputs) {
        if (!over) undo.push(input.onPending(end));
      }
    });
  }
}

function inputOf<T>(stream: ChangeStream<T>): Pick<Input, 'onPending' | 'dispose'> {
  return {
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
