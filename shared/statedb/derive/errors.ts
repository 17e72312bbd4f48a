/** Errors of derived tables. */
import { StateDBError } from '../errors.ts';

export class DeriveInputError extends StateDBError {
  readonly code = 'STATEDB_DERIVE_INPUT';
  constructor(derivation: string, table: string, problem: string) {
    super(`derivation "${derivation}", table "${table}": ${problem}`);
  }
}

export class DerivationDisposedError extends StateDBError {
  readonly code = 'STATEDB_DERIVATION_DISPOSED';
  constructor(derivation: string) {
    super(`derivation "${derivation}" has been disposed; call derive() for a new one, or stop() to pause`);
  }
}
