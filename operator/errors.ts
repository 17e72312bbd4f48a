/** What the operator can refuse or fail at. */
import { PORT_EXCESS_FIX } from '@weir/kube';

export abstract class OperatorError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

/**
 * The cluster is not one that Weir may run in.
 * @fix Do what the message says; docs/install.md lists what a cluster must have.
 */
export class PreflightError extends OperatorError {
  readonly code = 'ERR_WEIR_OPERATOR_PREFLIGHT';
}

/**
 * A write waits for another object that must be written first. It is retried.
 * @fix None is needed, unless it stays: then see why the object that the message names is not written.
 */
export class DependencyError extends OperatorError {
  readonly code = 'ERR_WEIR_DEPENDENCY';
}

/**
 * No identity can be given to a pod: a quota or the range is used up, or its labels are too many. The pod waits.
 * @fix Give pods fewer distinct label sets, or raise the limit that the message names.
 */
export class NoIdentityError extends OperatorError {
  readonly code = 'ERR_WEIR_NO_IDENTITY';
  /** The namespace that is full, and where a number that becomes free helps, or RANGE_ACCOUNT; '' where the pod itself is too large. */
  readonly account: string;

  constructor(account: string, message: string) {
    super(message);
    this.account = account;
  }

  /** The namespace has as many numbers as it may. */
  static quota(namespace: string, most: number): NoIdentityError {
    return new NoIdentityError(
      namespace,
      `all ${most} identities that namespace ${JSON.stringify(namespace)} may have are in use: give its pods fewer distinct label sets, or raise --identities-per-namespace (value operator.limits.identitiesPerNamespace)`,
    );
  }

  /** The cluster has as many as there are. */
  static range(most: number): NoIdentityError {
    return new NoIdentityError(
      RANGE_ACCOUNT,
      `all ${most} identities of the cluster are in use: give pods fewer distinct label sets`,
    );
  }

  /** @param excess by how much the labels are too many */
  static labels(excess: string): NoIdentityError {
    return new NoIdentityError(
      '',
      `the pod and its namespace have ${excess}, with those of its cluster, namespace and service account: remove labels, or move them to annotations`,
    );
  }

  /** @param excess by how much the pod's named ports are too many */
  static ports(excess: string): NoIdentityError {
    return new NoIdentityError('', `the pod has ${excess}: ${PORT_EXCESS_FIX}`);
  }
}

/** As `NoIdentityError.account` names the cluster's range. No namespace is called so. */
export const RANGE_ACCOUNT = '/range';

/**
 * A value on the command line cannot be used.
 * @fix Correct the flag that the message names; see docs/flags.md.
 */
export class ConfigError extends OperatorError {
  readonly code = 'ERR_WEIR_OPERATOR_CONFIG';
}

/**
 * Weir could not be taken out of the cluster in time.
 * @fix See what the message still waits for, and run the uninstall again: what is done stays done.
 */
export class UninstallError extends OperatorError {
  readonly code = 'ERR_WEIR_UNINSTALL';
}
