import { createSlotMaps, slotKey } from '@weir/bpf';
import { isLocalCidr } from '@weir/identity';
import { MOST_ROWS, type Pieces } from '@weir/policy';
import type { StateDB } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { both, contentOf, DIRECTIONS, GRACE_MS, type KernelSlot, Pace } from '../derive/contract.ts';
import { SlotFullError } from '../errors.ts';
import type { SlotContent, SlotRow } from '../tables.ts';
import type { Clock } from './clock.ts';
import { classEntry, count, countBlocks, meaning, readSlot, sameContent, verdictEntry } from './slot-content.ts';
import { type OpenSlot, SlotEditor } from './slot-editor.ts';
import { SlotLeftovers } from './slot-leftovers.ts';
import { changeBoth, closeBoth, keepPlaced, type SlotMaps, throwFirst } from './slot-parts.ts';

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
/**
 * How long an emptied slot keeps its maps for the next policy, in milliseconds. To put maps into a slot or take them out makes the
 * kernel wait for an RCU grace period: 10 ms of an edit that a slot with maps in it does not need.
 */
const SPARE_MS = 3000;

/**
 * The slots in the kernel. A change of one is made so that every packet in between meets the old or the new decision; what a
 * packet under way may still look at (rows of a class that it has read, a slot that its word named) stays for GRACE_MS:
 * tables `trimmedSlots`, `staleEntries` and `retiredSlots` say what has still to go.
 */
export class SlotStore {
  readonly #options: SlotStoreOptions;
  /** Of each slot its inner maps. */
  readonly #outer: SlotMaps;
  readonly #left: SlotLeftovers;
  readonly #edit: SlotEditor;
  /** Handles: the open maps of each slot, emptied ones included, with what has been written into them. */
  readonly #open = new Map<number, OpenSlot>();
  readonly #pace: Pace;
  /** Settles with the last `apply` that has begun. */
  #applied: Promise<unknown> = Promise.resolve();
  /** Settles with the last that had all slots for itself: no `apply` may overlap it, as each makes breaks. */
  #alone: Promise<unknown> = Promise.resolve();

  constructor(options: SlotStoreOptions) {
    const { db, now, yieldNow, prefixOf } = options;
    this.#options = options;
    this.#pace = new Pace(now, yieldNow);
    this.#outer = { classes: options.policy_classes, verdicts: options.policy_verdicts };
    this.#left = new SlotLeftovers(db, now);
    this.#edit = new SlotEditor({ clock: options, pace: this.#pace, leftovers: this.#left, prefixOf });
  }

  /** Slots that the kernel has. Half-made ones (a crash between the two maps) are removed: no endpoint points at them. */
  async adopt(): Promise<Map<number, KernelSlot>> {
    const out = new Map<number, KernelSlot>();
    for (let slot = 1; slot < SLOTS; slot += 1) {
      await this.#edit.breakIfDue();
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
      const open = {
        slot,
        classes,
        verdicts,
        movedAt,
        ...(await this.#pace.run(readSlot(classes, verdicts))),
      };
      this.#open.set(slot, open);
      out.set(slot, meaning(open));
    }
    return out;
  }

  /** Whether the slot has content. */
  has(slot: number): boolean {
    return this.#open.has(slot) && this.#left.retirement(slot)?.emptied !== true;
  }

  slots(): number[] {
    return [...this.#open.keys()].filter((slot) => this.has(slot));
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
    this.#left.want(row.slot, wanted);
    let open = this.#open.get(row.slot);
    if (open === undefined || !roomFor(open, wanted)) open = await this.#build(row.slot, wanted, open);
    await this.#edit.vacate(open, wanted);
    for (const direction of DIRECTIONS) {
      for (const [number, blocks] of wanted.rows[direction]) {
        await this.#edit.breakIfDue();
        if (!open.rows[direction].has(number)) this.#edit.writeRows(open, direction, number, blocks);
      }
    }
    for (const direction of DIRECTIONS) {
      const old = open.elements[direction];
      const others: (readonly [identity: number, number: number])[] = [];
      for (const [identity, number] of wanted.elements[direction]) {
        if (this.#pace.due()) await this.#pace.yieldNow();
        if (old.get(identity) !== number) others.push([identity, number]);
      }
      const fresh = others.filter(([identity]) => isLocalCidr(identity) && !old.has(identity));
      for (const [identity, number] of [...this.#edit.byLength(fresh, ([id]) => id).toReversed(), ...others]) {
        if (this.#pace.due()) await this.#pace.yieldNow();
        if (old.get(identity) !== number) this.#edit.writeElement(open, direction, identity, number);
      }
      await this.#edit.breakIfDue();
      const unwanted = [...old.keys()].filter((id) => !wanted.elements[direction].has(id));
      const now = unwanted.filter(stays);
      await this.#edit.deleteInOrder(
        open,
        direction,
        now.some(isLocalCidr) ? [...now, ...unwanted.filter(isLocalCidr)] : now,
      );
    }
    this.#left.applied(row.slot, wanted);
  }

  /** Addresses are about to get these identities: elements that nothing wants must not decide about them. */
  forget(identities: ReadonlySet<number>): Promise<void> {
    return this.#whileAlone(async () => {
      for (const { slot, wanted } of this.#left.untidy()) {
        const open = this.#open.get(slot);
        if (open === undefined) continue;
        for (const direction of DIRECTIONS) {
          const there = open.elements[direction];
          const unwanted = [...identities].filter((id) => there.has(id) && !wanted.elements[direction].has(id));
          await this.#edit.inPieces(unwanted, (piece) => this.#edit.deleteElements(open, direction, piece));
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
    for (const { slot, wanted } of this.#left.untidy()) {
      const open = this.#open.get(slot);
      if (open === undefined || (await this.#edit.trim(open, wanted))) this.#left.tidied(slot);
    }
    const due = this.#left.due();
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
    return this.#left.nextDue();
  }

  /** No word names the slot any more: `trim` frees it once no packet can have read one that did. */
  retire(slot: number): void {
    if (this.#open.has(slot) && this.#left.retirement(slot) === undefined) this.#left.retire(slot, GRACE_MS, false);
  }

  /** Frees a slot that no packet can reach. Succeeds when it is absent. */
  async free(slot: number): Promise<void> {
    const key = slotKey.encode(slot);
    const refused = await changeBoth((part) => this.#outer[part].deleteInnerAsync(key));
    const open = this.#open.get(slot);
    // Half of one is none: the next `apply` makes both again.
    if (open !== undefined && refused.size < 2) {
      closeBoth(open);
      this.#open.delete(slot);
    }
    throwFirst(refused);
    this.#left.gone(slot);
  }

  /** Slots that have maps, emptied ones too. */
  numbers(): number[] {
    return [...this.#open.keys()];
  }

  /** Why the slot's maps are not those that were put there; undefined when they are, or when there are to be none. */
  misplaced(slot: number): string | undefined {
    const open = this.#open.get(slot);
    if (open === undefined) return undefined;
    for (const [name, outer, { info }] of [
      ['policy_classes', this.#outer.classes, open.classes],
      ['policy_verdicts', this.#outer.verdicts, open.verdicts],
    ] as const) {
      // An element of a map of maps is the id of the inner map.
      const id = outer.lookup(slotKey.encode(slot));
      if (id === undefined) return `its map in ${name} is missing`;
      if (Buffer.from(id).readUInt32LE(0) !== info.id) return `its map in ${name} was replaced`;
    }
    return undefined;
  }

  /** Why the kernel's slot is not what was written into it; undefined when it is. Makes breaks, in which nothing is written. */
  fault(slot: number): Promise<string | undefined> {
    return this.#whileAlone(() => this.#pace.run(this.#compare(slot)));
  }

  *#compare(slot: number): Pieces<string | undefined> {
    const misplaced = this.misplaced(slot);
    const open = this.#open.get(slot);
    if (misplaced !== undefined || open === undefined) return misplaced;
    const found = yield* readSlot(open.classes, open.verdicts);
    return (yield* sameContent(found, open)) ? undefined : 'its content was changed';
  }

  /** Puts the slot into the kernel again, as it was written. */
  mend(slot: number): Promise<void> {
    return this.#whileAlone(async () => {
      const open = this.#open.get(slot);
      if (open !== undefined) await this.#build(slot, open, open);
    });
  }

  /** What has been written into the slot; undefined when the kernel has no such slot. */
  content(slot: number): SlotContent | undefined {
    return this.has(slot) ? this.#open.get(slot) : undefined;
  }

  /** Rows and elements of a slot, for people. */
  *dump(): Generator<{ readonly slot: number } & SlotContent> {
    for (const [slot, { elements, rows }] of this.#open) yield { slot, elements, rows };
  }

  /** Emptied slots whose maps wait for the next policy. */
  get spares(): number {
    return this.#open.size - this.slots().length;
  }

  close(): void {
    for (const open of this.#open.values()) closeBoth(open);
    this.#open.clear();
  }

  /** Takes everything out of a slot that no packet can reach, and keeps its maps for a while. */
  async #empty(slot: number): Promise<void> {
    const open = this.#open.get(slot);
    if (open !== undefined) {
      for (const direction of DIRECTIONS) {
        for (const number of [...open.rows[direction].keys()]) {
          await this.#edit.breakIfDue();
          this.#edit.deleteRows(open, direction, number);
        }
        await this.#edit.inPieces([...open.elements[direction].keys()], (piece) =>
          this.#edit.deleteElements(open, direction, piece),
        );
      }
    }
    this.#left.tidied(slot);
    this.#left.retire(slot, SPARE_MS, true);
  }

  /** Makes both maps beside and puts them in place: the old content, where there is one, and room for the wanted. */
  async #build(slot: number, wanted: SlotContent, old: OpenSlot | undefined): Promise<OpenSlot> {
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
        await this.#edit.inPieces(entries, (piece) =>
          maps.verdicts.updateBatch(piece.map(([number, block]) => verdictEntry(direction, number, block))),
        );
        await this.#edit.inPieces([...elements[direction]], (piece) =>
          maps.classes.updateBatch(piece.map(([id, number]) => classEntry(direction, id, number))),
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
    const open = { slot, ...keepPlaced(maps, old, refused), elements, rows, movedAt };
    this.#open.set(slot, open);
    throwFirst(refused);
    return open;
  }

  /** Takes a half-made slot out: at once or, where the kernel refuses that, when `trim` comes to it, unless it is made before. */
  async #takeOut(slot: number): Promise<void> {
    this.#left.retire(slot, SPARE_MS, true);
    // What the caller throws is why; the row of `retiredSlots` sees to the rest.
    await this.free(slot).catch(() => undefined);
  }
}

/** Entries are allocated only when used: room costs nothing. */
function roundUp(value: number): number {
  return 2 ** Math.ceil(Math.log2(value));
}

function roomFor(open: OpenSlot, wanted: SlotContent): boolean {
  return (
    count(open.elements) + count(wanted.elements) <= open.classes.info.maxEntries &&
    countBlocks(open.rows) + countBlocks(wanted.rows) <= open.verdicts.info.maxEntries
  );
}
