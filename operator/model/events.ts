/**
 * Events: what is wrong with a policy, and that a NetworkPolicy, which has no status, is programmed.
 *
 * One Event for each reason of each policy, whose count and last time grow: `kubectl describe` shows one line. Told are
 * changes of the answer, between one status and the next; a new leader starts from the status that it finds, so that it
 * repeats nothing. A repeated Event is written at once, and then once in 10 seconds with its count.
 */
import type { Condition, PolicyStatus } from '@weir/kube';
import type { Reader, WriteTxn } from '@weir/statedb';
import { show, type Tables } from '../tables.ts';
import { oneLine } from '../texts.ts';
import type { EventRow, StatusRow } from '../types.ts';
import { NOT_CONNECTED, WARNING } from './status.ts';
import { due, dueInMs, type StatusTables } from './status-tables.ts';

const INTERVAL_MS = 10_000;

type News = Pick<EventRow, 'type' | 'reason' | 'message'>;

type BookTables = Pick<Tables, 'events'> & Pick<StatusTables, 'toldEvents'>;

export class EventBook {
  readonly #tables: BookTables;

  constructor(tables: BookTables) {
    this.#tables = tables;
  }

  /** Tells what is new in `row`, beside the status before it, or keeps it until it is due. */
  note(txn: WriteTxn, before: PolicyStatus | undefined, row: StatusRow, now: number): void {
    for (const news of newsOf(before, row)) this.#add(txn, row, news, now);
  }

  /** The policy is gone, or another object has its name. */
  forget(txn: WriteTxn, policy: string): void {
    const { toldEvents, events } = this.#tables;
    for (const { row } of txn.list(toldEvents, 'policy', policy)) {
      txn.delete(toldEvents, row.key);
      txn.delete(events, row.key);
    }
  }

  /** Milliseconds until something is due; undefined: nothing waits. */
  dueInMs(reader: Reader, now: number): number | undefined {
    return dueInMs(reader, this.#tables.toldEvents, now, INTERVAL_MS);
  }

  /** Tells what is due. */
  tellDue(txn: WriteTxn, now: number): void {
    for (const { row } of due(txn, this.#tables.toldEvents, now, INTERVAL_MS)) this.#tell(txn, row, now);
  }

  #add(txn: WriteTxn, status: StatusRow, news: News, now: number): void {
    const { toldEvents } = this.#tables;
    const { key: policy, kind, namespace, name, uid } = status;
    const [other] = txn.list(toldEvents, 'policy', policy);
    if (other !== undefined && other.row.about.uid !== uid) this.forget(txn, policy);
    const key = `${policy} ${uid} ${news.reason}`;
    const before = txn.get(toldEvents, key);
    const last = secondsOf(now);
    const row: EventRow = {
      ...news,
      key,
      about: { key: policy, kind, name, uid, ...(namespace === undefined ? {} : { namespace }) },
      count: (before?.row.count ?? 0) + 1,
      first: before?.row.first ?? last,
      last,
    };
    // A clock that was set back holds nothing back for long.
    const dueAt = before === undefined ? now : (before.dueAt ?? Math.min(now, before.toldAt) + INTERVAL_MS);
    if (before === undefined || dueAt <= now) this.#tell(txn, row, now);
    else txn.upsert(toldEvents, { ...before, row, dueAt });
  }

  #tell(txn: WriteTxn, row: EventRow, now: number): void {
    txn.upsert(this.#tables.toldEvents, { row, toldAt: now, dueAt: undefined });
    show(txn, this.#tables.events, row);
  }
}

/** RFC 3339, in seconds. */
export function secondsOf(now: number): string {
  return new Date(Math.floor(now / 1000) * 1000).toISOString().replace('.000Z', 'Z');
}

/** Events that follow from a status, given the one before it. */
export function newsOf(before: PolicyStatus | undefined, { kind, status }: Pick<StatusRow, 'kind' | 'status'>): News[] {
  const news: News[] = [];
  for (const after of status.conditions) {
    const was = before?.conditions?.find(({ type }) => type === after.type);
    if (isFailure(after) && !(was !== undefined && same(was, after) && was.message === after.message)) {
      news.push({ type: 'Warning', reason: after.reason, message: after.message });
    }
    const done = after.type === 'Programmed' && after.status === 'True';
    if (done && kind === 'NetworkPolicy' && !(was !== undefined && same(was, after))) {
      news.push({ type: 'Normal', reason: after.reason, message: oneLine(`${after.message}${warningOf(status)}`) });
    }
  }
  return news;
}

/** What of a valid policy does not hold, or may surprise: a NetworkPolicy has no condition that says it. */
function warningOf({ conditions }: PolicyStatus): string {
  const valid = conditions.find(({ type, status }) => type === 'Valid' && status === 'True');
  const start = valid?.message.indexOf(WARNING) ?? -1;
  return valid === undefined || start < 0 ? '' : ` ${valid.message.slice(start)}`;
}

/** `Ready` only repeats the others, and so does an invalid policy's `Programmed`; progress is none. */
function isFailure({ type, status, reason }: Condition): boolean {
  if (status !== 'False' || type === 'Ready') return false;
  return type !== 'Programmed' || reason === 'NodeFailed' || reason === NOT_CONNECTED;
}

function same(a: Condition, b: Condition): boolean {
  return a.status === b.status && a.reason === b.reason && a.observedGeneration === b.observedGeneration;
}
