/**
 * The statuses of all policies: folded when what they depend on changed, shown at most once an interval each.
 *
 * Guarantees: the first change after a while is shown at once, every later one when the interval since the last write is
 * over; what would say nothing new is not shown; what another hand changed in the API is put right, in the same measure. Namespaces take turns (work.ts).
 */
import { isDeepStrictEqual } from 'node:util';
import type { PolicyStatus } from '@weir/kube';
import type { Reader, WriteTxn } from '@weir/statedb';
import { namespaceOfKey } from '../names.ts';
import { show, type Tables } from '../tables.ts';
import type { NodeReportRow, NodeRow, StatusRow } from '../types.ts';
import { EventBook, secondsOf } from './events.ts';
import type { HostPods } from './host-pods.ts';
import { type Awaited, NodeProgress, type ProgressSources } from './node-progress.ts';
import type { PolicyEntry } from './policy-book.ts';
import type { PortNames } from './port-names.ts';
import { foldStatus } from './status.ts';
import { due, dueInMs, type StatusTables } from './status-tables.ts';
import type { Surroundings } from './surroundings.ts';
import { type WorkQueue, work, workKey } from './work.ts';

export interface StatusSources extends ProgressSources {
  readonly portNames: PortNames;
  readonly surroundings: Surroundings;
  readonly hostPods: HostPods;
  readonly queue: WorkQueue;
}

type BoardTables = Pick<Tables, 'nodes' | 'resolvedVersions' | 'statuses' | 'events'> & StatusTables;

export interface StatusBoardOptions {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds between two statuses of one policy. */
  readonly intervalMs: number;
}

export class StatusBoard {
  readonly #sources: StatusSources;
  readonly #tables: BoardTables;
  readonly #options: StatusBoardOptions;
  readonly #events: EventBook;
  readonly #progress: NodeProgress;

  constructor(sources: StatusSources, tables: BoardTables, options: StatusBoardOptions) {
    this.#sources = sources;
    this.#tables = tables;
    this.#options = options;
    this.#events = new EventBook(tables);
    this.#progress = new NodeProgress(sources, tables);
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

  /** The policy has come, or has another generation. */
  changed(txn: WriteTxn, before: PolicyEntry | undefined, after: PolicyEntry): void {
    this.#progress.changed(txn, before, after);
  }

  /** The policy was there before this leader. */
  found(txn: WriteTxn, entry: PolicyEntry): void {
    this.#progress.found(txn, entry);
  }

  /** What the policy's status depends on may have changed: it is folded in its turn, or once it is due when it is delayed. */
  mark(txn: WriteTxn, key: string): void {
    if (txn.get(this.#tables.statusMarks, key)?.dueAt === undefined) this.#queue(txn, key);
  }

  /** The same, for who knows the policy by its uid. */
  markUid(txn: WriteTxn, uid: string): void {
    const key = this.#sources.policies.keyOfUid(txn, uid);
    if (key !== undefined) this.mark(txn, key);
  }

  /** The API holds another status than the one that was written. */
  touch(txn: WriteTxn, key: string): void {
    const { statusMarks } = this.#tables;
    if (this.#sources.policies.get(txn, key) === undefined) return;
    txn.upsert(statusMarks, { key, dueAt: undefined, touched: true });
    this.#queue(txn, key);
  }

  /** The API has taken a status just now: a write that was retried is one too. */
  written(txn: WriteTxn, key: string): void {
    const { shownStatuses } = this.#tables;
    const shown = txn.get(shownStatuses, key);
    if (shown !== undefined) txn.upsert(shownStatuses, { ...shown, shownAt: this.#options.now() });
  }

  /** What a node is, or where its pods are, is another than it was; undefined: it is gone. */
  networksChanged(txn: WriteTxn, name: string, after: NodeRow | undefined): void {
    for (const key of this.#sources.surroundings.nodeChanged(txn, name, after)) this.mark(txn, key);
  }

  /** A namespace has come, changed or gone. */
  namespaceChanged(txn: WriteTxn, name: string): void {
    for (const key of [...this.#sources.surroundings.namespaceChanged(txn, name)]) this.mark(txn, key);
  }

  /** The node has come, changed or gone. */
  nodeChanged(txn: WriteTxn, name: string): void {
    for (const key of this.#progress.nodeChanged(txn, name)) this.mark(txn, key);
  }

  /** The node has reported; undefined: its report is gone. */
  setReport(txn: WriteTxn, node: string, row: NodeReportRow | undefined): void {
    for (const key of this.#progress.count(txn, node, row)) this.mark(txn, key);
  }

  /** Milliseconds until an Event that was delayed is due; undefined: none was. */
  eventDueInMs(reader: Reader): number | undefined {
    return this.#events.dueInMs(reader, this.#options.now());
  }

  /** Milliseconds until a status that was delayed is due; undefined: none was. */
  dueInMs(reader: Reader): number | undefined {
    const { now, intervalMs } = this.#options;
    return dueInMs(reader, this.#tables.statusMarks, now(), intervalMs);
  }

  /** What was delayed is folded in its turn, where it is due now; due Events are shown. */
  tellDue(txn: WriteTxn): void {
    const now = this.#options.now();
    for (const mark of [...due(txn, this.#tables.statusMarks, now, this.#options.intervalMs)]) {
      txn.upsert(this.#tables.statusMarks, { ...mark, dueAt: undefined });
      this.#queue(txn, mark.key);
    }
    this.#events.tellDue(txn, now);
  }

  /** Puts the status into the desired table, unless it is delayed, or says nothing new. */
  fold(txn: WriteTxn, key: string): void {
    // Its selectors are still to be evaluated: it is marked once they are.
    if (this.#sources.queue.has(txn, workKey('sets', key))) return;
    const now = this.#options.now();
    const entry = this.#sources.policies.get(txn, key);
    if (entry === undefined) this.#drop(txn, key);
    else this.#show(txn, entry, now);
  }

  #queue(txn: WriteTxn, key: string): void {
    this.#sources.queue.put(txn, work('status', key, namespaceOfKey(key)));
  }

  #drop(txn: WriteTxn, key: string): void {
    const { statusMarks, shownStatuses, statuses } = this.#tables;
    txn.delete(statusMarks, key);
    txn.delete(shownStatuses, key);
    txn.delete(statuses, key);
    this.#events.forget(txn, key);
    this.#progress.forget(txn, key);
    this.#sources.surroundings.forget(txn, key);
  }

  #show(txn: WriteTxn, entry: PolicyEntry, now: number): void {
    const { statusMarks, shownStatuses, statuses } = this.#tables;
    const { live, waits, ...awaited } = this.#progress.of(txn, entry);
    const row = this.#row(txn, entry, { ...awaited, nodes: live }, secondsOf(now));
    const { key, uid, status } = row;
    const shown = txn.get(shownStatuses, key);
    const before = shown?.uid === uid ? shown.status : undefined;
    const touched = txn.delete(statusMarks, key)?.touched === true;
    // Until this process has shown one, the desired row must come to be, whatever it says.
    if (shown?.shownAt !== undefined && before !== undefined) {
      if (!touched && isDeepStrictEqual(before, status)) {
        if (!waits) this.#progress.reached(txn, key);
        return;
      }
      // A clock that was set back holds nothing back for long.
      if (shown.shownAt > now) txn.upsert(shownStatuses, { ...shown, shownAt: now });
      const dueAt = Math.min(shown.shownAt, now) + this.#options.intervalMs;
      if (dueAt > now) {
        txn.upsert(statusMarks, { key, dueAt, touched });
        return;
      }
    }
    txn.upsert(shownStatuses, { key, uid, status, shownAt: now });
    if (!waits) this.#progress.reached(txn, key);
    this.#events.note(txn, before, row, now);
    show(txn, statuses, row, touched);
  }

  #row(
    txn: WriteTxn,
    entry: PolicyEntry,
    awaited: Omit<Awaited, 'live' | 'waits'> & { readonly nodes: readonly string[] },
    now: string,
  ): StatusRow {
    const { portNames, surroundings, hostPods } = this.#sources;
    const missingNames = portNames.missing(txn, entry.resolved?.rules ?? []);
    const { key, kind, namespace, name, uid, generation } = entry.row;
    const shown = txn.get(this.#tables.shownStatuses, key);
    const status = foldStatus({
      generation,
      problems: [...entry.problems, ...surroundings.warnings(txn, entry), ...hostPods.warnings(txn, entry)],
      enforcedGeneration: entry.resolved?.source.generation,
      rules: entry.resolved?.rules.length ?? 0,
      ...awaited,
      missingNames,
      missingServices: entry.services.filter(({ found }) => found.length === 0),
      missingGroups: entry.cidrGroups.filter(({ found }) => found.length === 0),
      previous: shown?.uid === uid ? shown.status : undefined,
      now,
    });
    return { key, kind, ...(namespace === undefined ? {} : { namespace }), name, uid, status };
  }
}
