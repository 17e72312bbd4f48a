/**
 * Pods that wait for a number and may have one now: those that wait for an account which has one more, and those of a label set that has one. They
 * are placed one by one, since there may be thousands, each of which is counted for every selector that matches it; in turns, so that no namespace
 * delays another by more than one pod. A namespace's mirror pods have turns of their own, and so has what pods of many namespaces wait for: there the
 * namespaces are served one after another.
 */
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { RANGE_ACCOUNT } from '../errors.ts';
import { ownerOfAccount } from './identity-accounts.ts';
import type { PlacedPod } from './placed-pods.ts';
import { type TurnOwner, Turns, turnTable } from './turns.ts';

/** Pods that wait for the same, until one of them finds no number again: none after it would. */
interface Line {
  /** The index of placed pods that has them, and their key there. */
  readonly index: 'waiting' | 'waiting-for';
  readonly of: string;
  /** Whose turns they have. */
  readonly owner: string;
  /** Namespace of the pod that was placed last; '': none was. */
  readonly last: string;
}

export class WaitingTurns {
  readonly #pods: Table<PlacedPod>;
  readonly #lines: Table<Line>;
  readonly #owners: Table<TurnOwner>;
  readonly #turns: Turns;

  constructor(db: StateDB, pods: Table<PlacedPod>) {
    this.#pods = pods;
    this.#lines = db.table<Line>({
      name: 'waiting-lines',
      key: lineKey,
      // Those who wait for an account come before those of a label set that has a number: the first may be of other label sets.
      indexes: [{ name: 'owner', keys: ({ owner, index }) => [keys.join(owner, index)] }],
    });
    this.#owners = turnTable(db, 'waiting-line-owners');
    this.#turns = new Turns(this.#owners);
  }

  get tables(): readonly AnyTable[] {
    return [this.#lines, this.#owners];
  }

  /** The account has fewer numbers in use: so has the cluster. */
  freed(txn: WriteTxn, account: string): void {
    for (const each of [account, RANGE_ACCOUNT])
      this.#add(txn, { index: 'waiting', of: each, owner: ownerOf(each), last: '' });
  }

  /** The label set (`labelsKey`) has a number. */
  given(txn: WriteTxn, labels: string): void {
    const [pod] = txn.list(this.#pods, 'waiting-for', labels);
    if (pod !== undefined) this.#add(txn, { index: 'waiting-for', of: labels, owner: pod.row.namespace, last: '' });
  }

  /** Whether pods that wait for the account are still to be placed. */
  has(reader: Reader, account: string): boolean {
    return reader.has(this.#lines, lineKey({ index: 'waiting', of: account }));
  }

  isEmpty(reader: Reader): boolean {
    return reader.count(this.#lines) === 0;
  }

  /** Has the next pod placed; false: there is none. */
  serve(txn: WriteTxn, place: (pod: PlacedPod) => void): boolean {
    const next = this.#turns.next(txn, (owner) => this.#nextOf(txn, owner));
    if (next === undefined) return false;
    const { line, pod } = next;
    place(pod);
    const { waiting } = txn.get(this.#pods, pod.row.key) ?? {};
    const waitsFor = line.index === 'waiting' ? waiting?.because.account : waiting?.labels;
    if (waitsFor === line.of) txn.delete(this.#lines, lineKey(line));
    else txn.upsert(this.#lines, { ...line, last: pod.row.namespace });
    return true;
  }

  #add(txn: WriteTxn, line: Line): void {
    if (txn.has(this.#lines, lineKey(line)) || this.#first(txn, line) === undefined) return;
    txn.insert(this.#lines, line);
    this.#turns.join(txn, line.owner);
  }

  #nextOf(txn: WriteTxn, owner: string): { readonly line: Line; readonly pod: PlacedPod } | undefined {
    for (const line of txn.prefix(this.#lines, keys.join(owner), 'owner')) {
      const pod = this.#first(txn, line);
      if (pod !== undefined) return { line, pod };
      txn.delete(this.#lines, lineKey(line));
    }
    return undefined;
  }

  /** The first of those in line whose namespace comes after that of the last, or of all. */
  #first(reader: Reader, { index, of, last }: Line): PlacedPod | undefined {
    if (index === 'waiting-for') return reader.list(this.#pods, index, of).next().value;
    const [after] = reader.range(this.#pods, `${keys.join(of, last)}\0`, `${keys.join(of)}\uffff`, index);
    const [first] = after === undefined ? reader.prefix(this.#pods, keys.join(of), index) : [after];
    return first;
  }
}

function lineKey({ index, of }: Pick<Line, 'index' | 'of'>): string {
  return keys.join(index, of);
}

/** Whose turns pods have that wait for an account. Nobody but a namespace has a name without a slash. */
function ownerOf(account: string): string {
  const { namespace, isOfMirrors } = ownerOfAccount(account);
  if (namespace === undefined) return `/${account}`;
  return isOfMirrors ? `/mirrors ${namespace}` : namespace;
}
