import type { Direction, SelectorHash } from './types.ts';

/** A rule names a peer set that the view does not know: its members are not known to be empty, so nothing can be compiled. */
export class UnknownPeerSetError extends Error {
  readonly code = 'UnknownPeerSet';
  readonly hash: SelectorHash;

  constructor(hash: SelectorHash, path: string) {
    super(`peer set ${hash}, named by ${path}, is not known: compile again when its members have arrived`);
    this.name = 'UnknownPeerSetError';
    this.hash = hash;
  }
}

/** A resolved rule breaks its own contract (ports out of range, a prefix that is none): it was not made by `resolve`. */
export class InvalidResolvedRuleError extends Error {
  readonly code = 'InvalidResolvedRule';

  constructor(path: string, reason: string) {
    super(`${path}: ${reason}: resolve the policy again`);
    this.name = 'InvalidResolvedRuleError';
  }
}

/** The rules of one endpoint's policies come to more rows than a slot has room for. */
export class RowBudgetError extends Error {
  readonly code = 'RowBudgetExceeded';
  readonly direction: Direction;
  /** How many there were when it was refused. */
  readonly rows: number;

  constructor(direction: Direction, rows: number, what: string) {
    super(
      `${direction} needs ${what}; put peers that are to have the same ports into one rule, write ports that lie together as a range, or have fewer policies select the same pod`,
    );
    this.name = 'RowBudgetError';
    this.direction = direction;
    this.rows = rows;
  }
}

/** A flow or world given to the oracle is not one. */
export class OracleInputError extends Error {
  readonly code = 'OracleInput';

  constructor(message: string) {
    super(message);
    this.name = 'OracleInputError';
  }
}
