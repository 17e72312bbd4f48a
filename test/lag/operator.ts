/** Test helper: the operator's model and writers, driven by hand: which watch delivers, when a round is made, which write is answered. */
import type { CiliumPolicyObject, KubeNode, KubeObject, Namespace, Pod, ReflectorSink } from '@weir/kube';
import type { Clock } from '@weir/reconciler';
import { createStateDB, type Table, type WriteTxn } from '@weir/statedb';
import { namespaceRow, nodeRow, podRow, policyRow } from '../../operator/kubernetes/rows.ts';
import { adopted, createTargets, type Targets } from '../../operator/kubernetes/targets.ts';
import { Writers } from '../../operator/kubernetes/writers.ts';
import { writtenKinds } from '../../operator/kubernetes/written-kinds.ts';
import { Model } from '../../operator/model/model.ts';
import { createTables, type Tables } from '../../operator/tables.ts';
import type { Api, Watch } from './api.ts';

/** Milliseconds an identity is kept that no pod has. */
export const IDENTITY_GRACE_MS = 60_000;

type Change = (txn: WriteTxn) => void;

export class LaggingOperator {
  readonly watches: readonly Watch[];
  readonly #model: Model;
  readonly #tables: Tables;
  readonly #targets: Targets;
  readonly #writers: Writers;
  readonly #db = createStateDB({ freeze: true, findLeaks: false });
  #changes: Change[] = [];

  constructor(api: Api, clock: Clock) {
    this.#tables = createTables(this.#db);
    const nothing = (): undefined => undefined;
    const shared = { db: this.#db, client: api.client, tables: this.#tables, onWrite: nothing };
    this.#targets = createTargets({ ...shared, onStatusDrift: nothing });
    this.#model = new Model({
      db: this.#db,
      tables: this.#tables,
      cluster: 'default',
      identityGraceMs: IDENTITY_GRACE_MS,
      now: () => clock.now(),
    });
    const attempted: Writers['attempted'] = (...rows) => this.#writers.attempted(...rows);
    this.#writers = new Writers({
      client: {},
      db: this.#db,
      kinds: writtenKinds({ ...shared, targets: this.#targets, attempted, onStatus: nothing }),
      timing: { clock, random: () => 0.5 },
      onError: nothing,
    });
    const { namespaces, nodes, policies, pods } = this.#tables;
    const model = this.#model;
    this.watches = [
      api.watch('CiliumIdentity', this.#targets.identities),
      api.watch('PeerSet', this.#targets.peerSets),
      api.watch('ResolvedPolicy', this.#targets.resolved),
      api.watch('CiliumEndpointSlice', this.#targets.slices),
      api.watch<Namespace>(
        'Namespace',
        this.#sink(namespaces, namespaceRow, (txn, { name }) => model.changed(txn, 'namespace', name, name)),
      ),
      ...(['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy'] as const).map((kind) =>
        api.watch<CiliumPolicyObject>(
          kind,
          this.#sink(
            policies,
            (object) => policyRow(object, kind),
            (txn, row) => model.setPolicy(txn, row),
            (txn, { key }) => model.deletePolicy(txn, key),
          ),
        ),
      ),
      api.watch<Pod>(
        'Pod',
        this.#sink(
          pods,
          podRow,
          (txn, row) => model.setPod(txn, row),
          (txn, { key }) => model.deletePod(txn, key),
        ),
      ),
      api.watch<KubeNode>(
        'Node',
        this.#sink(
          nodes,
          nodeRow,
          (txn, row) => model.setNode(txn, row),
          (txn, { name }) => model.deleteNode(txn, name),
        ),
      ),
    ];
    const held = adopted(this.#targets);
    this.#changes.unshift((txn) => model.adopt(txn, held));
    this.#changes.push((txn) => {
      for (const step of model.completion(txn)) step(txn);
    });
    this.round();
    this.#writers.start();
  }

  /** Derives what follows from all that was delivered. */
  round(): void {
    const changes = this.#changes;
    this.#changes = [];
    this.#model.round((txn) => {
      for (const change of changes) change(txn);
    });
  }

  /** Forgets identities that no pod has had for the time of grace. */
  collect(): void {
    this.#changes.push((txn) => this.#model.collect(txn));
    this.round();
  }

  /** It writes nothing any more; requests that wait must have been answered. */
  async stop(): Promise<void> {
    await this.#writers.stop();
  }

  #sink<T extends KubeObject, R>(
    table: Table<R>,
    rowOf: (object: T) => R,
    set: (txn: WriteTxn, row: R) => void,
    remove: (txn: WriteTxn, row: R) => void = () => undefined,
  ): ReflectorSink<T> {
    const upsert = (object: T): void => {
      const row = rowOf(object);
      this.#db.write([table], (txn) => txn.upsert(table, row));
      this.#changes.push((txn) => set(txn, row));
    };
    return {
      replace: (items) => {
        for (const item of items) upsert(item);
      },
      upsert,
      delete: (object) => {
        const row = rowOf(object);
        this.#db.write([table], (txn) => txn.delete(table, table.spec.key(row)));
        this.#changes.push((txn) => remove(txn, row));
      },
    };
  }
}

/** A clock that stands still until it is advanced. */
export class StoppedClock implements Clock {
  readonly #due = new Set<{ readonly at: number; readonly action: () => void }>();
  #now = 1_700_000_000_000;

  now(): number {
    return this.#now;
  }

  after(ms: number, action: () => void): () => void {
    const timer = { at: this.#now + ms, action };
    this.#due.add(timer);
    return () => this.#due.delete(timer);
  }

  advance(ms: number): void {
    this.#now += ms;
    for (const timer of [...this.#due]) {
      if (timer.at > this.#now) continue;
      this.#due.delete(timer);
      timer.action();
    }
  }
}
