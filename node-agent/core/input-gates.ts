import type { SelectorHash } from '@weir/policy';
import type { AnyTable, StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import type { PolicyRow } from '../tables.ts';

/**
 * How long rules may take once it is known who has which address, in milliseconds. An ordinary start takes less: a pod that was relabelled
 * meanwhile, and that its old labels and its new ones allow, sees no gap.
 */
const RULES_WITHIN_MS = 2_000;

export interface InputGatesOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'policies' | 'peerSets'>;
  readonly inputs: () => readonly AnyTable[];
  /** PeerSets that rules wait for, each with a policy that names it. */
  readonly awaited: () => ReadonlyMap<SelectorHash, PolicyRow>;
  /** Rules take longer than they may. */
  readonly onLate: () => void;
}

/** What an agent that starts may plan, by the inputs that are complete. */
export class InputGates {
  readonly #options: InputGatesOptions;
  /** Whether rules take longer, once addresses are complete. */
  #late: boolean | undefined;

  constructor(options: InputGatesOptions) {
    this.#options = options;
  }

  /** As `SyncLoopOptions.complete`. */
  open(): 'nothing' | 'addresses' | 'rules' {
    if (this.pending().length === 0) return 'rules';
    const { db, tables, inputs, onLate } = this.#options;
    const addresses = inputs().filter((table) => table !== tables.policies && table !== tables.peerSets);
    if (addresses.some((table) => db.pendingInitialisers(table).length > 0)) return 'nothing';
    if (this.#late === undefined) {
      this.#late = false;
      setTimeout(() => {
        this.#late = true;
        onLate();
      }, RULES_WITHIN_MS).unref();
    }
    return this.#late ? 'addresses' : 'nothing';
  }

  /** Inputs that are not complete; while there is one no rule is put in force. */
  pending(): string[] {
    const { db, tables, inputs, awaited } = this.#options;
    const missing = inputs().flatMap((table) => db.pendingInitialisers(table).map((name) => `${table.name} (${name})`));
    // While they are not listed it is not known which are missing.
    if (db.pendingInitialisers(tables.peerSets).length > 0) return missing;
    const [first] = awaited();
    if (first === undefined) return missing;
    const [hash, { kind, namespace, name }] = first;
    const of = `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
    return [...missing, `PeerSet ${hash}, which ${of} names`];
  }
}
