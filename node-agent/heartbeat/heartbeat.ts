import { type Lease, type ReflectorSink, resources } from '@weir/kube';
import type { NamespacedName } from '@weir/process/flags';
import type { StateDB, Table } from '@weir/statedb';
import type { Condition, Source } from '../parts/contract.ts';

/** How long a heartbeat is good that does not say so, and how long the first one is waited for; in milliseconds. */
const VALID_MS = 20_000;
const MEANWHILE =
  'Meanwhile this node enforces what it knows; new pods are unknown to other nodes, whatever their labels, and new and changed policies wait. ' +
  'See whether the operator runs, and whether it and this node reach the API server';

/** The last heartbeat. Key: `name`, the only one. */
interface HeartbeatRow {
  readonly name: string;
  /** The replica that leads. */
  readonly holder: string;
  /** RFC 3339, by the operator's clock. */
  readonly renewTime: string;
  readonly validMs: number;
  /** When this agent first saw it, by its own clock in milliseconds: clocks of nodes differ. */
  readonly seenAt: number;
}

/** Whether an operator leads, as far as its heartbeat says. Table `operatorHeartbeat`. */
export class OperatorHeartbeat implements ReflectorSink<Lease> {
  readonly #db: StateDB;
  readonly #at: NamespacedName;
  readonly #now: () => number;
  readonly #since: number;
  readonly #table: Table<HeartbeatRow>;

  /** `now`: milliseconds of a clock that only grows. */
  constructor(db: StateDB, at: NamespacedName, now: () => number) {
    this.#db = db;
    this.#at = at;
    this.#now = now;
    this.#since = now();
    this.#table = db.table<HeartbeatRow>({ name: 'operatorHeartbeat', key: ({ name }) => name });
  }

  get source(): Source<Lease> {
    const { namespace, name } = this.#at;
    return { resource: resources.Lease, sink: this, list: { namespace, fieldSelector: `metadata.name=${name}` } };
  }

  /** Milliseconds since the last heartbeat came; without one, since this agent began. */
  get age(): number {
    return this.#now() - (this.#row()?.seenAt ?? this.#since);
  }

  condition(): Condition {
    const row = this.#row();
    const { age } = this;
    const seconds = Math.floor(age / 1000);
    if (age < (row?.validMs ?? VALID_MS))
      return { ok: true, message: row === undefined ? 'not heard of yet' : `${row.holder} leads` };
    const { namespace, name } = this.#at;
    const last =
      row === undefined
        ? `Lease ${namespace}/${name} has never been there`
        : `the last one, ${row.holder}, renewed Lease ${namespace}/${name} at ${row.renewTime}`;
    return { ok: false, message: `no operator has led for ${seconds} s: ${last}. ${MEANWHILE}` };
  }

  replace(items: readonly Lease[]): void {
    for (const item of items) this.upsert(item);
  }

  upsert({ metadata, spec = {} }: Lease): void {
    if (metadata.name !== this.#at.name || metadata.namespace !== this.#at.namespace) return;
    const { holderIdentity: holder = '', renewTime = '', leaseDurationSeconds } = spec;
    if (holder === '' || renewTime === this.#row()?.renewTime) return;
    const validMs = leaseDurationSeconds === undefined ? VALID_MS : leaseDurationSeconds * 1000;
    const row = { name: metadata.name, holder, renewTime, validMs, seenAt: this.#now() };
    this.#db.write([this.#table], (txn) => txn.upsert(this.#table, row));
  }

  /** The next heartbeat makes it again. */
  delete(): void {}

  #row(): HeartbeatRow | undefined {
    using snapshot = this.#db.read();
    return snapshot.get(this.#table, this.#at.name);
  }
}
