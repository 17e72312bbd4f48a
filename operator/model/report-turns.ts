/** Which nodes' reports are to be counted: each at most once an interval, so that a node which writes many delays nobody for long. */
import type { Reader, Table, WriteTxn } from '@weir/statedb';
import type { NodeReportRow } from '../types.ts';
import { due, dueInMs, type ReportTurn } from './status-tables.ts';

export interface ReportTurnsOptions {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds between two reports of one node. */
  readonly intervalMs: number;
}

export class ReportTurns {
  readonly #turns: Table<ReportTurn>;
  readonly #options: ReportTurnsOptions;

  constructor(turns: Table<ReportTurn>, options: ReportTurnsOptions) {
    this.#turns = turns;
    this.#options = options;
  }

  /** The node has reported. */
  put(txn: WriteTxn, row: NodeReportRow): void {
    const { word, lost = false, waiting, gone = false } = txn.get(this.#turns, row.node) ?? {};
    const begins = row.policyVersion === undefined;
    const said = waiting?.policyVersion !== undefined;
    this.#wait(txn, row.node, {
      word: begins ? (said ? waiting : word) : undefined,
      lost: gone || (lost && !said),
      waiting: row,
      gone: false,
    });
  }

  /** The node's report is gone: that is counted in its turn, after what waits of it. */
  remove(txn: WriteTxn, node: string): void {
    const { word, lost = false, waiting } = txn.get(this.#turns, node) ?? {};
    this.#wait(txn, node, { word, lost, waiting, gone: true });
  }

  /** What is to be counted now. Each that is taken counts as counted. */
  *take(txn: WriteTxn): Generator<ReportTurn> {
    const { now, intervalMs } = this.#options;
    for (const turn of due(txn, this.#turns, now(), intervalMs)) {
      const { node, waiting, gone } = turn;
      if (waiting === undefined && !gone) txn.delete(this.#turns, node);
      else {
        const counted = { word: undefined, lost: false, waiting: undefined, gone: false };
        txn.upsert(this.#turns, { node, ...counted, dueAt: undefined, countedAt: now() });
        yield turn;
      }
    }
  }

  /** Nothing is counted of the node any more: that it was counted is forgotten after the interval, in which it may report again. */
  forget(txn: WriteTxn, node: string): void {
    const there = txn.get(this.#turns, node);
    if (there?.countedAt !== undefined && there.dueAt === undefined)
      txn.upsert(this.#turns, { ...there, dueAt: there.countedAt + this.#options.intervalMs });
  }

  /** A node has reported of which nothing was ever counted. */
  hasFirst(reader: Reader): boolean {
    for (const _ of reader.list(this.#turns, 'first', '')) return true;
    return false;
  }

  /** Milliseconds until one is to be counted; undefined: none waits. */
  dueInMs(reader: Reader): number | undefined {
    const { now, intervalMs } = this.#options;
    return dueInMs(reader, this.#turns, now(), intervalMs);
  }

  #wait(txn: WriteTxn, node: string, what: Pick<ReportTurn, 'word' | 'lost' | 'waiting' | 'gone'>): void {
    const now = this.#options.now();
    const { dueAt, countedAt } = txn.get(this.#turns, node) ?? {};
    // A clock that was set back holds nothing back for long.
    const next = countedAt === undefined ? now : Math.max(now, Math.min(countedAt, now) + this.#options.intervalMs);
    txn.upsert(this.#turns, { node, ...what, dueAt: dueAt ?? next, countedAt });
  }
}
