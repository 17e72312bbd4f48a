import { keys, type StateDB, type Table } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import type { EndpointStore } from './endpoint-store.ts';
import type { IpcacheStore } from './ipcache-store.ts';
import type { PinnedDatapath } from './pins.ts';
import type { PlanWriter } from './plan-writer.ts';
import type { SlotStore } from './slot-store.ts';

/** Addresses compared with the kernel in one look; slots: one. */
const STEP = 256;

export type Part = 'endpoint' | 'pins' | 'address' | 'slot';

/** Something that was acknowledged and is not in the kernel any more. Key: `part`, `of`. */
export interface Fault {
  readonly part: Part;
  /** Id of the endpoint, prefix, number of the slot; empty for pins. */
  readonly of: string;
  readonly problem: string;
  /** Why it could not be put back; absent until that was tried. */
  readonly error?: string;
}

/** How often something was put back. Key: `part`. */
interface Repairs {
  readonly part: Part;
  readonly count: number;
  /** The last: ISO 8601, and what it was. */
  readonly at: string;
  readonly last: string;
}

export interface AuditOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache'>;
  readonly writer: Pick<PlanWriter, 'adopted' | 'unfinished'>;
  readonly endpoints: EndpointStore;
  readonly slots: SlotStore;
  readonly ipcache: IpcacheStore;
  readonly pinned: Pick<PinnedDatapath, 'unpinned' | 'repin'>;
  /** The endpoint's interface is gone. */
  readonly onGone: (endpoint: number) => void;
  /** Faults have come or gone. */
  readonly onFaults: () => void;
  readonly log: Logger;
}

/**
 * Whether the kernel still has what it acknowledged: others may detach programs, remove pins, edit maps. What is found is in table
 * `enforcementFaults` until it is put back, which is tried at once and in each look.
 *
 * Each look is at every pin, and at programs, links and element of every endpoint; of addresses and slots it is at the next few. To be
 * called between rounds: while one is under way, what is wanted and what is there differ.
 */
export class Audit {
  readonly #options: AuditOptions;
  readonly #faults: Table<Fault>;
  readonly #repairs: Table<Repairs>;
  /** Where the next look goes on. */
  #slot = 0;
  #prefix = '';
  #found: Generator<string> | undefined;

  constructor(options: AuditOptions) {
    const { db } = options;
    this.#options = options;
    this.#faults = db.table<Fault>({ name: 'enforcementFaults', key: keyOf });
    this.#repairs = db.table<Repairs>({ name: 'enforcementRepairs', key: ({ part }) => part });
  }

  /** Looks, says what is missing, and puts it back. */
  async look(): Promise<void> {
    const { writer, onFaults, log } = this.#options;
    const found = [
      ...this.#examined('endpoint', () => this.#endpoints()),
      ...this.#examined('pins', () => this.#pins()),
    ];
    if (writer.adopted && !writer.unfinished) {
      found.push(...this.#examined('address', () => this.#addresses()));
      found.push(...this.#examined('slot', () => this.#slots()));
    }
    const before = this.faults();
    // What could not be put back is tried again, though this look was not at it.
    const seen = new Set(found.map(keyOf));
    const last = new Map(before.map((fault) => [keyOf(fault), fault]));
    const due = [...found, ...before.filter((fault) => !seen.has(keyOf(fault)) && this.#remains(fault))].map(
      (fault) => {
        const error = last.get(keyOf(fault))?.error;
        return error === undefined ? fault : { ...fault, error };
      },
    );
    if (due.length === 0 && before.length === 0) return;
    for (const { part, of, problem } of due)
      if (!last.has(keyOf({ part, of })))
        log.warn({ part, of, problem }, 'enforcement was taken away from outside; it is put back');
    this.#put(due);
    onFaults();
    const left: Fault[] = [];
    for (const fault of due) left.push(...(await this.#mend(fault)));
    this.#put(left);
    onFaults();
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
    const said = last === undefined ? '' : `; put back ${total} times, the last at ${last.at}: ${last.last}`;
    return { name, ok: true, message: `programs, links, pins and maps are as they were made${said}` };
  }

  /** What cannot be looked at is a fault itself, and hides no other. */
  #examined(part: Part, look: () => Fault[]): Fault[] {
    try {
      return look();
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

  #addresses(): Fault[] {
    const { db, tables, ipcache } = this.#options;
    const faults: Fault[] = [];
    using snapshot = db.read();
    let left = STEP;
    let next = '';
    for (const row of snapshot.lowerBound(tables.ipcache, this.#prefix)) {
      if (left === 0) {
        next = row.prefix;
        break;
      }
      left -= 1;
      if (!ipcache.holds(row))
        faults.push({ part: 'address', of: row.prefix, problem: `the kernel does not hold identity ${row.identity}` });
    }
    this.#prefix = next;
    this.#found ??= ipcache.prefixes();
    for (let count = 0; count < STEP; count += 1) {
      const { value: prefix, done } = this.#found.next();
      if (done === true) {
        this.#found = undefined;
        break;
      }
      // To take it away tells whether it was there: a lookup finds what is around it, too.
      if (!snapshot.has(tables.ipcache, prefix) && ipcache.delete(prefix))
        faults.push({ part: 'address', of: prefix, problem: 'the kernel held an address that nobody gave it' });
    }
    return faults;
  }

  #slots(): Fault[] {
    const { slots } = this.#options;
    const numbers = slots.numbers().sort((a, b) => a - b);
    const slot = numbers.find((number) => number > this.#slot) ?? numbers[0];
    if (slot === undefined) return [];
    this.#slot = slot;
    const problem = slots.fault(slot);
    return problem === undefined ? [] : [{ part: 'slot', of: String(slot), problem }];
  }

  /** Whether a fault of an earlier look is still one. */
  #remains({ part, of }: Fault): boolean {
    const { slots } = this.#options;
    if (part === 'slot') return slots.fault(Number(of)) !== undefined;
    return part === 'address' && this.#addressFault(of);
  }

  #addressFault(prefix: string): boolean {
    const { db, tables, ipcache } = this.#options;
    using snapshot = db.read();
    const row = snapshot.get(tables.ipcache, prefix);
    return row !== undefined && !ipcache.holds(row);
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
