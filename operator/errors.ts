/** What the operator can refuse or fail at. */
import { PORT_EXCESS_FIX } from '@weir/kube';

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
  /** What is used up: the quota of the pod's namespace, the range of the cluster, or what an identity may have of labels, or a pod of named ports. */
  readonly lack: 'quota' | 'range' | 'labels' | 'ports';

  constructor(lack: NoIdentityError['lack'], message: string) {
    super(message);
    this.lack = lack;
  }

  /** The namespace has as many numbers as it may. */
  static quota(namespace: string, most: number): NoIdentityError {
    return new NoIdentityError(
      'quota',
      `all ${most} identities that namespace ${JSON.stringify(namespace)} may have are in use: give its pods fewer distinct label sets, or raise --identities-per-namespace (value operator.limits.identitiesPerNamespace)`,
    );
  }

  /** The cluster has as many as there are. */
  static range(most: number): NoIdentityError {
    return new NoIdentityError(
      'range',
      `all ${most} identities of the cluster are in use: give pods fewer distinct label sets`,
    );
  }

  /** @param excess by how much the labels are too many */
  static labels(excess: string): NoIdentityError {
    return new NoIdentityError(
      'labels',
      `the pod and its namespace have ${excess}: remove labels, or move them to annotations`,
    );
  }

  /** @param excess by how much the pod's named ports are too many */
  static ports(excess: string): NoIdentityError {
    return new NoIdentityError('ports', `the pod has ${excess}: ${PORT_EXCESS_FIX}`);
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
