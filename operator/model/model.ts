/**
 * The derivation: what the API should hold, kept up to date by increments.
 *
 * Guarantees:
 * - Whatever the order and grouping of the changes, the desired state is that of a model that starts from scratch with
 *   the same inputs and adopts what this one had written; but for which policies have no place in a namespace of too many.
 * - A round is one transaction: readers see all that follows from its changes or nothing, and a throw leaves nothing.
 * - The desired tables are empty until `completion`, and initialised by its last step.
 * - No change costs policies x pods: a selector is evaluated against identities when it is new, an identity against
 *   selectors when it is new.
 */
import type { ServicePeers } from '@weir/policy';
import type { AnyTable, InitDone, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { PolicyLimits } from '../limits.ts';
import { resolvedName } from '../names.ts';
import { show, type Tables } from '../tables.ts';
import type { Adopted, NodeReportRow, NodeRow, PodRow, PolicyObjectKind, PolicyRow, ResolvedRow } from '../types.ts';
import { Census } from './census.ts';
import { createKnownIdentities } from './known-identities.ts';
import { showPeerSet } from './peer-sets.ts';
import { PodBook, type PodBookOptions } from './pod-book.ts';
import { type AdoptedPolicy, type Enforced, type Pace, PolicyBook, type PolicyEntry } from './policy-book.ts';
import { PortNames } from './port-names.ts';
import { SelectorIndex } from './selector-index.ts';
import { servicesIn } from './service-needs.ts';
import { StatusBoard } from './status-board.ts';
import { statusTables } from './status-tables.ts';
import type { Step } from './steps.ts';
import { SubjectHosts } from './subject-hosts.ts';
import { laterShare, machineStopwatch, RoundShare, type Stopwatch } from './time-share.ts';

export interface ModelOptions extends PodBookOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  /** Milliseconds an unused identity is kept. */
  readonly identityGraceMs: number;
  /** What policies may cost. Default: nothing is limited. */
  readonly policyLimits?: PolicyLimits;
  /** Milliseconds between two statuses of one policy. Default 0: nothing is held back. */
  readonly statusIntervalMs?: number;
  /** Default: the machine's. */
  readonly stopwatch?: Stopwatch;
}

/** A kind of policies of which what was resolved is kept, until all of them have been set. */
interface KeptKind {
  readonly kind: PolicyObjectKind;
}

/** What is left for later rounds. */
export interface Later {
  /** There was no time for something. */
  readonly more: boolean;
  /** Milliseconds until a status that was held back is due; undefined: none was. */
  readonly dueInMs: number | undefined;
  /** The same for Events. */
  readonly eventDueInMs: number | undefined;
}

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
  /** For pods that wait: one that 10,000 selectors match takes 25 ms. */
  readonly #waitingShare: RoundShare;
  /** For `#setAgain`: to read a policy takes up to 0.1 s, in one piece. */
  readonly #againShare: RoundShare;

  constructor(options: ModelOptions) {
    const { db, tables, now, statusIntervalMs: intervalMs = 0, stopwatch = machineStopwatch } = options;
    this.#options = options;
    this.#waitingShare = new RoundShare(stopwatch);
    this.#againShare = new RoundShare(stopwatch);
    const knownIdentities = createKnownIdentities(db);
    const sets = new SelectorIndex(db, knownIdentities, {
      onResize: (txn, hash, by) => this.#policies.resized(txn, hash, by),
      onMoved: (txn, hash) => this.#portNames.moved(txn, hash),
    });
    const policies = new PolicyBook(db, sets, (reader) => servicesIn(reader, tables), options.policyLimits);
    const census = new Census(db, {
      onChange: (txn, resident, by) => this.#hosts.move(txn, resident, by),
      onPresence: (txn, identity) => this.#portNames.presence(txn, identity),
    });
    const portNames = new PortNames(db, { sets, policies, census }, (txn, key) => this.#statuses.mark(txn, key));
    const hosts = new SubjectHosts(db, { policies, sets, census });
    const forStatuses = statusTables(db);
    const sources = { tables, knownIdentities, sets, policies, census, portNames, hosts };
    this.#sets = sets;
    this.#policies = policies;
    this.#portNames = portNames;
    this.#hosts = hosts;
    this.#statuses = new StatusBoard(sources, { ...tables, ...forStatuses }, { now, intervalMs, stopwatch });
    this.#pods = new PodBook(db, sources, options);
    this.#keptKinds = db.table<KeptKind>({ name: 'kept-policy-kinds', key: ({ kind }) => kind });
    const { identities, peerSets, resolved, slices, statuses, events } = tables;
    const desired: readonly AnyTable[] = [identities, peerSets, resolved, slices, statuses, events];
    this.#derived = desired.map((table) => db.initialiser(table, 'derived'));
    const books = [sets, policies, census, portNames, hosts, this.#pods].flatMap(
      (book): readonly AnyTable[] => book.tables,
    );
    this.#written = [...desired, this.#keptKinds, ...books, ...Object.values(forStatuses)];
  }

  /**
   * Takes changes in by `fn`, and puts what follows from them into the desired tables; of the pods that wait, of the sets that identities come to, of
   * the policies that can be afforded again, and of the statuses, as many as there is time for. `fn` may write `others`, too.
   */
  round(fn: (txn: WriteTxn) => void, others: readonly AnyTable[] = []): Later {
    return this.#options.db.write([...this.#written, ...others], (txn) => {
      fn(txn);
      const complete = this.isComplete(txn);
      if (complete) this.#serveWaiting(txn);
      this.#pods.settle(txn, !complete);
      if (complete) this.#showChanged(txn);
      return this.later(txn);
    });
  }

  /** Takes over what the API holds; call first, and `completion` when every input has been put in. */
  adopt(txn: WriteTxn, adopted: Adopted): void {
    this.#policies.adopt(txn, adopted);
    this.#pods.adopt(txn, adopted);
    for (const { key, uid, status } of adopted.statuses) this.#statuses.adopt(txn, key, uid, status);
  }

  /**
   * Every input has been put in, once: the steps after which what is desired is shown. To be taken in this order, in rounds as
   * they fit, with no change between them; `reader` sees the state before the first. `missing`: kinds of policies that cannot
   * be read now. What was resolved of them stays, until `kindKnown`.
   */
  *completion(reader: Reader, missing: Iterable<PolicyObjectKind> = []): Generator<Step> {
    const { peerSets, resolved } = this.#options.tables;
    yield (txn) => {
      for (const kind of missing) txn.upsert(this.#keptKinds, { kind });
    };
    for (const adopted of this.#policies.adopted(reader)) yield (txn) => this.#keepOrForget(txn, adopted);
    yield (txn) => this.#pods.adoptionDone(txn);
    yield (txn) => this.#allKindsKnown(txn);
    yield (txn) => {
      for (const entry of this.#policies.all(txn)) this.#statuses.found(txn, entry);
    };
    for (let more = true; more; ) {
      yield (txn) => {
        more = this.#sets.lookNext(txn);
      };
    }
    for (const hash of this.#sets.hashes(reader)) yield (txn) => showPeerSet(txn, peerSets, this.#sets, hash);
    for (const entry of this.#policies.all(reader)) {
      const row = entry.resolved;
      if (row !== undefined) yield (txn) => show(txn, resolved, row);
    }
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

  /** Kinds that `completion` was told are missing, and `kindKnown` has not been told of. */
  keptKinds(reader: Reader): PolicyObjectKind[] {
    return Array.from(reader.all(this.#keptKinds), ({ kind }) => kind);
  }

  /** All policies of a kind that was missing have been set now. */
  kindKnown(txn: WriteTxn, kind: PolicyObjectKind): void {
    if (txn.delete(this.#keptKinds, kind) === undefined) return;
    for (const { resolved } of this.#policies.adoptedOf(txn, kind)) this.#forgetAdopted(txn, resolved.name);
    this.#allKindsKnown(txn);
  }

  /**
   * The labels of a namespace have changed: its pods are placed anew by `placeNext`. One that is gone changes nothing: it vanishes after its
   * pods.
   */
  namespaceChanged(txn: WriteTxn, name: string): void {
    this.#pods.namespaceChanged(txn, name);
  }

  /** Places the next pod whose namespace has other labels; false: there is none. */
  placeNext(txn: WriteTxn): boolean {
    return this.#pods.placeNext(txn);
  }

  setPod(txn: WriteTxn, row: PodRow): void {
    this.#pods.setPod(txn, row);
  }

  deletePod(txn: WriteTxn, key: string): void {
    this.#pods.deletePod(txn, key);
  }

  /** Where there is no time to find all that its selectors match, that goes on in later rounds, once the first state is complete. */
  setPolicy(txn: WriteTxn, row: PolicyRow): void {
    const known = this.#policies.get(txn, row.key)?.row;
    if (known?.uid === row.uid && known.generation === row.generation) return;
    const when = this.isComplete(txn) ? 'change' : 'first';
    this.#setPolicy(txn, row, { hasTime: laterShare(this.#options.stopwatch ?? machineStopwatch), when });
  }

  #setPolicy(txn: WriteTxn, row: PolicyRow, pace: Pace): void {
    const known = this.#policies.get(txn, row.key);
    const set = this.#policies.set(txn, row, pace);
    if (set === undefined) return;
    const { before, after } = set;
    this.#replacePolicy(txn, row, before, after);
    this.#statuses.changed(txn, known, after);
    if (known === undefined && txn.has(this.#keptKinds, row.kind)) this.#statuses.found(txn, after);
    if (known !== undefined) this.#hosts.release(txn, known.subjects);
    if (!after.waits) this.#sets.forgetEvaluated(txn, row.key);
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

  setNode(txn: WriteTxn, row: NodeRow): void {
    const before = this.#pods.setNode(txn, row.name, row);
    // What else a node says of itself is no matter of statuses.
    if (before?.live !== row.live || before.uid !== row.uid) this.#statuses.nodeChanged(txn, row.name);
  }

  deleteNode(txn: WriteTxn, { name }: NodeRow): void {
    this.#pods.setNode(txn, name, undefined);
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
    this.#policies.recount(txn);
  }

  /** As `round` told, with time that has passed since. */
  later(reader: Reader): Later {
    return {
      more: this.#statuses.more(reader) || (this.isComplete(reader) && this.#hasMore(reader)),
      dueInMs: this.#statuses.dueInMs(reader),
      eventDueInMs: this.#statuses.eventDueInMs(reader),
    };
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
    for (const [hash, selector] of after?.selectors ?? []) this.#sets.add(txn, key, hash, selector);
    for (const { selectors } of before) this.#release(txn, selectors.keys());
    this.#showResolved(txn, resolvedName(kind, namespace, name), after?.resolved);
    this.#statuses.mark(txn, key);
  }

  /** What an earlier leader resolved of a policy that has not been set: shown as it was while its kind cannot be read. */
  #keepOrForget(txn: WriteTxn, { resolved, selectors }: AdoptedPolicy): void {
    const { tables } = this.#options;
    if (!txn.has(this.#keptKinds, resolved.source.kind)) {
      this.#forgetAdopted(txn, resolved.name);
      return;
    }
    for (const [hash, selector] of selectors) {
      this.#sets.add(txn, resolved.name, hash, selector);
      showPeerSet(txn, tables.peerSets, this.#sets, hash);
    }
    show(txn, tables.resolved, resolved);
  }

  #forgetAdopted(txn: WriteTxn, name: string): void {
    const adopted = this.#policies.forgetAdopted(txn, name);
    this.#release(txn, adopted?.selectors.keys() ?? []);
    this.#showResolved(txn, name, undefined);
  }

  /** The sets go that nothing names any more. */
  #release(txn: WriteTxn, hashes: Iterable<string>): void {
    for (const hash of hashes) if (!this.#policies.names(txn, hash)) this.#sets.remove(txn, hash);
  }

  #allKindsKnown(txn: WriteTxn): void {
    if (txn.count(this.#keptKinds) === 0) this.#statuses.adoptionDone(txn);
  }

  #showResolved(txn: WriteTxn, name: string, row: ResolvedRow | undefined): void {
    if (!this.isComplete(txn)) return;
    const { resolved } = this.#options.tables;
    if (row === undefined) txn.delete(resolved, name);
    else show(txn, resolved, row);
  }

  /** Policies that wait, or were refused and perhaps are not now, as many as there is time for: a share a round, on average. */
  #setAgain(txn: WriteTxn): void {
    this.#againShare.spend(this.#policies.hasAgain(txn), (hasTime) => {
      const row = this.#policies.nextAgain(txn);
      if (row !== undefined) this.#setPolicy(txn, row, { hasTime, when: 'again' });
      return row !== undefined;
    });
  }

  /** Pods that wait for a number and may have one now, as many as there is time for: a share a round, on average. */
  #serveWaiting(txn: WriteTxn): void {
    this.#pods.queueWaiting(txn);
    this.#waitingShare.spend(this.#pods.hasToServe(txn), () => this.#pods.serveNext(txn));
    this.#pods.tellWaiting(txn);
  }

  #hasMore(reader: Reader): boolean {
    return this.#policies.hasAgain(reader) || this.#sets.hasLooks(reader) || this.#pods.hasToServe(reader);
  }

  /** Identities come to sets and leave them, as many as there is time for. */
  #moveIdentities(txn: WriteTxn): void {
    const hasTime = laterShare(this.#options.stopwatch ?? machineStopwatch);
    while (this.#sets.lookNext(txn)) {
      this.#showSets(txn);
      if (!hasTime()) return;
    }
  }

  #showSets(txn: WriteTxn): void {
    for (const hash of this.#sets.takeChanged(txn)) showPeerSet(txn, this.#options.tables.peerSets, this.#sets, hash);
  }

  #showChanged(txn: WriteTxn): void {
    this.#moveIdentities(txn);
    this.#setAgain(txn);
    this.#showSets(txn);
    for (const key of this.#hosts.takeMoved(txn)) this.#statuses.mark(txn, key);
    this.#pods.showChanged(txn);
    this.#statuses.flush(txn);
  }
}
