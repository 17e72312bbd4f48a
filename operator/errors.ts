/** What the operator can refuse or fail at. */

export abstract class OperatorError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

/** The cluster is not one that Weir may run in. */
export class PreflightError extends OperatorError {
  readonly code = 'PREFLIGHT';
}

/** A write waits for another object that must be there first. Retried. */
export class DependencyError extends OperatorError {
  readonly code = 'DEPENDENCY';
}

/** A pod has a label set that no number can be given to. It waits. */
export class NoIdentityError extends OperatorError {
  readonly code = 'NO_IDENTITY';
  /** What is used up: the quota of the pod's namespace, or the range of the cluster. */
  readonly lack: 'quota' | 'range';

  /** `most`: how many numbers there are of what is used up. */
  constructor(lack: 'quota' | 'range', namespace: string, most: number) {
    super(
      lack === 'quota'
        ? `all ${most} identities that namespace ${JSON.stringify(namespace)} may have are in use: give its pods fewer distinct label sets, or raise --identities-per-namespace (value operator.limits.identitiesPerNamespace)`
        : `all ${most} identities of the cluster are in use: give pods fewer distinct label sets`,
    );
    this.lack = lack;
  }
}

/** A command line value that cannot be used. */
export class ConfigError extends OperatorError {
  readonly code = 'CONFIG';
}

/** Weir could not be taken out of the cluster in time. */
export class UninstallError extends OperatorError {
  readonly code = 'UNINSTALL';
}
