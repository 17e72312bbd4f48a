/**
 * How many rows the slots of this node have: in all, each slot counted once, and by the namespaces of the endpoints that have them. A slot that
 * endpoints of several namespaces share counts as a whole for each: what one namespace has does not depend on what the pods of another do.
 *
 * Guarantees: rows come into being only where, for one of the namespaces that they are for, they fit into its share, and into the node's or
 * into what is its own (`OWN_ROWS`); or where they are no more than those of the slots that they take the place of as a whole. What is in
 * force is refused to nobody: neither under a smaller limit, nor after a restart, nor to an endpoint that joins it. Who was refused is tried
 * again when there is room for more than was counted of it, and each namespace is refused one new slot a plan.
 */
import type { RowRoom } from '@weir/policy';
import { type Key, keys, type Reader, type StateDB, type WriteTxn } from '@weir/statedb';
import { RowShareError } from '../errors.ts';
import { OWN_ROWS, type RowLimits } from './row-limits.ts';
import { DIRECTIONS } from './rows.ts';
import type { KernelSlot } from './slot-rows.ts';
import { Rows } from './working.ts';

/** An endpoint, and whose policy slot it has: the key of a shape, or `slot 7` as it was found in the kernel. */
interface Holder {
  readonly id: number;
  /** Of its pod; empty: it has none. */
  readonly namespace: string;
  readonly content: string | undefined;
}

interface RowCount {
  readonly content: string;
  readonly rows: number;
}

/** Of a namespace, by `namespaceAccount`, or of the node. */
interface Usage {
  readonly account: string;
  readonly rows: number;
}

/** A shape that was refused. */
interface HeldBack {
  readonly shape: string;
  readonly namespaces: readonly string[];
  /** It needs that many rows, or more. */
  readonly atLeast: number;
  /** It is to be tried, as there may be room. */
  readonly due: boolean;
}

export interface RowUse {
  readonly rows: number;
  readonly limits: RowLimits;
  /** The namespace that has most. */
  readonly largest?: { readonly namespace: string; readonly rows: number };
  /** Shapes that were refused. */
  readonly heldBack: number;
}

/** What the rows of a shape are counted into while it is compiled. */
export interface CountedRoom extends RowRoom {
  readonly most: number;
  /** Of a shape that has compiled: its rows. */
  readonly taken: number;
}

const NODE = 'node';
const namespaceAccount = (namespace: string): string => `namespace ${namespace}`;
const foundContent = (slot: number): string => `slot ${slot}`;
const useKey = (namespace: string, content: string): Key => keys.join(namespace, content);

export class RowAccounts {
  readonly #db: StateDB;
  readonly #limits: RowLimits;
  readonly #holders: Rows<number, Holder>;
  readonly #counts: Rows<string, RowCount>;
  readonly #usage: Rows<string, Usage>;
  readonly #heldBack: Rows<string, HeldBack>;
  /** Accounts that have become smaller since those who were refused were looked at. */
  readonly #fallen = new Set<string>();

  constructor(db: StateDB, limits: RowLimits) {
    this.#db = db;
    this.#limits = limits;
    this.#holders = new Rows<number, Holder>(
      db,
      {
        name: 'rowHolders',
        key: ({ id }) => keys.uint(id),
        indexes: [
          { name: 'content', keys: ({ content }) => (content === undefined ? [] : [content]) },
          {
            name: 'use',
            keys: ({ namespace, content }) => (content === undefined ? [] : [useKey(namespace, content)]),
          },
        ],
      },
      (id) => keys.uint(id),
    );
    this.#counts = new Rows<string, RowCount>(
      db,
      { name: 'rowCounts', key: ({ content }) => content },
      (content) => content,
    );
    this.#usage = new Rows<string, Usage>(
      db,
      { name: 'rowUsage', key: ({ account }) => account },
      (account) => account,
    );
    this.#heldBack = new Rows<string, HeldBack>(
      db,
      {
        name: 'heldBackShapes',
        key: ({ shape }) => shape,
        indexes: [
          { name: 'namespace', keys: ({ namespaces }) => namespaces },
          { name: 'due', keys: ({ due }) => (due ? [''] : []) },
        ],
      },
      (shape) => shape,
    );
  }

  /** A slot that was found in the kernel. */
  adopt(slot: number, found: KernelSlot): void {
    this.#counts.set({ content: foundContent(slot), rows: rowsFound(found) });
  }

  /** The endpoints that there are, and the slot that each was found to have. */
  settle(
    endpoints: Iterable<{ readonly id: number; readonly namespace: string; readonly found?: number | undefined }>,
  ): void {
    const there = new Set<number>();
    this.#write((txn) => {
      for (const { id, namespace, found } of endpoints) {
        there.add(id);
        const known = txn.get(this.#holders.table, keys.uint(id));
        if (known?.namespace === namespace) continue;
        if (known !== undefined) this.#put(txn, { ...known, content: undefined });
        const content = known === undefined && found ? foundContent(found) : known?.content;
        this.#put(txn, { id, namespace, content });
      }
      if (txn.count(this.#holders.table) === there.size) return;
      for (const holder of [...txn.all(this.#holders.table)]) {
        if (there.has(holder.id)) continue;
        this.#put(txn, { ...holder, content: undefined });
        txn.delete(this.#holders.table, keys.uint(holder.id));
      }
    });
  }

  /** The endpoint has the slot of the shape, which is in force, or none. */
  hold(id: number, shape: string | undefined): void {
    const known = this.#holders.get(id);
    if (known !== undefined && known.content !== shape)
      this.#write((txn) => this.#put(txn, { ...known, content: shape }));
  }

  /** The namespaces of endpoints, and of those that have the slot of the shape. */
  namespaces(shape: string, ids: Iterable<number>): ReadonlySet<string> {
    const found = new Set<string>();
    for (const id of ids) found.add(this.#holders.get(id)?.namespace ?? '');
    for (const { namespace } of this.#holders.list('content', shape)) found.add(namespace);
    return found;
  }

  /** What a shape may come to that these endpoints, and those that have it, are to have. */
  room(shape: string, ids: Iterable<number>): CountedRoom {
    using snapshot = this.#db.read();
    const leaving = [...ids].flatMap((id) => {
      const holder = snapshot.get(this.#holders.table, keys.uint(id));
      return holder?.content === undefined || holder.content === shape ? [] : [holder];
    });
    const had = this.#rows(snapshot, shape);
    const [here] = snapshot.list(this.#holders.table, 'content', shape);
    const node = this.#used(snapshot, NODE);
    const nodeFreed = this.#freed(snapshot, leaving, 'content', ({ content }) => content ?? '');
    const nodeCredit = nodeFreed + (here === undefined ? 0 : had);
    const { perNode, perNamespace } = this.#limits;
    let best = { most: -Infinity, namespace: '', used: 0, byNode: false };
    const namespaces = this.namespaces(shape, ids);
    // Those who had it leave it in this plan.
    if (namespaces.size === 0) best.most = Infinity;
    for (const namespace of namespaces) {
      const own = leaving.filter((holder) => holder.namespace === namespace);
      const freed = this.#freed(snapshot, own, 'use', ({ content }) => useKey(namespace, content ?? ''));
      const [holds] = snapshot.list(this.#holders.table, 'use', useKey(namespace, shape));
      const credit = freed + (holds === undefined ? 0 : had);
      const used = this.#used(snapshot, namespaceAccount(namespace));
      const left = (perNamespace || Infinity) - used + credit;
      const leftOfNode = Math.max((perNode || Infinity) - node + nodeCredit, OWN_ROWS - used + credit);
      // What is no more than what it takes the place of costs nobody anything.
      const most = Math.max(Math.min(left, leftOfNode), Math.min(credit, nodeCredit));
      if (most > best.most) best = { most, namespace, used: used - credit, byNode: leftOfNode < left };
    }
    const refusal = (taken: number): Error =>
      new RowShareError({ ...best, taken, node: node - nodeCredit, limits: this.#limits, own: OWN_ROWS });
    return new Room(here === undefined ? best.most : Math.max(best.most, had), refusal);
  }

  /** The shape is in force with so many rows; these endpoints have it instead of what they had. */
  charge(shape: string, rows: number, ids: Iterable<number>): void {
    this.#write((txn) => {
      const by = rows - this.#rows(txn, shape);
      txn.upsert(this.#counts.table, { content: shape, rows });
      const namespaces = new Set(
        Array.from(txn.list(this.#holders.table, 'content', shape), ({ namespace }) => namespace),
      );
      if (namespaces.size > 0) this.#add(txn, NODE, by);
      for (const namespace of namespaces) this.#add(txn, namespaceAccount(namespace), by);
      for (const id of ids) {
        const holder = txn.get(this.#holders.table, keys.uint(id));
        if (holder !== undefined && holder.content !== shape) this.#put(txn, { ...holder, content: shape });
      }
      txn.delete(this.#heldBack.table, shape);
    });
  }

  /** The shape was refused; `due`: it is tried in the next plan. */
  holdBack(shape: string, namespaces: Iterable<string>, atLeast: number, due: boolean): void {
    this.#heldBack.set({ shape, namespaces: [...namespaces], atLeast, due });
  }

  /** Another endpoint is to have the shape, which may be of a namespace that has room. */
  wantedByMore(shape: string): void {
    const row = this.#heldBack.get(shape);
    if (row !== undefined) this.#heldBack.set({ ...row, due: true });
  }

  /** Whether the shape was refused. */
  holdsBack(shape: string): boolean {
    return this.#heldBack.has(shape);
  }

  /** Shapes that were refused and for which there may be room now. `usersOf`: endpoints that are to have it. */
  *due(usersOf: (shape: string) => readonly number[] | undefined): Generator<string> {
    this.#write((txn) => {
      const { table } = this.#heldBack;
      const rows = this.#fallen.has(NODE)
        ? [...txn.all(table)]
        : [...this.#fallen].flatMap((account) => [
            ...txn.list(table, 'namespace', account.slice(namespaceAccount('').length)),
          ]);
      for (const row of rows) txn.upsert(table, { ...row, due: true });
    });
    this.#fallen.clear();
    for (const row of [...this.#heldBack.list('due', '')]) {
      const users = usersOf(row.shape);
      if (users === undefined) this.#heldBack.delete(row.shape);
      else if (this.room(row.shape, users).most >= row.atLeast) yield row.shape;
      else this.holdBack(row.shape, this.namespaces(row.shape, users), row.atLeast, false);
    }
  }

  /** Whether the next plan has shapes to try. */
  get more(): boolean {
    const [some] = this.#heldBack.list('due', '');
    return some !== undefined || (this.#fallen.size > 0 && this.#heldBack.size > 0);
  }

  /** Forgets what nobody has, or wants. */
  tidy(wanted: (shape: string) => boolean): void {
    this.#write((txn) => {
      for (const { content } of [...txn.all(this.#counts.table)]) {
        const [holder] = txn.list(this.#holders.table, 'content', content);
        if (holder === undefined) txn.delete(this.#counts.table, content);
      }
      for (const { shape } of [...txn.all(this.#heldBack.table)])
        if (!wanted(shape)) txn.delete(this.#heldBack.table, shape);
    });
  }

  use(): RowUse {
    using snapshot = this.#db.read();
    let largest: RowUse['largest'];
    for (const { account, rows } of snapshot.all(this.#usage.table)) {
      if (account === NODE || rows <= (largest?.rows ?? 0)) continue;
      largest = { namespace: account.slice(namespaceAccount('').length), rows };
    }
    return {
      rows: this.#used(snapshot, NODE),
      limits: this.#limits,
      ...(largest === undefined ? {} : { largest }),
      heldBack: snapshot.count(this.#heldBack.table),
    };
  }

  /** What goes when these endpoints leave what they have: nobody else has it. */
  #freed(reader: Reader, leaving: readonly Holder[], index: string, keyOf: (holder: Holder) => Key): number {
    const counts = new Map<Key, { readonly content: string; count: number }>();
    for (const holder of leaving) {
      const key = keyOf(holder);
      const known = counts.get(key);
      if (known === undefined) counts.set(key, { content: holder.content ?? '', count: 1 });
      else known.count += 1;
    }
    let rows = 0;
    for (const [key, { content, count }] of counts) {
      let all = 0;
      for (const _ of reader.list(this.#holders.table, index, key)) all += 1;
      if (all === count) rows += this.#rows(reader, content);
    }
    return rows;
  }

  #put(txn: WriteTxn, holder: Holder): void {
    const before = txn.upsert(this.#holders.table, holder);
    if (before?.content === holder.content) return;
    if (before?.content !== undefined) this.#counted(txn, before.namespace, before.content, -1);
    if (holder.content !== undefined) this.#counted(txn, holder.namespace, holder.content, 1);
  }

  /** An endpoint has begun to have the content, or ceased: that counts where it is the first, or was the last. */
  #counted(txn: WriteTxn, namespace: string, content: string, sign: 1 | -1): void {
    const by = sign * this.#rows(txn, content);
    const others = sign === 1 ? 1 : 0;
    if (atMost(txn.list(this.#holders.table, 'use', useKey(namespace, content)), others))
      this.#add(txn, namespaceAccount(namespace), by);
    if (atMost(txn.list(this.#holders.table, 'content', content), others)) this.#add(txn, NODE, by);
  }

  #add(txn: WriteTxn, account: string, by: number): void {
    if (by === 0) return;
    const rows = this.#used(txn, account) + by;
    if (rows === 0) txn.delete(this.#usage.table, account);
    else txn.upsert(this.#usage.table, { account, rows });
    if (by < 0) this.#fallen.add(account);
  }

  #rows(reader: Reader, content: string): number {
    return reader.get(this.#counts.table, content)?.rows ?? 0;
  }

  #used(reader: Reader, account: string): number {
    return reader.get(this.#usage.table, account)?.rows ?? 0;
  }

  #write(fn: (txn: WriteTxn) => void): void {
    this.#db.write([this.#holders.table, this.#counts.table, this.#usage.table, this.#heldBack.table], fn);
  }
}

class Room implements CountedRoom {
  readonly most: number;
  taken = 0;
  readonly #refusal: (taken: number) => Error;

  constructor(most: number, refusal: (taken: number) => Error) {
    this.most = most;
    this.#refusal = refusal;
  }

  take(rows: number): void {
    this.taken += rows;
    if (this.taken > this.most) throw this.#refusal(this.taken);
  }
}

function atMost(rows: Iterable<unknown>, count: number): boolean {
  let seen = 0;
  for (const _ of rows) if (++seen > count) return false;
  return true;
}

/** Rows of a slot as it was found, each class counted once at least, as the compiler counts. */
function rowsFound({ scope, rows, classes }: KernelSlot): number {
  let sum = 0;
  for (const direction of DIRECTIONS) {
    for (const key of scope[direction]) sum += blocksIn(key);
    const numbers = new Set([...rows[direction].keys(), ...classes[direction].values()]);
    for (const number of numbers) sum += blocksIn(rows[direction].get(number) ?? '');
  }
  return sum;
}

/** Blocks that the key of rows names, separated by spaces; 1 where there are none. */
function blocksIn(key: string): number {
  let blocks = 1;
  for (let at = key.indexOf(' '); at >= 0; at = key.indexOf(' ', at + 1)) blocks += 1;
  return blocks;
}
