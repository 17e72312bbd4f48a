/**
 * Test helper: a model on tables of its own. Changes go into the input tables at once, and into the model with the next
 * round, as the sync loop does it; a round tells what it changed in the desired tables.
 */
import type { CidrGroup, ServicePeers } from '@weir/policy';
import { createStateDB, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { createTables, type Desired, type Tables } from '../../tables.ts';
import type {
  Adopted,
  EventRow,
  IdentityRow,
  NamespaceRow,
  NodeReportRow,
  NodeRow,
  PeerSetRow,
  PodRow,
  PolicyObjectKind,
  PolicyRow,
  ResolvedRow,
  ResolvedVersionRow,
  SliceRow,
  StatusRow,
} from '../../types.ts';
import { type Later, Model, type ModelOptions } from '../model.ts';

/** A desired row that changed; without `row` it is gone. `again`: what the API holds must be looked at, changed or not. */
export interface Edit<T> {
  readonly key: string;
  readonly row: T | undefined;
  readonly again?: boolean;
}

export interface Edits {
  readonly identities: readonly Edit<IdentityRow>[];
  readonly peerSets: readonly Edit<PeerSetRow>[];
  readonly resolved: readonly Edit<ResolvedRow>[];
  readonly slices: readonly Edit<SliceRow>[];
  readonly statuses: readonly Edit<StatusRow>[];
  readonly events: readonly Edit<EventRow>[];
}

type Change = (txn: WriteTxn) => void;

export class TestModel {
  readonly db: StateDB = createStateDB({ freeze: true, findLeaks: false });
  readonly tables: Tables = createTables(this.db);
  readonly #model: Model;
  /** With nothing in any table. */
  readonly #empty: Reader = this.db.read();
  #changes: Change[] = [];

  constructor(options: Omit<ModelOptions, 'db' | 'tables'>) {
    // Unless the test says otherwise no time passes within a round: it takes everything in.
    this.#model = new Model({ stopwatch: () => 0, ...options, db: this.db, tables: this.tables });
  }

  adopt(adopted: Adopted): void {
    this.#changes.push((txn) => this.#model.adopt(txn, adopted));
  }

  adoptionDone(missing: Iterable<PolicyObjectKind> = []): void {
    this.#changes.push((txn) => this.#complete(txn, missing));
  }

  kindKnown(kind: PolicyObjectKind): void {
    this.#changes.push((txn) => this.#model.kindKnown(txn, kind));
  }

  setNamespace(row: NamespaceRow): void {
    this.#set(this.tables.namespaces, row, (txn) => this.#model.changed(txn, 'namespace', row.name, row.name));
  }

  deleteNamespace(name: string): void {
    this.#delete(this.tables.namespaces, name, (txn) => this.#model.changed(txn, 'namespace', name, name));
  }

  setPod(row: PodRow): void {
    this.#set(this.tables.pods, row, (txn) => this.#model.setPod(txn, row));
  }

  deletePod(key: string): void {
    this.#delete(this.tables.pods, key, (txn) => this.#model.deletePod(txn, key));
  }

  setPolicy(row: PolicyRow): void {
    this.#set(this.tables.policies, row, (txn) => this.#model.setPolicy(txn, row));
  }

  deletePolicy(key: string): void {
    this.#delete(this.tables.policies, key, (txn) => this.#model.deletePolicy(txn, key));
  }

  setNode(row: NodeRow): void {
    this.#set(this.tables.nodes, row, (txn) => this.#model.setNode(txn, row));
  }

  setService(row: ServicePeers): void {
    this.#set(this.tables.servicePeers, row, (txn) => this.#model.serviceChanged(txn, row));
  }

  deleteService(key: string): void {
    using snapshot = this.db.read();
    const row = snapshot.get(this.tables.servicePeers, key);
    if (row !== undefined) this.#delete(this.tables.servicePeers, key, (txn) => this.#model.serviceChanged(txn, row));
  }

  setCidrGroup(row: CidrGroup): void {
    this.#set(this.tables.cidrGroups, row, (txn) => this.#model.cidrGroupChanged(txn, row));
  }

  deleteCidrGroup(name: string): void {
    this.#delete(this.tables.cidrGroups, name, (txn) => this.#model.cidrGroupChanged(txn, { name, labels: {} }));
  }

  deleteNode(name: string): void {
    using snapshot = this.db.read();
    const row = snapshot.get(this.tables.nodes, name);
    if (row === undefined) return;
    this.#delete(this.tables.nodes, name, (txn) => this.#model.deleteNode(txn, row.name));
  }

  setReport(row: NodeReportRow): void {
    this.#set(this.tables.reports, row, (txn) => this.#model.setReport(txn, row));
  }

  deleteReport(node: string): void {
    this.#delete(this.tables.reports, node, (txn) => this.#model.deleteReport(txn, node));
  }

  /** The API server holds the ResolvedPolicies as they are desired now. Returns the rows. */
  handOut(version: number): readonly ResolvedVersionRow[] {
    using snapshot = this.db.read();
    const held = Array.from(snapshot.all(this.tables.resolved), ({ row: { name, source } }) => ({
      name,
      uid: source.uid,
      generation: source.generation,
      version: String(version),
    }));
    for (const row of held) this.setResolvedVersion(row);
    return held;
  }

  setResolvedVersion(row: ResolvedVersionRow): void {
    this.#set(this.tables.resolvedVersions, row, (txn) => this.#model.resolvedWritten(txn, row.uid));
  }

  collect(): void {
    this.#changes.push((txn) => this.#model.collect(txn));
  }

  touchStatus(key: string): void {
    this.#model.touchStatus(key);
  }

  statusWritten(key: string): void {
    this.#model.statusWritten(key);
  }

  get more(): boolean {
    return this.#later.more;
  }

  get dueInMs(): number | undefined {
    return this.#later.dueInMs;
  }

  get eventDueInMs(): number | undefined {
    return this.#later.eventDueInMs;
  }

  /** A round of what has not been taken in yet, and `last`. When that throws it is still to be taken in. */
  take(last: Change = () => {}): void {
    this.#model.round((txn) => {
      for (const change of this.#changes) change(txn);
      last(txn);
    });
    this.#changes = [];
  }

  /** A round; the first completes the first state, unless `adoptionDone` was called. */
  flush(): Edits {
    using now = this.db.read();
    const isFirst = !this.#model.isComplete(now);
    // What was adopted is shown before the first state is complete.
    const before = isFirst ? this.#empty : now;
    if (isFirst) {
      this.#changes.push((txn) => {
        if (!this.#model.isComplete(txn)) this.#complete(txn);
      });
    }
    this.take();
    using after = this.db.read();
    const { identities, peerSets, resolved, slices, statuses, events } = this.tables;
    return {
      identities: edits(before, after, identities),
      peerSets: edits(before, after, peerSets),
      resolved: edits(before, after, resolved),
      slices: edits(before, after, slices),
      statuses: edits(before, after, statuses),
      events: edits(before, after, events),
    };
  }

  #complete(txn: WriteTxn, missing: Iterable<PolicyObjectKind> = []): void {
    for (const step of this.#model.completion(txn, missing)) step(txn);
  }

  get #later(): Later {
    using snapshot = this.db.read();
    return this.#model.later(snapshot);
  }

  #set<T>(table: Table<T>, row: T, change: Change): void {
    this.db.write([table], (txn) => txn.upsert(table, row));
    this.#changes.push(change);
  }

  #delete<T>(table: Table<T>, key: string, change: Change): void {
    this.db.write([table], (txn) => txn.delete(table, key));
    this.#changes.push(change);
  }
}

function edits<T>(before: Reader, after: Reader, table: Table<Desired<T>>): Edit<T>[] {
  const { key: keyOf } = table.spec;
  const gone = Array.from(before.all(table), keyOf).filter((key) => !after.has(table, key));
  return [
    ...gone.map((key) => ({ key, row: undefined })),
    ...Array.from(after.all(table)).flatMap((desired) => {
      const key = keyOf(desired);
      const was = before.get(table, key);
      if (was === desired) return [];
      return { key, row: desired.row, again: desired.touch > (was?.touch ?? 0) };
    }),
  ];
}
