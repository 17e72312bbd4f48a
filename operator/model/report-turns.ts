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
    this.#wait(txn, row, false);
  }

  /** The node's report is gone. False: nothing of it waits to be counted, and what was counted is to be taken back now. */
  remove(txn: WriteTxn, node: string): boolean {
    const waiting = txn.get(this.#turns, node)?.waiting;
    if (waiting === undefined) return false;
    this.#wait(txn, waiting, true);
    return true;
  }

  /** What is to be counted now. Each that is taken counts as counted. */
  *take(txn: WriteTxn): Generator<{ readonly row: NodeReportRow; readonly gone: boolean }> {
    const { now, intervalMs } = this.#options;
    for (const turn of due(txn, this.#turns, now(), intervalMs)) {
      if (turn.waiting === undefined) continue;
      txn.upsert(this.#turns, { ...turn, waiting: undefined, gone: false, dueAt: undefined, countedAt: now() });
      yield { row: turn.waiting, gone: turn.gone };
    }
  }

  /** Nothing is counted of the node any more. */
  forget(txn: WriteTxn, node: string): void {
    if (txn.get(this.#turns, node)?.waiting === undefined) txn.delete(this.#turns, node);
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

  #wait(txn: WriteTxn, waiting: NodeReportRow, gone: boolean): void {
    const now = this.#options.now();
    const { dueAt, countedAt } = txn.get(this.#turns, waiting.node) ?? {};
    // A clock that was set back holds nothing back for long.
    const next = countedAt === undefined ? now : Math.max(now, Math.min(countedAt, now) + this.#options.intervalMs);
    txn.upsert(this.#turns, { node: waiting.node, waiting, gone, dueAt: dueAt ?? next, countedAt });
  }
}
