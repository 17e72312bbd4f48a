import type { SelectorHash } from './types.ts';

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

/** A flow or world given to the oracle is not one. */
export class OracleInputError extends Error {
  readonly code = 'OracleInput';

  constructor(message: string) {
    super(message);
    this.name = 'OracleInputError';
  }
}
