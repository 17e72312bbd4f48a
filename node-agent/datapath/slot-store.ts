import { classKey, createSlotMaps, DIRECTION, slotKey } from '@weir/bpf';
import { isLocalCidr, scopeOf } from '@weir/identity';
import { type Direction, MOST_ROWS, type Steps } from '@weir/policy';
import { keys, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { tableKey } from '../create-tables.ts';
import {
  type Around,
  blocksKey,
  both,
  contentOf,
  DIRECTIONS,
  GRACE_MS,
  type KernelSlot,
  Pace,
} from '../derive/contract.ts';
import { OrderError, SlotFullError } from '../errors.ts';
import type { PerDirection, SlotContent, SlotRow, VerdictBlock } from '../tables.ts';
import type { Clock } from './clock.ts';
import {
  classEntry,
  classesOf,
  count,
  countBlocks,
  decisionsOf,
  meaning,
  readSlot,
  sameContent,
  verdictEntry,
} from './slot-content.ts';
import { changeBoth, closeBoth, keepPlaced, type SlotMaps, throwFirst } from './slot-parts.ts';

/** One slot's maps, and what has been written into them: read back from the kernel at start, and changed with it. */
interface Held extends SlotMaps {
  readonly slot: number;
  readonly elements: PerDirection<Map<number, number>>;
  readonly rows: PerDirection<Map<number, readonly VerdictBlock[]>>;
  /** When an element was written or deleted last. */
  movedAt: number;
}

/** An identity's element or a class's rows that nothing wants. Key: all but `due`, which is an index. */
interface StaleEntry {
  readonly slot: number;
  readonly direction: Direction;
  readonly part: 'elements' | 'rows';
  readonly number: number;
  /** When it may go: whole milliseconds. */
  readonly due: number;
}

/** A slot that holds something else than it should, too. Key: `slot`. */
interface TrimmedSlot {
  readonly slot: number;
  readonly wanted: SlotContent;
}

/** A slot that no word names any more. Key: `slot`. Index: `due`. */
interface RetiredSlot {
  readonly slot: number;
  /** When its content may go or, once `emptied`, its maps: whole milliseconds. */
  readonly due: number;
  readonly emptied: boolean;
}

export interface SlotStoreOptions extends Clock {
  readonly db: StateDB;
  readonly policy_classes: BpfMap;
  readonly policy_verdicts: BpfMap;
  /** What a CIDR's identity stands for; undefined where nobody knows. */
  readonly prefixOf: (identity: number) => string | undefined;
  /** Makes the inner maps of a slot. Default: in the kernel. */
  readonly create?: (sizes: { readonly classes: number; readonly verdicts: number }) => SlotMaps;
  /** The least that a slot has room for. Default 256 elements and 1024 rows. */
  readonly least?: { readonly classes: number; readonly verdicts: number };
}

const SLOTS = 4096;
/** Rows that one slot's map has room for: four times what two directions may come to, as an edit keeps those of before for a while. */
const MOST_BLOCKS = 8 * MOST_ROWS;
/** Elements of a slot that are written or deleted at once: some hundred microseconds. */
const STEP = 256;
/**
 * How long an emptied slot keeps its maps for the next policy, in milliseconds. To put maps into a slot or take them out makes the
 * kernel wait for an RCU grace period: 10 ms of an edit that a slot with maps in it does not need.
 */
const SPARE_MS = 3000;

/**
 * The slots in the kernel. A change of one is made so that every packet in between meets the old or the new decision; what a
 * packet under way may still look at (rows of a class that it has read, a slot that its word named) stays for GRACE_MS:
 * tables `trimmedSlots`, `staleEntries` and `retiredSlots` say what has still to go.
 *
 * An address in a CIDR without an element is judged by the CIDR around it that has one. So of CIDRs those within others get their elements first, and lose them
 * last: else an address would be judged by what is around it while that is still, or already, another one's.
 */
export class SlotStore {
  readonly #options: SlotStoreOptions;
  /** Of each slot its inner maps. */
  readonly #outer: SlotMaps;
  readonly #db: StateDB;
  readonly #trimmed: Table<TrimmedSlot>;
  readonly #stale: Table<StaleEntry>;
  readonly #retired: Table<RetiredSlot>;
  /** Handles: the open maps of each slot, emptied ones included, with what has been written into them. */
  readonly #held = new Map<number, Held>();
  readonly #pace: Pace;
  /** Settles with the last `apply` that has begun. */
  #applied: Promise<unknown> = Promise.resolve();
  /** Settles with the last that had all slots for itself: no `apply` may overlap it, as each makes breaks. */
  #alone: Promise<unknown> = Promise.resolve();

  constructor(options: SlotStoreOptions) {
    const { db } = options;
    this.#options = options;
    this.#pace = new Pace(options.now, options.breathe);
    this.#outer = { classes: options.policy_classes, verdicts: options.policy_verdicts };
    this.#db = db;
    this.#trimmed = db.table<TrimmedSlot>({ name: 'trimmedSlots', key: (row) => tableKey.slot(row.slot) });
    const indexes = [{ name: 'due', keys: ({ due }: { readonly due: number }) => [keys.uint(due)] }];
    this.#stale = db.table<StaleEntry>({ name: 'staleEntries', key: staleKey, indexes });
    this.#retired = db.table<RetiredSlot>({ name: 'retiredSlots', key: (row) => tableKey.slot(row.slot), indexes });
  }

  /** Slots that the kernel has. Half-made ones (a crash between the two maps) are removed: no endpoint points at them. */
  async adopt(): Promise<Map<number, KernelSlot>> {
    const out = new Map<number, KernelSlot>();
    for (let slot = 1; slot < SLOTS; slot += 1) {
      await this.#breakIfDue();
      const key = slotKey.encode(slot);
      const classes = this.#outer.classes.openInner(key);
      const verdicts = this.#outer.verdicts.openInner(key);
      if (classes === undefined || verdicts === undefined) {
        classes?.close();
        verdicts?.close();
        if (classes) this.#outer.classes.delete(key);
        if (verdicts) this.#outer.verdicts.delete(key);
        continue;
      }
      const movedAt = this.#options.now();
      const held = {
        slot,
        classes,
        verdicts,
        movedAt,
        ...(await this.#pace.run(readSlot(classes, verdicts))),
      };
      this.#held.set(slot, held);
      out.set(slot, meaning(held));
    }
    return out;
  }

  /** Whether the slot has content. */
  has(slot: number): boolean {
    return this.#held.has(slot) && this.#retirement(slot)?.emptied !== true;
  }

  slots(): number[] {
    return [...this.#held.keys()].filter((slot) => this.has(slot));
  }

  /**
   * Brings a slot to a row, but for what a packet may still look at (`trim`). `stays` tells whether an address has the
   * identity after this round: of such an identity the element goes at once, as that is the change of its decision. So do those of CIDRs that may be around it.
   *
   * @throws OrderError where a class is to have other rows, and an identity that is to be known has that class still: another slot is to follow
   */
  apply(row: SlotRow, stays: (identity: number) => boolean): Promise<void> {
    const applied = this.#alone.then(() => this.#apply(row, stays));
    // Without their results, which would hold one another for ever.
    this.#applied = Promise.allSettled([this.#applied, applied]).then(() => undefined);
    return applied;
  }

  async #apply(row: SlotRow, stays: (identity: number) => boolean): Promise<void> {
    const wanted = contentOf(row);
    this.#want(row.slot, wanted);
    let held = this.#held.get(row.slot);
    if (held === undefined || !roomFor(held, wanted)) held = await this.#build(row.slot, wanted, held);
    await this.#vacate(held, wanted);
    for (const direction of DIRECTIONS) {
      for (const [number, blocks] of wanted.rows[direction]) {
        await this.#breakIfDue();
        if (!held.rows[direction].has(number)) this.#writeRows(held, direction, number, blocks);
      }
    }
    for (const direction of DIRECTIONS) {
      const old = held.elements[direction];
      const others: (readonly [identity: number, number: number])[] = [];
      for (const [identity, number] of wanted.elements[direction]) {
        if (this.#pace.due()) await this.#pace.breathe();
        if (old.get(identity) !== number) others.push([identity, number]);
      }
      const fresh = others.filter(([identity]) => isLocalCidr(identity) && !old.has(identity));
      for (const [identity, number] of [...this.#byLength(fresh, ([id]) => id).toReversed(), ...others]) {
        if (this.#pace.due()) await this.#pace.breathe();
        if (old.get(identity) !== number) this.#writeElement(held, direction, identity, number);
      }
      await this.#breakIfDue();
      const unwanted = [...old.keys()].filter((id) => !wanted.elements[direction].has(id));
      const now = unwanted.filter(stays);
      await this.#deleteInOrder(
        held,
        direction,
        now.some(isLocalCidr) ? [...now, ...unwanted.filter(isLocalCidr)] : now,
      );
    }
    this.#db.write([this.#trimmed], (txn) => txn.upsert(this.#trimmed, { slot: row.slot, wanted }));
  }

  /** Deletes rows that are to be others, once no packet reads them, and elements of their classes that nothing wants. */
  async #vacate(held: Held, wanted: SlotContent): Promise<void> {
    const others: (readonly [direction: Direction, numbers: ReadonlySet<number>])[] = [];
    for (const direction of DIRECTIONS) {
      const numbers = new Set<number>();
      for (const [number, blocks] of wanted.rows[direction]) {
        await this.#breakIfDue();
        const old = held.rows[direction].get(number);
        if (old !== undefined && blocksKey(old) !== blocksKey(blocks)) numbers.add(number);
      }
      if (numbers.size > 0) others.push([direction, numbers]);
    }
    if (others.length === 0) return;
    for (const [direction, numbers] of others) {
      const members = [...held.elements[direction]].filter(([, number]) => numbers.has(number));
      const known = members.find(([identity]) => wanted.elements[direction].has(identity));
      if (known !== undefined)
        throw new OrderError(`slot ${held.slot}: identity ${known[0]} still has class ${known[1]}`);
      const unwanted = members.map(([identity]) => identity);
      if (unwanted.some(isLocalCidr)) unwanted.push(...this.#leavingCidrs(held, wanted, direction));
      await this.#deleteInOrder(held, direction, unwanted);
    }
    await this.#options.quiesce(held.movedAt);
    for (const [direction, numbers] of others)
      for (const number of numbers) {
        await this.#breakIfDue();
        this.#deleteRows(held, direction, number);
      }
  }

  /**
   * CIDRs that are to have no element any more, where none is to get another one first.
   * @throws OrderError where one is: addresses in them would be judged by what is around it, and are to be by it
   */
  #leavingCidrs(held: Held, wanted: SlotContent, direction: Direction): readonly number[] {
    const old = held.elements[direction];
    for (const [identity, number] of wanted.elements[direction])
      if (scopeOf(identity) === 'world' && old.get(identity) !== number)
        throw new OrderError(
          `slot ${held.slot}: identity ${identity} is to have class ${number} before CIDRs in it go`,
        );
    return [...old.keys()].filter((id) => isLocalCidr(id) && !wanted.elements[direction].has(id));
  }

  /** Addresses are about to get these identities: elements that nothing wants must not decide about them. */
  forget(identities: ReadonlySet<number>): Promise<void> {
    return this.#whileAlone(async () => {
      using snapshot = this.#db.read();
      for (const { slot, wanted } of snapshot.all(this.#trimmed)) {
        const held = this.#held.get(slot);
        if (held === undefined) continue;
        for (const direction of DIRECTIONS) {
          const there = held.elements[direction];
          const unwanted = [...identities].filter((id) => there.has(id) && !wanted.elements[direction].has(id));
          await this.#inSteps(unwanted, (step) => this.#deleteElements(held, direction, step));
        }
      }
    });
  }

  /**
   * Removes elements, rows and slots that no packet has been able to reach for GRACE_MS. Returns the slots that are gone: those that went
   * before something failed, too, and the next call fails by it.
   */
  trim(): Promise<number[]> {
    const gone: number[] = [];
    return this.#whileAlone(async () => {
      try {
        await this.#trim(gone);
      } catch (error) {
        if (gone.length === 0) throw error;
      }
      return gone;
    });
  }

  async #trim(gone: number[]): Promise<void> {
    const now = this.#options.now();
    using snapshot = this.#db.read();
    for (const { slot, wanted } of snapshot.all(this.#trimmed)) {
      const held = this.#held.get(slot);
      if (held === undefined || (await this.#trimOne(held, wanted, now))) this.#trimDone(slot);
    }
    const due = [...snapshot.range(this.#retired, '', keys.uint(Math.floor(now) + 1), 'due')];
    for (const { slot, emptied } of due) {
      if (emptied) continue;
      await this.#empty(slot);
      gone.push(slot);
    }
    // One a call: each waits for the kernel.
    const spent = due.find(({ emptied }) => emptied);
    if (spent) await this.free(spent.slot);
  }

  /** Runs `body` while no `apply` and no other such body is under way; those that come meanwhile wait. */
  #whileAlone<T>(body: () => Promise<T>): Promise<T> {
    // Maps that are being made hold a copy: of what is now to go, or without what is now to come.
    const done = Promise.allSettled([this.#applied, this.#alone]).then(body);
    this.#alone = done.then(
      () => undefined,
      () => undefined,
    );
    return done;
  }

  /** When `trim` next has something to remove; undefined when nothing waits. */
  trimDue(): number | undefined {
    using snapshot = this.#db.read();
    const [stale] = snapshot.lowerBound(this.#stale, '', 'due');
    const [retired] = snapshot.lowerBound(this.#retired, '', 'due');
    if (stale === undefined || retired === undefined) return (stale ?? retired)?.due;
    return Math.min(stale.due, retired.due);
  }

  /** No word names the slot any more: `trim` frees it once no packet can have read one that did. */
  retire(slot: number): void {
    if (this.#held.has(slot) && this.#retirement(slot) === undefined) this.#retireFor(slot, GRACE_MS, false);
  }

  /** Frees a slot that no packet can reach. Succeeds when it is absent. */
  async free(slot: number): Promise<void> {
    const key = slotKey.encode(slot);
    const refused = await changeBoth((part) => this.#outer[part].deleteInnerAsync(key));
    const held = this.#held.get(slot);
    // Half of one is none: the next `apply` makes both anew.
    if (held !== undefined && refused.size < 2) {
      closeBoth(held);
      this.#held.delete(slot);
    }
    throwFirst(refused);
    this.#trimDone(slot);
    this.#db.write([this.#retired], (txn) => txn.delete(this.#retired, tableKey.slot(slot)));
    this.#noneStale(slot);
  }

  /** Slots that have maps, emptied ones too. */
  numbers(): number[] {
    return [...this.#held.keys()];
  }

  /** Why the slot's maps are not those that were put there; undefined when they are, or when there are to be none. */
  misplaced(slot: number): string | undefined {
    const held = this.#held.get(slot);
    if (held === undefined) return undefined;
    for (const [name, outer, { info }] of [
      ['policy_classes', this.#outer.classes, held.classes],
      ['policy_verdicts', this.#outer.verdicts, held.verdicts],
    ] as const) {
      // Of a map of maps an element is told by the id of the map that it is.
      const id = outer.lookup(slotKey.encode(slot));
      if (id === undefined) return `its map in ${name} is not there`;
      if (Buffer.from(id).readUInt32LE(0) !== info.id) return `its map in ${name} is another one`;
    }
    return undefined;
  }

  /** Why the kernel's slot is not what was written into it; undefined when it is. Makes breaks, in which nothing is written. */
  fault(slot: number): Promise<string | undefined> {
    return this.#whileAlone(() => this.#pace.run(this.#compare(slot)));
  }

  *#compare(slot: number): Steps<string | undefined> {
    const misplaced = this.misplaced(slot);
    const held = this.#held.get(slot);
    if (misplaced !== undefined || held === undefined) return misplaced;
    const found = yield* readSlot(held.classes, held.verdicts);
    return (yield* sameContent(found, held)) ? undefined : 'its content is another one';
  }

  /** Puts the slot into the kernel anew, as it was written. */
  mend(slot: number): Promise<void> {
    return this.#whileAlone(async () => {
      const held = this.#held.get(slot);
      if (held !== undefined) await this.#build(slot, held, held);
    });
  }

  /** What has been written into the slot; undefined when the kernel has no such slot. */
  content(slot: number): SlotContent | undefined {
    return this.has(slot) ? this.#held.get(slot) : undefined;
  }

  /** The numbers of the classes that the slot has an identity in: equal texts are equal decisions, of this slot. */
  classes(slot: number, identity: number, around: Around): string {
    const held = this.#held.get(slot);
    return held === undefined ? '' : classesOf(held, identity, around);
  }

  /** What the slot decides of an identity: equal texts are equal decisions for every packet, by whichever rules. */
  decisions(slot: number, identity: number, around: Around): string {
    const held = this.#held.get(slot);
    return held === undefined ? '' : decisionsOf(held, identity, around);
  }

  /** Rows and elements of a slot, for people. */
  *dump(): Generator<{ readonly slot: number } & SlotContent> {
    for (const [slot, { elements, rows }] of this.#held) yield { slot, elements, rows };
  }

  /** Emptied slots whose maps wait for the next policy. */
  get spares(): number {
    return this.#held.size - this.slots().length;
  }

  close(): void {
    for (const held of this.#held.values()) closeBoth(held);
    this.#held.clear();
  }

  #retirement(slot: number): RetiredSlot | undefined {
    using snapshot = this.#db.read();
    return snapshot.get(this.#retired, tableKey.slot(slot));
  }

  #retireFor(slot: number, ms: number, emptied: boolean): void {
    const due = Math.ceil(this.#options.now() + ms);
    this.#db.write([this.#retired], (txn) => txn.upsert(this.#retired, { slot, due, emptied }));
  }

  /** The slot is in use, and what it is to hold is not stale. */
  #want(slot: number, wanted: SlotContent): void {
    this.#db.write([this.#retired, this.#stale], (txn) => {
      txn.delete(this.#retired, tableKey.slot(slot));
      for (const entry of txn.prefix(this.#stale, keys.join(tableKey.slot(slot)))) {
        const { direction, part, number } = entry;
        if (wanted[part][direction].has(number)) txn.delete(this.#stale, staleKey(entry));
      }
    });
  }

  #trimDone(slot: number): void {
    this.#db.write([this.#trimmed], (txn) => txn.delete(this.#trimmed, tableKey.slot(slot)));
  }

  /** Nothing of the slot is stale any more. */
  #noneStale(slot: number): void {
    this.#db.write([this.#stale], (txn) => {
      for (const entry of txn.prefix(this.#stale, keys.join(tableKey.slot(slot))))
        txn.delete(this.#stale, staleKey(entry));
    });
  }

  /** Takes everything out of a slot that no packet can reach, and keeps its maps for a while. */
  async #empty(slot: number): Promise<void> {
    const held = this.#held.get(slot);
    if (held !== undefined) {
      for (const direction of DIRECTIONS) {
        for (const number of [...held.rows[direction].keys()]) {
          await this.#breakIfDue();
          this.#deleteRows(held, direction, number);
        }
        await this.#inSteps([...held.elements[direction].keys()], (step) =>
          this.#deleteElements(held, direction, step),
        );
      }
    }
    this.#trimDone(slot);
    this.#retireFor(slot, SPARE_MS, true);
  }

  /** Whether nothing unwanted is left. */
  async #trimOne(held: Held, wanted: SlotContent, now: number): Promise<boolean> {
    const { slot } = held;
    let clean = true;
    for (const direction of DIRECTIONS) {
      const elements = held.elements[direction];
      const ids = [...elements.keys()].filter((identity) => !wanted.elements[direction].has(identity));
      await this.#inSteps(
        this.#byLength(ids, (id) => id),
        (step) => {
          const due = this.#due({ slot, direction, part: 'elements' }, step, now);
          this.#deleteElements(held, direction, due);
        },
      );
      await this.#breakIfDue();
      const used = new Set(elements.values());
      const numbers = [...held.rows[direction].keys()].filter((number) => !wanted.rows[direction].has(number));
      for (const number of numbers) {
        await this.#breakIfDue();
        if (!used.has(number) && this.#due({ slot, direction, part: 'rows' }, [number], now).length > 0)
          this.#deleteRows(held, direction, number);
      }
      await this.#breakIfDue();
      if (ids.some((id) => elements.has(id)) || numbers.some((number) => held.rows[direction].has(number)))
        clean = false;
    }
    return clean;
  }

  /** Those that have been stale for long enough; the first look starts the count. */
  #due(of: Omit<StaleEntry, 'due' | 'number'>, numbers: readonly number[], now: number): number[] {
    return this.#db.write([this.#stale], (txn) =>
      numbers.filter((number) => {
        const entry = { ...of, number };
        const known = txn.get(this.#stale, staleKey(entry));
        if (known === undefined) txn.insert(this.#stale, { ...entry, due: Math.ceil(now + GRACE_MS) });
        return known !== undefined && known.due <= now;
      }),
    );
  }

  #fresh(of: Omit<StaleEntry, 'due' | 'number'>, numbers: readonly number[]): void {
    this.#db.write([this.#stale], (txn) => {
      for (const number of numbers) txn.delete(this.#stale, staleKey({ ...of, number }));
    });
  }

  #writeElement(held: Held, direction: Direction, identity: number, number: number): void {
    held.movedAt = this.#options.now();
    held.classes.update(...classEntry(direction, identity, number));
    held.elements[direction].set(identity, number);
  }

  #deleteElements(held: Held, direction: Direction, identities: readonly number[]): void {
    if (identities.length === 0) return;
    held.movedAt = this.#options.now();
    held.classes.deleteBatch(
      identities.map((identity) => classKey.encode({ identity, direction: DIRECTION[direction] })),
    );
    for (const identity of identities) held.elements[direction].delete(identity);
    this.#fresh({ slot: held.slot, direction, part: 'elements' }, identities);
  }

  /** CIDRs around others before these. */
  async #deleteInOrder(held: Held, direction: Direction, identities: readonly number[]): Promise<void> {
    const each = this.#byLength([...new Set(identities)], (id) => id);
    await this.#inSteps(each, (step) => this.#deleteElements(held, direction, step));
  }

  /** Those of shorter prefixes first. */
  #byLength<T>(items: readonly T[], identityOf: (item: T) => number): readonly T[] {
    if (items.length < 2) return items;
    const lengths = new Map(items.map((item) => [item, this.#length(identityOf(item))]));
    return items.toSorted((a, b) => (lengths.get(a) ?? 0) - (lengths.get(b) ?? 0));
  }

  #length(identity: number): number {
    const prefix = isLocalCidr(identity) ? this.#options.prefixOf(identity) : undefined;
    return prefix === undefined ? 0 : Number(prefix.slice(prefix.indexOf('/') + 1));
  }

  #writeRows(held: Held, direction: Direction, number: number, blocks: readonly VerdictBlock[]): void {
    const entries = blocks.map((block) => verdictEntry(direction, number, block));
    try {
      held.verdicts.updateBatch(entries);
    } catch (error) {
      held.verdicts.deleteBatch(entries.map(([key]) => key));
      throw error;
    }
    held.rows[direction].set(number, blocks);
  }

  #deleteRows(held: Held, direction: Direction, number: number): void {
    const blocks = held.rows[direction].get(number) ?? [];
    held.verdicts.deleteBatch(blocks.map((block) => verdictEntry(direction, number, block)[0]));
    held.rows[direction].delete(number);
    this.#fresh({ slot: held.slot, direction, part: 'rows' }, [number]);
  }

  /** Makes both maps beside and puts them in place: the old content, where there is one, and room for the wanted. */
  async #build(slot: number, wanted: SlotContent, old: Held | undefined): Promise<Held> {
    const elements = both((direction) => new Map(old?.elements[direction] ?? wanted.elements[direction]));
    const rows = both((direction) => new Map(old?.rows[direction] ?? wanted.rows[direction]));
    const { create = createSlotMaps, least = { classes: 256, verdicts: 1024 } } = this.#options;
    const blocks = countBlocks(wanted.rows) + (old === undefined || old === wanted ? 0 : countBlocks(rows));
    if (blocks > MOST_BLOCKS) throw new SlotFullError(slot, blocks, MOST_BLOCKS);
    const maps = create({
      classes: roundUp(Math.max(least.classes, 2 * (count(wanted.elements) + (old ? count(elements) : 0)))),
      verdicts: Math.min(roundUp(Math.max(least.verdicts, 2 * blocks)), MOST_BLOCKS),
    });
    try {
      for (const direction of DIRECTIONS) {
        const entries = [...rows[direction]].flatMap(([number, of]) => of.map((block) => [number, block] as const));
        await this.#inSteps(entries, (step) =>
          maps.verdicts.updateBatch(step.map(([number, block]) => verdictEntry(direction, number, block))),
        );
        await this.#inSteps([...elements[direction]], (step) =>
          maps.classes.updateBatch(step.map(([id, number]) => classEntry(direction, id, number))),
        );
      }
    } catch (error) {
      closeBoth(maps);
      throw error;
    }
    const key = slotKey.encode(slot);
    const refused = await changeBoth((part) => this.#outer[part].setInnerAsync(key, maps[part]));
    if (old === undefined && refused.size > 0) {
      closeBoth(maps);
      if (refused.size < 2) await this.#takeOut(slot);
      throwFirst(refused);
    }
    // Each map says the same as the one that it replaces, if any: what is written is true of either.
    const movedAt = old?.movedAt ?? this.#options.now();
    const held = { slot, ...keepPlaced(maps, old, refused), elements, rows, movedAt };
    this.#held.set(slot, held);
    throwFirst(refused);
    return held;
  }

  /** Takes a half-made slot out: at once or, where the kernel refuses that, when `trim` comes to it, unless it is made before. */
  async #takeOut(slot: number): Promise<void> {
    this.#retireFor(slot, SPARE_MS, true);
    // What the caller throws is why; the row of `retiredSlots` sees to the rest.
    await this.free(slot).catch(() => undefined);
  }

  async #inSteps<T>(items: readonly T[], body: (step: readonly T[]) => void): Promise<void> {
    for (let from = 0; from < items.length; from += STEP) {
      await this.#breakIfDue();
      body(items.slice(from, from + STEP));
    }
  }

  async #breakIfDue(): Promise<void> {
    if (this.#pace.due()) await this.#pace.breathe();
  }
}

function staleKey({ slot, direction, part, number }: Omit<StaleEntry, 'due'>): string {
  return keys.join(tableKey.slot(slot), direction, part, keys.uint(number));
}

/** Entries are allocated only when used: room costs nothing. */
function roundUp(value: number): number {
  return 2 ** Math.ceil(Math.log2(value));
}

function roomFor(held: Held, wanted: SlotContent): boolean {
  return (
    count(held.elements) + count(wanted.elements) <= held.classes.info.maxEntries &&
    countBlocks(held.rows) + countBlocks(wanted.rows) <= held.verdicts.info.maxEntries
  );
}
