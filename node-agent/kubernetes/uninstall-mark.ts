import type { KubeObject, ReflectorSink } from '@weir/kube';
import type { StateDB, Table } from '@weir/statedb';

/** On the DaemonSet: this installation is being taken away. The value names the request. */
export const UNINSTALL_ANNOTATION = 'weir.dev/uninstall';
/** On a NodePolicyStatus: this node has done what the request of this value asked for. */
export const REMOVED_ANNOTATION = 'weir.dev/removed';

/** The mark that is there. Key: `daemonSet`. */
interface Mark {
  readonly daemonSet: string;
  readonly value: string;
}

/**
 * Looks for the mark on one DaemonSet. Only a mark that can be read counts: a DaemonSet that is gone, or an API server that does not
 * answer, is no request to remove anything.
 */
export class UninstallMark implements ReflectorSink<KubeObject> {
  readonly #db: StateDB;
  readonly #at: { readonly namespace: string; readonly name: string };
  readonly #marks: Table<Mark>;
  /** Callbacks, to be told of new values. */
  readonly #listeners = new Set<(value: string) => void>();

  constructor(db: StateDB, at: { readonly namespace: string; readonly name: string }) {
    this.#db = db;
    this.#at = at;
    this.#marks = db.table<Mark>({ name: 'uninstallMarks', key: (row) => row.daemonSet });
  }

  /** Calls back with each new value, and at once with one that is there. Returns what takes it back. */
  on(listener: (value: string) => void): () => void {
    this.#listeners.add(listener);
    using snapshot = this.#db.read();
    const mark = snapshot.get(this.#marks, this.#at.name);
    if (mark !== undefined) listener(mark.value);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  replace(items: readonly KubeObject[]): void {
    for (const item of items) this.upsert(item);
  }

  upsert({ metadata }: KubeObject): void {
    if (metadata.name !== this.#at.name || metadata.namespace !== this.#at.namespace) return;
    const value = metadata.annotations?.[UNINSTALL_ANNOTATION] ?? '';
    const before = this.#db.write([this.#marks], (txn) =>
      value === ''
        ? txn.delete(this.#marks, this.#at.name)
        : txn.upsert(this.#marks, { daemonSet: this.#at.name, value }),
    );
    if (value === '' || value === before?.value) return;
    for (const listener of [...this.#listeners]) listener(value);
  }

  delete(): void {}
}
