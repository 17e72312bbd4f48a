/** What the statuses and Events of policies are made from, and when each may go out. */
import type { PolicyStatus } from '@weir/kube';
import { type IndexSpec, type Key, keys, type Reader, type StateDB, type Table } from '@weir/statedb';
import type { EventRow, NodeReportRow } from '../types.ts';

/** Something that waits for a time, in milliseconds since the epoch; undefined: it does not. */
interface Timed {
  readonly dueAt: number | undefined;
}

/** What the next fold of a policy's status must know, in its turn or when it is due. */
export interface StatusMark extends Timed {
  readonly key: string;
  /** The object is not as it was left: written again even if the status is the same. */
  readonly touched: boolean;
}

/** A status that was shown, or found in the API at the start. */
export interface ShownStatus {
  /** Of the policy. */
  readonly key: string;
  readonly uid: string;
  readonly status: PolicyStatus;
  /** When it was shown or written last; undefined: not by this process. */
  readonly shownAt: number | undefined;
}

/** An Event that was shown, with its count since. While it waits it is shown again when it is due. */
export interface ToldEvent extends Timed {
  readonly row: EventRow;
  readonly toldAt: number;
}

/** A policy whose generation has not been reached by every node that it waits for. */
export interface Awaiting {
  readonly key: string;
  /** The resourceVersion to reach; undefined: it is not written yet. */
  readonly version: string | undefined;
  /** Nodes without a selected pod may enforce an earlier generation. */
  readonly everyone: boolean;
}

export interface StatusTables {
  readonly statusMarks: Table<StatusMark>;
  readonly shownStatuses: Table<ShownStatus>;
  readonly toldEvents: Table<ToldEvent>;
  /** What each node reported when it was counted last: the input may be ahead, and a difference is never missed. */
  readonly countedReports: Table<NodeReportRow>;
  readonly awaiting: Table<Awaiting>;
}

export function statusTables(db: StateDB): StatusTables {
  const dueAt: IndexSpec<Timed> = {
    name: 'due',
    keys: (row) => (row.dueAt === undefined ? [] : [keys.int(Math.ceil(row.dueAt))]),
  };
  return {
    statusMarks: db.table<StatusMark>({
      name: 'statusesToFold',
      key: (row) => row.key,
      indexes: [dueAt],
    }),
    shownStatuses: db.table<ShownStatus>({ name: 'shownStatuses', key: (row) => row.key }),
    toldEvents: db.table<ToldEvent>({
      name: 'shownEvents',
      key: ({ row }) => row.key,
      indexes: [dueAt, { name: 'policy', keys: ({ row }) => [row.about.key] }],
    }),
    countedReports: db.table<NodeReportRow>({
      name: 'countedReports',
      key: (row) => row.node,
      indexes: [
        {
          name: 'version',
          // What is no number comes before all of them: it reaches none.
          keys: ({ policyVersion }) => {
            if (policyVersion === undefined) return [];
            const [key = ''] = versionKeys(policyVersion);
            return [key];
          },
        },
      ],
    }),
    awaiting: db.table<Awaiting>({
      name: 'policiesWaitingForNodes',
      key: ({ key }) => key,
      indexes: [{ name: 'version', keys: ({ version }) => versionKeys(version) }],
    }),
  };
}

/** In the order of the versions. None for a version that is no number: such are only compared one by one. */
export function versionKeys(version: string | undefined): Key[] {
  return version !== undefined && /^\d{1,20}$/.test(version) ? [version.padStart(20, '0')] : [];
}

/** What is due. Nothing waits for longer than `longestMs`: what seems to is of before the clock was set back. */
export function* due<T extends Timed>(
  reader: Reader,
  table: Table<T>,
  now: number,
  longestMs: number,
): IterableIterator<T> {
  const [next, never] = [now + 1, now + longestMs + 1].map((at) => keys.int(Math.floor(at)));
  yield* reader.range(table, '', next, 'due');
  yield* reader.lowerBound(table, never ?? '', 'due');
}

/** Milliseconds until something is due; undefined: nothing waits. */
export function dueInMs<T extends Timed>(
  reader: Reader,
  table: Table<T>,
  now: number,
  longestMs: number,
): number | undefined {
  for (const { dueAt = now } of reader.prefix(table, '', 'due')) return Math.min(longestMs, Math.max(0, dueAt - now));
  return undefined;
}
