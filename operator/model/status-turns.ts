/**
 * The policies whose statuses are to be folded. Those of a namespace are folded in the order in which they were marked, those of several in
 * turns: a namespace whose pods wake all of its policies delays another's status by one of its own, or two.
 */
import { keys, type Reader, type WriteTxn } from '@weir/statedb';
import { namespaceOfKey } from '../names.ts';
import type { StatusMark, StatusTables } from './status-tables.ts';
import { Turns } from './turns.ts';

type Tables = Pick<StatusTables, 'statusMarks' | 'statusOwners'>;

export class StatusTurns {
  readonly #marks: StatusTables['statusMarks'];
  readonly #namespaces: Turns;

  constructor({ statusMarks, statusOwners }: Tables) {
    this.#marks = statusMarks;
    this.#namespaces = new Turns(statusOwners);
  }

  /** The status is folded in its turn; one that waits for it keeps its place. `touched`: it is to be written again though it were the same. */
  put(txn: WriteTxn, key: string, touched: boolean): void {
    const there = txn.get(this.#marks, key);
    if (there?.turn !== undefined && (there.touched || !touched)) return;
    const namespace = namespaceOfKey(key);
    const turn = there?.turn ?? txn.revision(this.#marks);
    txn.upsert(this.#marks, { key, namespace, turn, dueAt: there?.dueAt, touched: touched || there?.touched === true });
    this.#namespaces.join(txn, namespace);
  }

  /** The status has no turn until it is put again. */
  hold(txn: WriteTxn, mark: StatusMark): StatusMark {
    txn.upsert(this.#marks, { ...mark, turn: undefined });
    return mark;
  }

  isEmpty(reader: Reader): boolean {
    const [first] = reader.prefix(this.#marks, '', 'turn');
    return first === undefined;
  }

  /** The next. Its mark has its turn until it is deleted or held. */
  next(txn: WriteTxn): StatusMark | undefined {
    return this.#namespaces.next(txn, (namespace) => {
      const [first] = txn.prefix(this.#marks, keys.join(namespace), 'turn');
      return first;
    });
  }
}
