/**
 * CIDRs that have no number in the kernel though rules name them: it refuses them, or they are withheld, as a slot that it refuses would let through
 * what is to be dropped. Until they have, their addresses are judged as what is around them. Guarantee: no endpoint moves to rules that would let a packet
 * through by that which they drop and the ones before do, too; nor does what is around them get a number that would.
 */
import { isLocalCidr } from '@weir/identity';
import type { Direction } from '@weir/policy';
import type { StateDB, Table } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { DIRECTIONS, prefixKey } from '../derive/contract.ts';
import { OrderError } from '../errors.ts';
import type { EndpointStateRow, IpcacheRow, SlotContent } from '../tables.ts';
import { classesOf, opens } from './slot-content.ts';

type Word = Pick<EndpointStateRow, 'slot' | 'enforced'>;

/** Key: `prefix`. */
interface RefusedCidr {
  readonly prefix: string;
  readonly identity: number;
  readonly withheld: boolean;
}

export interface RefusedCidrsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'ipcache'>;
  /** What the kernel has of a slot. */
  readonly content: (slot: number) => SlotContent | undefined;
  /** The identity that the kernel has for the addresses of a prefix that it does not have. */
  readonly around: (prefix: string) => number | undefined;
  /** What the words of all endpoints say. */
  readonly words: () => Iterable<Word>;
}

export class RefusedCidrs {
  readonly #options: RefusedCidrsOptions;
  readonly #table: Table<RefusedCidr>;

  constructor(options: RefusedCidrsOptions) {
    this.#options = options;
    this.#table = options.db.table<RefusedCidr>({
      name: 'refusedCidrs',
      key: ({ prefix }) => prefix,
      indexes: [{ name: 'within', kind: 'lpm', keys: ({ prefix }) => [prefixKey(prefix)] }],
    });
  }

  /** The kernel is not to be given these, and may be given all others. */
  withhold(rows: readonly IpcacheRow[]): void {
    const { db, tables } = this.#options;
    const prefixes = new Set(rows.map(({ prefix }) => prefix));
    db.write([this.#table], (txn) => {
      for (const row of txn.all(this.#table)) {
        if (!txn.has(tables.ipcache, row.prefix)) txn.delete(this.#table, row.prefix);
        else if (row.withheld && !prefixes.has(row.prefix)) txn.upsert(this.#table, { ...row, withheld: false });
      }
      for (const { prefix, identity } of rows) txn.upsert(this.#table, { prefix, identity, withheld: true });
    });
  }

  /**
   * Gives the kernel an address by `write`, and notes what becomes of it.
   * @throws what `write` throws; OrderError where the kernel is not to be given it
   */
  give(row: IpcacheRow, write: () => void): void {
    if (!isLocalCidr(row.identity)) {
      write();
      return;
    }
    const { db } = this.#options;
    const { prefix, identity } = row;
    using snapshot = db.read();
    const known = snapshot.get(this.#table, prefix);
    try {
      this.#check(row, known, snapshot.covered(this.#table, 'within', prefixKey(prefix)));
      write();
    } catch (error) {
      if (known?.identity !== identity)
        db.write([this.#table], (txn) => txn.upsert(this.#table, { prefix, identity, withheld: false }));
      throw error;
    }
    if (known !== undefined) db.write([this.#table], (txn) => txn.delete(this.#table, prefix));
  }

  /** Whether nothing is refused: rows may be given together. */
  get none(): boolean {
    using snapshot = this.#options.db.read();
    return snapshot.count(this.#table) === 0;
  }

  #check({ prefix, identity }: IpcacheRow, known: RefusedCidr | undefined, refused: Iterable<RefusedCidr>): void {
    if (known?.withheld)
      throw new OrderError(
        `${prefix} waits for a policy slot that the kernel refuses: its addresses would pass a deny`,
      );
    const inside = Iterator.from(refused).filter((row) => row.prefix !== prefix);
    let words: readonly Opens[] | undefined;
    for (const inner of inside) {
      words ??= Array.from(this.#options.words(), ({ slot, enforced }) => {
        const content = this.#options.content(slot);
        return opensOnce(content, [content, content], (direction) => enforced[direction]);
      });
      const around = this.#around(inner.prefix);
      if (words.some((opens) => opens(identity, [around, inner.identity])))
        throw new OrderError(`${prefix} waits for ${inner.prefix}, which is in it: the kernel does not take that`);
    }
  }

  /** From the identity that the kernel has for their addresses to their own. */
  moves(): readonly (readonly [from: number, to: number])[] {
    using snapshot = this.#options.db.read();
    return Array.from(snapshot.all(this.#table), ({ prefix, identity }) => [this.#around(prefix), identity] as const);
  }

  /** @throws OrderError where the endpoint would let through what its rules and those before drop */
  checkMove(before: Word | undefined, { id, slot, enforced }: EndpointStateRow): void {
    if (before === undefined || before.slot === slot) return;
    const { db, content } = this.#options;
    using snapshot = db.read();
    if (snapshot.count(this.#table) === 0) return;
    const [old, now] = [content(before.slot), content(slot)];
    const opens = opensOnce(now, [now, old], (direction) => before.enforced[direction] && enforced[direction]);
    for (const { prefix, identity } of snapshot.all(this.#table)) {
      const around = this.#around(prefix);
      if (opens(around, [identity, around]))
        throw new OrderError(
          `endpoint ${id} keeps the rules before: the kernel does not take ${prefix}, which the new ones name`,
        );
    }
  }

  #around(prefix: string): number {
    return this.#options.around(prefix) ?? 0;
  }
}

/** Whether an identity may pass where others, each as another content judges it, may not. */
type Opens = (identity: number, others: readonly number[]) => boolean;

/** Identities of the same classes are looked at once. A slot that is not there lets nothing through, and is no measure. */
function opensOnce(
  content: SlotContent | undefined,
  contents: readonly (SlotContent | undefined)[],
  enforced: (direction: Direction) => boolean,
): Opens {
  const known = new Map<string, boolean>();
  const directions = DIRECTIONS.filter(enforced);
  return (identity, others) => {
    const there = contents.every((each) => each !== undefined);
    if (content === undefined || !there) return false;
    const judged = contents.map((each, at) => ({ content: each, identity: others[at] ?? 0 }));
    const key = [classesOf(content, identity), ...judged.map((one) => classesOf(one.content, one.identity))].join(' ');
    const found = known.get(key) ?? directions.some((direction) => opens({ content, identity }, judged, direction));
    known.set(key, found);
    return found;
  };
}
