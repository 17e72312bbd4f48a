/**
 * A program made of parts: what each needs, the order in which they start and stop, and how far each has come.
 *
 * Guarantees: a part is built, and started, after all that it needs, and stopped before them; among parts that do not need each other the
 * list's order counts. Where one does not start, those before it are stopped again, and the error names it. `stop()` may be called at any time, and
 * interrupts a start in progress. It tries every part.
 *
 * Models: hive's cells, controller-runtime's Manager. avvio, which fastify brings, starts plugins one after another as they were
 * registered; it knows neither what needs what nor, for whoever asks while the program runs, what waits for what.
 */
import { messageOf } from './errors.ts';

/** How long a part may take to start, where it says nothing else, in milliseconds. */
const START_WITHIN_MS = 60_000;
/** The same of a stop: less than what a container runtime waits before it kills. */
const STOP_WITHIN_MS = 4_500;

/** What runs. Both functions may be absent: some parts only answer. */
export interface Part<Value = unknown> {
  /** What parts that need this one are given. */
  readonly provides?: Value;
  start?(): void | Promise<void>;
  /**
   * May come while `start` is under way, which is to end then, one way or the other.
   * @param inUse a part that needs this one did not stop, and may use it still
   */
  stop?(inUse: boolean): void | Promise<void>;
}

/** What a part provides; undefined for one that was not built, or provides nothing. */
export type ProvidedBy<Built> = Built extends { readonly provides: infer Value } ? Value : undefined;

// biome-ignore lint/suspicious/noExplicitAny: what a spec in a list builds is its own affair
export type AnyPartSpec = PartSpec<any, any, any>;
/** No needs, no flags, no settings. */
export type None = Readonly<Record<never, never>>;
export type PartNeeds = Readonly<Record<string, AnyPartSpec>>;

/** What the parts that are needed provide, by the names that the one in need gives them. */
export type Given<Needs extends PartNeeds> = {
  readonly [Name in keyof Needs]: Needs[Name] extends PartSpec<infer _C, infer Built, infer _N>
    ? ProvidedBy<Built>
    : never;
};

/** How a part is made. `undefined` from `build`: this program runs without it. */
export interface PartSpec<Context, Built extends Part | undefined, Needs extends PartNeeds> {
  /** Lower case, with hyphens; unique in a program. */
  readonly name: string;
  readonly needs?: Needs;
  /** Milliseconds; default 60,000. `Infinity`: no limit, for one that waits for others. */
  readonly startWithinMs?: number;
  /** Milliseconds; default 4,500. `Infinity`: no limit. */
  readonly stopWithinMs?: number;
  /** Makes it, and starts nothing: no timer, no socket, no change of the machine. */
  build(given: Given<Needs>, context: Context): Built | Promise<Built>;
}

export type PartState = 'off' | 'waiting' | 'starting' | 'running' | 'stopping' | 'stopped' | 'failed';

type Made<R> = Extract<R, Part | undefined>;

/** As a part is written down: its functions take their types from what it needs, and from the program's context. */
export type PartDefinition<Context, R, Needs extends PartNeeds> = Omit<PartSpec<Context, Made<R>, Needs>, 'build'> & {
  build(given: Given<Needs>, context: Context): R | Promise<R>;
};
/** What others see of it. */
export type DefinedPart<Context, R, Needs extends PartNeeds> = PartSpec<Context, Made<R>, Needs>;

/** How far a part has come. Key: `name`. */
export interface PartRow {
  readonly name: string;
  /** Its place in the order of start. */
  readonly order: number;
  readonly needs: readonly string[];
  readonly state: PartState;
  /** Of the parts it needs, those that do not run yet. */
  readonly waitsFor: readonly string[];
  /** When it came into this state: milliseconds since 1970. */
  readonly since: number;
  /** Why it failed. */
  readonly message?: string;
}

/**
 * A list of parts cannot be started: two parts or two maps of one name, a need that is not in the list, or needs that form a circle.
 * @fix Correct the list (node-agent/part-list.ts) or the part that the message names.
 */
export class PartListError extends Error {
  override readonly name = 'PartListError';
  readonly code = 'ERR_WEIR_PARTS';
}

/**
 * A part did not start, or did not stop, within its time limit.
 * @fix See the log for what the part waits for; its row in `weir status --verbose` names the parts that it waits for.
 */
export class PartTimeoutError extends Error {
  override readonly name = 'PartTimeoutError';
  readonly code = 'ERR_WEIR_PART_TIMEOUT';
}

export interface PartsOptions {
  /** Parts of a longer life that these may need: to be started before, and stopped after. */
  readonly outer?: Parts;
  /** Called with each change of a part. */
  readonly onChange?: (row: PartRow) => void;
  /** A part did not start; those before it are stopped next. */
  readonly onStartFailed?: (error: unknown) => void;
  /** A part did not stop as it should; the others are stopped all the same. */
  readonly onStopFailed?: (name: string, error: unknown) => void;
}

interface Member {
  readonly spec: AnyPartSpec;
  readonly part: Part | undefined;
  row: PartRow;
  /** Resolves when its start has ended, whichever way. */
  started?: Promise<void>;
}

type Failures = readonly { readonly error: unknown }[];

/** The parts of one program, from build to stop. Used once: what was stopped is not started again. */
export class Parts {
  readonly #options: PartsOptions;
  readonly #members: Member[] = [];
  readonly #stopping = Promise.withResolvers<'stopping'>();
  #started: Promise<boolean> | undefined;
  /** Of the stop, from its begin. */
  #failures: Promise<Failures> | undefined;

  private constructor(options: PartsOptions) {
    this.#options = options;
  }

  /**
   * Builds every part of the list, and starts none.
   * @throws PartListError
   */
  static async build<Context>(
    specs: readonly AnyPartSpec[],
    context: Context,
    options: PartsOptions = {},
  ): Promise<Parts> {
    const parts = new Parts(options);
    for (const spec of orderOf(specs, options.outer?.specs)) await parts.#build(spec, context);
    return parts;
  }

  /** All of them, in the order of start. */
  get specs(): readonly AnyPartSpec[] {
    return this.#members.map(({ spec }) => spec);
  }

  /** Those that are not off, in the order of start. */
  get built(): readonly Part[] {
    return this.#members.flatMap(({ part }) => (part === undefined ? [] : [part]));
  }

  /** What a part provides, one of the outer parts included; undefined for one that is off, or not in the list. */
  provided<Built extends Part | undefined>(spec: {
    build(given: never, context: never): Built | Promise<Built>;
  }): ProvidedBy<Built> | undefined {
    const own = this.#members.find((member) => (member.spec as unknown) === spec);
    if (own === undefined) return this.#options.outer?.provided(spec);
    return own.part?.provides as ProvidedBy<Built> | undefined;
  }

  rows(): readonly PartRow[] {
    return this.#members.map(({ row }) => row);
  }

  /**
   * Starts them one after another. Resolves to whether they run: they do not where a stop came in between, once that has ended. Rejects with the
   * error of the first that does not start, once those before it are stopped again.
   */
  start(): Promise<boolean> {
    this.#started ??= this.#startEach();
    return this.#started;
  }

  async #startEach(): Promise<boolean> {
    // Outer parts have started since.
    this.#waitForLess();
    for (const member of this.#members) {
      if (this.#failures !== undefined) break;
      if (member.part === undefined) continue;
      this.#change(member, 'starting');
      try {
        const work = this.#startOf(member, member.part);
        // What is started already keeps nobody waiting: the next one starts in the same iteration of the event loop.
        if (work instanceof Promise && (await work) === 'stopping') break;
      } catch (error) {
        if (this.#failures !== undefined) break;
        this.#change(member, 'failed', messageOf(error));
        this.#options.onStartFailed?.(error);
        await this.#stopAll();
        throw error;
      }
      if (this.#failures !== undefined) break;
      this.#change(member, 'running');
    }
    await this.#failures;
    return this.#failures === undefined;
  }

  /** Starts one. Resolves to `stopping` where a stop comes before it runs. */
  #startOf(member: Member, part: Part): undefined | Promise<unknown> {
    const { name, startWithinMs = START_WITHIN_MS } = member.spec;
    // It may itself have all stopped, before it returns.
    const { promise, resolve } = Promise.withResolvers<void>();
    member.started = promise;
    try {
      const work = part.start?.();
      if (!(work instanceof Promise)) {
        resolve();
        return undefined;
      }
      work.then(resolve, () => resolve());
      const either = Promise.race([work, this.#stopping.promise]);
      return within(either, startWithinMs, () => this.#late(name, startWithinMs));
    } catch (error) {
      resolve();
      throw error;
    }
  }

  /** Stops them in the opposite order, those that are still starting first; the first failure is thrown after all have been tried. */
  async stop(): Promise<void> {
    const [failure] = await this.#stopAll();
    if (failure !== undefined) throw failure.error;
  }

  #stopAll(): Promise<Failures> {
    this.#stopping.resolve('stopping');
    this.#failures ??= this.#stopEach();
    return this.#failures;
  }

  async #stopEach(): Promise<Failures> {
    const failures: { readonly error: unknown }[] = [];
    const inUse = new Set<string>();
    for (const member of this.#members.toReversed()) {
      const { spec, part, row, started } = member;
      if (row.state !== 'running' && row.state !== 'starting' && row.state !== 'failed') continue;
      const { name, stopWithinMs = STOP_WITHIN_MS } = spec;
      const failed = row.state === 'failed' ? row.message : undefined;
      if (failed === undefined) this.#change(member, 'stopping');
      const stop = async (): Promise<void> => {
        await part?.stop?.(inUse.has(name));
        // What did not start in time is waited for no longer; what a stop interrupts begins nothing after it.
        if (row.state === 'starting') await started;
      };
      try {
        await within(stop(), stopWithinMs, () => `part ${name} did not stop within ${stopWithinMs / 1000} s`);
        if (failed === undefined) this.#change(member, 'stopped');
      } catch (error) {
        failures.push({ error });
        inUse.add(name);
        this.#change(member, 'failed', messageOf(error));
        this.#options.onStopFailed?.(name, error);
      }
      if (inUse.has(name)) for (const need of row.needs) inUse.add(need);
    }
    return failures;
  }

  /** Outer parts are before them. */
  get #first(): number {
    const outer = this.#options.outer;
    return outer === undefined ? 0 : outer.#first + outer.#members.length;
  }

  async #build(spec: AnyPartSpec, context: unknown): Promise<void> {
    const needs = Object.entries((spec.needs ?? {}) as PartNeeds);
    const given: Record<string, unknown> = Object.fromEntries(needs.map(([as, need]) => [as, this.provided(need)]));
    const part: Part | undefined = await spec.build(given as never, context);
    const names = needs.map(([, { name }]) => name);
    const order = this.#first + this.#members.length;
    const row: PartRow = { name: spec.name, order, needs: names, state: 'off', waitsFor: [], since: Date.now() };
    const member = { spec, part, row };
    this.#members.push(member);
    this.#change(member, part === undefined ? 'off' : 'waiting');
  }

  #change(member: Member, state: PartState, message?: string): void {
    const { row } = member;
    const { message: _, ...rest } = row;
    member.row = {
      ...rest,
      state,
      waitsFor: state === 'waiting' ? this.#waitsFor(member) : [],
      since: Date.now(),
      ...(message === undefined ? {} : { message }),
    };
    this.#options.onChange?.(member.row);
    if (state !== 'waiting') this.#waitForLess();
  }

  /** Who waited for what runs now waits for less. */
  #waitForLess(): void {
    for (const member of this.#members) {
      if (member.row.state !== 'waiting') continue;
      const waitsFor = this.#waitsFor(member);
      if (waitsFor.length === member.row.waitsFor.length) continue;
      member.row = { ...member.row, waitsFor };
      this.#options.onChange?.(member.row);
    }
  }

  #waitsFor({ row }: Member): readonly string[] {
    return row.needs.filter((name) => {
      const state = this.#rowOf(name)?.state;
      return state !== 'running' && state !== 'off';
    });
  }

  #rowOf(name: string): PartRow | undefined {
    const { outer } = this.#options;
    const own = this.#members.find(({ spec }) => spec.name === name);
    return own === undefined && outer !== undefined ? outer.#rowOf(name) : own?.row;
  }

  #late(name: string, ms: number): string {
    const waiting = this.#members.filter(({ row }) => row.waitsFor.includes(name)).map(({ spec }) => spec.name);
    const who = waiting.length === 0 ? '' : `; ${waiting.join(', ')} ${waiting.length === 1 ? 'waits' : 'wait'} for it`;
    return `part ${name} did not start within ${ms / 1000} s${who}`;
  }
}

/** The list's order, but each after what it needs. @param outer what is there already @throws PartListError */
export function orderOf(specs: readonly AnyPartSpec[], outer: readonly AnyPartSpec[] = []): readonly AnyPartSpec[] {
  const there = new Map(outer.map((spec) => [spec.name, spec]));
  const listed = new Map<string, AnyPartSpec>();
  for (const spec of specs) {
    if (listed.has(spec.name) || there.has(spec.name))
      throw new PartListError(`two parts are called ${spec.name}: give one another name`);
    listed.set(spec.name, spec);
  }
  const ordered = new Set<AnyPartSpec>();
  const visit = (spec: AnyPartSpec, path: readonly AnyPartSpec[]): void => {
    if (ordered.has(spec)) return;
    const circle = [...path.slice(path.indexOf(spec)), spec].map(({ name }) => name);
    if (path.includes(spec)) throw new PartListError(`parts need each other in a circle: ${circle.join(' -> ')}`);
    for (const need of Object.values((spec.needs ?? {}) as PartNeeds)) {
      if (there.get(need.name) === need) continue;
      if (listed.get(need.name) !== need)
        throw new PartListError(`part ${spec.name} needs part ${need.name}, which is not in the list: add it`);
      visit(need, [...path, spec]);
    }
    ordered.add(spec);
  };
  for (const spec of specs) visit(spec, []);
  return [...ordered];
}

async function within<T>(work: T | Promise<T>, ms: number, late: () => string): Promise<T> {
  if (ms === Infinity) return await work;
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new PartTimeoutError(late())), ms);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}
