/**
 * Whether the kernel still has what it acknowledged. The words of this:
 * - look: every few seconds, over all that must not be missing for long: pins, programs, links, the nearest of what maps hold.
 * - step: a few milliseconds of comparing what maps hold. Turn: the steps in which every element of one kind was compared once.
 * - difference: an element that is not what was written. Fault: a difference, or something else that a look missed, until it is put back.
 */
import { messageOf } from '@weir/process/errors';
import type { StateDB, Table } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { Pace } from '../derive/contract.ts';
import type { EnforcementFault, IpcacheRow } from '../tables.ts';
import type { Clock } from './clock.ts';
import type { ContentAudit, Difference, Step } from './content-audit.ts';
import type { KernelRows } from './kernel-rows.ts';
import type { KernelStores } from './kernel-stores.ts';
import type { PinnedDatapath } from './pins.ts';
import { EVERY, type PlanWriter } from './plan-writer.ts';

/** What maps hold, which is compared in turns of many steps. */
export type Content = 'address' | 'slot';
type Fault = EnforcementFault;
export type Part = Fault['part'];

/** For how long the last repair is the first thing that is said, in milliseconds. */
const RECENT_MS = 600_000;

/** How often something was put back. Key: `part`. */
interface Repairs {
  readonly part: Part;
  readonly count: number;
  /** The last: ISO 8601, and what it was. */
  readonly at: string;
  readonly last: string;
}

/** A turn, in which every element of one kind was compared that the kernel had acknowledged. Key: `part`. */
export interface Turn {
  readonly part: Content;
  /** When it ended: ISO 8601. */
  readonly at: string;
  readonly seconds: number;
  /** How many the kernel had not, which were left out. */
  readonly left: number;
}

/** A turn that has not ended. */
interface TurnUnderWay {
  readonly began: number;
  /** The most that were left out in one of its steps. */
  readonly left: number;
  /** Whether the log has a line of it. */
  readonly warned: boolean;
  /** How much was put back. */
  readonly mended: number;
  /** What was put back first, in words; at most TOLD. */
  readonly first: readonly string[];
}

/**
 * After a step. `ended`: the next begins a turn, and may wait. `mended`: something was wrong and is put back; more of it may be in what comes
 * next, which must not wait.
 */
export type StepResult = 'goes on' | 'mended' | 'ended';

/**
 * What maps hold is compared in steps, each followed by a rest of so many times the CPU that it took: at most 1 % of a core for either kind
 * of content, while its turn is under way.
 */
const REST = 99;

/** For how long to rest after a step that took `cpuMs` of CPU, in milliseconds. `often`: how often is looked at what is enforced. */
export function restAfter(result: StepResult, cpuMs: number, often: number): number {
  if (result === 'ended') return often;
  return result === 'mended' ? 0 : REST * cpuMs;
}

export interface AuditOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache' | 'endpointStates' | 'enforcementFaults'>;
  readonly writer: Pick<PlanWriter, 'adopted' | 'beginRepair' | 'endRepair'> & {
    readonly rows: Pick<KernelRows, 'unacknowledged' | 'slotSettled' | 'addressSettled'>;
  };
  readonly kernel: Pick<KernelStores, 'slots' | 'ipcache' | 'endpoints' | 'clearFlows'>;
  readonly contents: Readonly<Record<Content, ContentAudit>>;
  readonly clock: Pick<Clock, 'now' | 'breathe'>;
  readonly pinned: Pick<PinnedDatapath, 'unpinned' | 'repin'>;
  readonly interfaces: {
    /** Gives those that were gone, and are there again, their programs. */
    guardReturned(): Promise<void>;
    /** The endpoint's is gone. */
    gone(endpoint: number): void;
  };
  /** What somebody had taken away is there again, in words: once for each look or turn. */
  readonly onMended: (what: string) => void;
  /** Faults have come or gone. */
  readonly onFaults: () => void;
  readonly log: Logger;
}

/**
 * Whether the kernel still has what it acknowledged: others may detach programs, remove pins, edit maps. What is found is in table
 * `enforcementFaults` until it is put back, which is tried at once and in each look.
 *
 * Each look is at every pin, at programs, links and element of every endpoint, at the addresses of this node's pods, and at each slot's
 * maps. What maps hold is compared in turns, beside the looks. Looks and steps are to be made between rounds: while one is under way, what is
 * wanted and what is there differ.
 */
export class Audit {
  readonly #options: AuditOptions;
  readonly #pace: Pace;
  readonly #faults: Table<Fault>;
  readonly #repairs: Table<Repairs>;
  readonly #turns: Table<Turn>;
  readonly #turn: Record<Content, TurnUnderWay | undefined> = { address: undefined, slot: undefined };

  constructor(options: AuditOptions) {
    const { db, tables, clock } = options;
    this.#options = options;
    this.#pace = new Pace(clock.now, clock.breathe);
    this.#faults = tables.enforcementFaults;
    this.#repairs = db.table<Repairs>({ name: 'enforcementRepairs', key: ({ part }) => part });
    this.#turns = db.table<Turn>({ name: 'enforcementTurns', key: ({ part }) => part });
  }

  /** Looks, says what is missing, and puts it back. */
  async look(): Promise<void> {
    const { contents, interfaces } = this.#options;
    const found = [
      ...(await this.#examined('endpoint', () => interfaces.guardReturned().then(() => []))),
      ...(await this.#examined('endpoint', () => this.#endpoints())),
      ...(await this.#examined('pins', () => this.#pins())),
    ];
    if (this.canCompare)
      for (const part of CONTENTS)
        found.push(...(await this.#examined(part, async () => faultsOf(part, await contents[part].nearest()))));
    const seen = new Set(found.map(tableKey.fault));
    // What could not be put back is tried again, though this look was not at it.
    const over: Fault[] = [];
    for (const fault of this.faults()) {
      if (seen.has(tableKey.fault(fault)) || this.#changes(fault)) continue;
      const unseen = seen.has(tableKey.fault({ part: fault.part, of: UNSEEN }));
      ((await this.#remains(fault, unseen)) ? found : over).push(fault);
    }
    this.#warn(found);
    const mended = await this.#settle(found, over);
    if (mended.length > 0) this.#options.onMended(someOf(mended.slice(0, TOLD).map(faultText), mended.length));
  }

  /** Compares the next of what maps hold, and puts back what is missing. */
  async step(part: Content): Promise<StepResult> {
    const { db, contents, writer, clock } = this.#options;
    // Until then the kernel may hold what was found.
    if (!this.canCompare) return 'ended';
    let turn = this.#turn[part] ?? { began: clock.now(), left: 0, warned: false, mended: 0, first: [] };
    let step: Step | undefined;
    const found = await this.#examined(part, async () => {
      step = await contents[part].step();
      return faultsOf(part, step.found);
    });
    const unseen = found.length === 0 ? this.#known({ part, of: UNSEEN }) : undefined;
    // A map that somebody emptied is one thing to say.
    const warned = turn.warned || this.#warn(found);
    const mended = await this.#settle(found, unseen === undefined ? [] : [unseen]);
    turn = {
      ...turn,
      left: Math.max(turn.left, writer.rows.unacknowledged(part)),
      warned,
      mended: turn.mended + mended.length,
      first: [...turn.first, ...mended.slice(0, TOLD).map(faultText)].slice(0, TOLD),
    };
    this.#turn[part] = turn;
    if (step?.ended === false) return mended.length > 0 ? 'mended' : 'goes on';
    this.#turn[part] = undefined;
    if (turn.mended > 0) this.#options.onMended(someOf(turn.first, turn.mended));
    if (step !== undefined) {
      const seconds = (clock.now() - turn.began) / 1000;
      db.write([this.#turns], (txn) =>
        txn.upsert(this.#turns, { part, at: new Date().toISOString(), seconds, left: turn.left }),
      );
    }
    return 'ended';
  }

  /** Whether what maps hold can be compared: before the first plan is in force nobody knows what it is to be. */
  get canCompare(): boolean {
    return this.#options.writer.adopted;
  }

  /** Whether a turn has begun, and not ended. */
  isUnderWay(part: Content): boolean {
    return this.#turn[part] !== undefined;
  }

  /** Whether the fault is of something that an edit has yet to reach: what it is to hold is not what it holds. */
  #changes({ part, of }: Fault): boolean {
    const { writer } = this.#options;
    if (of === UNSEEN) return false;
    return (
      (part === 'slot' && !writer.rows.slotSettled(Number(of))) ||
      (part === 'address' && !writer.rows.addressSettled(of))
    );
  }

  /** Says what is new among them, in one line for each part; whether there is any. */
  #warn(found: readonly Fault[]): boolean {
    const fresh = Map.groupBy(
      found.filter((fault) => this.#known(fault) === undefined),
      ({ part }) => part,
    );
    for (const [part, [first, ...more]] of fresh)
      this.#options.log.warn(
        { part, of: first?.of, problem: first?.problem, more: more.length },
        'enforcement was taken away from outside; it is put back',
      );
    return fresh.size > 0;
  }

  /**
   * Puts back what was found, and returns what was. `over`: faults that are none any more. All are faults until the flows that they may have
   * allowed are judged again.
   */
  async #settle(found: readonly Fault[], over: readonly Fault[]): Promise<readonly Fault[]> {
    if (found.length + over.length === 0) return [];
    const { writer, kernel } = this.#options;
    const fresh = new Set(found.filter((fault) => this.#known(fault) === undefined));
    this.#put([...fresh], []);
    writer.beginRepair();
    const left = await this.#mend(found);
    // What had let packets through unjudged went by itself, as another's program does whose owner takes it away; or it may have, before
    // something else was put back.
    const stood = found.filter((fault) => !fresh.has(fault));
    for (const id of new Set(endpointsOf([...over, ...without(stood, left)]))) kernel.endpoints.doubt(id);
    left.push(...without(await this.#uncleared([...found, ...over]), left));
    const mended = without(found, left);
    const past = without(over, left);
    this.#count(mended);
    await writer.endRepair(this.#concerned([...mended, ...past]));
    const changed = left.filter((fault) => this.#known(fault)?.error !== fault.error);
    this.#put(changed, [...mended, ...past]);
    // What came and went in between is nothing to report.
    const back = new Set(mended);
    const same = found.every((fault) => fresh.has(fault) === back.has(fault));
    if (!same || changed.length + past.length > 0) this.#options.onFaults();
    return mended;
  }

  /** Deletes the flows that endpoints among them may have begun with an answer to what nobody judged; those whose flows are still there. */
  async #uncleared(faults: readonly Fault[]): Promise<Fault[]> {
    const endpoints = faults.filter(isEndpoint);
    if (endpoints.length === 0) return [];
    try {
      await this.#options.kernel.clearFlows();
      return [];
    } catch (error) {
      return endpoints.map((fault) => this.#refused(fault, `its flows cannot be deleted: ${messageOf(error)}`));
    }
  }

  /** The fault with its error, which is logged where it is another than before. */
  #refused(fault: Fault, error: string): Fault {
    const { part, of } = fault;
    if (this.#known(fault)?.error !== error)
      this.#options.log.error({ part, of, error }, 'enforcement cannot be put back');
    return { ...fault, error };
  }

  /** The endpoints that judged by what was wrong. */
  #concerned(faults: readonly Fault[]): Set<number> {
    const { db, tables } = this.#options;
    const slots = new Set(faults.filter(({ part }) => part === 'slot').map(({ of }) => of));
    const concerned = new Set(endpointsOf(faults));
    using snapshot = db.read();
    for (const { id, slot } of snapshot.all(tables.endpointStates)) if (slots.has(String(slot))) concerned.add(id);
    if (faults.some(({ part, of }) => part === 'address' && of !== UNSEEN)) concerned.add(EVERY);
    return concerned;
  }

  /** They were put back. */
  #count(mended: readonly Fault[]): void {
    if (mended.length === 0) return;
    const at = new Date().toISOString();
    this.#options.db.write([this.#repairs], (txn) => {
      for (const [part, faults] of Map.groupBy(mended, (fault) => fault.part)) {
        const count = (txn.get(this.#repairs, part)?.count ?? 0) + faults.length;
        const last = someOf(faults.slice(0, TOLD).map(faultText), faults.length);
        txn.upsert(this.#repairs, { part, count, at, last });
      }
    });
  }

  #put(come: readonly Fault[], gone: readonly Fault[]): void {
    if (come.length + gone.length === 0) return;
    this.#options.db.write([this.#faults], (txn) => {
      for (const fault of gone) txn.delete(this.#faults, tableKey.fault(fault));
      for (const fault of come) txn.upsert(this.#faults, fault);
    });
  }

  #known(fault: Pick<Fault, 'part' | 'of'>): Fault | undefined {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.#faults, tableKey.fault(fault));
  }

  faults(): readonly Fault[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.all(this.#faults)];
  }

  /** How often each part was put back, and what it was the last time, in words. */
  repairs(): readonly Repairs[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.all(this.#repairs)];
  }

  /** The last turn of each kind of content. */
  turns(): readonly Turn[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.all(this.#turns)];
  }

  /** In health's words. */
  check(): { readonly name: string; readonly ok: boolean; readonly message: string } {
    const name = 'enforcement';
    const faults = this.faults();
    if (faults.length > 0)
      return { name, ok: false, message: someOf(faults.slice(0, TOLD).map(faultText), faults.length) };
    using snapshot = this.#options.db.read();
    const repairs = [...snapshot.all(this.#repairs)].sort((a, b) => (a.at < b.at ? 1 : -1));
    const [last] = repairs;
    const total = repairs.reduce((sum, { count }) => sum + count, 0);
    const ago = last === undefined ? Number.POSITIVE_INFINITY : Math.max(0, Date.now() - Date.parse(last.at));
    const recent =
      last === undefined || ago > RECENT_MS
        ? ''
        : `${Math.round(ago / 1000)} s ago somebody had removed this, and it is put back: ${last.last}; `;
    const said =
      last === undefined
        ? ''
        : `; put back ${total} times, the last at ${last.at}${recent === '' ? `: ${last.last}` : ''}`;
    const turns = this.turns();
    const [oldest] = turns.map(({ at }) => at).sort();
    const left = turns.reduce((sum, turn) => sum + turn.left, 0);
    const whole =
      oldest === undefined || turns.length < CONTENTS.length
        ? '; what maps hold was not compared completely yet'
        : left === 0
          ? `; what maps hold was last compared completely at ${oldest}`
          : `; what maps hold was last compared at ${oldest}, but for ${left} entries that the kernel had not taken`;
    const what = left === 0 ? 'maps' : 'what the kernel took into maps';
    return {
      name,
      ok: true,
      message: `${recent}programs, links, pins and ${what} are as they were made${whole}${said}`,
    };
  }

  /** What cannot be looked at is a fault itself, and hides no other. */
  async #examined(part: Part, look: () => Fault[] | Promise<Fault[]>): Promise<Fault[]> {
    try {
      return await look();
    } catch (error) {
      return [{ part, of: UNSEEN, problem: `cannot be looked at: ${messageOf(error)}` }];
    }
  }

  #pins(): Fault[] {
    const names = this.#options.pinned.unpinned();
    return names.length === 0 ? [] : [{ part: 'pins', of: '', problem: `not pinned: ${names.join(', ')}` }];
  }

  #endpoints(): Fault[] {
    const { kernel, interfaces } = this.#options;
    const looks = kernel.endpoints.look();
    for (const { id, gone } of looks) if (gone) interfaces.gone(id);
    return looks
      .filter(({ gone, faults }) => !gone && faults.length > 0)
      .map(({ id, faults }) => ({ part: 'endpoint', of: String(id), problem: faults.join(', ') }));
  }

  /** Whether a fault of an earlier look or step is still one. `unseen`: its part cannot be looked at now. */
  async #remains({ part, of }: Fault, unseen: boolean): Promise<boolean> {
    if (part === 'pins' || part === 'endpoint') return unseen && of !== UNSEEN;
    // Only a step knows.
    if (of === UNSEEN) return true;
    return (await this.#options.contents[part].problem(of)) !== undefined;
  }

  /** Puts them back, with breaks; returns those that are left. */
  async #mend(faults: readonly Fault[]): Promise<Fault[]> {
    const pace = this.#pace;
    const left: Fault[] = [];
    pace.restart();
    for (const batch of batches(faults)) {
      left.push(...(await this.#mendBatch(batch)));
      if (pace.due()) await pace.breathe();
    }
    return left;
  }

  async #mendBatch(batch: readonly Fault[]): Promise<Fault[]> {
    const [fault, ...more] = batch;
    if (fault === undefined) return [];
    const { part, of } = fault;
    // Whether it is as it should be is not known before it can be looked at again.
    if (of === UNSEEN && part !== 'pins') return [...batch];
    try {
      await this.#putBack(batch);
    } catch (error) {
      if (more.length > 0) {
        // Each by itself, to tell those that are refused.
        const left: Fault[] = [];
        for (const each of batch) left.push(...(await this.#mendBatch([each])));
        return left;
      }
      return [this.#refused(fault, messageOf(error))];
    }
    return [];
  }

  async #putBack(batch: readonly Fault[]): Promise<void> {
    const { db, tables, kernel, pinned } = this.#options;
    const { endpoints, slots, ipcache } = kernel;
    const addresses: IpcacheRow[] = [];
    using snapshot = db.read();
    for (const { part, of } of batch) {
      if (part === 'pins') pinned.repin();
      else if (part === 'endpoint') endpoints.mend(Number(of));
      else if (part === 'slot') await slots.mend(Number(of));
      else {
        const row = snapshot.get(tables.ipcache, of);
        if (row !== undefined) addresses.push(row);
      }
    }
    if (addresses.length > 0) ipcache.updateAll(addresses);
  }
}

const CONTENTS: readonly Content[] = ['address', 'slot'];

function faultsOf(part: Content, differences: readonly Difference[]): Fault[] {
  return differences.map((difference) => ({ part, ...difference }));
}

/** So many faults are told in words, and then how many there are beside them. */
const TOLD = 3;

function someOf(first: readonly string[], all: number): string {
  const more = all > first.length ? ` (and ${all - first.length} more)` : '';
  return `${first.join('; ')}${more}`;
}

/** Addresses that are put back at once: about a millisecond. */
const BATCH = 256;

/** Addresses together, as many as BATCH; others each by itself. */
function* batches(faults: readonly Fault[]): Generator<readonly Fault[]> {
  const together = ({ part, of }: Fault): boolean => part === 'address' && of !== UNSEEN;
  for (const fault of faults) if (!together(fault)) yield [fault];
  const addresses = faults.filter(together);
  for (let from = 0; from < addresses.length; from += BATCH) yield addresses.slice(from, from + BATCH);
}

/** As `of` of a fault: the part cannot be looked at. */
export const UNSEEN = '?';

/** Whether it is of one endpoint. */
function isEndpoint({ part, of }: Fault): boolean {
  return part === 'endpoint' && of !== UNSEEN;
}

function endpointsOf(faults: readonly Fault[]): number[] {
  return faults.filter(isEndpoint).map(({ of }) => Number(of));
}

function without(faults: readonly Fault[], others: readonly Fault[]): Fault[] {
  const taken = new Set(others.map(tableKey.fault));
  return faults.filter((fault) => !taken.has(tableKey.fault(fault)));
}

const NAMES: Readonly<Record<Part, string>> = {
  endpoint: 'endpoint',
  pins: 'pins',
  address: 'address',
  slot: 'policy slot',
};

/** A fault in a sentence. */
export function faultText(fault: Fault): string {
  const { part, of } = fault;
  return `${of === '' || of === UNSEEN ? NAMES[part] : `${NAMES[part]} ${of}`}: ${problemText(fault)}`;
}

/** What is wrong with it, without its name. */
export function problemText({ problem, error }: Fault): string {
  return error === undefined ? problem : `${problem}; it cannot be put back: ${error}`;
}

/** The fault in a sentence as that of one endpoint; undefined where it is another's alone. What cannot be looked at is a fault of all. */
export function faultAt(endpoint: number, fault: Fault): string | undefined {
  const { part, of } = fault;
  if (part !== 'endpoint') return `endpoint ${endpoint}: ${faultText(fault)}`;
  return of === UNSEEN || of === String(endpoint) ? `endpoint ${endpoint}: ${problemText(fault)}` : undefined;
}
