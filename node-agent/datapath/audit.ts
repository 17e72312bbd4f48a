/**
 * Whether the kernel still has what it acknowledged. A look, every few seconds, is over all that must not be missing for long: pins, programs,
 * links, the nearest of what maps hold. A pass compares everything that maps hold. A fault is what is wrong, until it is put back.
 */
import { messageOf } from '@weir/process/errors';
import type { StateDB, Table } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { EVERY } from './afterwards.ts';
import type { Clock } from './clock.ts';
import type { ContentAudit } from './content-audit.ts';
import {
  type Content,
  endpointsOf,
  type Fault,
  faultsOf,
  faultText,
  isEndpoint,
  MOST_NAMED,
  type Part,
  someOf,
  UNSEEN,
  without,
} from './faults.ts';
import type { KernelRows } from './kernel-rows.ts';
import type { KernelStores } from './kernel-stores.ts';
import { Mender } from './mender.ts';
import type { PinnedDatapath } from './pins.ts';
import type { PlanWriter } from './plan-writer.ts';

/** For how long the last repair comes first in the message, in milliseconds. */
const RECENT_MS = 600_000;

/** How often something was put back. Key: `part`. */
interface Repairs {
  readonly part: Part;
  readonly count: number;
  /** The last: ISO 8601, and what it was. */
  readonly at: string;
  readonly last: string;
}

/** The last whole pass over one kind of content. Key: `part`. */
export interface Pass {
  readonly part: Content;
  /** When it ended: ISO 8601. */
  readonly at: string;
  readonly seconds: number;
  /** How many elements the kernel had not acknowledged, which were left out. */
  readonly left: number;
}

/** Runs a body beside no round; not at all once the agent stops. */
type Exclusively = (body: () => Promise<void>) => Promise<void>;

export interface AuditOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache' | 'endpointStates' | 'enforcementFaults'>;
  readonly writer: Pick<PlanWriter, 'adopted' | 'beginRepair' | 'endRepair'> & {
    readonly rows: Pick<KernelRows, 'unacknowledged' | 'slotSettled' | 'addressSettled'>;
  };
  readonly kernel: Pick<KernelStores, 'slots' | 'ipcache' | 'endpoints' | 'clearFlows'>;
  readonly contents: Readonly<Record<Content, ContentAudit>>;
  readonly clock: Pick<Clock, 'now' | 'yieldNow'>;
  readonly pinned: Pick<PinnedDatapath, 'unpinned' | 'repin'>;
  readonly interfaces: {
    /** Gives those that were gone, and are there again, their programs. */
    guardReturned(): Promise<void>;
    /** The endpoint's is gone. */
    gone(endpoint: number): void;
  };
  /** What somebody had taken away is there again, in words: once for each look or pass. */
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
 * maps. Looks, and the pieces of a pass, run between rounds: while a round is under way, what is wanted and what is there differ.
 */
export class Audit {
  readonly #options: AuditOptions;
  readonly #mender: Mender;
  readonly #faults: Table<Fault>;
  readonly #repairs: Table<Repairs>;
  readonly #passes: Table<Pass>;

  constructor(options: AuditOptions) {
    const { db, tables } = options;
    this.#options = options;
    this.#mender = new Mender({ ...options, refused: (fault, error) => this.#refused(fault, error) });
    this.#faults = tables.enforcementFaults;
    this.#repairs = db.table<Repairs>({ name: 'enforcementRepairs', key: ({ part }) => part });
    this.#passes = db.table<Pass>({ name: 'enforcementPasses', key: ({ part }) => part });
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
    if (mended.length > 0) this.#options.onMended(someOf(mended.slice(0, MOST_NAMED).map(faultText), mended.length));
  }

  /** Compares everything that maps hold, in pieces, and puts back what differs. */
  async compare(exclusively: Exclusively): Promise<void> {
    for (const part of CONTENTS) await this.#compare(part, exclusively);
  }

  async #compare(part: Content, exclusively: Exclusively): Promise<void> {
    const { db, contents, writer, clock } = this.#options;
    const began = clock.now();
    const pieces = contents[part].pass();
    const mended: Fault[] = [];
    let [left, warned, whole] = [0, false, false];
    for (let more = true; more; ) {
      more = false;
      await exclusively(async () => {
        // Until then the kernel may hold what was found.
        if (!this.canCompare) return;
        const found = await this.#examined(part, async () => {
          const { done, value } = await pieces.next();
          more = done !== true;
          whole = done === true;
          return faultsOf(part, value ?? []);
        });
        const unseen = found.length === 0 ? this.#known({ part, of: UNSEEN }) : undefined;
        // A map that somebody emptied is one line of the log.
        if (!warned) warned = this.#warn(found);
        mended.push(...(await this.#settle(found, unseen === undefined ? [] : [unseen])));
        left = Math.max(left, writer.rows.unacknowledged(part));
      });
    }
    if (mended.length > 0) this.#options.onMended(someOf(mended.slice(0, MOST_NAMED).map(faultText), mended.length));
    if (!whole) return;
    const seconds = (clock.now() - began) / 1000;
    db.write([this.#passes], (txn) => txn.upsert(this.#passes, { part, at: new Date().toISOString(), seconds, left }));
  }

  /** Whether map contents can be compared: before the first plan is in force the wanted content is unknown. */
  get canCompare(): boolean {
    return this.#options.writer.adopted;
  }

  /** Whether the fault is of something that waits for an edit: its wanted content differs from its acknowledged one. */
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
        'somebody removed enforcement; restoring it',
      );
    return fresh.size > 0;
  }

  /**
   * Repairs the faults found and returns those repaired. `over`: faults that went by themselves. All count until the flows that they may have
   * allowed are judged again.
   */
  async #settle(found: readonly Fault[], over: readonly Fault[]): Promise<readonly Fault[]> {
    if (found.length + over.length === 0) return [];
    const { writer, kernel } = this.#options;
    const fresh = new Set(found.filter((fault) => this.#known(fault) === undefined));
    this.#put([...fresh], []);
    writer.beginRepair();
    const left = await this.#mender.mend(found);
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
    if (this.#known(fault)?.error !== error) this.#options.log.error({ part, of, error }, 'cannot restore enforcement');
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
        const last = someOf(faults.slice(0, MOST_NAMED).map(faultText), faults.length);
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

  /** The last whole pass over each kind of content. */
  passes(): readonly Pass[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.all(this.#passes)];
  }

  /** In health's words. */
  check(): { readonly name: string; readonly ok: boolean; readonly message: string } {
    const name = 'enforcement';
    const faults = this.faults();
    if (faults.length > 0)
      return { name, ok: false, message: someOf(faults.slice(0, MOST_NAMED).map(faultText), faults.length) };
    using snapshot = this.#options.db.read();
    const repairs = [...snapshot.all(this.#repairs)].sort((a, b) => (a.at < b.at ? 1 : -1));
    const [last] = repairs;
    const total = repairs.reduce((sum, { count }) => sum + count, 0);
    const ago = last === undefined ? Number.POSITIVE_INFINITY : Math.max(0, Date.now() - Date.parse(last.at));
    const recent =
      last === undefined || ago > RECENT_MS
        ? ''
        : `${Math.round(ago / 1000)} s ago somebody had removed this, and it was restored: ${last.last}; `;
    const history =
      last === undefined
        ? ''
        : `; restored ${total} times, the last at ${last.at}${recent === '' ? `: ${last.last}` : ''}`;
    const passes = this.passes();
    const [oldest] = passes.map(({ at }) => at).sort();
    const left = passes.reduce((sum, pass) => sum + pass.left, 0);
    const whole =
      oldest === undefined || passes.length < CONTENTS.length
        ? '; map contents were not compared completely yet'
        : left === 0
          ? `; map contents were last compared completely at ${oldest}`
          : `; map contents were last compared at ${oldest}, except ${left} entries that the kernel refused`;
    const what = left === 0 ? 'maps' : 'what the kernel took into maps';
    return {
      name,
      ok: true,
      message: `${recent}programs, links, pins and ${what} are unchanged${whole}${history}`,
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

  /** Whether a fault of an earlier look or pass is still one. `unseen`: its part cannot be looked at now. */
  async #remains({ part, of }: Fault, unseen: boolean): Promise<boolean> {
    if (part === 'pins' || part === 'endpoint') return unseen && of !== UNSEEN;
    // Only a pass knows.
    if (of === UNSEEN) return true;
    return (await this.#options.contents[part].problem(of)) !== undefined;
  }
}

const CONTENTS: readonly Content[] = ['address', 'slot'];
