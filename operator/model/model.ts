/**
 * The derivation: what the API should hold, kept up to date by increments.
 *
 * Guarantees:
 * - Whatever the order and grouping of the changes, the desired state is that of a model that starts from scratch with
 *   the same inputs and adopts what this one had written; but for which policies have no place in a namespace of too many.
 * - Work waits in one queue, in turns of the namespaces that cause it (work.ts). What a policy's rules were stays until its selectors are evaluated.
 * - A round is one transaction: readers see all that follows from its changes or nothing, and a throw leaves nothing.
 * - The desired tables are initialised by the last step of `completion`; before that they have what was adopted.
 * - No change costs policies x pods: a selector is evaluated against identities when it is new, an identity against
 *   selectors when it is new.
 */
import type { CidrGroup, ServicePeers } from '@weir/policy';
import type { AnyTable, InitDone, Reader, Table, WriteTxn } from '@weir/statedb';
import { resolvedName } from '../names.ts';
import { show } from '../tables.ts';
import type { Adopted, NodeReportRow, NodeRow, PodRow, PolicyObjectKind, PolicyRow } from '../types.ts';
import { Census } from './census.ts';
import { FairQueue } from './fair-queue.ts';
import { HostPods } from './host-pods.ts';
import { createKnownIdentities } from './known-identities.ts';
import type { Later, ModelOptions } from './model-types.ts';
import { showPeerSet } from './peer-sets.ts';
import type { Piece } from './pieces.ts';
import { PodBook } from './pod-book.ts';
import { type AdoptedPolicy, type Enforced, PolicyBook, type PolicyEntry } from './policy-book.ts';
import { PortNames } from './port-names.ts';
import { referentsIn } from './referents.ts';
import { type HasTime, SelectorIndex } from './selector-index.ts';
import { StatusBoard } from './status-board.ts';
import { statusTables } from './status-tables.ts';
import { SubjectHosts } from './subject-hosts.ts';
import { Surroundings } from './surroundings.ts';
import { machineStopwatch, type Stopwatch, timeShare } from './time-share.ts';
import { type Kind, type Work, work, workKey } from './work.ts';

/** A kind of policies of which what was resolved is kept, until all of them have been set. */
interface KeptKind {
  readonly kind: PolicyObjectKind;
}

export type { Later, ModelOptions } from './model-types.ts';

/** Methods that take a transaction belong into a round. */
export class Model {
  readonly #options: ModelOptions;
  readonly #sets: SelectorIndex;
  readonly #policies: PolicyBook;
  readonly #portNames: PortNames;
  readonly #hosts: SubjectHosts;
  readonly #pods: PodBook;
  readonly #statuses: StatusBoard;
  readonly #keptKinds: Table<KeptKind>;
  /** What a round may write. */
  readonly #written: readonly AnyTable[];
  readonly #derived: readonly InitDone[];
  readonly #queue: FairQueue<Work>;
  readonly #stopwatch: Stopwatch;

  constructor(options: ModelOptions) {
    const { db, tables, now, statusIntervalMs: intervalMs = 0, stopwatch = machineStopwatch } = options;
    this.#options = options;
    this.#stopwatch = stopwatch;
    const queue = new FairQueue<Work>(db, 'work');
    this.#queue = queue;
    const knownIdentities = createKnownIdentities(db);
    const sets = new SelectorIndex(db, knownIdentities, {
      queue,
      isStarted: (reader) => this.isComplete(reader),
      onChanged: (txn, hash) => showPeerSet(txn, tables.peerSets, this.#sets, hash),
      onMoved: (txn, hash) => {
        this.#portNames.moved(txn, hash);
        hostPods.moved(txn, hash);
      },
    });
    const surroundings = new Surroundings(db, tables, (txn) => policies.stackChanged(txn));
    const policies = new PolicyBook(db, queue, (reader) => referentsIn(reader, tables, surroundings), {
      limits: options.policyLimits,
      networkPolicyCidrs: options.networkPolicyCidrs,
    });
    const census = new Census(db, {
      onChange: (txn, resident, by) => this.#hosts.move(txn, resident, by),
      onPresence: (txn, identity) => this.#portNames.presence(txn, identity),
    });
    const mark = (txn: WriteTxn, key: string): void => this.#statuses.mark(txn, key);
    const portNames = new PortNames(db, { sets, policies, census }, mark);
    const hostPods = new HostPods(db, { tables, cluster: options.cluster, sets, policies, census }, mark);
    const hosts = new SubjectHosts(db, { policies, sets, census });
    const forStatuses = statusTables(db);
    const books = { sets, policies, census, portNames, hosts, queue, surroundings, hostPods };
    const sources = { ...books, tables, knownIdentities };
    this.#sets = sets;
    this.#policies = policies;
    this.#portNames = portNames;
    this.#hosts = hosts;
    this.#statuses = new StatusBoard(sources, { ...tables, ...forStatuses }, { now, intervalMs });
    this.#pods = new PodBook(db, sources, options);
    this.#keptKinds = db.table<KeptKind>({ name: 'keptPolicyKinds', key: ({ kind }) => kind });
    const { identities, peerSets, resolved, slices, statuses, events } = tables;
    const desired: readonly AnyTable[] = [identities, peerSets, resolved, slices, statuses, events];
    this.#derived = desired.map((table) => db.initialiser(table, 'derived'));
    const own = [...Object.values(books), this.#pods].flatMap((book): readonly AnyTable[] => book.tables);
    this.#written = [...desired, this.#keptKinds, ...own, ...Object.values(forStatuses)];
  }

  /**
   * Takes changes in by `fn`, does work that waits, as much as there is time for, and puts what follows into the desired tables.
   */
  round(fn: (txn: WriteTxn) => void): Later {
    return this.#options.db.write(this.#written, (txn) => {
      fn(txn);
      const complete = this.isComplete(txn);
      if (complete) this.#work(txn);
      this.#pods.settle(txn, !complete);
      if (complete) this.#pods.showChanged(txn);
      return this.later(txn);
    });
  }

  /** There is work on the row of this key, which is looked at in its turn, as it is then. `by`: its namespace, or the node. */
  changed(txn: WriteTxn, kind: Kind, of: string, by: string): void {
    this.#queue.put(txn, work(kind, of, by));
  }

  /** Takes over what the API holds; call first, and `completion` when every input has been put in. */
  adopt(txn: WriteTxn, adopted: Adopted): void {
    this.#policies.adopt(txn, adopted);
    // Until their selectors are evaluated, and whatever becomes of them: what is in force stays.
    for (const { resolved } of this.#policies.adopted(txn)) show(txn, this.#options.tables.resolved, resolved);
    this.#pods.adopt(txn, adopted);
    for (const { key, uid, status } of adopted.statuses) this.#statuses.adopt(txn, key, uid, status);
  }

  /**
   * Every input has been put in, once: the steps after which what is desired is shown. To be taken in this order, in rounds as
   * they fit, with no change between them; `reader` sees the state before the first. `missing`: kinds of policies that cannot
   * be read now. What was resolved of them stays, until `kindKnown`.
   */
  *completion(reader: Reader, missing: Iterable<PolicyObjectKind> = []): Generator<Piece> {
    yield (txn) => {
      for (const kind of missing) txn.upsert(this.#keptKinds, { kind });
    };
    for (const adopted of this.#policies.adopted(reader)) yield (txn) => this.#keepOrForget(txn, adopted);
    yield (txn) => this.#pods.adoptionDone(txn);
    yield (txn) => this.#allKindsKnown(txn);
    yield (txn) => {
      for (const entry of this.#policies.all(txn)) this.#statuses.found(txn, entry);
    };
    yield* this.#pods.showAll(reader);
    yield (txn) => {
      for (const done of this.#derived) done(txn);
      this.#pods.shown(txn);
    };
  }

  /** What is desired is shown. */
  isComplete(reader: Reader): boolean {
    return reader.initialised(this.#options.tables.resolved);
  }

  /** Kinds that were missing at `completion`, until `kindKnown` is called for them. */
  keptKinds(reader: Reader): PolicyObjectKind[] {
    return Array.from(reader.all(this.#keptKinds), ({ kind }) => kind);
  }

  /** All policies of a kind that was missing have been set now. */
  kindKnown(txn: WriteTxn, kind: PolicyObjectKind): void {
    if (txn.delete(this.#keptKinds, kind) === undefined) return;
    for (const { resolved } of this.#policies.adoptedOf(txn, kind)) this.#forgetAdopted(txn, resolved.name);
    this.#allKindsKnown(txn);
  }

  setPod(txn: WriteTxn, row: PodRow): void {
    this.#pods.setPod(txn, row);
  }

  deletePod(txn: WriteTxn, key: string): void {
    this.#pods.deletePod(txn, key);
  }

  /** `again`: though it is the one that has been read. */
  setPolicy(txn: WriteTxn, row: PolicyRow, again = false): void {
    const known = this.#policies.get(txn, row.key);
    if (!again && known?.row.uid === row.uid && known.row.generation === row.generation) return;
    const { before, after } = this.#policies.set(txn, row);
    this.#replacePolicy(txn, row, before, after);
    this.#statuses.changed(txn, known, after);
    if (known === undefined && txn.has(this.#keptKinds, row.kind)) this.#statuses.found(txn, after);
    if (known !== undefined) this.#hosts.release(txn, known.subjects);
  }

  /** The API server holds a policy's rules as they were resolved, or not any more. */
  resolvedWritten(txn: WriteTxn, uid: string): void {
    this.#statuses.markUid(txn, uid);
  }

  deletePolicy(txn: WriteTxn, key: string): void {
    const before = this.#policies.delete(txn, key);
    if (before === undefined) return;
    this.#replacePolicy(txn, before.row, [before], undefined);
    this.#hosts.release(txn, before.subjects);
  }

  /** What a Service stands for has changed, or it is gone. */
  serviceChanged(txn: WriteTxn, service: ServicePeers): void {
    this.#policies.serviceChanged(txn, service);
  }

  /** A CiliumCIDRGroup has changed, or it is gone. */
  cidrGroupChanged(txn: WriteTxn, group: Pick<CidrGroup, 'name' | 'labels'>): void {
    this.#policies.cidrGroupChanged(txn, group);
  }

  setNode(txn: WriteTxn, row: NodeRow): void {
    const before = this.#pods.setNode(txn, row.name, row);
    this.#statuses.networksChanged(txn, row.name, row);
    // What else a node says of itself is no matter of statuses.
    if (before?.live !== row.live || before.uid !== row.uid) this.#statuses.nodeChanged(txn, row.name);
  }

  deleteNode(txn: WriteTxn, name: string): void {
    this.#pods.setNode(txn, name, undefined);
    this.#statuses.networksChanged(txn, name, undefined);
    this.#statuses.nodeChanged(txn, name);
  }

  setReport(txn: WriteTxn, row: NodeReportRow): void {
    this.#statuses.setReport(txn, row.node, row);
  }

  deleteReport(txn: WriteTxn, node: string): void {
    this.#statuses.setReport(txn, node, undefined);
  }

  /** The API holds another status of this policy than the one that was written: the next round sees to it. */
  touchStatus(key: string): void {
    this.#options.db.write(this.#written, (txn) => this.#statuses.touch(txn, key));
  }

  /** The API has taken this policy's status. */
  statusWritten(key: string): void {
    this.#options.db.write(this.#written, (txn) => this.#statuses.written(txn, key));
  }

  /** Forgets identities that nobody uses for long enough. */
  collect(txn: WriteTxn): void {
    this.#pods.collect(txn, this.#options.identityGraceMs);
  }

  /** As after `round`, with time that has passed since. */
  later(reader: Reader): Later {
    return {
      more: this.hasWork(reader),
      dueInMs: this.#statuses.dueInMs(reader),
      eventDueInMs: this.#statuses.eventDueInMs(reader),
    };
  }

  /** Changes, and what follows from them, wait for their turn. */
  hasWork(reader: Reader): boolean {
    return this.isComplete(reader) && !this.#queue.isEmpty(reader);
  }

  /** Pods that wait for an identity. */
  waitingPods(reader: Reader): number {
    return this.#pods.waiting(reader);
  }

  /** Policies whose current generation is refused for its cost. */
  overBudget(reader: Reader): number {
    return this.#policies.overBudget(reader);
  }

  /** Identities that no pod has, and namespaces that have as many identities as they may. */
  identityUse(reader: Reader): { readonly unused: number; readonly atQuota: number } {
    return this.#pods.identityUse(reader);
  }

  #replacePolicy(
    txn: WriteTxn,
    { key, kind, namespace, name }: PolicyRow,
    before: readonly Enforced[],
    after: PolicyEntry | undefined,
  ): void {
    for (const [hash, selector] of after?.selectors ?? []) this.#sets.add(txn, hash, selector);
    for (const { selectors } of before) this.#release(txn, selectors.keys());
    if (after?.resolved !== undefined) this.changed(txn, 'sets', key, namespace ?? '');
    else {
      this.#queue.remove(txn, workKey('sets', key));
      txn.delete(this.#options.tables.resolved, resolvedName(kind, namespace, name));
    }
    this.#statuses.mark(txn, key);
  }

  /** What an earlier leader resolved of a policy that has not been set: stays while its kind cannot be read. */
  #keepOrForget(txn: WriteTxn, { resolved, selectors }: AdoptedPolicy): void {
    if (!txn.has(this.#keptKinds, resolved.source.kind)) {
      this.#forgetAdopted(txn, resolved.name);
      return;
    }
    for (const [hash, selector] of selectors) this.#sets.add(txn, hash, selector);
    this.changed(txn, 'sets', resolved.name, resolved.source.namespace ?? '');
  }

  #forgetAdopted(txn: WriteTxn, name: string): void {
    const adopted = this.#policies.forgetAdopted(txn, name);
    this.#release(txn, adopted?.selectors.keys() ?? []);
    txn.delete(this.#options.tables.resolved, name);
  }

  /** The sets go that nothing names any more. */
  #release(txn: WriteTxn, hashes: Iterable<string>): void {
    for (const hash of hashes) if (!this.#policies.names(txn, hash)) this.#sets.remove(txn, hash);
  }

  #allKindsKnown(txn: WriteTxn): void {
    if (txn.count(this.#keptKinds) === 0) this.#statuses.adoptionDone(txn);
  }

  #work(txn: WriteTxn): void {
    const hasTime = timeShare(this.#stopwatch);
    this.#statuses.tellDue(txn);
    do {
      for (const key of this.#hosts.takeMoved(txn)) this.#statuses.mark(txn, key);
      const next = this.#queue.take(txn);
      if (next === undefined) break;
      const from = this.#do(txn, next, timeShare(this.#stopwatch));
      if (from !== undefined) this.#queue.putBack(txn, { ...next, from });
    } while (hasTime());
    for (const key of this.#hosts.takeMoved(txn)) this.#statuses.mark(txn, key);
    this.#pods.tellWaiting(txn);
  }

  /** Returns where the work goes on; undefined: it is done. */
  #do(txn: WriteTxn, { kind, of, from }: Work, hasTime: HasTime): string | undefined {
    switch (kind) {
      case 'namespace':
        if (from === undefined) this.#statuses.namespaceChanged(txn, of);
        return this.#pods.placeNext(txn, of, from);
      case 'waiting':
        return this.#pods.serveNext(txn, of, from);
      case 'sets':
        return this.#evaluate(txn, of, hasTime) ? undefined : '';
      case 'status':
        this.#statuses.fold(txn, of);
        return undefined;
      case 'identity':
        return this.#sets.look(txn, of, hasTime) ? undefined : '';
      default:
        this.#takeIn(txn, kind, of);
        return undefined;
    }
  }

  /** Takes the input row in as it is now. */
  #takeIn(txn: WriteTxn, kind: Kind, of: string): void {
    const { pods, policies, nodes, servicePeers, cidrGroups } = this.#options.tables;
    if (kind === 'pod') {
      const row = txn.get(pods, of);
      if (row === undefined) this.deletePod(txn, of);
      else this.setPod(txn, row);
    } else if (kind === 'node') {
      const row = txn.get(nodes, of);
      if (row === undefined) this.deleteNode(txn, of);
      else this.setNode(txn, row);
    } else if (kind === 'service') {
      const [namespace = '', name = ''] = of.split('/');
      this.serviceChanged(txn, txn.get(servicePeers, of) ?? { namespace, name, labels: {}, addresses: [] });
    } else if (kind === 'group') {
      this.cidrGroupChanged(txn, txn.get(cidrGroups, of) ?? { name: of, labels: {} });
    } else {
      const row = txn.get(policies, of);
      if (row === undefined) this.deletePolicy(txn, of);
      else this.setPolicy(txn, row, kind === 'reread');
    }
  }

  /** Evaluates selectors of a policy, while there is time; shows its rules once all of them are. Returns whether that is so. */
  #evaluate(txn: WriteTxn, of: string, hasTime: HasTime): boolean {
    const { resolved, selectors } = this.#policies.enforced(txn, of) ?? {};
    let isFirst = true;
    for (const hash of selectors?.keys() ?? []) {
      if (this.#sets.isComplete(txn, hash)) continue;
      if (!isFirst && !hasTime()) return false;
      isFirst = false;
      if (!this.#sets.evaluate(txn, hash, hasTime)) return false;
    }
    if (resolved !== undefined) show(txn, this.#options.tables.resolved, resolved);
    if (this.#policies.get(txn, of) !== undefined) this.#statuses.mark(txn, of);
    return true;
  }
}
