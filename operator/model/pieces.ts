import type { WriteTxn } from '@weir/statedb';

/** A piece of work that may be in a transaction of its own. */
export type Piece = (txn: WriteTxn) => void;
