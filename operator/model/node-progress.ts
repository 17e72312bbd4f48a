/**
 * Which nodes the status of a policy waits for.
 *
 * Guarantees. A live node is waited for as long as
 * - it hosts a pod that the policy selects and has not reported this generation, or
 * - it reports an earlier generation, or the policy that had this name before, whatever it hosts now, or
 * - it hosted a selected pod, was never heard of that generation, and has not caught up with this one since, or
 * - no live node hosts a selected pod, and it has not caught up with this generation.
 * A node has caught up when it reports that every change of a ResolvedPolicy up to the one that brought this generation is in
 * its kernel. "Live" is the Node's own condition: an agent that hangs leaves its kernel enforcing what it had. So does one whose report
 * somebody deletes, and one whose agent begins anew: its last word counts as long as its Node lives and this process remembers, or until
 * the agent says how far the node is. A node that has never reported is waited for only while it hosts a selected pod.
 *
 * Not known: a node whose first selected pod came between an edit and the write of its ResolvedPolicy, until it reports it; nor one that had
 * caught up before its first selected pod came, and has not reported it when that is gone again: a later edit does not wait for it.
 */
import { isDeepStrictEqual } from 'node:util';
import { reachesVersion } from '@weir/kube';
import { afterPrefix, keys, type Reader, type Table, type WriteTxn } from '@weir/statedb';
import { resolvedName } from '../names.ts';
import type { Tables } from '../tables.ts';
import type { NodeReportRow, NodeRow, ReportedFailure } from '../types.ts';
import { withLastWords } from './last-words.ts';
import { MentionBook } from './mentions.ts';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import {
  type CatchUp,
  type CountedReport,
  EVERY_NODE,
  type Holdover,
  type StatusTables,
  versionKeys,
} from './status-tables.ts';
import type { SubjectHosts } from './subject-hosts.ts';

export interface ProgressSources {
  readonly policies: PolicyBook;
  readonly hosts: SubjectHosts;
}

export type ProgressTables = Pick<Tables, 'nodes' | 'resolvedVersions'> & StatusTables;

/** What a node reports of one policy. */
export interface Reported {
  readonly generation: number | undefined;
  /** It still enforces the policy that had this name before. */
  readonly replaced: boolean;
  readonly failures: readonly ReportedFailure[];
  /** These are the last words of a node whose report was deleted. */
  readonly lost: boolean;
}

export interface Awaited {
  /** Live nodes that host selected pods or enforce something earlier, sorted. */
  readonly live: readonly string[];
  /** The same of nodes that are down, sorted. */
  readonly down: readonly string[];
  /** Selected pods that have an address and stay. */
  readonly endpoints: number;
  /** The API server holds this generation for the nodes to read. */
  readonly written: boolean;
  /** Live nodes that may enforce something earlier, or are to be asked because nobody hosts a selected pod, sorted. */
  readonly lagging: readonly string[];
  readonly reported: (node: string) => Reported;
}

/** What is counted of a node before and after it has reported, or its report was deleted. */
export interface ReportChange {
  readonly before: CountedReport | undefined;
  readonly after: CountedReport | undefined;
  /** Uids of policies that one of them speaks of. */
  readonly uids: ReadonlySet<string>;
}

/** A node, and what this very node reports, not one of the same name before it. */
interface Host {
  readonly node: NodeRow | undefined;
  readonly report: CountedReport | undefined;
}

export class NodeProgress {
  readonly #sources: ProgressSources;
  readonly #tables: ProgressTables;
  readonly #mentions: MentionBook;

  constructor(sources: ProgressSources, tables: ProgressTables) {
    this.#sources = sources;
    this.#tables = tables;
    this.#mentions = new MentionBook(sources.policies, tables);
  }

  /** The nodes that the policy waits for now. Notes those that host a selected pod and have not reported it: later rounds need them. */
  of(txn: WriteTxn, entry: PolicyEntry): Awaited {
    const { key, uid, generation } = entry.row;
    const { mentions, holdovers } = this.#tables;
    this.#mentions.acquaint(txn, entry);
    const found = new Map<string, Host>();
    const host = (name: string): Host => {
      const known = found.get(name) ?? this.#host(txn, name);
      found.set(name, known);
      return known;
    };
    const { endpoints, names } = this.#hosting(txn, entry, host);
    for (const { node } of txn.list(mentions, 'uid', uid)) {
      if ((host(node).report?.generations[uid] ?? generation) < generation) names.add(node);
    }
    const replaced = this.#reportingReplaced(txn, entry, host);
    for (const node of replaced) names.add(node);
    const live = [...names].filter((name) => host(name).node?.live === true).sort();
    const down = [...names].filter((name) => host(name).node?.live === false).sort();

    const { version, caughtUp } = this.#handedOut(txn, entry);
    const written = version !== undefined;
    const { noted, anybody } = this.#holdovers(txn, entry, names, host, caughtUp);
    const everyone = live.length === 0 || anybody;
    const asked = everyone ? this.#behind(txn, version) : noted;
    const lagging = asked
      .filter((name) => this.#lags(host(name), caughtUp))
      // A node that reports the policy is waited for by what it reports.
      .filter((name) => live.length === 0 || host(name).report?.generations[uid] === undefined)
      .sort();
    this.#await(txn, { key, version }, everyone || lagging.length > 0);
    if (anybody && written && lagging.length === 0) {
      // A node that is down is asked when it is back.
      for (const { node, report } of asked.map(host))
        if (node?.live === false && report?.policyVersion !== undefined) this.#hold(txn, key, node);
      txn.delete(holdovers, holdovers.spec.key(everybody(key)));
    }
    return {
      live,
      down,
      endpoints,
      written,
      lagging,
      reported: (node) => ({
        generation: host(node).report?.generations[uid],
        replaced: replaced.has(node),
        lost: host(node).report?.lost === true && host(node).report?.said?.[uid] !== true,
        failures: host(node).report?.failures[uid] ?? [],
      }),
    };
  }

  /**
   * The policy was there before this leader. What an earlier one did not call programmed may be enforced, as it was before, by any node
   * that has not caught up: which of them hosted a selected pod is not known any more.
   */
  found(txn: WriteTxn, entry: PolicyEntry): void {
    const { shownStatuses, holdovers } = this.#tables;
    const { key, uid, generation } = entry.row;
    this.#mentions.isFirst(txn, entry);
    const shown = txn.get(shownStatuses, key);
    const programmed = shown?.status.conditions?.find(({ type }) => type === 'Programmed');
    const done = programmed?.status === 'True' && programmed.observedGeneration === generation;
    if (shown?.uid !== uid || !done) txn.upsert(holdovers, everybody(key));
  }

  /**
   * The node has reported: what is counted of it before and after. An agent that has just begun does not say how far the node is until it
   * knows: of what it does not name yet the kernel may enforce what the node said last.
   */
  reportSaid(txn: WriteTxn, row: NodeReportRow): ReportChange {
    const before = txn.get(this.#tables.countedReports, row.node);
    const begins = row.policyVersion === undefined && (before?.policyVersion !== undefined || before?.lost === true);
    const after = begins && before.nodeUid === row.nodeUid ? withLastWords(row, before) : row;
    return { before, after, uids: this.#mentions.count(txn, row.node, after) };
  }

  /** The report is gone: what is counted of the node before and after. */
  reportLost(txn: WriteTxn, name: string): ReportChange {
    const { countedReports, nodes } = this.#tables;
    const before = txn.get(countedReports, name);
    const uid = txn.get(nodes, name)?.uid;
    const lives = uid !== undefined && (before?.nodeUid ?? uid) === uid;
    const after: CountedReport | undefined = before && lives ? { ...before, nodeUid: uid, lost: true } : undefined;
    return { before, after, uids: this.#mentions.count(txn, name, after) };
  }

  /**
   * Keys of the policies whose status may be another one now that the node has come, changed or gone. The last words of one that is gone
   * are forgotten.
   */
  nodeChanged(txn: WriteTxn, name: string): Set<string> {
    const { countedReports, nodes } = this.#tables;
    const report = txn.get(countedReports, name);
    const forgets = report?.lost === true && txn.get(nodes, name)?.uid !== report.nodeUid;
    const uids = forgets ? this.#mentions.count(txn, name, undefined) : this.#mentions.of(txn, name);
    return new Set([
      ...this.#waitingFor(txn, name, report),
      ...this.#reportedBy(txn, { before: report, after: undefined, uids }),
      ...this.#sources.hosts.policiesOn(txn, name),
    ]);
  }

  forget(txn: WriteTxn, key: string): void {
    const { holdovers, catchUps } = this.#tables;
    for (const row of txn.prefix(holdovers, keys.join(key))) txn.delete(holdovers, holdovers.spec.key(row));
    txn.delete(catchUps, key);
    this.#mentions.forget(txn, key);
  }

  /** Whether something is kept of the reports for policies that are gone. */
  hasGone(reader: Reader): boolean {
    return this.#mentions.hasGone(reader);
  }

  /** Forgets a part of that; false: there is none. */
  forgetNext(txn: WriteTxn): boolean {
    return this.#mentions.forgetNext(txn);
  }

  /** Keys of the policies whose status may be another one now that a node's report has changed. */
  reportChanged(txn: WriteTxn, change: ReportChange): Set<string> {
    const { before, after } = change;
    const changed = new Set(this.#reportedBy(txn, change));
    const [was, is] = [before?.policyVersion, after?.policyVersion];
    if (was === is && before?.nodeUid === after?.nodeUid) return changed;
    const grown =
      was !== undefined && is !== undefined && before?.nodeUid === after?.nodeUid && reachesVersion(is, was);
    if (grown) for (const { key } of passedBy(txn, this.#tables.catchUps, was, is)) changed.add(key);
    // A node that begins or ceases to say how far it is, or falls back.
    else {
      for (const report of [before, after])
        for (const key of report === undefined ? [] : this.#waitingFor(txn, report.node, report)) changed.add(key);
    }
    return changed;
  }

  /** Keys of the policies of which another thing is reported. */
  *#reportedBy(reader: Reader, { before, after, uids }: ReportChange): Generator<string> {
    const { policies } = this.#sources;
    const renewed = before?.nodeUid !== after?.nodeUid || before?.lost !== after?.lost;
    for (const uid of uids) {
      if (!renewed && saysTheSame(before, after, uid)) continue;
      const named = new Set([policies.keyOfUid(reader, uid), before?.policyKeys[uid], after?.policyKeys[uid]]);
      for (const key of named) if (key !== undefined && policies.get(reader, key) !== undefined) yield key;
    }
  }

  /** Keys of the policies that may wait for a node because of how far it says it is. */
  *#waitingFor(reader: Reader, name: string, report: CountedReport | undefined): Generator<string> {
    const { holdovers, catchUps } = this.#tables;
    for (const { key } of reader.list(holdovers, 'node', name)) yield key;
    if (report?.policyVersion === undefined) return;
    for (const { key } of notReachedBy(reader, catchUps, report.policyVersion)) yield key;
  }

  /** Nodes with selected pods, of which those are noted that have not reported the policy. */
  #hosting(
    txn: WriteTxn,
    { subjects, row: { key, uid } }: PolicyEntry,
    host: (name: string) => Host,
  ): { readonly endpoints: number; readonly names: Set<string> } {
    const names = new Set<string>();
    let endpoints = 0;
    for (const [name, { staying }] of this.#sources.hosts.of(txn, subjects)) {
      endpoints += staying;
      const { node, report } = host(name);
      const known = report?.generations[uid] !== undefined;
      if (!known) this.#hold(txn, key, node);
      // A pod that is going counts while its node says that it has it: afterwards only the object is left.
      if (staying > 0 || known) names.add(name);
    }
    return { endpoints, names };
  }

  /** Nodes that report the policy's name under another uid than it has now. */
  #reportingReplaced(
    reader: Reader,
    { row: { key, uid } }: PolicyEntry,
    host: (name: string) => Host,
  ): ReadonlySet<string> {
    const { mentions } = this.#tables;
    const [all, own] = [keys.join(key), keys.join(key, uid)];
    const nodes = new Set<string>();
    // The uids before the policy's own in the index, and those after it. The own one, which most nodes report, is passed over.
    for (const rows of [
      reader.range(mentions, all, own, 'policy'),
      reader.range(mentions, `${own}\0`, afterPrefix(all), 'policy'),
    ])
      for (const { node } of rows) if (host(node).report !== undefined) nodes.add(node);
    return nodes;
  }

  /** Whether nodes can read this generation, and whether a node has. */
  #handedOut(
    reader: Reader,
    { row: { kind, namespace, name, uid }, resolved }: PolicyEntry,
  ): { readonly version: string | undefined; readonly caughtUp: (version: string) => boolean } {
    const row = reader.get(this.#tables.resolvedVersions, resolvedName(kind, namespace, name));
    if (row?.uid !== uid || row.generation !== resolved?.source.generation) {
      return { version: undefined, caughtUp: () => false };
    }
    return { version: row.version, caughtUp: (version) => reachesVersion(version, row.version) };
  }

  /** Noted nodes that host no selected pod any more. Those of which all is known are forgotten. */
  #holdovers(
    txn: WriteTxn,
    { row: { key, uid } }: PolicyEntry,
    hosts: ReadonlySet<string>,
    host: (name: string) => Host,
    caughtUp: (version: string) => boolean,
  ): { readonly noted: readonly string[]; readonly anybody: boolean } {
    const { holdovers } = this.#tables;
    const noted: string[] = [];
    let anybody = false;
    for (const row of txn.prefix(holdovers, keys.join(key))) {
      if (row.node === EVERY_NODE) {
        anybody = true;
        continue;
      }
      const { node, report } = host(row.node);
      const version = report?.policyVersion;
      const hosting = hosts.has(row.node);
      const settled =
        node?.uid !== row.nodeUid ||
        report?.generations[uid] !== undefined ||
        (!hosting && version !== undefined && caughtUp(version));
      if (settled) txn.delete(holdovers, holdovers.spec.key(row));
      else if (!hosting) noted.push(row.node);
    }
    return { noted, anybody };
  }

  /** Nodes that report an earlier version, and those whose versions are no numbers; all, while there is none to reach. */
  #behind(reader: Reader, version: string | undefined): string[] {
    const { countedReports } = this.#tables;
    const [end] = versionKeys(version);
    const rows = end === undefined ? reader.all(countedReports) : reader.range(countedReports, '', end, 'version');
    return Array.from(rows, ({ node }) => node);
  }

  /** Notes whether the policy depends on how far nodes are. */
  #await(txn: WriteTxn, row: CatchUp, waits: boolean): void {
    const { catchUps } = this.#tables;
    const noted = txn.get(catchUps, row.key);
    if (!waits) txn.delete(catchUps, row.key);
    else if (noted === undefined || noted.version !== row.version) txn.upsert(catchUps, row);
  }

  /** A node without an agent, or with one of a version that does not say how far it is, is not asked. */
  #lags({ node, report }: Host, caughtUp: (version: string) => boolean): boolean {
    return node?.live === true && report?.policyVersion !== undefined && !caughtUp(report.policyVersion);
  }

  #hold(txn: WriteTxn, key: string, node: NodeRow | undefined): void {
    if (node === undefined) return;
    const { holdovers } = this.#tables;
    const row = { key, node: node.name, nodeUid: node.uid };
    if (txn.get(holdovers, holdovers.spec.key(row))?.nodeUid !== node.uid) txn.upsert(holdovers, row);
  }

  #host(reader: Reader, name: string): Host {
    const node = reader.get(this.#tables.nodes, name);
    const report = reader.get(this.#tables.countedReports, name);
    const { uid = '' } = node ?? {};
    return { node, report: report?.nodeUid === undefined || uid === '' || report.nodeUid === uid ? report : undefined };
  }
}

/** Whether both reports say the same of a policy. */
function saysTheSame(a: CountedReport | undefined, b: CountedReport | undefined, uid: string): boolean {
  return (
    a?.generations[uid] === b?.generations[uid] &&
    a?.policyKeys[uid] === b?.policyKeys[uid] &&
    isDeepStrictEqual(a?.failures[uid], b?.failures[uid])
  );
}

/** The mark that any node may enforce something earlier. */
function everybody(key: string): Holdover {
  return { key, node: EVERY_NODE, nodeUid: '' };
}

/** Policies whose version a node has reached by going from one version to a later one. */
function passedBy(reader: Reader, catchUps: Table<CatchUp>, was: string, is: string): Iterable<CatchUp> {
  const [[first], [last]] = [versionKeys(was), versionKeys(is)];
  if (first === undefined || last === undefined) return reader.all(catchUps);
  // Keys are digits: what follows `last` at once is after it and before every other.
  return reader.range(catchUps, first, `${last}0`, 'version');
}

/** Policies whose version a node has not reached that is at this one. */
function* notReachedBy(reader: Reader, catchUps: Table<CatchUp>, version: string): IterableIterator<CatchUp> {
  const [reached] = versionKeys(version);
  if (reached === undefined) {
    yield* reader.all(catchUps);
    return;
  }
  yield* reader.list(catchUps, 'unordered', '');
  yield* reader.lowerBound(catchUps, `${reached}0`, 'version');
}
