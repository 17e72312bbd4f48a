import { classKey, classValue, createSlotMaps, DIRECTION, slotKey, VERDICT, verdictKey, verdictValue } from '@weir/bpf';
import type { Direction } from '@weir/policy';
import type { BpfMap } from 'libbpf-ts';
import { blocksKey, blocksOf, DIRECTIONS, type KernelSlot, rowsByClass, type VerdictBlock } from '../derive/index.ts';
import { OrderError } from '../errors.ts';
import type { SlotRow } from '../tables.ts';

type PerDirection<T> = Readonly<Record<Direction, T>>;

/** One slot as the kernel holds it. */
interface Held {
  readonly classes: BpfMap;
  readonly verdicts: BpfMap;
  readonly elements: PerDirection<Map<number, number>>;
  readonly rows: PerDirection<Map<number, readonly VerdictBlock[]>>;
}

interface Wanted {
  readonly elements: PerDirection<ReadonlyMap<number, number>>;
  readonly rows: PerDirection<ReadonlyMap<number, readonly VerdictBlock[]>>;
}

const SLOTS = 4096;

/** The slots in the kernel. A change of one is made so that every packet in between meets the old or the new decision. */
export class SlotStore {
  readonly #classes: BpfMap;
  readonly #verdicts: BpfMap;
  readonly #held = new Map<number, Held>();
  readonly #trims = new Map<number, SlotRow>();

  constructor(maps: { readonly policy_classes: BpfMap; readonly policy_verdicts: BpfMap }) {
    this.#classes = maps.policy_classes;
    this.#verdicts = maps.policy_verdicts;
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
      const held = readSlot(classes, verdicts);
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
   * Brings a slot to a row, but for what nothing uses any more (`trim`). `stays` tells whether an address has the identity
   * after this round: only of such an identity may the element go at once.
   */
  apply(row: SlotRow, stays: (identity: number) => boolean): void {
    const wanted = wantedOf(row);
    const held = this.#held.get(row.slot);
    if (held === undefined || !roomFor(held, wanted)) {
      this.#build(row.slot, wanted, held);
      return;
    }
    for (const direction of DIRECTIONS) {
      for (const [number, blocks] of wanted.rows[direction]) {
        const old = held.rows[direction].get(number);
        if (old !== undefined && blocksKey(old) === blocksKey(blocks)) continue;
        if (old !== undefined) {
          for (const [, used] of held.elements[direction]) {
            if (used === number) throw new OrderError(`slot ${row.slot}: class ${number} is in use with other rows`);
          }
          this.#deleteRows(held, direction, number);
        }
        held.verdicts.updateBatch(blocks.map((block) => verdictEntry(direction, number, block)));
        held.rows[direction].set(number, blocks);
      }
    }
    for (const direction of DIRECTIONS) {
      const old = held.elements[direction];
      for (const [identity, number] of wanted.elements[direction]) {
        if (old.get(identity) === number) continue;
        held.classes.update(...classEntry(direction, identity, number));
        old.set(identity, number);
      }
      for (const identity of [...old.keys()]) {
        if (wanted.elements[direction].has(identity) || !stays(identity)) continue;
        held.classes.delete(classKey.encode({ identity, direction: DIRECTION[direction] }));
        old.delete(identity);
      }
    }
    this.#trims.set(row.slot, row);
  }

  /** Removes elements and rows that no packet can reach any more. Idempotent; what fails is tried again at the next call. */
  trim(): void {
    for (const [slot, row] of this.#trims) {
      const held = this.#held.get(slot);
      if (held) {
        const wanted = wantedOf(row);
        for (const direction of DIRECTIONS) {
          const old = held.elements[direction];
          for (const identity of [...old.keys()]) {
            if (wanted.elements[direction].has(identity)) continue;
            held.classes.delete(classKey.encode({ identity, direction: DIRECTION[direction] }));
            old.delete(identity);
          }
          for (const number of [...held.rows[direction].keys()]) {
            if (!wanted.rows[direction].has(number)) this.#deleteRows(held, direction, number);
          }
        }
      }
      this.#trims.delete(slot);
    }
  }

  /** Frees a slot that no endpoint points at. Succeeds when it is absent. */
  free(slot: number): void {
    const key = slotKey.encode(slot);
    this.#classes.delete(key);
    this.#verdicts.delete(key);
    const held = this.#held.get(slot);
    held?.classes.close();
    held?.verdicts.close();
    this.#held.delete(slot);
    this.#trims.delete(slot);
  }

  /** Rows and elements of a slot, for people. */
  *dump(): Generator<{ readonly slot: number; readonly elements: Held['elements']; readonly rows: Held['rows'] }> {
    for (const [slot, { elements, rows }] of this.#held) yield { slot, elements, rows };
  }

  close(): void {
    for (const { classes, verdicts } of this.#held.values()) {
      classes.close();
      verdicts.close();
    }
    this.#held.clear();
  }

  #deleteRows(held: Held, direction: Direction, number: number): void {
    const keys = (held.rows[direction].get(number) ?? []).map((block) => verdictEntry(direction, number, block)[0]);
    held.verdicts.deleteBatch(keys);
    held.rows[direction].delete(number);
  }

  /** Makes both maps beside and puts them in place. While growing, each new map means the same as the one it replaces. */
  #build(slot: number, wanted: Wanted, old: Held | undefined): void {
    const elements = both((direction) => new Map([...(old?.elements[direction] ?? []), ...wanted.elements[direction]]));
    const rows = both((direction) => new Map([...(old?.rows[direction] ?? []), ...wanted.rows[direction]]));
    const maps = createSlotMaps(sizesFor(elements, rows));
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
    this.#held.set(slot, { ...maps, elements, rows });
  }
}

function both<T>(of: (direction: Direction) => T): PerDirection<T> {
  return { ingress: of('ingress'), egress: of('egress') };
}

function wantedOf(row: SlotRow): Wanted {
  return {
    elements: both((direction) => row.classes[direction]),
    rows: both(
      (direction) => new Map([...rowsByClass(row, direction)].map(([number, rows]) => [number, blocksOf(rows)])),
    ),
  };
}

function count(maps: PerDirection<ReadonlyMap<number, unknown>>): number {
  return maps.ingress.size + maps.egress.size;
}

function countBlocks(rows: Wanted['rows']): number {
  let total = 0;
  for (const direction of DIRECTIONS) for (const blocks of rows[direction].values()) total += blocks.length;
  return total;
}

/** Room to grow by membership changes without a rebuild; entries are allocated only when used. */
function sizesFor(elements: Wanted['elements'], rows: Wanted['rows']): { classes: number; verdicts: number } {
  return {
    classes: ceilPower(Math.max(256, 2 * count(elements))),
    verdicts: ceilPower(Math.max(1024, 4 * countBlocks(rows))),
  };
}

function ceilPower(value: number): number {
  return 2 ** Math.ceil(Math.log2(value));
}

function roomFor(held: Held, wanted: Wanted): boolean {
  return (
    count(held.elements) + count(wanted.elements) <= held.classes.info.maxEntries &&
    countBlocks(held.rows) + countBlocks(wanted.rows) <= held.verdicts.info.maxEntries
  );
}

function classEntry(direction: Direction, identity: number, number: number): [Uint8Array, Uint8Array] {
  const key = { identity, direction: DIRECTION[direction] };
  return [classKey.encode(key), classValue.encode({ ...key, class: number })];
}

function verdictEntry(direction: Direction, number: number, block: VerdictBlock): [Uint8Array, Uint8Array] {
  return [
    verdictKey.encode({
      class: number,
      direction: DIRECTION[direction],
      protocol: block.protocol,
      port: block.port,
      portBits: block.bits,
    }),
    verdictValue.encode({ verdict: block.deny ? VERDICT.deny : VERDICT.allow, cookie: block.cookie }),
  ];
}

function verdictEntries(rows: Wanted['rows']): [Uint8Array, Uint8Array][] {
  return DIRECTIONS.flatMap((direction) =>
    [...rows[direction]].flatMap(([number, blocks]) => blocks.map((block) => verdictEntry(direction, number, block))),
  );
}

function readSlot(classes: BpfMap, verdicts: BpfMap): Held {
  const elements = both(() => new Map<number, number>());
  const rows = both(() => new Map<number, VerdictBlock[]>());
  for (const [, bytes] of classes.entries()) {
    const { identity, direction, class: number } = classValue.decode(bytes);
    elements[direction === DIRECTION.ingress ? 'ingress' : 'egress'].set(identity, number);
  }
  for (const [keyBytes, valueBytes] of verdicts.entries()) {
    const key = verdictKey.decode(keyBytes);
    const value = verdictValue.decode(valueBytes);
    const ofDirection = rows[key.direction === DIRECTION.ingress ? 'ingress' : 'egress'];
    const block = {
      protocol: key.protocol,
      port: key.port,
      bits: key.portBits,
      deny: value.verdict === VERDICT.deny,
      cookie: value.cookie ?? 0,
    };
    const list = ofDirection.get(key.class);
    if (list) list.push(block);
    else ofDirection.set(key.class, [block]);
  }
  return { classes, verdicts, elements, rows };
}

function meaning(held: Held): KernelSlot {
  const scopeKey = (direction: Direction, number: number): string => blocksKey(held.rows[direction].get(number) ?? []);
  return {
    scope: both((direction) => [scopeKey(direction, 0), scopeKey(direction, 1), scopeKey(direction, 2)] as const),
    classes: both((direction) => new Map(held.elements[direction])),
    rows: both(
      (direction) =>
        new Map([...held.rows[direction]].filter(([n]) => n >= 16).map(([n, blocks]) => [n, blocksKey(blocks)])),
    ),
  };
}
