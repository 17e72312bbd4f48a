/**
 * The reconciler: the loop that decides what is due, the lifecycle, and the answers.
 *
 * One thing runs at a time: a round, a prune, or a part of a refresh; `#exclusive` queues them. Operations that return a
 * promise go on beside it.
 */
import type { Revision } from '@weir/statedb';
import { Book, type Item } from './book.ts';
import { TokenBucket } from './bucket.ts';
import { Calls } from './calls.ts';
import { Alarm } from './clock.ts';
import { ReconcilerStoppedError, StopTimeoutError } from './errors.ts';
import { Frontier } from './frontier.ts';
import { Gate } from './gate.ts';
import { Inputs } from './inputs.ts';
import { type Settings, settingsOf } from './options.ts';
import type { Parts } from './parts.ts';
import { Pruner } from './pruner.ts';
import { Report } from './report.ts';
import { Results } from './results.ts';
import { Rounds, type Sweep } from './rounds.ts';
import type {
  Failure,
  Progress,
  Reconciler,
  ReconcilerMetrics,
  ReconcilerOptions,
  RowStatus,
  WaitOptions,
} from './types.ts';
import { waitFor } from './wait.ts';

/** Timers come late. Rounds that such a delay has held up follow closer, up to what would have run in so many milliseconds. */
const LATE_MS = 10;

class TableReconciler<T> implements Reconciler<T> {
  readonly name: string;
  readonly #settings: Settings<T>;
  readonly #alarm: Alarm;
  readonly #parts: Parts<T>;
  readonly #inputs: Inputs<T>;
  readonly #rounds: Rounds<T>;
  readonly #pruner: Pruner<T>;
  readonly #report: Report<T> | undefined;
  #running: Promise<unknown> = Promise.resolve();
  #loop: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #sweep: Sweep<T> | undefined;
  #refreshAt: number;
  #count = 0;

  constructor(options: ReconcilerOptions<T>) {
    const settings = settingsOf(options);
    const { name, clock, operationsPerSecond, burst, operationTimeoutMs, report } = settings;
    this.name = name;
    this.#settings = settings;
    this.#alarm = new Alarm(clock);
    const book = new Book<T>(report !== undefined);
    const calls = new Calls({ name, clock, alarm: this.#alarm, operationTimeoutMs });
    const gate = new Gate(this.#alarm, calls, new TokenBucket(operationsPerSecond, burst, clock));
    this.#parts = { settings, book, calls, gate, frontier: new Frontier(), results: new Results(settings, book) };
    this.#inputs = new Inputs(settings);
    this.#rounds = new Rounds(this.#parts, this.#inputs);
    this.#pruner = new Pruner(this.#parts, this.#inputs);
    this.#report = report && new Report(report, book, () => this.#health());
    this.#refreshAt = this.#nextRefresh();
  }

  start(): void {
    if (this.#stopped !== undefined) throw this.#stoppedError('it cannot be started again');
    this.#loop ??= this.#run();
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  reconcile(): Promise<Progress<T>> {
    return this.#exclusive('it did not reconcile', async () => {
      const { frontier, gate } = this.#parts;
      const { singles } = this.#rounds;
      const revision = this.#rounds.tableRevision();
      const group = { running: 0 };
      this.#count++;
      await this.#rounds.catchUp(revision);
      await this.#rounds.retries(group);
      while (!gate.closed && (frontier.attempted < revision || group.running > 0)) {
        if (singles.ready.length > 0) await singles.released({ group, since: 0 });
        else await this.#alarm.sleep(Number.POSITIVE_INFINITY);
      }
      this.#report?.write(this.#settings.clock.now());
      return this.#progress(revision, frontier.attempted);
    });
  }

  prune(): Promise<void> {
    return this.#exclusive('it did not prune', () => this.#pruner.run());
  }

  async refresh(): Promise<Progress<T>> {
    const { gate } = this.#parts;
    const refused = 'it did not refresh every row';
    const sweep = await this.#exclusive(refused, async () => this.#rounds.sweep());
    try {
      while (await this.#exclusive(refused, () => this.#rounds.refresh(sweep)));
    } finally {
      sweep.stream[Symbol.dispose]();
    }
    if (!(await gate.until(() => sweep.group.running === 0))) throw this.#stoppedError(refused);
    return this.#progress(sweep.until, Number.POSITIVE_INFINITY);
  }

  status(key: string): RowStatus | undefined {
    const { book } = this.#parts;
    const item = book.items.get(key);
    using snapshot = this.#settings.db.read();
    const { table } = this.#settings;
    const version = snapshot.getVersioned(table, key);
    if (version === undefined) {
      if (item?.deleted) return statusOf(item);
      const revision = snapshot.revision(table);
      return item === undefined && this.#rounds.handled >= revision ? undefined : { kind: 'pending', revision };
    }
    const { revision } = version;
    if (item === undefined) return { kind: revision <= this.#rounds.handled ? 'done' : 'pending', revision };
    return item.revision === revision ? statusOf(item) : { kind: 'pending', revision };
  }

  async waitUntil(revision: Revision, options: WaitOptions | AbortSignal = {}): Promise<Progress<T>> {
    const { frontier } = this.#parts;
    if (this.#stopped !== undefined && frontier.attempted < revision) {
      throw this.#stoppedError(`it did not attempt revision ${revision}`);
    }
    await waitFor(frontier, revision, options, this.#settings);
    return this.#progress(revision, revision);
  }

  failing(): readonly Failure<T>[] {
    return this.#parts.book.failures();
  }

  retry(): void {
    this.#parts.book.hasten(this.#settings.clock.now());
    this.#alarm.ring();
  }

  metrics(): ReconcilerMetrics {
    const { results, calls, book } = this.#parts;
    const { update, delete: deletes, prune } = results.totals;
    return {
      update: { ...update },
      delete: { ...deletes },
      prune: { ...prune },
      rounds: this.#count,
      lag: this.#lag(),
      running: calls.running,
      failing: book.failing,
    };
  }

  async #run(): Promise<void> {
    const { clock, roundIntervalMs } = this.#settings;
    let next = clock.now();
    while (!this.#parts.gate.closed) {
      next = Math.max(next, clock.now() - LATE_MS) + roundIntervalMs;
      await this.#locked(() => this.#round());
      await this.#idle(next);
    }
  }

  async #round(): Promise<void> {
    this.#count++;
    await this.#rounds.changes();
    await this.#rounds.retries({ running: 0 });
    await this.#refreshWhenDue();
    await this.#pruner.runWhenDue();
    const now = this.#settings.clock.now();
    if (this.#report !== undefined && now >= this.#report.dueAt) this.#report.write(now);
  }

  /** Waits until something is due, and at least until `earliest`. Always lets the event loop run once. */
  async #idle(earliest: number): Promise<void> {
    const { gate, book } = this.#parts;
    const { clock } = this.#settings;
    await new Promise<void>((resolve) => setImmediate(resolve));
    for (let left = earliest - clock.now(); left > 0 && !gate.closed; left = earliest - clock.now()) {
      await this.#alarm.sleep(left);
    }
    if (gate.closed || this.#rounds.singles.ready.length > 0 || this.#sweep !== undefined) return;
    const pending = this.#rounds.stream.watch();
    if (pending.fired) return;
    const initialised = this.#inputs.watches();
    const due = Math.min(
      book.nextDue() ?? Number.POSITIVE_INFINITY,
      initialised.length > 0 ? Number.POSITIVE_INFINITY : Math.min(this.#refreshAt, this.#pruner.dueAt),
      this.#report?.dueAt ?? Number.POSITIVE_INFINITY,
    );
    await this.#alarm.sleep(due - clock.now(), [pending, ...initialised]);
  }

  async #refreshWhenDue(): Promise<void> {
    if (this.#sweep === undefined) {
      if (this.#settings.clock.now() < this.#refreshAt || this.#inputs.watches().length > 0) return;
      this.#sweep = this.#rounds.sweep();
    }
    if (await this.#rounds.refresh(this.#sweep)) return;
    this.#sweep.stream[Symbol.dispose]();
    this.#sweep = undefined;
    this.#refreshAt = this.#nextRefresh();
  }

  #nextRefresh(): number {
    const { clock, refreshIntervalMs } = this.#settings;
    return refreshIntervalMs === 0 ? Number.POSITIVE_INFINITY : clock.now() + refreshIntervalMs;
  }

  /** Runs what a caller asks for; the loop then looks again at what is due. */
  #exclusive<R>(refused: string, action: () => Promise<R>): Promise<R> {
    return this.#locked(async () => {
      if (this.#stopped !== undefined) throw this.#stoppedError(refused);
      try {
        return await action();
      } finally {
        this.#alarm.ring();
      }
    });
  }

  /** Runs `action` after whatever runs now. */
  #locked<R>(action: () => Promise<R>): Promise<R> {
    const result = this.#running.then(() => {
      this.#parts.gate.begin();
      return action();
    });
    this.#running = result.catch(() => {});
    return result;
  }

  async #stop(): Promise<void> {
    const { calls, gate, frontier } = this.#parts;
    const { clock, stopGraceMs } = this.#settings;
    gate.closed = true;
    this.#alarm.ring();
    let givenUp = false;
    let forget = clock.after(stopGraceMs, () => {
      calls.abort(this.#stoppedError('its operations are to end'));
      forget = clock.after(stopGraceMs, () => {
        givenUp = true;
        this.#alarm.ring();
      });
    });
    let ended = false;
    void Promise.allSettled([this.#loop, this.#running]).then(() => {
      ended = true;
      this.#alarm.ring();
    });
    while (!givenUp && (!ended || calls.running > 0)) await this.#alarm.sleep(Number.POSITIVE_INFINITY);
    forget();
    this.#rounds.close();
    this.#sweep?.stream[Symbol.dispose]();
    for (const waiter of [...frontier.waiters]) waiter.stopped();
    this.#report?.write(clock.now());
    if (calls.running > 0) throw new StopTimeoutError(this.name, calls.running, stopGraceMs);
  }

  #progress(asked: Revision, failingUntil: Revision): Progress<T> {
    const { frontier, book } = this.#parts;
    const revision = frontier.attempted;
    return { revision, reached: revision >= asked, failing: book.failures(failingUntil) };
  }

  #health() {
    const { failing } = this.#parts.book;
    return {
      reconciler: this.name,
      table: this.#settings.table.name,
      state: this.#stopped === undefined ? ('running' as const) : ('stopped' as const),
      ok: failing === 0,
      attempted: this.#parts.frontier.attempted,
      lag: this.#lag(),
      failing,
    };
  }

  #lag(): number {
    return Math.max(0, this.#rounds.tableRevision() - this.#parts.frontier.attempted);
  }

  #stoppedError(what: string): ReconcilerStoppedError {
    return new ReconcilerStoppedError(this.name, what);
  }
}

function statusOf<T>({ revision, error, attempt, dueAt }: Item<T>): RowStatus {
  if (error === undefined || attempt === 0) return { kind: 'pending', revision };
  return { kind: 'error', revision, error, attempt, nextRetryAt: dueAt };
}

/** A reconciler of `options.table`; nothing happens until `start()` or `reconcile()`. Throws `InvalidOptionError`. */
export function createReconciler<T>(options: ReconcilerOptions<T>): Reconciler<T> {
  return new TableReconciler(options);
}
