/** What `weir status` and readiness say of the node's endpoints as a whole. None of it is a fault of the agent. */
import { formatAddress } from '@weir/net';
import type { DeriveReader, Reader, StateDB } from '@weir/statedb';
import type { CoreOptions, HealthCheck, SpentShares, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { EndpointIdentity } from '../derive/index.ts';
import type { EndpointRow } from '../tables.ts';
import { endpointStatus } from './endpoint-status.ts';
import { named, unexplained } from './strays.ts';

/** How long an endpoint may wait until a check names it, in milliseconds: a pod that is being started does for a moment. */
const PATIENCE_MS = 5_000;
/** Endpoints that a check names. */
const MOST_NAMED = 3;
const WHY_UNNUMBERED =
  "Event NoIdentity of a pod says why, such as that its namespace's identities are all in use or that it has too many labels; where there is none, " +
  'see that the operator runs';

export interface EndpointsCheckOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly policyMode: CoreOptions['policyMode'];
  /** Milliseconds since 1970. */
  readonly wallClock: () => number;
}

/** Whether it is known whose each endpoint is, and whether its interface is there. */
export function endpointsCheck({ db, tables, policyMode, wallClock }: EndpointsCheckOptions): HealthCheck {
  using snapshot = db.read();
  const rows = [...snapshot.all(tables.endpoints)].filter((row) => row.gone === undefined);
  const taken = rows.filter(({ found }) => found !== undefined);
  const gone = [...snapshot.list(tables.endpoints, 'stray', 'gone')];
  const listed = db.pendingInitialisers(tables.localPods).length === 0;
  const unknown = rows.filter(
    (row) =>
      unexplained(row) ||
      (listed && podUnknown(snapshot, tables, row) && lasts(wallClock() - Date.parse(row.createdAt))),
  );
  const judged = Map.groupBy(unknown, (row) => judgedText(snapshot, tables, row, policyMode));
  const unlisted = listed ? [] : rows.filter(({ pod }) => pod !== undefined);
  const wrong = [
    ...Array.from(judged, ([how, which]) => `the pod of ${named(which)} is not known: ${how}`),
    ...(unlisted.length === 0 ? [] : [`whether the pod of ${named(unlisted)} is still there is not known yet`]),
    ...(gone.length === 0
      ? []
      : [
          `the interface of ${named(gone)} is gone: delete ${gone.length === 1 ? 'its pod' : 'their pods'}, so that ${gone.length === 1 ? 'it is' : 'they are'} recreated`,
        ]),
  ];
  const lines = [
    ...(taken.length === 0
      ? []
      : [
          `${taken.length === 1 ? '1 endpoint was' : `${taken.length} endpoints were`} taken from the kernel, as no file knew ${taken.length === 1 ? 'it' : 'them'}: ${named(taken)}`,
        ]),
    ...wrong,
  ];
  return {
    name: 'endpoints',
    ok: true,
    ...(wrong.length === 0 ? {} : { warning: true }),
    message: lines.length === 0 ? 'every endpoint is known' : lines.join('; '),
  };
}

/** Whether an endpoint, or who connects to endpoints, has as many connections as it may. */
export function connectionsCheck(
  { db, tables }: Pick<EndpointsCheckOptions, 'db' | 'tables'>,
  { endpoints, peers }: SpentShares,
): HealthCheck {
  const name = 'connections';
  using snapshot = db.read();
  const rows = endpoints.flatMap((id) => snapshot.get(tables.endpoints, tableKey.endpoint(id)) ?? []);
  const who = [...(rows.length === 0 ? [] : [named(rows)]), ...peers.map((address) => formatAddress(address))];
  if (who.length === 0) return { name, ok: true, message: 'every endpoint has room in the table of connections' };
  const message =
    `${who.join(', ')}: as many connections as one may have; for a new one an unanswered one is forgotten, or it passes untracked, and its ` +
    'answers are judged by themselves; see `--ct-entries`';
  return { name, ok: true, warning: true, message };
}

/** The cluster does not have the pod that the endpoint was made for. */
function podUnknown(reader: Reader, tables: Pick<Tables, 'localPods'>, { pod }: EndpointRow): boolean {
  if (pod === undefined) return false;
  const known = reader.get(tables.localPods, tableKey.pod(pod.namespace, pod.name));
  return known === undefined || (pod.uid !== undefined && pod.uid !== known.uid);
}

/** What becomes of the packets of an endpoint of which nobody knows the pod, as the kernel acknowledged it. */
function judgedText(
  reader: DeriveReader,
  tables: Tables,
  row: EndpointRow,
  policyMode: CoreOptions['policyMode'],
): string {
  const { acknowledged } = endpointStatus(reader, tables, row);
  if (acknowledged === undefined) return 'the kernel enforces nothing of it yet';
  if (acknowledged.found) return 'it stays as the kernel had it until the inputs are complete';
  if (policyMode === 'never') return 'it is open, as policy enforcement is `never`';
  return acknowledged.identity === 0
    ? 'without an identity it is closed in both directions'
    : `it is judged as identity ${acknowledged.identity}, which it had before`;
}

export interface LabelsCheckSources {
  /** Endpoints whose labels have no identity, or that have none for another reason. */
  readonly waiting: Iterable<EndpointIdentity>;
  /** Milliseconds, by the clock of `unnumberedSince`. */
  readonly now: number;
  /** Whether endpoints are given their identities: not before the inputs are complete. */
  readonly computing: boolean;
}

/** Whether every endpoint has the identity of its labels. */
export function labelsCheck({ waiting, now, computing }: LabelsCheckSources): HealthCheck {
  const name = 'labels';
  const all = Array.from(waiting, (info) => {
    const { unnumberedSince, closedSince } = info;
    return { info, seconds: Math.floor((now - (unnumberedSince ?? closedSince ?? now)) / 1000) };
  });
  const lasting = all.filter(({ seconds }) => seconds * 1000 >= PATIENCE_MS);
  const [unnumbered, nameless] = [
    lasting.filter(({ info }) => info.unnumberedSince !== undefined),
    lasting.filter(({ info }) => info.unnumberedSince === undefined),
  ];
  const wrong = [
    ...(computing ? [] : ['endpoints get their identities when the inputs are complete']),
    ...(unnumbered.length === 0
      ? []
      : [
          `no identity has been given to the labels of ${unnumbered.length === 1 ? 'pod' : 'pods'} ${firstOf(unnumbered.map(unnumberedText))}: ${WHY_UNNUMBERED}`,
        ]),
    ...(nameless.length === 0 ? [] : [`without an identity: ${firstOf(nameless.map(namelessText))}`]),
  ];
  if (wrong.length > 0) return { name, ok: true, warning: true, message: wrong.join('; ') };
  const message =
    all.length === 0
      ? 'the labels of every endpoint have an identity'
      : `waiting for an identity, for less than ${PATIENCE_MS / 1000} s so far: ${firstOf(all.map(briefText))}`;
  return { name, ok: true, message };
}

/** An endpoint that waits for an identity, and for how long, in whole seconds. */
interface Waiting {
  readonly info: EndpointIdentity;
  readonly seconds: number;
}

function unnumberedText({ info: { row, ready }, seconds }: Waiting): string {
  const how = ready ? 'judged by its former labels' : 'closed';
  return `${row.pod?.namespace}/${row.pod?.name} (endpoint ${row.id}, for ${seconds} s, ${how})`;
}

function namelessText({ info, seconds }: Waiting): string {
  return `endpoint ${info.row.id} (for ${seconds} s: ${reasonOf(info)})`;
}

function briefText({ info }: Waiting): string {
  return `endpoint ${info.row.id} (${reasonOf(info)})`;
}

function reasonOf({ reason = 'nobody knows its labels' }: EndpointIdentity): string {
  return reason;
}

function firstOf(texts: readonly string[]): string {
  const more = texts.length > MOST_NAMED ? ` and ${texts.length - MOST_NAMED} more` : '';
  return `${texts.slice(0, MOST_NAMED).join(', ')}${more}`;
}

/** A clock that was set back says nothing of a moment. */
function lasts(ms: number): boolean {
  return ms < 0 || ms >= PATIENCE_MS;
}

/** Steps of parts in the last plan. */
export function stepsCheck(failed: readonly { readonly name: string; readonly message: string }[]): HealthCheck {
  const [first] = failed;
  const message = first === undefined ? 'no step of a plan fails' : `step ${first.name} fails: ${first.message}`;
  return { name: 'steps', ok: first === undefined, message };
}
