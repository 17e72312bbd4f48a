/**
 * Who pays for an identity, and how many each payer may have. Guarantee: an identity is paid once, by its namespace or by a node.
 *
 * A node's credentials make mirror pods in every namespace, with any labels: what only mirror pods want is paid by their node, which has few
 * numbers in a namespace and few in all. Whoever makes pods may say that they are mirror pods of any node: hence the account of the pair, and the first
 * number of a pair, which the node's account does not refuse. So that nobody gets more numbers for a namespace by that than it has itself, its
 * mirror pods of all nodes have an account, too.
 */
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { NoIdentityError, RANGE_ACCOUNT } from '../errors.ts';

/** The node whose mirror pods pay; undefined: the namespace does. */
export type Payer = string | undefined;

/** 0: no limit. */
export interface AccountLimits {
  /** Most numbers that a namespace pays; as many more may its mirror pods have. */
  readonly perNamespace: number;
  /** Most that mirror pods of one node pay in one namespace, and in all. */
  readonly perPair: number;
  readonly perNode: number;
}

/** Numbers, unused ones included. */
interface Holding {
  readonly name: string;
  readonly identities: number;
}

interface Account {
  readonly name: string;
  readonly most: number;
  readonly lack: () => NoIdentityError;
}

const NAMESPACE = 'namespace ';
/** Numbers of a pair that the node's account does not refuse. */
const FIRST = 1;

export class IdentityAccounts {
  readonly #holdings: Table<Holding>;
  readonly #limits: AccountLimits;

  constructor(db: StateDB, limits: AccountLimits) {
    this.#limits = limits;
    this.#holdings = db.table<Holding>({
      name: 'identity-accounts',
      key: ({ name }) => name,
      indexes: [
        {
          name: 'count',
          keys: ({ name, identities }) => (namespaceOfAccount(name) === undefined ? [] : [keys.uint(identities, 32)]),
        },
      ],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#holdings];
  }

  count(txn: WriteTxn, namespace: string, payer: Payer, by: 1 | -1): void {
    for (const name of accountNames(namespace, payer)) {
      const identities = this.#held(txn, name) + by;
      if (identities === 0) txn.delete(this.#holdings, name);
      else txn.upsert(this.#holdings, { name, identities });
    }
  }

  /** An account that is full, of those of `payer`; those of `instead` pay already. */
  full(txn: WriteTxn, namespace: string, payer: Payer, instead: readonly string[] = []): Account | undefined {
    return this.#accounts(txn, namespace, payer).find(
      ({ name, most }) => most > 0 && !instead.includes(name) && this.#held(txn, name) >= most,
    );
  }

  /** Why `payer` pays for no other number, whether it could or not. */
  lack(txn: WriteTxn, namespace: string, payer: Payer): NoIdentityError | undefined {
    return this.#accounts(txn, namespace, payer)[0]?.lack();
  }

  /** Why `payer` is not given a number though there may be one: pods of the namespace wait for it, and come first. */
  awaited(
    txn: WriteTxn,
    namespace: string,
    payer: Payer,
    isAwaited: (account: string) => boolean,
  ): NoIdentityError | undefined {
    const ofNamespace = this.#accounts(txn, namespace, payer).filter(
      ({ name }) => ownerOfAccount(name).namespace !== undefined,
    );
    return ofNamespace.find(({ name }) => isAwaited(name))?.lack();
  }

  /** Whether the namespace has more numbers than it may. */
  isOver(reader: Reader, namespace: string): boolean {
    const held = reader.get(this.#holdings, `${NAMESPACE}${namespace}`)?.identities ?? 0;
    return this.#limits.perNamespace > 0 && held > this.#limits.perNamespace;
  }

  /** Namespaces that have as many numbers as they may. */
  atQuota(reader: Reader): number {
    const { perNamespace } = this.#limits;
    if (perNamespace === 0) return 0;
    let count = 0;
    for (const _ of reader.lowerBound(this.#holdings, keys.uint(perNamespace, 32), 'count')) count += 1;
    return count;
  }

  #accounts(txn: WriteTxn, namespace: string, payer: Payer): readonly Account[] {
    const { perNamespace, perPair, perNode } = this.#limits;
    const [first = '', ofNode = '', ofMirrors = ''] = accountNames(namespace, payer);
    if (payer === undefined)
      return [{ name: first, most: perNamespace, lack: () => NoIdentityError.quota(first, namespace, perNamespace) }];
    const pair = { name: first, most: perPair, lack: () => NoIdentityError.pair(first, namespace, payer, perPair) };
    const node = { name: ofNode, most: perNode, lack: () => NoIdentityError.node(ofNode, payer, perNode) };
    const mirrors = {
      name: ofMirrors,
      most: perNamespace,
      lack: () => NoIdentityError.mirrors(ofMirrors, namespace, perNamespace),
    };
    return this.#held(txn, first) < FIRST ? [pair, mirrors] : [pair, node, mirrors];
  }

  #held(txn: WriteTxn, name: string): number {
    return txn.get(this.#holdings, name)?.identities ?? 0;
  }
}

/** Accounts in which a number counts. Neither namespaces nor nodes have a space in their names. */
export function accountNames(namespace: string, payer: Payer): readonly string[] {
  return payer === undefined
    ? [`${NAMESPACE}${namespace}`]
    : [`pair ${namespace} ${payer}`, `node ${payer}`, `mirrors ${namespace}`];
}

/**
 * Whose pods count in the account, or wait for it. `namespace`: those of that one alone; undefined: pods of many may. `isOfMirrors`: mirror pods
 * alone.
 */
export function ownerOfAccount(account: string): {
  readonly namespace: string | undefined;
  readonly isOfMirrors: boolean;
} {
  const [kind, namespace] = account.split(' ');
  return {
    namespace: kind === 'node' || account === RANGE_ACCOUNT ? undefined : namespace,
    isOfMirrors: kind !== 'namespace' && account !== RANGE_ACCOUNT,
  };
}

/** The namespace whose quota the account is; undefined: it is of mirror pods, or of all. */
export function namespaceOfAccount(account: string): string | undefined {
  const { namespace, isOfMirrors } = ownerOfAccount(account);
  return isOfMirrors ? undefined : namespace;
}
