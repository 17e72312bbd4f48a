/**
 * Keeps who pays for an identity to who wants it: its namespace where an ordinary pod does and the namespace has room, else a node that has a mirror pod
 * of it. Looks at one identity at a time, when a pod of it has come or gone.
 */
import { keys, type Reader, type Table, type WriteTxn } from '@weir/statedb';
import type { NoIdentityError } from '../errors.ts';
import { namespaceOfAccount } from './identity-accounts.ts';
import type { IdentityBook } from './identity-book.ts';
import { identityKey } from './known-identities.ts';
import type { PlacedPod } from './placed-pods.ts';
import type { Step } from './steps.ts';

/** A mirror pod that cannot keep its identity. */
export interface Evicted {
  readonly pod: PlacedPod;
  readonly because: NoIdentityError;
}

export class IdentityPayers {
  readonly #pods: Table<PlacedPod>;
  readonly #identities: IdentityBook;

  constructor(pods: Table<PlacedPod>, identities: IdentityBook) {
    this.#pods = pods;
    this.#identities = identities;
  }

  /** A pod of the identity has come or gone. Returns those that cannot keep it: mirror pods, when no node of theirs has room for it. */
  settle(txn: WriteTxn, id: number, now: number): readonly Evicted[] {
    const users = identityKey(id);
    const [first] = txn.prefix(this.#pods, keys.join(users), 'identity');
    if (first === undefined) {
      this.#identities.release(txn, id, now);
      return [];
    }
    const payer = this.#identities.payer(txn, id);
    if (!this.#identities.isShown(txn)) return [];
    if (first.row.mirrorOf === undefined) {
      if (payer !== undefined && this.#identities.charge(txn, id, undefined) !== undefined)
        this.#identities.owe(txn, id, true);
      return [];
    }
    if (payer !== undefined && !txn.list(this.#pods, 'identity', keys.join(users, payer)).next().done) {
      this.#identities.owe(txn, id, false);
      return [];
    }
    const lacks = new Map<string | undefined, NoIdentityError>();
    for (const node of this.#nodesOf(txn, id)) {
      const because = this.#identities.charge(txn, id, node);
      if (because === undefined) return [];
      lacks.set(node, because);
    }
    return Array.from(txn.prefix(this.#pods, keys.join(users), 'identity')).flatMap((pod) => {
      const because = lacks.get(pod.row.mirrorOf);
      return because === undefined ? [] : [{ pod, because }];
    });
  }

  /** An account has room again: a namespace pays for what nodes pay in its stead. */
  freed(txn: WriteTxn, account: string): void {
    const namespace = namespaceOfAccount(account);
    if (namespace !== undefined) this.#identities.payOwed(txn, namespace);
  }

  /** Steps after which nodes pay for what only their mirror pods have, as before a restart, however much that is. */
  *adopt(reader: Reader): Generator<Step> {
    const seen = new Set<number>();
    for (const { identity } of reader.prefix(this.#pods, '', 'mirror')) {
      if (identity === undefined || seen.has(identity)) continue;
      seen.add(identity);
      yield (txn) => {
        const [node] = this.#nodesOf(txn, identity);
        const isOrdinary = !txn.list(this.#pods, 'identity', keys.join(identityKey(identity), '')).next().done;
        if (!isOrdinary && node !== undefined) this.#identities.charge(txn, identity, node, 'whatever it has');
        // What was beyond the quota before: an ordinary pod shares it.
        else if (node !== undefined && this.#identities.isOverQuota(txn, identity)) {
          if (this.#identities.charge(txn, identity, node) === undefined) this.#identities.owe(txn, identity, true);
        }
      };
    }
  }

  *#nodesOf(reader: Reader, id: number): Generator<string> {
    let last: string | undefined;
    for (const { row } of reader.prefix(this.#pods, keys.join(identityKey(id)), 'identity')) {
      if (row.mirrorOf === undefined || row.mirrorOf === last) continue;
      last = row.mirrorOf;
      yield last;
    }
  }
}
