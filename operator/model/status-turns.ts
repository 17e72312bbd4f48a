/**
 * The policies whose statuses are to be folded. Those of a namespace are folded in the order in which they were marked, those of several in
 * turns: a namespace whose pods wake all of its policies delays another's status by one of its own, or two.
 */
import { keys, type Reader, type WriteTxn } from '@weir/statedb';
import { namespaceOfKey } from '../names.ts';
import type { StatusMark, StatusTables } from './status-tables.ts';

type Tables = Pick<StatusTables, 'statusMarks' | 'statusOwners'>;

export class StatusTurns {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** The status is folded in its turn; one that waits for it keeps its place. `touched`: it is to be written again though it were the same. */
  put(txn: WriteTxn, key: string, touched: boolean): void {
    const { statusMarks, statusOwners } = this.#tables;
    const there = txn.get(statusMarks, key);
    if (there?.turn !== undefined && (there.touched || !touched)) return;
    const namespace = namespaceOfKey(key);
    const turn = there?.turn ?? txn.revision(statusMarks);
    txn.upsert(statusMarks, { key, namespace, turn, dueAt: there?.dueAt, touched: touched || there?.touched === true });
    if (!txn.has(statusOwners, namespace)) txn.insert(statusOwners, { namespace, turn: this.#first(txn)?.turn ?? 0 });
  }

  /** The status has no turn until it is put again. */
  hold(txn: WriteTxn, mark: StatusMark): StatusMark {
    txn.upsert(this.#tables.statusMarks, { ...mark, turn: undefined });
    return mark;
  }

  isEmpty(reader: Reader): boolean {
    const [first] = reader.prefix(this.#tables.statusMarks, '', 'turn');
    return first === undefined;
  }

  /** The next. Its mark has its turn until it is deleted or held. */
  next(txn: WriteTxn): StatusMark | undefined {
    const { statusMarks, statusOwners } = this.#tables;
    for (;;) {
      const first = this.#first(txn);
      if (first === undefined) return undefined;
      const { namespace, turn } = first;
      const [next] = txn.prefix(statusMarks, keys.join(namespace), 'turn');
      if (next !== undefined) {
        txn.upsert(statusOwners, { namespace, turn: turn + 1 });
        return next;
      }
      txn.delete(statusOwners, namespace);
    }
  }

  #first(reader: Reader): { readonly namespace: string; readonly turn: number } | undefined {
    const [first] = reader.prefix(this.#tables.statusOwners, '', 'turn');
    return first;
  }
}
