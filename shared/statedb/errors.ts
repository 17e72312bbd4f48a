/** Errors of the StateDB. Each names the cause, the value and the fix; match on `code` or on the class. */

/** What every error of this package extends. `code` is `ERR_STATEDB_…`. */
export abstract class StateDBError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

/**
 * Two tables of one StateDB have the same name.
 * @fix Give each table its own name.
 */
export class DuplicateTableError extends StateDBError {
  readonly code = 'ERR_STATEDB_DUPLICATE_TABLE';
  constructor(table: string) {
    super(`table "${table}" is already registered; give each table its own name`);
  }
}

/**
 * The table belongs to another StateDB.
 * @fix Use the object that `table()` of this StateDB returned.
 */
export class UnknownTableError extends StateDBError {
  readonly code = 'ERR_STATEDB_UNKNOWN_TABLE';
  constructor(table: string) {
    super(`table "${table}" does not belong to this StateDB; use the object that db.table() returned`);
  }
}

/**
 * The table has no index of this name, or had none yet when the snapshot was taken.
 * @fix Use an index that the message lists; after `addIndex`, take a new snapshot.
 */
export class UnknownIndexError extends StateDBError {
  readonly code = 'ERR_STATEDB_UNKNOWN_INDEX';
  constructor(table: string, index: string, known: readonly string[]) {
    super(`table "${table}" has no index "${index}"; it has: ${known.join(', ') || 'none'}`);
  }
}

/**
 * The specification of a table or an index is incomplete, or a query does not suit the kind of its index.
 * @fix Correct what the message names.
 */
export class InvalidTableSpecError extends StateDBError {
  readonly code = 'ERR_STATEDB_INVALID_TABLE_SPEC';
  constructor(table: string, problem: string) {
    super(`table "${table}": ${problem}`);
  }
}

/**
 * A key function threw, or returned no key. Nothing was changed.
 * @fix Return a string for the primary key, and an array of strings (`[]` for none) for an index.
 */
export class KeyFunctionError extends StateDBError {
  readonly code = 'ERR_STATEDB_KEY_FUNCTION';
  readonly table: string;
  constructor(table: string, index: string | undefined, wanted: 'a key' | 'keys', got: unknown, thrown?: unknown) {
    const where = index === undefined ? 'its key function' : `the key function of index "${index}"`;
    const problem =
      thrown === undefined
        ? `gave ${show(got)}`
        : `threw ${thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : show(thrown)}`;
    super(
      `table "${table}": ${where} ${problem}; it must give ${wanted === 'a key' ? 'a string' : 'an array (or other iterable, but no string) of strings, [] for none'} for every row`,
      thrown === undefined ? undefined : { cause: thrown },
    );
    this.table = table;
  }
}

/**
 * A stored row was changed in place: its keys are no longer those it was stored under.
 * @fix Store a changed copy (`txn.edit` makes one). Open the StateDB with `{ freeze: true }` to find the code that changes the row.
 */
export class MutatedRowError extends StateDBError {
  readonly code = 'ERR_STATEDB_MUTATED_ROW';
  readonly table: string;
  readonly key: string;
  constructor(table: string, index: string | undefined, key: string) {
    super(
      `table "${table}": row ${JSON.stringify(key)} was changed in place after it had been stored: ` +
        `${index === undefined ? 'its keys differ' : `its keys in index "${index}" differ`}; ` +
        'store a changed copy instead (txn.edit makes one), and open the StateDB with { freeze: true } to find who changes it',
    );
    this.table = table;
    this.key = key;
  }
}

/**
 * `insert` found a row with this primary key.
 * @fix Use `upsert` or `modify` to replace a row.
 */
export class RowExistsError extends StateDBError {
  readonly code = 'ERR_STATEDB_ROW_EXISTS';
  constructor(table: string, key: string) {
    super(`table "${table}" has a row ${JSON.stringify(key)} already; use upsert or modify to replace it`);
  }
}

/**
 * A value cannot be made into a key, or a key is not a string.
 * @fix Give `keys.*` a value of the range that the message names.
 */
export class InvalidKeyError extends StateDBError {
  readonly code = 'ERR_STATEDB_INVALID_KEY';
}

/**
 * Another row has this key in a unique index.
 * @fix Delete or change that row first; the same transaction will do.
 */
export class UniqueIndexError extends StateDBError {
  readonly code = 'ERR_STATEDB_UNIQUE_INDEX';
  readonly table: string;
  readonly index: string;
  readonly key: string;
  constructor(table: string, index: string, key: string, holder: string, writer: string) {
    super(
      `table "${table}": unique index "${index}" already has key ${JSON.stringify(key)} from row ` +
        `${JSON.stringify(holder)}; row ${JSON.stringify(writer)} cannot take it until that row is deleted or changed`,
    );
    this.table = table;
    this.index = index;
    this.key = key;
  }
}

/**
 * `edit` found no row with this primary key.
 * @fix Use `upsert` to create the row.
 */
export class RowNotFoundError extends StateDBError {
  readonly code = 'ERR_STATEDB_ROW_NOT_FOUND';
  constructor(table: string, key: string) {
    super(`table "${table}" has no row ${JSON.stringify(key)} to edit; use upsert to create it`);
  }
}

/**
 * The new row has another primary key than the row that it replaces.
 * @fix Delete the old row and insert the new one.
 */
export class KeyChangedError extends StateDBError {
  readonly code = 'ERR_STATEDB_KEY_CHANGED';
  constructor(table: string, from: string, to: string) {
    super(
      `table "${table}": the new row's primary key was changed from ${JSON.stringify(from)} to ${JSON.stringify(to)}; ` +
        'delete the old row and upsert the new one instead',
    );
  }
}

/**
 * A function was called that must not run inside a write transaction.
 * @fix Use the running transaction, or call the function after the commit.
 */
export class ReentrantWriteError extends StateDBError {
  readonly code = 'ERR_STATEDB_REENTRANT_WRITE';
  constructor(call: string) {
    super(`${call} was called inside a write transaction; use the running transaction, or call it after the commit`);
  }
}

/**
 * An asynchronous function was given to a transaction, which is synchronous. The transaction was aborted.
 * @fix Await first, then call `write` with a plain function.
 */
export class AsyncWriteError extends StateDBError {
  readonly code = 'ERR_STATEDB_ASYNC_WRITE';
  constructor(what: string) {
    super(
      `${what} is asynchronous, but a write transaction is synchronous and was aborted; ` +
        'await first, then call write with a plain function',
    );
  }
}

/**
 * A transaction, or an iteration within it, was used after `write` had returned.
 * @fix Use both only inside the function given to `write`.
 */
export class TransactionClosedError extends StateDBError {
  readonly code = 'ERR_STATEDB_TRANSACTION_CLOSED';
  constructor() {
    super('the write transaction has ended; use it, and what it iterates, only inside the function given to write');
  }
}

/**
 * The transaction writes to a table that it does not name.
 * @fix Add the table to the list given to `write`.
 */
export class TableNotInTransactionError extends StateDBError {
  readonly code = 'ERR_STATEDB_TABLE_NOT_IN_TRANSACTION';
  constructor(table: string, named: readonly string[]) {
    super(
      `table "${table}" is not written by this transaction (it names: ${named.join(', ')}); add it to write([...])`,
    );
  }
}

/**
 * A snapshot was read after its disposal.
 * @fix Read inside the scope of its `using`, or take a new snapshot.
 */
export class SnapshotDisposedError extends StateDBError {
  readonly code = 'ERR_STATEDB_SNAPSHOT_DISPOSED';
  constructor() {
    super('the snapshot has been disposed; read inside the scope of its `using`, or take a new one');
  }
}

/**
 * A change stream was used after its disposal, or was opened in a transaction that was aborted.
 * @fix Open a new stream with `db.changes`.
 */
export class StreamDisposedError extends StateDBError {
  readonly code = 'ERR_STATEDB_STREAM_DISPOSED';
  constructor(table: string, why: string) {
    super(`the change stream of table "${table}" ${why}; open a new one with db.changes()`);
  }
}

/**
 * A change stream is to start at a revision from which deletes are no longer known.
 * @fix Start from 0, or keep the previous stream open until the next one exists.
 */
export class RevisionGoneError extends StateDBError {
  readonly code = 'ERR_STATEDB_REVISION_GONE';
  constructor(table: string, from: number, oldest: number) {
    super(
      `table "${table}": deletes after revision ${from} are no longer known (the oldest resumable revision is ${oldest}); ` +
        'start from 0 and treat it as a full replay, or keep the previous stream open until the next one exists',
    );
  }
}

/**
 * A change stream is to start at a revision that the table never had.
 * @fix Start from 0, or from the `revision` of an earlier stream of this table.
 */
export class InvalidRevisionError extends StateDBError {
  readonly code = 'ERR_STATEDB_INVALID_REVISION';
  constructor(table: string, from: number, current: number) {
    super(`table "${table}": revision ${from} is not between 0 and the current revision ${current}`);
  }
}

/**
 * A limit is not a positive number.
 * @fix Leave the limit out to get everything.
 */
export class InvalidLimitError extends StateDBError {
  readonly code = 'ERR_STATEDB_INVALID_LIMIT';
  constructor(limit: number) {
    super(`limit ${limit} is not a positive number; leave it out for "all"`);
  }
}

/**
 * An initialiser was registered too late or twice, or was completed outside of its transaction.
 * @fix Register it before the table is initialised; call it once, in the transaction that completes the table.
 */
export class InitialiserError extends StateDBError {
  readonly code = 'ERR_STATEDB_INITIALISER';
  constructor(table: string, name: string, problem: string) {
    super(`table "${table}", initialiser "${name}": ${problem}`);
  }
}

/** A value in a message. */
function show(value: unknown): string {
  if (typeof value === 'string') return `the string ${JSON.stringify(value)}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value === 'function' || typeof value === 'symbol') return `a ${typeof value}`;
  return String(value as number | bigint | boolean | null | undefined);
}
