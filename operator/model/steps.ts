import type { WriteTxn } from '@weir/statedb';

/** A piece of work that may be in a transaction of its own. */
export type Step = (txn: WriteTxn) => void;
