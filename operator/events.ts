/**
 * What is told as Events: what a policy suffers from, and that a NetworkPolicy, which has no status, is programmed.
 *
 * One Event for each reason of each policy, whose count and last time grow: `kubectl describe` shows one line. Told are
 * changes of the answer, between one status and the next; a new leader starts from the status that it finds, so that it
 * repeats nothing. What comes often is told at once, and then once in 10 seconds with its count.
 */
import type { Condition, PolicyStatus } from '@weir/kube';
import type { Edit, EventRow, StatusRow } from './types.ts';

const INTERVAL_MS = 10_000;

type News = Pick<EventRow, 'type' | 'reason' | 'message'>;

interface Known {
  row: EventRow;
  toldAt: number;
}

export class EventBook {
  /** By policy key, then reason. */
  readonly #known = new Map<string, Map<string, Known>>();
  readonly #pending = new Set<Known>();
  readonly #gone: string[] = [];

  /** Notes what is new in `row`, beside the status before it. */
  note(before: PolicyStatus | undefined, row: StatusRow, now: number): void {
    for (const news of newsOf(before, row)) this.#add(row, news, now);
  }

  /** The policy is gone, or another object has its name. */
  forget(key: string): void {
    for (const known of this.#known.get(key)?.values() ?? []) {
      this.#gone.push(known.row.key);
      this.#pending.delete(known);
    }
    this.#known.delete(key);
  }

  /** Milliseconds until something is due; undefined: nothing waits. */
  dueInMs(now: number): number | undefined {
    let due: number | undefined;
    for (const known of this.#pending) due = Math.min(due ?? INTERVAL_MS, waitOf(known, now));
    return due;
  }

  drain(now: number): Edit<EventRow>[] {
    const edits: Edit<EventRow>[] = this.#gone.splice(0).map((key) => ({ key, row: undefined }));
    for (const known of this.#pending) {
      if (waitOf(known, now) > 0) continue;
      known.toldAt = now;
      this.#pending.delete(known);
      edits.push({ key: known.row.key, row: known.row });
    }
    return edits;
  }

  #add(status: StatusRow, news: News, now: number): void {
    const { key, kind, namespace, name, uid } = status;
    if ([...(this.#known.get(key)?.values() ?? [])].some(({ row }) => row.policy.uid !== uid)) this.forget(key);
    const reasons = this.#known.get(key) ?? new Map<string, Known>();
    this.#known.set(key, reasons);
    const last = secondsOf(now);
    const before = reasons.get(news.reason);
    const row: EventRow = {
      ...news,
      key: `${key} ${uid} ${news.reason}`,
      policy: { key, kind, name, uid, ...(namespace === undefined ? {} : { namespace }) },
      count: (before?.row.count ?? 0) + 1,
      first: before?.row.first ?? last,
      last,
    };
    const known: Known = before ?? { row, toldAt: Number.NEGATIVE_INFINITY };
    known.row = row;
    reasons.set(news.reason, known);
    this.#pending.add(known);
  }
}

/** RFC 3339, in seconds. */
export function secondsOf(now: number): string {
  return new Date(Math.floor(now / 1000) * 1000).toISOString().replace('.000Z', 'Z');
}

/** What of a status is told, given the one before it. */
export function newsOf(before: PolicyStatus | undefined, { kind, status }: Pick<StatusRow, 'kind' | 'status'>): News[] {
  const news: News[] = [];
  for (const after of status.conditions) {
    const was = before?.conditions?.find(({ type }) => type === after.type);
    if (isFailure(after) && !(was !== undefined && same(was, after) && was.message === after.message)) {
      news.push({ type: 'Warning', reason: after.reason, message: after.message });
    }
    const done = after.type === 'Programmed' && after.reason === 'Programmed';
    if (done && kind === 'NetworkPolicy' && !(was !== undefined && same(was, after))) {
      news.push({ type: 'Normal', reason: after.reason, message: after.message });
    }
  }
  return news;
}

/** `Ready` only repeats the others, and so does an invalid policy's `Programmed`; progress is none. */
function isFailure({ type, status, reason }: Condition): boolean {
  if (status !== 'False' || type === 'Ready') return false;
  return type !== 'Programmed' || reason === 'NodeFailed';
}

function same(a: Condition, b: Condition): boolean {
  return a.status === b.status && a.reason === b.reason && a.observedGeneration === b.observedGeneration;
}

function waitOf({ toldAt }: Known, now: number): number {
  // A clock that was set back holds nothing back for long.
  return Math.min(INTERVAL_MS, Math.max(0, toldAt + INTERVAL_MS - now));
}
