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

/** A command line value that cannot be used. */
export class ConfigError extends OperatorError {
  readonly code = 'CONFIG';
}

/** Weir could not be taken out of the cluster in time. */
export class UninstallError extends OperatorError {
  readonly code = 'UNINSTALL';
}
