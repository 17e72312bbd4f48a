/**
 * Namespaces whose labels have changed, and whose pods are to be placed anew: one pod at a time, of one namespace after another in turns,
 * since a namespace may have very many.
 */
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';

interface Relabelled {
  readonly namespace: string;
  /** Keys of pods that are less have been placed. */
  readonly from: string;
  readonly turn: number;
}

export class RelabelledNamespaces {
  readonly #table: Table<Relabelled>;

  constructor(db: StateDB) {
    this.#table = db.table<Relabelled>({
      name: 'relabelled-namespaces',
      key: ({ namespace }) => namespace,
      indexes: [{ name: 'turn', keys: ({ turn }) => [keys.uint(turn)] }],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#table];
  }

  /** Begins with the namespace, anew where it is under way. */
  add(txn: WriteTxn, namespace: string): void {
    const turn = txn.get(this.#table, namespace)?.turn ?? this.#first(txn)?.turn ?? 0;
    txn.upsert(this.#table, { namespace, from: podPrefix(namespace), turn });
  }

  /** The next pod, of those that `pods` has by their keys; undefined: there is none. */
  next<T>(txn: WriteTxn, pods: Table<T>): T | undefined {
    for (;;) {
      const first = this.#first(txn);
      if (first === undefined) return undefined;
      const { namespace, from, turn } = first;
      const [pod] = txn.range(pods, from, `${podPrefix(namespace)}\uffff`);
      if (pod === undefined) {
        txn.delete(this.#table, namespace);
        continue;
      }
      txn.upsert(this.#table, { namespace, from: `${pods.spec.key(pod)}\0`, turn: turn + 1 });
      return pod;
    }
  }

  #first(reader: Reader): Relabelled | undefined {
    const [first] = reader.prefix(this.#table, '', 'turn');
    return first;
  }
}

function podPrefix(namespace: string): string {
  return `${namespace}/`;
}
