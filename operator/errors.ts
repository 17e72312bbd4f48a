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

/** A pod that no number can be given to. It waits. */
export class NoIdentityError extends OperatorError {
  readonly code = 'NO_IDENTITY';
  /** Name of what is full, and where a number that becomes free helps: an account, or the cluster's range; '' where the pod itself is too large. */
  readonly account: string;

  constructor(account: string, message: string) {
    super(message);
    this.account = account;
  }

  /** The namespace has as many numbers as it may. */
  static quota(account: string, namespace: string, most: number): NoIdentityError {
    return new NoIdentityError(
      account,
      `all ${most} identities that namespace ${JSON.stringify(namespace)} may have are in use: give its pods fewer distinct label sets, or raise --identities-per-namespace (value operator.limits.identitiesPerNamespace)`,
    );
  }

  /** A node's mirror pods in one namespace have as many numbers as they may. */
  static pair(account: string, namespace: string, node: string, most: number): NoIdentityError {
    return new NoIdentityError(
      account,
      `all ${most} identities that only mirror pods of node ${JSON.stringify(node)} may have in namespace ${JSON.stringify(namespace)} are in use: give static pods fewer distinct labels, or raise --mirror-identities-per-node-and-namespace (value operator.limits.mirrorIdentitiesPerNodeAndNamespace)`,
    );
  }

  /** A node's mirror pods have as many numbers as they may. */
  static node(account: string, node: string, most: number): NoIdentityError {
    return new NoIdentityError(
      account,
      `all ${most} identities that only mirror pods of node ${JSON.stringify(node)} may have are in use: see who makes so many static pods there, or raise --mirror-identities-per-node (value operator.limits.mirrorIdentitiesPerNode)`,
    );
  }

  /** The mirror pods of one namespace have as many numbers as they may. */
  static mirrors(account: string, namespace: string, most: number): NoIdentityError {
    return new NoIdentityError(
      account,
      `all ${most} identities that only mirror pods may have in namespace ${JSON.stringify(namespace)} are in use: give static pods fewer distinct labels, or raise --identities-per-namespace (value operator.limits.identitiesPerNamespace)`,
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
      `the pod and its namespace have ${excess}: remove labels, or move them to annotations`,
    );
  }

  /** @param excess by how much the pod's named ports are too many */
  static ports(excess: string): NoIdentityError {
    return new NoIdentityError('', `the pod has ${excess}: ${PORT_EXCESS_FIX}`);
  }
}

/** As `NoIdentityError.account` names the cluster's range. */
export const RANGE_ACCOUNT = 'range';

/** A command line value that cannot be used. */
export class ConfigError extends OperatorError {
  readonly code = 'CONFIG';
}

/** Weir could not be taken out of the cluster in time. */
export class UninstallError extends OperatorError {
  readonly code = 'UNINSTALL';
}
