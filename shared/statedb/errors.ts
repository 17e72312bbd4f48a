/** Errors of the StateDB. Each names the cause, the value and the fix; match on `code` or on the class. */

export abstract class StateDBError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

export class DuplicateTableError extends StateDBError {
  readonly code = 'STATEDB_DUPLICATE_TABLE';
  constructor(table: string) {
    super(`table "${table}" is already registered; give each table its own name`);
  }
}

export class UnknownTableError extends StateDBError {
  readonly code = 'STATEDB_UNKNOWN_TABLE';
  constructor(table: string) {
    super(`table "${table}" does not belong to this StateDB; use the object that db.table() returned`);
  }
}

export class UnknownIndexError extends StateDBError {
  readonly code = 'STATEDB_UNKNOWN_INDEX';
  constructor(table: string, index: string, known: readonly string[]) {
    super(`table "${table}" has no index "${index}"; it has: ${known.join(', ') || 'none'}`);
  }
}

export class InvalidTableSpecError extends StateDBError {
  readonly code = 'STATEDB_INVALID_TABLE_SPEC';
  constructor(table: string, problem: string) {
    super(`table "${table}": ${problem}`);
  }
}

/** A key function threw, or did not give what it must. Nothing was changed. */
export class KeyFunctionError extends StateDBError {
  readonly code = 'STATEDB_KEY_FUNCTION';
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

/** A stored row was changed in place: its keys are no longer those it was stored under. */
export class MutatedRowError extends StateDBError {
  readonly code = 'STATEDB_MUTATED_ROW';
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

export class RowExistsError extends StateDBError {
  readonly code = 'STATEDB_ROW_EXISTS';
  constructor(table: string, key: string) {
    super(`table "${table}" has a row ${JSON.stringify(key)} already; use upsert or modify to replace it`);
  }
}

export class InvalidKeyError extends StateDBError {
  readonly code = 'STATEDB_INVALID_KEY';
}

export class UniqueIndexError extends StateDBError {
  readonly code = 'STATEDB_UNIQUE_INDEX';
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

export class RowNotFoundError extends StateDBError {
  readonly code = 'STATEDB_ROW_NOT_FOUND';
  constructor(table: string, key: string) {
    super(`table "${table}" has no row ${JSON.stringify(key)} to edit; use upsert to create it`);
  }
}

export class KeyChangedError extends StateDBError {
  readonly code = 'STATEDB_KEY_CHANGED';
  constructor(table: string, from: string, to: string) {
    super(
      `table "${table}": the new row's primary key was changed from ${JSON.stringify(from)} to ${JSON.stringify(to)}; ` +
        'delete the old row and upsert the new one instead',
    );
  }
}

export class ReentrantWriteError extends StateDBError {
  readonly code = 'STATEDB_REENTRANT_WRITE';
  constructor(call: string) {
    super(`${call} was called inside a write transaction; use the running transaction, or call it after the commit`);
  }
}

export class AsyncWriteError extends StateDBError {
  readonly code = 'STATEDB_ASYNC_WRITE';
  constructor(what: string) {
    super(
      `${what} is asynchronous, but a write transaction is synchronous and was aborted; ` +
        'await first, then call write with a plain function',
    );
  }
}

export class TransactionClosedError extends StateDBError {
  readonly code = 'STATEDB_TRANSACTION_CLOSED';
  constructor() {
    super('the write transaction has ended; use it, and what it iterates, only inside the function given to write');
  }
}

export class TableNotInTransactionError extends StateDBError {
  readonly code = 'STATEDB_TABLE_NOT_IN_TRANSACTION';
  constructor(table: string, named: readonly string[]) {
    super(
      `table "${table}" is not written by this transaction (it names: ${named.join(', ')}); add it to write([...])`,
    );
  }
}

export class SnapshotDisposedError extends StateDBError {
  readonly code = 'STATEDB_SNAPSHOT_DISPOSED';
  constructor() {
    super('the snapshot has been disposed; read inside the scope of its `using`, or take a new one');
  }
}

export class StreamDisposedError extends StateDBError {
  readonly code = 'STATEDB_STREAM_DISPOSED';
  constructor(table: string, why: string) {
    super(`the change stream of table "${table}" ${why}; open a new one with db.changes()`);
  }
}

export class RevisionGoneError extends StateDBError {
  readonly code = 'STATEDB_REVISION_GONE';
  constructor(table: string, from: number, oldest: number) {
    super(
      `table "${table}": deletes after revision ${from} are no longer known (the oldest resumable revision is ${oldest}); ` +
        'start from 0 and treat it as a full replay, or keep the previous stream open until the next one exists',
    );
  }
}

export class InvalidRevisionError extends StateDBError {
  readonly code = 'STATEDB_INVALID_REVISION';
  constructor(table: string, from: number, current: number) {
    super(`table "${table}": revision ${from} is not between 0 and the current revision ${current}`);
  }
}

export class InvalidLimitError extends StateDBError {
  readonly code = 'STATEDB_INVALID_LIMIT';
  constructor(limit: number) {
    super(`limit ${limit} is not a positive number; leave it out for "all"`);
  }
}

export class InitialiserError extends StateDBError {
  readonly code = 'STATEDB_INITIALISER';
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
