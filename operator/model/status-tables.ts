/** What the statuses and Events of policies are made from, and when each may go out. */
import type { PolicyStatus } from '@weir/kube';
import { type IndexSpec, type Key, keys, type Reader, type StateDB, type Table } from '@weir/statedb';
import type { EventRow, NodeReportRow } from '../types.ts';
import { type TurnOwner, turnTable } from './turns.ts';

/** Something that waits for a time, in milliseconds since the epoch; undefined: it does not. */
interface Timed {
  readonly dueAt: number | undefined;
}

/** A policy whose status must be looked at: in its turn, or when it is due. */
export interface StatusMark extends Timed {
  readonly key: string;
  /** The policy's; '': it has none. */
  readonly namespace: string;
  /** Marks of a namespace are taken in this order, so that none waits for ever; undefined: it is only due. */
  readonly turn: number | undefined;
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

/** An Event that was told, with what has happened since. Waiting, it is told again when it is due. */
export interface ToldEvent extends Timed {
  readonly row: EventRow;
  readonly toldAt: number;
}

/** A node that may enforce an earlier version of a policy which it has not reported. Until it has caught up nobody knows. */
export interface Holdover {
  /** Of the policy. */
  readonly key: string;
  /** EVERY_NODE: any node may. */
  readonly node: string;
  readonly nodeUid: string;
}

/** A policy whose status waits for nodes to catch up with its ResolvedPolicy, or would wait for any node that came and lagged behind. */
export interface CatchUp {
  readonly key: string;
  /** The resourceVersion to reach; undefined: it is not written yet. */
  readonly version: string | undefined;
}

/** What a node has said last. */
export interface CountedReport extends NodeReportRow {
  /** Somebody has deleted the report. The node, which lives, may enforce what it said. */
  readonly lost?: true;
  /** Of these policies, by uid, a report speaks that came after it. */
  readonly said?: Readonly<Partial<Record<string, true>>>;
  /** The last report that said how far the node is, where those after it do not: its words count until they are taken back. */
  readonly base?: NodeReportRow;
}

/** What a node says of one policy: that stays while it only says other things of it. */
export interface Mention {
  readonly node: string;
  /** That it names; of the policy's key perhaps not the uid that the policy has. */
  readonly uid: string;
  /** It says a generation or a failure of the policy that has this uid. */
  readonly says: boolean;
  /** The policy's, if it says that. Up to two uids of a key: whether the node says another than one of them is known by those. */
  readonly key: string | undefined;
}

/** Keys that a node names and that no policy had when its report was counted, or when the last one was forgotten. */
export interface Strangers {
  readonly node: string;
  /** Up to two of each key. */
  readonly uids: ReadonlyMap<string, readonly string[]>;
}

/** What a node reports, until it is counted: at most once an interval. With nothing that waits it is forgotten when it is due. */
export interface ReportTurn extends Timed {
  readonly node: string;
  /** The last report that said how far the node is, where what waits does not say it: its agent has begun anew. */
  readonly word: NodeReportRow | undefined;
  /** A report has been deleted after that, and before what waits. */
  readonly lost: boolean;
  /** undefined: what it has said last is counted. */
  readonly waiting: NodeReportRow | undefined;
  /** The report has been deleted, after what waits. */
  readonly gone: boolean;
  /** undefined: never. */
  readonly countedAt: number | undefined;
}

/** A policy for which the reports that came before it have been looked through. */
export interface Acquainted {
  readonly uid: string;
  readonly key: string;
  /** It does not exist any more: what is kept of the reports for it is to be forgotten. */
  readonly gone: boolean;
}

export interface StatusTables {
  readonly statusMarks: Table<StatusMark>;
  /** Namespaces of which statuses are to be folded. */
  readonly statusOwners: Table<TurnOwner>;
  readonly shownStatuses: Table<ShownStatus>;
  readonly toldEvents: Table<ToldEvent>;
  /**
   * What each node reported when it was counted last: the input may be ahead, and a difference is never missed. As long as the Node lives,
   * a report that was deleted stays.
   */
  readonly countedReports: Table<CountedReport>;
  /** Who reports a policy: most reports say the same as the one before, and nothing changes. */
  readonly mentions: Table<Mention>;
  readonly strangers: Table<Strangers>;
  readonly reportTurns: Table<ReportTurn>;
  readonly acquainted: Table<Acquainted>;
  readonly holdovers: Table<Holdover>;
  readonly catchUps: Table<CatchUp>;
}

function statusTurnTables(db: StateDB, dueAt: IndexSpec<Timed>): Pick<StatusTables, 'statusMarks' | 'statusOwners'> {
  return {
    statusMarks: db.table<StatusMark>({
      name: 'statuses-to-fold',
      key: (row) => row.key,
      indexes: [
        dueAt,
        {
          name: 'turn',
          keys: ({ namespace, turn }) => (turn === undefined ? [] : [keys.join(namespace, keys.uint(turn))]),
        },
      ],
    }),
    statusOwners: turnTable(db, 'statuses-to-fold-owners'),
  };
}

export function statusTables(db: StateDB): StatusTables {
  const dueAt: IndexSpec<Timed> = {
    name: 'due',
    keys: (row) => (row.dueAt === undefined ? [] : [keys.int(Math.ceil(row.dueAt))]),
  };
  return {
    ...statusTurnTables(db, dueAt),
    shownStatuses: db.table<ShownStatus>({ name: 'shown-statuses', key: (row) => row.key }),
    toldEvents: db.table<ToldEvent>({
      name: 'told-events',
      key: ({ row }) => row.key,
      indexes: [dueAt, { name: 'policy', keys: ({ row }) => [row.about.key] }],
    }),
    countedReports: db.table<CountedReport>({
      name: 'counted-reports',
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
    mentions: db.table<Mention>({
      name: 'reported-policies',
      key: ({ node, uid }) => keys.join(node, uid),
      indexes: [
        { name: 'uid', keys: ({ uid, says }) => (says ? [uid] : []) },
        { name: 'policy', keys: ({ uid, key }) => (key === undefined ? [] : [keys.join(key, uid)]) },
      ],
    }),
    strangers: db.table<Strangers>({ name: 'reported-unknown-policies', key: ({ node }) => node }),
    reportTurns: db.table<ReportTurn>({
      name: 'reports-to-count',
      key: (row) => row.node,
      indexes: [
        dueAt,
        {
          name: 'first',
          keys: ({ waiting, countedAt }) => (waiting !== undefined && countedAt === undefined ? [''] : []),
        },
      ],
    }),
    acquainted: db.table<Acquainted>({
      name: 'policies-looked-for-in-reports',
      key: ({ uid }) => uid,
      indexes: [
        { name: 'key', keys: ({ key }) => [key] },
        { name: 'gone', keys: ({ gone }) => (gone ? [''] : []) },
      ],
    }),
    holdovers: db.table<Holdover>({
      name: 'holdovers',
      key: ({ key, node }) => keys.join(key, node),
      indexes: [{ name: 'node', keys: ({ node }) => [node] }],
    }),
    catchUps: db.table<CatchUp>({
      name: 'policies-waiting-for-nodes',
      key: ({ key }) => key,
      indexes: [
        { name: 'version', keys: ({ version }) => versionKeys(version) },
        { name: 'unordered', keys: ({ version }) => (versionKeys(version).length === 0 ? [''] : []) },
      ],
    }),
  };
}

/** As `node` of a holdover: which nodes it is about is not known. */
export const EVERY_NODE = '';

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
