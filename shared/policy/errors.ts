import type { SelectorHash } from './types.ts';

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
