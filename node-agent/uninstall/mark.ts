import { type KubeObject, type ReflectorSink, resources } from '@weir/kube';
import { observe, type StateDB, type Table } from '@weir/statedb';
import { concatAll, distinctUntilChanged, filter, map, type Observable } from 'rxjs';
import type { Source } from '../parts/contract.ts';

/** On the DaemonSet: this installation is being taken away. The value names the request. */
export const UNINSTALL_ANNOTATION = 'weir.dev/uninstall';
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
  readonly #stop = new AbortController();

  constructor(db: StateDB, at: { readonly namespace: string; readonly name: string }) {
    this.#db = db;
    this.#at = at;
    this.#marks = db.table<Mark>({ name: 'uninstallMarks', key: (row) => row.daemonSet });
  }

  /** The DaemonSet, by name, as the agent's role allows no other: list and watch of one object. */
  get source(): Source {
    const { namespace, name } = this.#at;
    return { resource: resources.DaemonSet, sink: this, list: { namespace, fieldSelector: `metadata.name=${name}` } };
  }

  /** Each new value, and first the one that is there. Ends with `stop`. */
  get values(): Observable<string> {
    return observe(this.#db, this.#marks, { name: 'uninstall', signal: this.#stop.signal }).pipe(
      concatAll(),
      map(({ row, deleted }) => (deleted ? '' : row.value)),
      distinctUntilChanged(),
      filter((value) => value !== ''),
    );
  }

  stop(): void {
    this.#stop.abort();
  }

  replace(items: readonly KubeObject[]): void {
    for (const item of items) this.upsert(item);
  }

  upsert({ metadata }: KubeObject): void {
    if (metadata.name !== this.#at.name || metadata.namespace !== this.#at.namespace) return;
    const value = metadata.annotations?.[UNINSTALL_ANNOTATION] ?? '';
    this.#db.write([this.#marks], (txn) => {
      if (value === '') txn.delete(this.#marks, this.#at.name);
      else txn.upsert(this.#marks, { daemonSet: this.#at.name, value });
    });
  }

  delete(): void {}
}
