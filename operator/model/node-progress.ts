/**
 * Which nodes the status of a policy waits for.
 *
 * Guarantees. A node has a generation when it reports that every change of a ResolvedPolicy up to the one that brought this generation is in
 * its kernel, and lists no failure of the policy. A policy waits for
 * - each live node that hosts a selected pod and does not have this generation, and
 * - each live node that reports an earlier version, where the generation before selected other pods, where no live node hosts a selected pod, or
 *   where an earlier leader has not called this generation programmed; until each of them has reached it once.
 * "Live" is the Node's own condition: an agent that hangs leaves its kernel enforcing what it had. A report counts for the Node that wrote it, not
 * for a later one of the same name.
 */
import { isDeepStrictEqual } from 'node:util';
import { reachesVersion } from '@weir/kube';
import type { Reader, WriteTxn } from '@weir/statedb';
import { resolvedName } from '../names.ts';
import type { Tables } from '../tables.ts';
import type { NodeReportRow, NodeRow, ReportedFailure } from '../types.ts';
import { type PolicyBook, type PolicyEntry, subjectsKey } from './policy-book.ts';
import { type StatusTables, versionKeys } from './status-tables.ts';
import type { SubjectHosts } from './subject-hosts.ts';

export interface ProgressSources {
  readonly policies: PolicyBook;
  readonly hosts: SubjectHosts;
}

export type ProgressTables = Pick<Tables, 'nodes' | 'resolvedVersions'> &
  Pick<StatusTables, 'shownStatuses' | 'countedReports' | 'awaiting'>;

/** What a node reports of one policy. */
export interface Reported {
  /** `silent`: it has not reported a policyVersion. `behind`: it has not reached this generation. */
  readonly state: 'silent' | 'behind' | 'reached';
  readonly failures: readonly ReportedFailure[];
  /** Failures that the report has no room for: any of them may be of this policy. */
  readonly unlisted: number;
}

export interface Awaited {
  /** Live nodes that host selected pods, sorted. */
  readonly live: readonly string[];
  /** The same of nodes that are down, sorted. */
  readonly down: readonly string[];
  /** Selected pods that have an address and stay. */
  readonly endpoints: number;
  /** The API server holds this generation for the nodes to read. */
  readonly written: boolean;
  /** Other live nodes that have not reached this generation and are waited for, sorted. */
  readonly lagging: readonly string[];
  /** A node of any kind is waited for. */
  readonly waits: boolean;
  readonly reported: (node: string) => Reported;
}

/** A node, and what this very node reports. */
interface Host {
  readonly node: NodeRow | undefined;
  readonly report: NodeReportRow | undefined;
}

export class NodeProgress {
  readonly #sources: ProgressSources;
  readonly #tables: ProgressTables;

  constructor(sources: ProgressSources, tables: ProgressTables) {
    this.#sources = sources;
    this.#tables = tables;
  }

  /** The nodes that the policy waits for now. */
  of(txn: WriteTxn, entry: PolicyEntry): Awaited {
    const { key, uid, generation } = entry.row;
    const { awaiting } = this.#tables;
    const version = this.#version(txn, entry);
    const reported = (name: string): Reported => reportedOf(this.#host(txn, name), { uid, generation, version });
    const { endpoints, live, down } = this.#hosting(txn, entry);
    const row = txn.get(awaiting, key);
    const reached = version !== undefined && live.every((name) => reported(name).state === 'reached');
    // Others are asked last.
    const asks = row !== undefined && (live.length === 0 || (row.everyone && reached));
    const lagging = asks && version !== undefined ? this.#behind(txn, version) : [];
    const waits = !reached || lagging.length > 0;
    if (row === undefined ? waits : row.version !== version)
      txn.upsert(awaiting, { key, version, everyone: row?.everyone === true });
    return { live, down, endpoints, written: version !== undefined, lagging, waits, reported };
  }

  /** The policy has come, or has another generation. */
  changed(txn: WriteTxn, before: PolicyEntry | undefined, after: PolicyEntry): void {
    const { awaiting } = this.#tables;
    const { key } = after.row;
    const elsewhere =
      before?.resolved !== undefined &&
      (before.row.uid !== after.row.uid || subjectsKey(before.subjects) !== subjectsKey(after.subjects));
    const everyone = elsewhere || txn.get(awaiting, key)?.everyone === true;
    txn.upsert(awaiting, { key, version: undefined, everyone });
  }

  /** The policy was there before this leader. */
  found(txn: WriteTxn, { row: { key, uid, generation } }: PolicyEntry): void {
    const { shownStatuses, awaiting } = this.#tables;
    const shown = txn.get(shownStatuses, key);
    const programmed = shown?.status.conditions?.find(({ type }) => type === 'Programmed');
    const done = programmed?.status === 'True' && programmed.observedGeneration === generation && shown?.uid === uid;
    if (done) txn.delete(awaiting, key);
    else txn.upsert(awaiting, { key, version: undefined, everyone: true });
  }

  /** Users read that the policy waits for no node. Until then it goes on asking: what is to be shown may wait, and a node report meanwhile. */
  reached(txn: WriteTxn, key: string): void {
    txn.delete(this.#tables.awaiting, key);
  }

  forget(txn: WriteTxn, key: string): void {
    txn.delete(this.#tables.awaiting, key);
  }

  /** Keys of the policies whose status may be another one now that the node has come, changed or gone. */
  nodeChanged(reader: Reader, name: string): Set<string> {
    const waiting = this.#waitingFor(reader, reader.get(this.#tables.countedReports, name));
    return new Set([...waiting, ...this.#sources.hosts.policiesOn(reader, name)]);
  }

  /** Takes a node's report; undefined: it has none any more. Returns the keys of the policies whose status may be another one now. */
  count(txn: WriteTxn, name: string, report: NodeReportRow | undefined): Set<string> {
    const { countedReports, awaiting } = this.#tables;
    const { policies, hosts } = this.#sources;
    const before = txn.get(countedReports, name);
    if (report === undefined) txn.delete(countedReports, name);
    else txn.upsert(countedReports, report);
    const changed = new Set<string>();
    for (const uid of Object.keys({ ...before?.failures, ...report?.failures })) {
      if (isDeepStrictEqual(before?.failures[uid], report?.failures[uid])) continue;
      const key = policies.keyOfUid(txn, uid);
      if (key !== undefined) changed.add(key);
    }
    const [was, is] = [before?.policyVersion, report?.policyVersion];
    const sameNode = before?.nodeUid === report?.nodeUid && was !== undefined && is !== undefined;
    const grown = sameNode && reachesVersion(is, was);
    const passed = grown
      ? passedBy(txn, awaiting, was, is)
      : [...this.#waitingFor(txn, before), ...this.#waitingFor(txn, report)];
    if (was !== is || !sameNode) for (const key of passed) changed.add(key);
    if (!grown || before?.unlisted !== report?.unlisted)
      for (const key of hosts.policiesOn(txn, name)) changed.add(key);
    return changed;
  }

  /** Keys of the policies that may wait for a node because it has not reached their version. */
  *#waitingFor(reader: Reader, report: NodeReportRow | undefined): Generator<string> {
    if (report?.policyVersion === undefined) return;
    const [version = ''] = versionKeys(report.policyVersion);
    for (const { key } of reader.lowerBound(this.#tables.awaiting, `${version}0`, 'version')) yield key;
  }

  /** Nodes with selected pods. One that is going counts too: it runs until its object is gone. */
  #hosting(txn: WriteTxn, { subjects }: PolicyEntry): Pick<Awaited, 'endpoints' | 'live' | 'down'> {
    const { nodes } = this.#tables;
    const [live, down]: [string[], string[]] = [[], []];
    let endpoints = 0;
    for (const [name, { staying }] of this.#sources.hosts.of(txn, subjects)) {
      endpoints += staying;
      const node = txn.get(nodes, name);
      if (node !== undefined) (node.live ? live : down).push(name);
    }
    return { endpoints, live: live.sort(), down: down.sort() };
  }

  /** The version by which nodes can read this generation; undefined: they cannot yet. */
  #version(
    reader: Reader,
    { row: { kind, namespace, name, uid, generation }, resolved }: PolicyEntry,
  ): string | undefined {
    const row = reader.get(this.#tables.resolvedVersions, resolvedName(kind, namespace, name));
    const current = resolved?.source.generation === generation;
    return current && row?.uid === uid && row.generation === generation ? row.version : undefined;
  }

  /** Live nodes that report an earlier version, sorted. */
  #behind(reader: Reader, version: string): string[] {
    const { countedReports } = this.#tables;
    const [end] = versionKeys(version);
    const rows = end === undefined ? reader.all(countedReports) : reader.range(countedReports, '', end, 'version');
    return Array.from(rows, ({ node }) => this.#host(reader, node))
      .flatMap(({ node, report }) =>
        node?.live === true && report !== undefined && stateOf(report, version) === 'behind' ? [node.name] : [],
      )
      .sort();
  }

  #host(reader: Reader, name: string): Host {
    const node = reader.get(this.#tables.nodes, name);
    const report = reader.get(this.#tables.countedReports, name);
    const { uid = '' } = node ?? {};
    return { node, report: report?.nodeUid === undefined || uid === '' || report.nodeUid === uid ? report : undefined };
  }
}

function reportedOf(
  { report }: Host,
  {
    uid,
    generation,
    version,
  }: { readonly uid: string; readonly generation: number; readonly version: string | undefined },
): Reported {
  const state = stateOf(report, version);
  // Before it has reached this generation it may speak of an earlier one.
  const failures = (report?.failures[uid] ?? []).filter(
    (failure) => state === 'reached' || failure.generation === generation,
  );
  return { state, failures, unlisted: report?.unlisted ?? 0 };
}

function stateOf(report: NodeReportRow | undefined, version: string | undefined): Reported['state'] {
  if (report?.policyVersion === undefined) return 'silent';
  return version !== undefined && reachesVersion(report.policyVersion, version) ? 'reached' : 'behind';
}

/** Keys of the policies whose version a node has reached by going from one version to a later one. */
function* passedBy(reader: Reader, awaiting: StatusTables['awaiting'], was: string, is: string): Generator<string> {
  const [[first = ''], [last = '']] = [versionKeys(was), versionKeys(is)];
  // Keys are digits: what follows `last` at once is after it and before every other.
  for (const { key } of reader.range(awaiting, first, `${last}0`, 'version')) yield key;
}
