import type { Direction, SelectorHash } from './types.ts';

/**
 * A rule names a peer set whose members are not known yet, so nothing can be compiled.
 * @fix Wait: the agent compiles again when the PeerSet arrives. If it stays, see whether `kubectl get peersets` has it.
 */
export class UnknownPeerSetError extends Error {
  readonly code = 'ERR_WEIR_UNKNOWN_PEER_SET';
  readonly hash: SelectorHash;

  constructor(hash: SelectorHash, path: string) {
    super(`peer set ${hash}, named by ${path}, is not known: compile again when its members have arrived`);
    this.name = 'UnknownPeerSetError';
    this.hash = hash;
  }
}

/**
 * A resolved rule breaks its own contract: ports out of range, or a prefix that is none.
 * @fix Run operator and agents of one release. If they are, report it, with the message.
 */
export class InvalidResolvedRuleError extends Error {
  readonly code = 'ERR_WEIR_RESOLVED_RULE';

  constructor(path: string, reason: string) {
    super(`${path}: ${reason}: resolve the policy again`);
    this.name = 'InvalidResolvedRuleError';
  }
}

/**
 * The rules of one endpoint come to more rows than a policy slot holds. The policies that select it report `RowBudgetExceeded`.
 * @fix Put peers with the same ports into one rule, write adjacent ports as a range (`endPort`), or have fewer policies select the pod.
 */
export class RowBudgetError extends Error {
  readonly code = 'ERR_WEIR_ROW_BUDGET';
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

/**
 * In a test: a flow or world given to the oracle is not one.
 * @fix Correct the test as the message says.
 */
export class OracleInputError extends Error {
  readonly code = 'ERR_WEIR_ORACLE_INPUT';

  constructor(message: string) {
    super(message);
    this.name = 'OracleInputError';
  }
}
