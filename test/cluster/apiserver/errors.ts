import type { Json, JsonObject } from './json.ts';

export interface Cause {
  readonly reason: string;
  readonly message: string;
  /** Path in the object, such as `spec.ports[0].port`; absent where no field is to blame. */
  readonly field?: string;
}

export interface StatusDetails {
  readonly name?: string;
  readonly group?: string;
  readonly kind?: string;
  readonly uid?: string;
  readonly causes?: readonly Cause[];
  readonly retryAfterSeconds?: number;
}

/** A refusal in the shape of the Kubernetes `Status` object; `code` is stable, `httpStatus` is the answer's. */
export class StatusError extends Error {
  readonly code: string;
  readonly httpStatus: number;
  readonly details: StatusDetails | undefined;

  constructor(httpStatus: number, reason: string, message: string, details?: StatusDetails) {
    super(message);
    this.name = 'StatusError';
    this.code = reason;
    this.httpStatus = httpStatus;
    this.details = details;
  }

  toStatus(): JsonObject {
    const status: JsonObject = {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: this.message,
      ...(this.code === '' ? {} : { reason: this.code }),
    };
    if (this.details !== undefined) {
      const told = Object.entries(this.details).filter(([, value]) => value !== '');
      status.details = JSON.parse(JSON.stringify(Object.fromEntries(told))) as Json;
    }
    status.code = this.httpStatus;
    return status;
  }
}

/** A port that cannot be listened on. */
export class ListenError extends Error {
  readonly code: string;
  constructor(host: string, port: number, cause: NodeJS.ErrnoException) {
    const why = cause.code === 'EADDRINUSE' ? 'another process is listening on it' : cause.message;
    super(
      `API server cannot listen on ${host}:${port}: ${why}. Stop that process, or pass another port (0 picks a free one).`,
      { cause },
    );
    this.name = 'ListenError';
    this.code = cause.code ?? 'LISTEN_FAILED';
  }
}

/** What names a resource in messages. */
export interface Named {
  readonly group: string;
  readonly plural: string;
  readonly kind: string;
}

const qualified = (what: Named): string => (what.group === '' ? what.plural : `${what.plural}.${what.group}`);

export function notFound(what: Named, name: string): StatusError {
  return new StatusError(404, 'NotFound', `${qualified(what)} "${name}" not found`, {
    name,
    group: what.group,
    kind: what.plural,
  });
}

/** No such path: what the real server answers for a resource that it does not serve. */
export function noSuchResource(): StatusError {
  return new StatusError(404, 'NotFound', 'the server could not find the requested resource', {});
}

export function alreadyExists(what: Named, name: string): StatusError {
  return new StatusError(409, 'AlreadyExists', `${qualified(what)} "${name}" already exists`, {
    name,
    group: what.group,
    kind: what.plural,
  });
}

export function conflict(what: Named, name: string, why: string): StatusError {
  const message = `Operation cannot be fulfilled on ${qualified(what)} "${name}": ${why}`;
  return new StatusError(409, 'Conflict', message, { name, group: what.group, kind: what.plural });
}

export const STALE = 'the object has been modified; please apply your changes to the latest version and try again';

export function invalid(what: Named, name: string, causes: readonly Cause[]): StatusError {
  const parts = causes.map((cause) => `${cause.field}: ${cause.message}`);
  const joined = parts.length === 1 ? (parts[0] ?? '') : `[${parts.join(', ')}]`;
  const kind = what.group === '' ? what.kind : `${what.kind}.${what.group}`;
  return new StatusError(422, 'Invalid', `${kind} "${name}" is invalid: ${joined}`, {
    name,
    group: what.group,
    kind: what.kind,
    causes,
  });
}

/** Options of a request that are not allowed; `verb` is Create, Update, Patch, Delete or List. */
export function invalidOptions(verb: string, causes: readonly Cause[]): StatusError {
  return invalid({ group: 'meta.k8s.io', plural: '', kind: `${verb}Options` }, '', causes);
}

export const badRequest = (message: string): StatusError => new StatusError(400, 'BadRequest', message);

export function forbidden(what: Named, name: string, why: string, causes?: readonly Cause[]): StatusError {
  return new StatusError(403, 'Forbidden', `${qualified(what)} "${name}" is forbidden: ${why}`, {
    name,
    group: what.group,
    kind: what.plural,
    ...(causes === undefined ? {} : { causes }),
  });
}

export const expired = (message: string): StatusError => new StatusError(410, 'Expired', message);

export const unsupportedMediaType = (accepted: readonly string[]): StatusError =>
  new StatusError(
    415,
    'UnsupportedMediaType',
    `the body of the request was in an unknown format - accepted media types include: ${accepted.join(', ')}`,
  );

export const methodNotAllowed = (): StatusError =>
  new StatusError(405, 'MethodNotAllowed', 'the server does not allow this method on the requested resource', {});

/** A resourceVersion that this server has not reached. */
export function tooLargeRevision(asked: number, current: number): StatusError {
  const message = `Timeout: Too large resource version: ${asked}, current: ${current}`;
  const causes = [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }];
  return new StatusError(504, 'Timeout', message, { causes, retryAfterSeconds: 1 });
}

/** A field error as the real server words it. */
export const cause = {
  required: (field: string, detail = ''): Cause => ({
    reason: 'FieldValueRequired',
    message: detail === '' ? 'Required value' : `Required value: ${detail}`,
    field,
  }),
  invalid: (field: string, value: Json | undefined, detail: string): Cause => ({
    reason: 'FieldValueInvalid',
    message: `Invalid value: ${JSON.stringify(value ?? null)}: ${detail}`,
    field,
  }),
  type: (field: string, shown: string, detail: string): Cause => ({
    reason: 'FieldValueTypeInvalid',
    message: `Invalid value: ${JSON.stringify(shown)}: ${detail}`,
    field,
  }),
  notSupported: (field: string, value: Json | undefined, allowed: readonly Json[]): Cause => ({
    reason: 'FieldValueNotSupported',
    message: `Unsupported value: ${JSON.stringify(value ?? null)}: supported values: ${allowed.map((v) => JSON.stringify(v)).join(', ')}`,
    field,
  }),
  duplicate: (field: string, value: Json): Cause => ({
    reason: 'FieldValueDuplicate',
    message: `Duplicate value: ${JSON.stringify(value)}`,
    field,
  }),
  forbidden: (field: string, detail: string): Cause => ({
    reason: 'FieldValueForbidden',
    message: `Forbidden: ${detail}`,
    field,
  }),
};
