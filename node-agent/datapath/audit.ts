import { keys, type StateDB, type Table } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import type { ContentAudit, Difference, Step } from './content-audit.ts';
import type { EndpointStore } from './endpoint-store.ts';
import type { IpcacheStore } from './ipcache-store.ts';
import type { PinnedDatapath } from './pins.ts';
import type { PlanWriter } from './plan-writer.ts';
import type { SlotStore } from './slot-store.ts';

/** What maps hold, which is compared in turns of many steps. */
export type Content = 'address' | 'slot';
export type Part = 'endpoint' | 'pins' | Content;

/** Something that was acknowledged and is not in the kernel any more. Key: `part`, `of`. */
export interface Fault {
  readonly part: Part;
  /** Id of the endpoint, prefix, number of the slot; empty for pins. */
  readonly of: string;
  readonly problem: string;
  /** Why it could not be put back; absent until that was tried. */
  readonly error?: string;
}

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

/** A turn, in which every element of one kind was compared. Key: `part`. */
export interface Turn {
  readonly part: Content;
  /** When it ended: ISO 8601. */
  readonly at: string;
  readonly seconds: number;
}

export interface AuditOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache'>;
  readonly writer: Pick<PlanWriter, 'adopted' | 'unfinished' | 'slotSettled'>;
  readonly endpoints: EndpointStore;
  readonly slots: SlotStore;
  readonly ipcache: IpcacheStore;
  readonly contents: Readonly<Record<Content, ContentAudit>>;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  readonly pinned: Pick<PinnedDatapath, 'unpinned' | 'repin'>;
  /** The endpoint's interface is gone. */
  readonly onGone: (endpoint: number) => void;
  /** What somebody had taken away is there again, in words. */
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
  readonly #faults: Table<Fault>;
  readonly #repairs: Table<Repairs>;
  readonly #turns: Table<Turn>;
  /** When the turn that is under way began. */
  readonly #began: Record<Content, number | undefined> = { address: undefined, slot: undefined };

  constructor(options: AuditOptions) {
    const { db } = options;
    this.#options = options;
    this.#faults = db.table<Fault>({ name: 'enforcementFaults', key: keyOf });
    this.#repairs = db.table<Repairs>({ name: 'enforcementRepairs', key: ({ part }) => part });
    this.#turns = db.table<Turn>({ name: 'enforcementTurns', key: ({ part }) => part });
  }

  /** Looks, says what is missing, and puts it back. */
  async look(): Promise<void> {
    const { contents } = this.#options;
    const found = [
      ...(await this.#examined('endpoint', () => this.#endpoints())),
      ...(await this.#examined('pins', () => this.#pins())),
    ];
    if (this.#settled)
      for (const part of CONTENTS)
        found.push(...(await this.#examined(part, async () => faultsOf(part, await contents[part].nearest()))));
    const seen = new Set(found.map(keyOf));
    // What could not be put back is tried again, though this look was not at it.
    const unsettled: Fault[] = [];
    for (const fault of this.faults()) {
      if (seen.has(keyOf(fault))) continue;
      if (this.#changes(fault)) unsettled.push(fault);
      else if (await this.#remains(fault)) found.push(fault);
    }
    await this.#settle(found, unsettled);
  }

  /** Compares the next of what maps hold, and puts back what is missing. Whether the next step may wait: it begins a turn. */
  async step(part: Content): Promise<boolean> {
    const { db, contents, now } = this.#options;
    if (!this.#settled) return true;
    const began = this.#began[part] ?? now();
    this.#began[part] = began;
    let step: Step | undefined;
    const found = await this.#examined(part, async () => {
      step = await contents[part].step();
      return faultsOf(part, step.found);
    });
    const seen = new Set(found.map(keyOf));
    const others = this.faults().filter((fault) => !seen.has(keyOf(fault)));
    // It can be looked at again.
    const known = others.filter((fault) => fault.part !== part || fault.of !== UNSEEN);
    if (found.length > 0 || known.length < others.length) await this.#settle(found, known);
    if (step?.ended === true) {
      const seconds = (now() - began) / 1000;
      this.#began[part] = undefined;
      db.write([this.#turns], (txn) => txn.upsert(this.#turns, { part, at: new Date().toISOString(), seconds }));
    }
    return step?.ended ?? true;
  }

  /** Whether the kernel is to hold what the tables say. */
  get #settled(): boolean {
    const { writer } = this.#options;
    return writer.adopted && !writer.unfinished;
  }

  /** Whether the fault is of a slot that an edit has yet to reach: what it is to hold is not what it holds. */
  #changes({ part, of }: Fault): boolean {
    return part === 'slot' && of !== UNSEEN && !this.#options.writer.slotSettled(Number(of));
  }

  /** Says what is to be put back, and puts it back; `others` are faults that stay as they are. */
  async #settle(found: readonly Fault[], others: readonly Fault[]): Promise<void> {
    const { onFaults, log } = this.#options;
    const before = this.faults();
    if (found.length === 0 && before.length === 0) return;
    const last = new Map(before.map((fault) => [keyOf(fault), fault]));
    const due = found.map((fault) => {
      const error = last.get(keyOf(fault))?.error;
      return error === undefined ? fault : { ...fault, error };
    });
    const fresh = Map.groupBy(
      due.filter((fault) => !last.has(keyOf(fault))),
      ({ part }) => part,
    );
    // A map that somebody emptied is one thing to say.
    for (const [part, [first, ...more]] of fresh)
      log.warn(
        { part, of: first?.of, problem: first?.problem, more: more.length },
        'enforcement was taken away from outside; it is put back',
      );
    this.#put([...due, ...others]);
    onFaults();
    const left: Fault[] = [];
    for (const fault of due) left.push(...(await this.#mend(fault)));
    this.#put([...left, ...others]);
    onFaults();
    const remains = new Set(left.map(keyOf));
    const mended = due.filter((fault) => !remains.has(keyOf(fault))).map(faultText);
    if (mended.length > 0) this.#options.onMended(someOf(mended));
  }

  faults(): readonly Fault[] {
    using snapshot = this.#options.db.read();
    return [...snapshot.all(this.#faults)];
  }

  /** How often each part was put back. */
  repairs(): readonly { readonly part: Part; readonly count: number }[] {
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
    const [first] = faults;
    if (first !== undefined) {
      const more = faults.length === 1 ? '' : ` (and ${faults.length - 1} more)`;
      return { name, ok: false, message: `${faultText(first)}${more}` };
    }
    using snapshot = this.#options.db.read();
    const repairs = [...snapshot.all(this.#repairs)].sort((a, b) => (a.at < b.at ? 1 : -1));
    const [last] = repairs;
    const total = repairs.reduce((sum, { count }) => sum + count, 0);
    const ago = last === undefined ? Number.POSITIVE_INFINITY : Math.max(0, Date.now() - Date.parse(last.at));
    const recent =
      last === undefined || ago > RECENT_MS
        ? ''
        : `what somebody removed was put back ${Math.round(ago / 1000)} s ago: ${last.last}; `;
    const said =
      last === undefined
        ? ''
        : `; put back ${total} times, the last at ${last.at}${recent === '' ? `: ${last.last}` : ''}`;
    const turns = this.turns();
    const [oldest] = turns.map(({ at }) => at).sort();
    const whole =
      oldest === undefined || turns.length < CONTENTS.length
        ? '; what maps hold was not compared completely yet'
        : `; what maps hold was last compared completely at ${oldest}`;
    return { name, ok: true, message: `${recent}programs, links, pins and maps are as they were made${whole}${said}` };
  }

  /** What cannot be looked at is a fault itself, and hides no other. */
  async #examined(part: Part, look: () => Fault[] | Promise<Fault[]>): Promise<Fault[]> {
    try {
      return await look();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      return [{ part, of: UNSEEN, problem: `cannot be looked at: ${text}` }];
    }
  }

  #pins(): Fault[] {
    const names = this.#options.pinned.unpinned();
    return names.length === 0 ? [] : [{ part: 'pins', of: '', problem: `not pinned: ${names.join(', ')}` }];
  }

  #endpoints(): Fault[] {
    const { endpoints, onGone } = this.#options;
    const looks = endpoints.look();
    for (const { id, gone } of looks) if (gone) onGone(id);
    return looks
      .filter(({ gone, faults }) => !gone && faults.length > 0)
      .map(({ id, faults }) => ({ part: 'endpoint', of: String(id), problem: faults.join(', ') }));
  }

  /** Whether a fault of an earlier look or step is still one. */
  async #remains({ part, of }: Fault): Promise<boolean> {
    if (part !== 'address' && part !== 'slot') return false;
    // Only a step knows.
    if (of === UNSEEN) return true;
    return (await this.#options.contents[part].problem(of)) !== undefined;
  }

  /** Puts one thing back; returns the fault that is left. */
  async #mend(fault: Fault): Promise<Fault[]> {
    const { db, tables, endpoints, slots, ipcache, pinned, log } = this.#options;
    const { part, of } = fault;
    try {
      // Whether it is as it should be is not known before it can be looked at again.
      if (of === UNSEEN && part !== 'pins') return [fault];
      if (part === 'pins') pinned.repin();
      else if (part === 'endpoint') endpoints.mend(Number(of));
      else if (part === 'slot') await slots.mend(Number(of));
      else {
        using snapshot = db.read();
        const row = snapshot.get(tables.ipcache, of);
        if (row !== undefined) ipcache.updateAll([row]);
      }
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      if (fault.error !== text) log.error({ part, of, error: text }, 'enforcement cannot be put back');
      return [{ ...fault, error: text }];
    }
    db.write([this.#repairs], (txn) => {
      const count = (txn.get(this.#repairs, part)?.count ?? 0) + 1;
      txn.upsert(this.#repairs, { part, count, at: new Date().toISOString(), last: faultText(fault) });
    });
    return [];
  }

  #put(faults: readonly Fault[]): void {
    this.#options.db.write([this.#faults], (txn) => {
      txn.deleteAll(this.#faults);
      for (const fault of faults) txn.insert(this.#faults, fault);
    });
  }
}

const CONTENTS: readonly Content[] = ['address', 'slot'];

function faultsOf(part: Content, differences: readonly Difference[]): Fault[] {
  return differences.map((difference) => ({ part, ...difference }));
}

/** The first few, and how many there are beside them. */
function someOf(texts: readonly string[]): string {
  const more = texts.length > 3 ? ` (and ${texts.length - 3} more)` : '';
  return `${texts.slice(0, 3).join('; ')}${more}`;
}

/** As `of` of a fault: the part cannot be looked at. */
const UNSEEN = '?';

function keyOf({ part, of }: Pick<Fault, 'part' | 'of'>): string {
  return keys.join(part, of);
}

const NAMES: Readonly<Record<Part, string>> = {
  endpoint: 'endpoint',
  pins: 'pins',
  address: 'address',
  slot: 'policy slot',
};

/** A fault in a sentence. */
export function faultText({ part, of, problem, error }: Fault): string {
  const what = of === '' || of === UNSEEN ? NAMES[part] : `${NAMES[part]} ${of}`;
  return error === undefined ? `${what}: ${problem}` : `${what}: ${problem}; it cannot be put back: ${error}`;
}
