/** Errors of derived tables. */
import { StateDBError } from '../errors.ts';

/**
 * A derivation reads a table that is not among its inputs, or its own output.
 * @fix Add the table to `inputs`, or derive from another table.
 */
export class DeriveInputError extends StateDBError {
  readonly code = 'ERR_STATEDB_DERIVE_INPUT';
  constructor(derivation: string, table: string, problem: string) {
    super(`derivation "${derivation}", table "${table}": ${problem}`);
  }
}

/**
 * A derivation was used after its disposal.
 * @fix Call `derive` for a new one; `stop()` pauses one.
 */
export class DerivationDisposedError extends StateDBError {
  readonly code = 'ERR_STATEDB_DERIVATION_DISPOSED';
  constructor(derivation: string) {
    super(`derivation "${derivation}" has been disposed; call derive() for a new one, or stop() to pause`);
  }
}
