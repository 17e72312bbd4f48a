import { classKey, createSlotMaps, DIRECTION, slotKey } from '@weir/bpf';
import type { Direction } from '@weir/policy';
import type { BpfMap } from 'libbpf-ts';
import { blocksKey, DIRECTIONS, GRACE_MS, type KernelSlot, type VerdictBlock } from '../derive/index.ts';
import { OrderError } from '../errors.ts';
import type { SlotRow } from '../tables.ts';
import {
  both,
  classEntry,
  contentOf,
  count,
  countBlocks,
  meaning,
  type PerDirection,
  readSlot,
  type SlotContent,
  verdictEntries,
  verdictEntry,
} from './slot-content.ts';

export interface SlotMaps {
  readonly classes: BpfMap;
  readonly verdicts: BpfMap;
}

/** One slot as the kernel holds it. */
interface Held extends SlotMaps {
  readonly elements: PerDirection<Map<number, number>>;
  readonly rows: PerDirection<Map<number, readonly VerdictBlock[]>>;
  /** Identities and classes that nothing wants, and since when (milliseconds). */
  readonly stale: PerDirection<{ readonly elements: Map<number, number>; readonly rows: Map<number, number> }>;
}

export interface SlotStoreOptions {
  readonly policy_classes: BpfMap;
  readonly policy_verdicts: BpfMap;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Makes the inner maps of a slot. Default: in the kernel. */
  readonly create?: (sizes: { readonly classes: number; readonly verdicts: number }) => SlotMaps;
  /** The least that a slot has room for. Default 256 elements and 1024 rows. */
  readonly least?: { readonly classes: number; readonly verdicts: number };
}

const SLOTS = 4096;
/**
 * How long an emptied slot keeps its maps for the next policy, in milliseconds. To put maps into a slot or take them out makes the
 * kernel wait for an RCU grace period, twice: 15 ms of an edit that a slot with maps in it does not need.
 */
const SPARE_MS = 3000;

/**
 * The slots in the kernel. A change of one is made so that every packet in between meets the old or the new decision; what a
 * packet under way may still look at (rows of a class that it has read, a slot that its word named) stays for GRACE_MS.
 */
export class SlotStore {
  readonly #options: SlotStoreOptions;
  readonly #classes: BpfMap;
  readonly #verdicts: BpfMap;
  readonly #held = new Map<number, Held>();
  /** The newest content of each slot that holds something else too. */
  readonly #trims = new Map<number, SlotContent>();
  /** Slots that no word names any more, and when they may go. */
  readonly #retired = new Map<number, number>();
  /** Emptied slots with their maps, and when these go. */
  readonly #spare = new Map<number, { readonly maps: SlotMaps; readonly due: number }>();

  constructor(options: SlotStoreOptions) {
    this.#options = options;
    this.#classes = options.policy_classes;
    this.#verdicts = options.policy_verdicts;
  }

  /** Slots that the kernel has. Half-made ones (a crash between the two maps) are removed: no endpoint points at them. */
  async adopt(breathe: () => Promise<void>): Promise<Map<number, KernelSlot>> {
    const out = new Map<number, KernelSlot>();
    for (let slot = 1; slot < SLOTS; slot += 1) {
      if (slot % 512 === 0) await breathe();
      const key = slotKey.encode(slot);
      const classes = this.#classes.openInner(key);
      const verdicts = this.#verdicts.openInner(key);
      if (classes === undefined || verdicts === undefined) {
        classes?.close();
        verdicts?.close();
        if (classes) this.#classes.delete(key);
        if (verdicts) this.#verdicts.delete(key);
        continue;
      }
      await breathe();
      const held = { classes, verdicts, ...readSlot(classes, verdicts), stale: nothingStale() };
      this.#held.set(slot, held);
      out.set(slot, meaning(held));
    }
    return out;
  }

  has(slot: number): boolean {
    return this.#held.has(slot);
  }

  slots(): number[] {
    return [...this.#held.keys()];
  }

  /**
   * Brings a slot to a row, but for what a packet may still look at (`trim`). `stays` tells whether an address has the
   * identity after this round: of such an identity the element goes at once, as that is the change of its decision.
   */
  apply(row: SlotRow, stays: (identity: number) => boolean): void {
    const wanted = contentOf(row);
    this.#retired.delete(row.slot);
    let held = this.#held.get(row.slot) ?? this.#takeSpare(row.slot);
    if (held === undefined || !roomFor(held, wanted)) held = this.#build(row.slot, wanted, held);
    for (const direction of DIRECTIONS) {
      for (const [number, blocks] of wanted.rows[direction]) {
        held.stale[direction].rows.delete(number);
        const old = held.rows[direction].get(number);
        if (old !== undefined && blocksKey(old) === blocksKey(blocks)) continue;
        if (old !== undefined)
          throw new OrderError(`slot ${row.slot}: class ${number} still has other rows, which a packet may be reading`);
        this.#writeRows(held, direction, number, blocks);
      }
    }
    for (const direction of DIRECTIONS) {
      const old = held.elements[direction];
      for (const [identity, number] of wanted.elements[direction]) {
        held.stale[direction].elements.delete(identity);
        if (old.get(identity) === number) continue;
        held.classes.update(...classEntry(direction, identity, number));
        old.set(identity, number);
      }
      for (const identity of [...old.keys()]) {
        if (!wanted.elements[direction].has(identity) && stays(identity))
          this.#deleteElement(held, direction, identity);
      }
    }
    this.#trims.set(row.slot, wanted);
  }

  /** Addresses are about to get these identities: elements that nothing wants must not decide about them. */
  forget(identities: ReadonlySet<number>): void {
    for (const [slot, wanted] of this.#trims) {
      const held = this.#held.get(slot);
      if (held === undefined) continue;
      for (const direction of DIRECTIONS) {
        for (const identity of [...held.elements[direction].keys()]) {
          if (identities.has(identity) && !wanted.elements[direction].has(identity))
            this.#deleteElement(held, direction, identity);
        }
      }
    }
  }

  /** Removes elements, rows and slots that no packet has been able to reach for GRACE_MS. Returns the slots that are gone. */
  trim(): number[] {
    const now = this.#options.now();
    for (const [slot, wanted] of this.#trims) {
      const held = this.#held.get(slot);
      if (held === undefined || this.#trimOne(held, wanted, now)) this.#trims.delete(slot);
    }
    const gone = [...this.#retired].filter(([, due]) => due <= now).map(([slot]) => slot);
    for (const slot of gone) this.#empty(slot);
    // One a call: each waits for the kernel.
    const spent = [...this.#spare].find(([, { due }]) => due <= now);
    if (spent) this.free(spent[0]);
    return gone;
  }

  /** When `trim` next has something to remove; undefined when nothing waits. */
  trimDue(): number | undefined {
    let due: number | undefined;
    const note = (at: number): void => {
      if (due === undefined || at < due) due = at;
    };
    for (const at of this.#retired.values()) note(at);
    for (const { due: at } of this.#spare.values()) note(at);
    for (const slot of this.#trims.keys()) {
      for (const direction of DIRECTIONS) {
        const stale = this.#held.get(slot)?.stale[direction];
        for (const since of stale?.elements.values() ?? []) note(since + GRACE_MS);
        for (const since of stale?.rows.values() ?? []) note(since + GRACE_MS);
      }
    }
    return due;
  }

  /** No word names the slot any more: `trim` frees it once no packet can have read one that did. */
  retire(slot: number): void {
    if (this.#held.has(slot) && !this.#retired.has(slot)) this.#retired.set(slot, this.#options.now() + GRACE_MS);
  }

  /** Frees a slot that no packet can reach. Succeeds when it is absent. */
  free(slot: number): void {
    const key = slotKey.encode(slot);
    this.#classes.delete(key);
    this.#verdicts.delete(key);
    const maps = this.#held.get(slot) ?? this.#spare.get(slot)?.maps;
    maps?.classes.close();
    maps?.verdicts.close();
    this.#spare.delete(slot);
    this.#held.delete(slot);
    this.#trims.delete(slot);
    this.#retired.delete(slot);
  }

  /** Rows and elements of a slot, for people. */
  *dump(): Generator<{ readonly slot: number } & SlotContent> {
    for (const [slot, { elements, rows }] of this.#held) yield { slot, elements, rows };
  }

  /** Emptied slots whose maps wait for the next policy. */
  get spares(): number {
    return this.#spare.size;
  }

  close(): void {
    for (const { classes, verdicts } of [
      ...this.#held.values(),
      ...[...this.#spare.values()].map(({ maps }) => maps),
    ]) {
      classes.close();
      verdicts.close();
    }
    this.#held.clear();
    this.#spare.clear();
  }

  /** Takes everything out of a slot that no packet can reach, and keeps its maps for a while. */
  #empty(slot: number): void {
    const held = this.#held.get(slot);
    if (held !== undefined) {
      for (const direction of DIRECTIONS) {
        for (const number of [...held.rows[direction].keys()]) this.#deleteRows(held, direction, number);
        for (const identity of [...held.elements[direction].keys()]) this.#deleteElement(held, direction, identity);
      }
      this.#held.delete(slot);
      this.#spare.set(slot, { maps: held, due: this.#options.now() + SPARE_MS });
    }
    this.#trims.delete(slot);
    this.#retired.delete(slot);
  }

  #takeSpare(slot: number): Held | undefined {
    const spare = this.#spare.get(slot);
    if (spare === undefined) return undefined;
    this.#spare.delete(slot);
    const { classes, verdicts } = spare.maps;
    const held = {
      classes,
      verdicts,
      elements: both(() => new Map()),
      rows: both(() => new Map()),
      stale: nothingStale(),
    };
    this.#held.set(slot, held);
    return held;
  }

  /** Whether nothing unwanted is left. */
  #trimOne(held: Held, wanted: SlotContent, now: number): boolean {
    let clean = true;
    for (const direction of DIRECTIONS) {
      const stale = held.stale[direction];
      for (const identity of [...held.elements[direction].keys()]) {
        if (wanted.elements[direction].has(identity)) continue;
        if (due(stale.elements, identity, now)) this.#deleteElement(held, direction, identity);
        else clean = false;
      }
      const used = new Set(held.elements[direction].values());
      for (const number of [...held.rows[direction].keys()]) {
        if (wanted.rows[direction].has(number)) continue;
        if (!used.has(number) && due(stale.rows, number, now)) this.#deleteRows(held, direction, number);
        else clean = false;
      }
    }
    return clean;
  }

  #deleteElement(held: Held, direction: Direction, identity: number): void {
    held.classes.delete(classKey.encode({ identity, direction: DIRECTION[direction] }));
    held.elements[direction].delete(identity);
    held.stale[direction].elements.delete(identity);
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
    const keys = (held.rows[direction].get(number) ?? []).map((block) => verdictEntry(direction, number, block)[0]);
    held.verdicts.deleteBatch(keys);
    held.rows[direction].delete(number);
    held.stale[direction].rows.delete(number);
  }

  /** Makes both maps beside and puts them in place: the old content, where there is one, and room for the wanted. */
  #build(slot: number, wanted: SlotContent, old: Held | undefined): Held {
    const elements = both((direction) => new Map(old?.elements[direction] ?? wanted.elements[direction]));
    const rows = both((direction) => new Map(old?.rows[direction] ?? wanted.rows[direction]));
    const { create = createSlotMaps, least = { classes: 256, verdicts: 1024 } } = this.#options;
    const maps = create({
      classes: roundUp(Math.max(least.classes, 2 * (count(wanted.elements) + (old ? count(elements) : 0)))),
      verdicts: roundUp(Math.max(least.verdicts, 2 * (countBlocks(wanted.rows) + (old ? countBlocks(rows) : 0)))),
    });
    try {
      maps.verdicts.updateBatch(verdictEntries(rows));
      maps.classes.updateBatch(
        DIRECTIONS.flatMap((direction) =>
          [...elements[direction]].map(([id, number]) => classEntry(direction, id, number)),
        ),
      );
      const key = slotKey.encode(slot);
      this.#verdicts.setInner(key, maps.verdicts);
      this.#classes.setInner(key, maps.classes);
    } catch (error) {
      maps.classes.close();
      maps.verdicts.close();
      throw error;
    }
    old?.classes.close();
    old?.verdicts.close();
    const held = { ...maps, elements, rows, stale: old?.stale ?? nothingStale() };
    this.#held.set(slot, held);
    return held;
  }
}

function nothingStale(): Held['stale'] {
  return both(() => ({ elements: new Map(), rows: new Map() }));
}

/** Whether it has been stale for long enough; the first look starts the count. */
function due(stale: Map<number, number>, item: number, now: number): boolean {
  const since = stale.get(item);
  if (since === undefined) stale.set(item, now);
  return since !== undefined && now - since >= GRACE_MS;
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
