/**
 * CIDRs that have no number in the kernel though rules name them: it refuses them, or they are withheld, as a slot that it refuses would let through
 * what is to be dropped. Until they have, their addresses are judged as what is around them. Guarantee: no endpoint moves to rules that would thereby
 * let through what these rules drop and those before do, too.
 */
import { isLocalCidr } from '@weir/identity';
import type { Failure } from '@weir/reconciler';
import type { StateDB, Table } from '@weir/statedb';
import { DIRECTIONS } from '../derive/index.ts';
import { OrderError } from '../errors.ts';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';
import { mayOpen, type SlotContent } from './slot-content.ts';

/** Key: `prefix`. */
interface RefusedCidr {
  readonly prefix: string;
  readonly identity: number;
  /** The identity that the kernel has for its addresses. */
  readonly around: number;
  readonly withheld: boolean;
}

export class RefusedCidrs {
  readonly #db: StateDB;
  readonly #table: Table<RefusedCidr>;
  readonly #content: (slot: number) => SlotContent | undefined;

  /** `content`: what the kernel has of a slot. */
  constructor(db: StateDB, content: (slot: number) => SlotContent | undefined) {
    this.#db = db;
    this.#content = content;
    this.#table = db.table<RefusedCidr>({ name: 'refusedCidrs', key: ({ prefix }) => prefix });
  }

  /** The kernel is not to be given these, and may be given all others. `around`: by prefix, where it is new to the kernel. */
  withhold(rows: readonly IpcacheRow[], around: ReadonlyMap<string, number>): void {
    const prefixes = new Set(rows.map(({ prefix }) => prefix));
    this.#db.write([this.#table], (txn) => {
      for (const row of txn.all(this.#table))
        if (row.withheld && !prefixes.has(row.prefix)) txn.upsert(this.#table, { ...row, withheld: false });
      for (const { prefix, identity } of rows) {
        const known = txn.get(this.#table, prefix)?.around ?? around.get(prefix) ?? 0;
        txn.upsert(this.#table, { prefix, identity, around: known, withheld: true });
      }
    });
  }

  /** @throws OrderError where the kernel is not to be given it */
  check(prefix: string): void {
    using snapshot = this.#db.read();
    if (snapshot.get(this.#table, prefix)?.withheld)
      throw new OrderError(
        `${prefix} waits for a policy slot that the kernel refuses: it would let its addresses through past a deny`,
      );
  }

  /** What the kernel has not taken by now. */
  settle(failing: readonly Failure<IpcacheRow>[], around: ReadonlyMap<string, number>): void {
    const cidrs = failing.filter(({ row, deleted }) => !deleted && isLocalCidr(row.identity));
    this.#db.write([this.#table], (txn) => {
      const still = new Set(cidrs.map(({ row }) => row.prefix));
      for (const { prefix } of txn.all(this.#table)) if (!still.has(prefix)) txn.delete(this.#table, prefix);
      for (const { row } of cidrs) {
        const { prefix, identity } = row;
        const known = txn.get(this.#table, prefix);
        txn.upsert(this.#table, {
          prefix,
          identity,
          around: known?.around ?? around.get(prefix) ?? 0,
          withheld: known?.withheld ?? false,
        });
      }
    });
  }

  /** From the identity that the kernel has for their addresses to their own. */
  moves(): readonly (readonly [from: number, to: number])[] {
    using snapshot = this.#db.read();
    return Array.from(snapshot.all(this.#table), ({ around, identity }) => [around, identity] as const);
  }

  /** @throws OrderError where the endpoint would let through what its rules and those before drop */
  checkMove(
    before: Pick<EndpointStateRow, 'slot' | 'enforced'> | undefined,
    { id, slot, enforced }: EndpointStateRow,
  ): void {
    if (before === undefined || before.slot === slot) return;
    const [old, now] = [this.#content(before.slot), this.#content(slot)];
    if (old === undefined || now === undefined) return;
    using snapshot = this.#db.read();
    for (const { prefix, identity, around } of snapshot.all(this.#table))
      for (const direction of DIRECTIONS) {
        if (!before.enforced[direction] || !enforced[direction]) continue;
        const judged = { content: now, identity: around };
        if (!mayOpen(judged, { content: now, identity }, direction)) continue;
        if (mayOpen(judged, { content: old, identity: around }, direction))
          throw new OrderError(
            `endpoint ${id} keeps the rules before: the kernel does not take ${prefix}, which the new ones name`,
          );
      }
  }
}
