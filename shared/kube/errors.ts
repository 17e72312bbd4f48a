/** What can go wrong between Weir and the API server. */

/** Base of this folder's errors; `code` is stable. */
export abstract class KubeError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

/**
 * The kubeconfig, or the pod's service account, cannot be used.
 * @fix Correct the file that the message names, or give another one with `--kubeconfig`.
 */
export class KubeConfigError extends KubeError {
  readonly code = 'ERR_WEIR_KUBE_CONFIG';
}

/**
 * The API server answered with a failure, or did not answer (`status` 0, reason `Timeout` or `Unreachable`).
 * @fix `reason` says why. `Forbidden`: compare the roles with docs/security.md. `Unreachable`: see whether the node reaches the API
 * server.
 */
export class ApiError extends KubeError {
  readonly code = 'ERR_WEIR_KUBE_API';
  /** HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** `metav1.Status.reason`, for example `NotFound`; or `Timeout`, `Unreachable`, `BadAnswer`. */
  readonly reason: string;
  /** How long the server asked to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The object's namespace is being deleted, or gone: there is nothing to write into. */
  readonly namespaceGone: boolean;

  constructor(
    message: string,
    details: {
      readonly status: number;
      readonly reason: string;
      readonly retryAfterMs?: number | undefined;
      readonly namespaceGone?: boolean;
      readonly cause?: unknown;
    },
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.status = details.status;
    this.reason = details.reason;
    this.retryAfterMs = details.retryAfterMs;
    this.namespaceGone = details.namespaceGone ?? false;
  }

  /** The object changed meanwhile, or another field manager owns the field. */
  get conflict(): boolean {
    return this.status === 409;
  }
  get notFound(): boolean {
    return this.status === 404;
  }
  /** The resource version or continue token is too old: list again. */
  get gone(): boolean {
    return this.status === 410;
  }
  get forbidden(): boolean {
    return this.status === 401 || this.status === 403;
  }
  /** There was no answer. */
  get unreachable(): boolean {
    return this.status === 0;
  }
  /** No answer, or none but that it cannot now: the same request may succeed later. */
  get unavailable(): boolean {
    return this.unreachable || this.status === 429 || this.status >= 500;
  }
  /** The object itself is refused: the same request never succeeds. */
  get invalid(): boolean {
    return this.status === 400 || this.status === 422;
  }
}

/**
 * The operator could not renew its lease in time, and no longer leads.
 * @fix None is needed: another replica takes over. If it happens often, see whether the API server is slow.
 */
export class LeadershipLostError extends KubeError {
  readonly code = 'ERR_WEIR_LEADERSHIP_LOST';
}
