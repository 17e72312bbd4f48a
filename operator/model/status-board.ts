/**
 * The statuses of all policies: folded when what they depend on changed, shown at most once an interval each.
 *
 * Guarantees: the first change after a while is shown at once, every later one when the interval since the last write is
 * over; what would say nothing new is not shown; what another hand changed in the API is put right, in the same measure. Namespaces take turns.
 */
import { isDeepStrictEqual } from 'node:util';
import type { PolicyStatus } from '@weir/kube';
import type { Reader, WriteTxn } from '@weir/statedb';
import { show, type Tables } from '../tables.ts';
import type { NodeReportRow, StatusRow } from '../types.ts';
import { EventBook, secondsOf } from './events.ts';
import { NodeProgress, type ProgressSources, type ReportChange } from './node-progress.ts';
import type { PolicyEntry } from './policy-book.ts';
import type { PortNames } from './port-names.ts';
import { ReportTurns } from './report-turns.ts';
import { foldStatus } from './status.ts';
import {
  type CountedReport,
  due,
  dueInMs,
  type ReportTurn,
  type StatusMark,
  type StatusTables,
} from './status-tables.ts';
import { StatusTurns } from './status-turns.ts';
import { type Stopwatch, timeShare } from './time-share.ts';

export interface StatusSources extends ProgressSources {
  readonly portNames: PortNames;
}

/** There was no time to find all that a status is made of. */
const UNFINISHED = Symbol('unfinished');

type BoardTables = Pick<Tables, 'nodes' | 'resolvedVersions' | 'statuses' | 'events'> & StatusTables;

export interface StatusBoardOptions {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds between two statuses of one policy. */
  readonly intervalMs: number;
  /** Measures how long folding takes: other work waits meanwhile. */
  readonly stopwatch: Stopwatch;
}

export class StatusBoard {
  readonly #sources: StatusSources;
  readonly #tables: BoardTables;
  readonly #options: StatusBoardOptions;
  readonly #events: EventBook;
  readonly #progress: NodeProgress;
  readonly #reports: ReportTurns;
  readonly #turns: StatusTurns;

  constructor(sources: StatusSources, tables: BoardTables, options: StatusBoardOptions) {
    this.#sources = sources;
    this.#tables = tables;
    this.#options = options;
    this.#events = new EventBook(tables);
    this.#progress = new NodeProgress(sources, tables);
    this.#reports = new ReportTurns(tables.reportTurns, options);
    this.#turns = new StatusTurns(tables);
  }

  /** Takes over what the API holds of a policy. */
  adopt(txn: WriteTxn, key: string, uid: string, status: PolicyStatus): void {
    txn.upsert(this.#tables.shownStatuses, { key, uid, status, shownAt: undefined });
  }

  /** Forgets what was adopted for policies that do not exist. */
  adoptionDone(txn: WriteTxn): void {
    for (const { key } of txn.all(this.#tables.shownStatuses)) {
      if (this.#sources.policies.get(txn, key) === undefined) txn.delete(this.#tables.shownStatuses, key);
    }
  }

  /** The policy was there before this leader. */
  found(txn: WriteTxn, entry: PolicyEntry): void {
    this.#progress.found(txn, entry);
  }

  /** What the policy's status depends on may have changed. */
  mark(txn: WriteTxn, key: string): void {
    this.#turns.put(txn, key, false);
  }

  /** The same, for who knows the policy by its uid. */
  markUid(txn: WriteTxn, uid: string): void {
    const key = this.#sources.policies.keyOfUid(txn, uid);
    if (key !== undefined) this.mark(txn, key);
  }

  /** The API holds another status than the one that was written. */
  touch(txn: WriteTxn, key: string): void {
    if (this.#sources.policies.get(txn, key) !== undefined) this.#turns.put(txn, key, true);
  }

  /** The API has taken a status just now: a write that was retried is one too. */
  written(txn: WriteTxn, key: string): void {
    const { shownStatuses } = this.#tables;
    const shown = txn.get(shownStatuses, key);
    if (shown !== undefined) txn.upsert(shownStatuses, { ...shown, shownAt: this.#options.now() });
  }

  /** The node has come, changed or gone. */
  nodeChanged(txn: WriteTxn, name: string): void {
    for (const key of this.#progress.nodeChanged(txn, name)) this.mark(txn, key);
    if (!txn.has(this.#tables.countedReports, name)) this.#reports.forget(txn, name);
  }

  /** The node has reported: that is counted in a flush. */
  setReport(txn: WriteTxn, row: NodeReportRow): void {
    this.#reports.put(txn, row);
  }

  /** The same of its deletion. */
  deleteReport(txn: WriteTxn, node: string): void {
    this.#reports.remove(txn, node);
  }

  /** There was no time for some changes in the last flush. */
  more(reader: Reader): boolean {
    return !this.#turns.isEmpty(reader) || this.#reports.dueInMs(reader) === 0 || this.#progress.hasGone(reader);
  }

  /** Milliseconds until an Event that was held back is due; undefined: none was. */
  eventDueInMs(reader: Reader): number | undefined {
    return this.#events.dueInMs(reader, this.#options.now());
  }

  /** Milliseconds until a status that was held back is due; undefined: none was. */
  dueInMs(reader: Reader): number | undefined {
    const { now, intervalMs } = this.#options;
    const statuses = dueInMs(reader, this.#tables.statusMarks, now(), intervalMs);
    const reports = this.#reports.dueInMs(reader);
    return statuses === undefined || reports === undefined ? (statuses ?? reports) : Math.min(statuses, reports);
  }

  /**
   * Counts reports, and puts what is to be shown now into the desired tables; of the reports and the statuses, as many as there is time for.
   * While a node's first report waits no status is shown, which it may belie: another leader may have shown the right one.
   */
  flush(txn: WriteTxn): void {
    this.#countReports(txn);
    if (!this.#reports.hasFirst(txn)) this.#showStatuses(txn);
    this.#events.tellDue(txn, this.#options.now());
  }

  #countReports(txn: WriteTxn): void {
    const hasTime = timeShare(this.#options.stopwatch);
    for (const turn of this.#reports.take(txn)) {
      this.#countReport(txn, turn);
      if (!hasTime()) return;
    }
    while (this.#progress.forgetNext(txn) && hasTime());
  }

  #countReport(txn: WriteTxn, { node, word, lost, waiting, gone }: ReportTurn): void {
    let counted: CountedReport | undefined;
    const count = (change: ReportChange): void => {
      this.#reportChanged(txn, change);
      counted = change.after;
    };
    if (word !== undefined) count(this.#progress.reportSaid(txn, word));
    if (lost) count(this.#progress.reportLost(txn, node));
    if (waiting !== undefined) count(this.#progress.reportSaid(txn, waiting));
    if (gone) count(this.#progress.reportLost(txn, node));
    if (counted === undefined) this.#reports.forget(txn, node);
  }

  #showStatuses(txn: WriteTxn): void {
    const { statusMarks } = this.#tables;
    const now = this.#options.now();
    const seconds = secondsOf(now);
    for (const { key } of due(txn, statusMarks, now, this.#options.intervalMs)) this.mark(txn, key);
    const hasTime = timeShare(this.#options.stopwatch);
    // What is not at its end goes on in the next flush.
    const later: StatusMark[] = [];
    for (let mark = this.#turns.next(txn); mark !== undefined; mark = hasTime() ? this.#turns.next(txn) : undefined) {
      const row = this.#row(txn, mark.key, seconds);
      if (row === undefined) this.#drop(txn, mark.key);
      else if (row === UNFINISHED) later.push(this.#turns.hold(txn, mark));
      else this.#show(txn, mark, row, now);
      if (this.#sources.portNames.isStale(txn, mark.key)) later.push({ ...mark, touched: false });
    }
    for (const { key, touched } of later) this.#turns.put(txn, key, touched);
  }

  #drop(txn: WriteTxn, key: string): void {
    const { statusMarks, shownStatuses, statuses } = this.#tables;
    txn.delete(statusMarks, key);
    txn.delete(shownStatuses, key);
    txn.delete(statuses, key);
    this.#events.forget(txn, key);
    this.#progress.forget(txn, key);
    this.#sources.portNames.forget(txn, key);
  }

  #show(txn: WriteTxn, { namespace, touched }: StatusMark, row: StatusRow, now: number): void {
    const { statusMarks, shownStatuses, statuses } = this.#tables;
    const { key, uid, status } = row;
    const shown = txn.get(shownStatuses, key);
    const before = shown?.uid === uid ? shown.status : undefined;
    txn.delete(statusMarks, key);
    // Until this process has shown one, the desired row must come to be, whatever it says.
    if (shown?.shownAt !== undefined && before !== undefined) {
      if (!touched && isDeepStrictEqual(before, status)) return;
      // A clock that was set back holds nothing back for long.
      if (shown.shownAt > now) txn.upsert(shownStatuses, { ...shown, shownAt: now });
      const dueAt = Math.min(shown.shownAt, now) + this.#options.intervalMs;
      if (dueAt > now) {
        txn.upsert(statusMarks, { key, namespace, turn: undefined, dueAt, touched });
        return;
      }
    }
    txn.upsert(shownStatuses, { key, uid, status, shownAt: now });
    this.#events.note(txn, before, row, now);
    show(txn, statuses, row, touched);
  }

  #row(txn: WriteTxn, key: string, now: string): StatusRow | typeof UNFINISHED | undefined {
    const { policies, portNames } = this.#sources;
    const entry = policies.get(txn, key);
    if (entry === undefined) return undefined;
    const goesOn = portNames.isSearching(txn, key);
    const missingNames = portNames.missing(txn, key, entry.resolved?.rules ?? []);
    if (missingNames === undefined) {
      // Nodes whose pods may be gone before the search is at its end are noted.
      if (!goesOn) this.#progress.of(txn, entry);
      return UNFINISHED;
    }
    const { kind, namespace, name, uid, generation } = entry.row;
    const { live, ...awaited } = this.#progress.of(txn, entry);
    const shown = txn.get(this.#tables.shownStatuses, key);
    const status = foldStatus({
      generation,
      problems: entry.problems,
      waits: entry.waits,
      enforcedGeneration: entry.resolved?.source.generation,
      rules: entry.resolved?.rules.length ?? 0,
      ...awaited,
      nodes: live,
      missingNames,
      missingServices: entry.services.filter(({ found }) => found.length === 0),
      previous: shown?.uid === uid ? shown.status : undefined,
      now,
    });
    return { key, kind, ...(namespace === undefined ? {} : { namespace }), name, uid, status };
  }

  /** Every node reports, and a fold may look at every node: of a status that is held back, reports wait until it is due. */
  #reportChanged(txn: WriteTxn, change: ReportChange): void {
    for (const key of this.#progress.reportChanged(txn, change)) {
      const heldBack = txn.get(this.#tables.statusMarks, key)?.dueAt !== undefined;
      if (!heldBack || this.#silenced(txn, key, change)) this.mark(txn, key);
    }
  }

  /** The node says nothing of the policy any more: a fold notes whether it hosts a selected pod, which may go before the status is due. */
  #silenced(reader: Reader, key: string, { before, after }: ReportChange): boolean {
    const uid = this.#sources.policies.get(reader, key)?.row.uid ?? '';
    const said = (report: CountedReport | undefined): boolean => report?.generations[uid] !== undefined;
    return said(before) && (!said(after) || before?.nodeUid !== after?.nodeUid);
  }
}
