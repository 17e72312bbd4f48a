/** Writes elements and rows of the slots in the kernel, and deletes them, in steps. */
import { classKey, DIRECTION } from '@weir/bpf';
import { isLocalCidr, scopeOf } from '@weir/identity';
import type { Direction } from '@weir/policy';
import { blocksKey, DIRECTIONS, type Pace } from '../derive/contract.ts';
import { OrderError } from '../errors.ts';
import type { PerDirection, SlotContent, VerdictBlock } from '../tables.ts';
import type { Clock } from './clock.ts';
import { classEntry, verdictEntry } from './slot-content.ts';
import type { SlotLeftovers } from './slot-leftovers.ts';
import type { SlotMaps } from './slot-parts.ts';

/** Elements of a slot that are written or deleted at once: some hundred microseconds. */
const PIECE = 256;

/** One slot's maps, and what has been written into them: read back from the kernel at start, and changed with it. */
export interface OpenSlot extends SlotMaps {
  readonly slot: number;
  readonly elements: PerDirection<Map<number, number>>;
  readonly rows: PerDirection<Map<number, readonly VerdictBlock[]>>;
  /** When an element was written or deleted last. */
  movedAt: number;
}

export interface SlotEditorOptions {
  readonly clock: Pick<Clock, 'now' | 'quiesce'>;
  readonly pace: Pace;
  readonly leftovers: SlotLeftovers;
  /** What a CIDR's identity stands for; undefined where nobody knows. */
  readonly prefixOf: (identity: number) => string | undefined;
}

/**
 * Edits slots element by element. An address in a CIDR without an element is judged by the CIDR around it that has one. So of CIDRs those within
 * others get their elements first, and lose them last: else an address would be judged by what is around it while that is still, or already,
 * another one's.
 */
export class SlotEditor {
  readonly #options: SlotEditorOptions;
  readonly #left: SlotLeftovers;
  readonly #pace: Pace;

  constructor(options: SlotEditorOptions) {
    this.#options = options;
    this.#left = options.leftovers;
    this.#pace = options.pace;
  }

  /** Deletes rows that will be replaced, once no packet reads them, and unwanted elements of their classes. */
  async vacate(open: OpenSlot, wanted: SlotContent): Promise<void> {
    const others: (readonly [direction: Direction, numbers: ReadonlySet<number>])[] = [];
    for (const direction of DIRECTIONS) {
      const numbers = new Set<number>();
      for (const [number, blocks] of wanted.rows[direction]) {
        await this.breakIfDue();
        const old = open.rows[direction].get(number);
        if (old !== undefined && blocksKey(old) !== blocksKey(blocks)) numbers.add(number);
      }
      if (numbers.size > 0) others.push([direction, numbers]);
    }
    if (others.length === 0) return;
    for (const [direction, numbers] of others) {
      const members = [...open.elements[direction]].filter(([, number]) => numbers.has(number));
      const known = members.find(([identity]) => wanted.elements[direction].has(identity));
      if (known !== undefined)
        throw new OrderError(`slot ${open.slot}: identity ${known[0]} still has class ${known[1]}`);
      const unwanted = members.map(([identity]) => identity);
      if (unwanted.some(isLocalCidr)) unwanted.push(...this.#leavingCidrs(open, wanted, direction));
      await this.deleteInOrder(open, direction, unwanted);
    }
    await this.#options.clock.quiesce(open.movedAt);
    for (const [direction, numbers] of others)
      for (const number of numbers) {
        await this.breakIfDue();
        this.deleteRows(open, direction, number);
      }
  }

  /**
   * CIDRs that are to have no element any more, where none is to get another one first.
   * @throws OrderError where one is: addresses in them would be judged by what is around it, and are to be by it
   */
  #leavingCidrs(open: OpenSlot, wanted: SlotContent, direction: Direction): readonly number[] {
    const old = open.elements[direction];
    for (const [identity, number] of wanted.elements[direction])
      if (scopeOf(identity) === 'world' && old.get(identity) !== number)
        throw new OrderError(
          `slot ${open.slot}: identity ${identity} is to have class ${number} before CIDRs in it go`,
        );
    return [...old.keys()].filter((id) => isLocalCidr(id) && !wanted.elements[direction].has(id));
  }

  /** Whether nothing unwanted is left. */
  async trim(open: OpenSlot, wanted: SlotContent): Promise<boolean> {
    const { slot } = open;
    let clean = true;
    for (const direction of DIRECTIONS) {
      const elements = open.elements[direction];
      const ids = [...elements.keys()].filter((identity) => !wanted.elements[direction].has(identity));
      await this.inPieces(
        this.byLength(ids, (id) => id),
        (piece) => {
          const due = this.#left.stale({ slot, direction, part: 'elements' }, piece);
          this.deleteElements(open, direction, due);
        },
      );
      await this.breakIfDue();
      const used = new Set(elements.values());
      const numbers = [...open.rows[direction].keys()].filter((number) => !wanted.rows[direction].has(number));
      for (const number of numbers) {
        await this.breakIfDue();
        if (!used.has(number) && this.#left.stale({ slot, direction, part: 'rows' }, [number]).length > 0)
          this.deleteRows(open, direction, number);
      }
      await this.breakIfDue();
      if (ids.some((id) => elements.has(id)) || numbers.some((number) => open.rows[direction].has(number)))
        clean = false;
    }
    return clean;
  }

  writeElement(open: OpenSlot, direction: Direction, identity: number, number: number): void {
    open.movedAt = this.#options.clock.now();
    open.classes.update(...classEntry(direction, identity, number));
    open.elements[direction].set(identity, number);
  }

  deleteElements(open: OpenSlot, direction: Direction, identities: readonly number[]): void {
    if (identities.length === 0) return;
    open.movedAt = this.#options.clock.now();
    open.classes.deleteBatch(
      identities.map((identity) => classKey.encode({ identity, direction: DIRECTION[direction] })),
    );
    for (const identity of identities) open.elements[direction].delete(identity);
    this.#left.fresh({ slot: open.slot, direction, part: 'elements' }, identities);
  }

  /** CIDRs around others before these. */
  async deleteInOrder(open: OpenSlot, direction: Direction, identities: readonly number[]): Promise<void> {
    const each = this.byLength([...new Set(identities)], (id) => id);
    await this.inPieces(each, (piece) => this.deleteElements(open, direction, piece));
  }

  /** Those of shorter prefixes first. */
  byLength<T>(items: readonly T[], identityOf: (item: T) => number): readonly T[] {
    if (items.length < 2) return items;
    const lengths = new Map(items.map((item) => [item, this.#length(identityOf(item))]));
    return items.toSorted((a, b) => (lengths.get(a) ?? 0) - (lengths.get(b) ?? 0));
  }

  #length(identity: number): number {
    const prefix = isLocalCidr(identity) ? this.#options.prefixOf(identity) : undefined;
    return prefix === undefined ? 0 : Number(prefix.slice(prefix.indexOf('/') + 1));
  }

  writeRows(open: OpenSlot, direction: Direction, number: number, blocks: readonly VerdictBlock[]): void {
    const entries = blocks.map((block) => verdictEntry(direction, number, block));
    try {
      open.verdicts.updateBatch(entries);
    } catch (error) {
      open.verdicts.deleteBatch(entries.map(([key]) => key));
      throw error;
    }
    open.rows[direction].set(number, blocks);
  }

  deleteRows(open: OpenSlot, direction: Direction, number: number): void {
    const blocks = open.rows[direction].get(number) ?? [];
    open.verdicts.deleteBatch(blocks.map((block) => verdictEntry(direction, number, block)[0]));
    open.rows[direction].delete(number);
    this.#left.fresh({ slot: open.slot, direction, part: 'rows' }, [number]);
  }

  async inPieces<T>(items: readonly T[], body: (piece: readonly T[]) => void): Promise<void> {
    for (let from = 0; from < items.length; from += PIECE) {
      await this.breakIfDue();
      body(items.slice(from, from + PIECE));
    }
  }

  async breakIfDue(): Promise<void> {
    if (this.#pace.due()) await this.#pace.yieldNow();
  }
}
