/** A request, whatever carried it, and the parameters that verbs share. */
import { badRequest, cause, invalidOptions, StatusError } from './errors.ts';
import { isObject, type Json, list, text } from './json.ts';
import type { DeleteOptions } from './types.ts';

export interface ApiRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly accept: string;
  /** Media type of the body, without parameters. */
  readonly contentType: string;
  readonly userAgent: string;
  /** The parsed body; undefined when there is none. */
  readonly body: Json | undefined;
}

export const isTrue = (value: string | null): boolean => value === 'true' || value === '1';

/** @throws StatusError BadRequest */
export function integer(name: string, value: string): number {
  if (!/^\d+$/.test(value)) throw badRequest(`${name}: ${JSON.stringify(value)} is not a whole number`);
  return Number(value);
}

/** `verb` is Create, Update, Patch or Delete. @throws StatusError Invalid */
export function isDryRun(values: readonly string[], verb: string): boolean {
  const given = values.filter((value) => value !== '');
  if (given.some((value) => value !== 'All'))
    throw invalidOptions(verb, [cause.notSupported('dryRun', [...given], ['All'])]);
  return given.length > 0;
}

/** The fieldManager parameter, or what the User-Agent starts with. */
export function managerOf(request: ApiRequest): string {
  return request.query.get('fieldManager') || request.userAgent.split('/')[0] || 'unknown';
}

const POLICIES = ['Foreground', 'Background', 'Orphan'];

/** The options inside an Eviction. */
export function deleteOptionsOf(request: ApiRequest): DeleteOptions {
  const body = isObject(request.body) ? request.body.deleteOptions : undefined;
  return deleteOptions({ ...request, body });
}

export function deleteOptions(request: ApiRequest): DeleteOptions {
  const { query, body } = request;
  const grace = isObject(body) && typeof body.gracePeriodSeconds === 'number' ? body.gracePeriodSeconds : undefined;
  const graceText = query.get('gracePeriodSeconds');
  const seconds = grace ?? (graceText === null ? undefined : integer('gracePeriodSeconds', graceText));
  const policy = text(body, 'propagationPolicy') || (query.get('propagationPolicy') ?? '');
  const orphan = isObject(body) && body.orphanDependents === true ? 'Orphan' : '';
  if (policy !== '' && orphan !== '')
    throw invalidOptions('Delete', [
      cause.invalid('propagationPolicy', policy, 'orphanDependents and deletionPropagation cannot be both set'),
    ]);
  if (policy !== '' && !POLICIES.includes(policy))
    throw invalidOptions('Delete', [cause.notSupported('propagationPolicy', policy, [...POLICIES, 'nil'])]);
  const [uid, resourceVersion] = [text(body, 'preconditions', 'uid'), text(body, 'preconditions', 'resourceVersion')];
  const preconditions = { ...(uid === '' ? {} : { uid }), ...(resourceVersion === '' ? {} : { resourceVersion }) };
  const chosen = policy || orphan;
  return {
    ...(seconds === undefined ? {} : { gracePeriodSeconds: seconds }),
    ...(chosen === '' ? {} : { propagationPolicy: chosen as 'Background' | 'Foreground' | 'Orphan' }),
    ...(Object.keys(preconditions).length === 0 ? {} : { preconditions }),
    dryRun: isDryRun([...query.getAll('dryRun'), ...list(body, 'dryRun').map(String)], 'Delete'),
  };
}

/** The resourceVersion of a list or watch; empty stays empty. @throws StatusError BadRequest, Invalid */
export function checkListOptions(query: URLSearchParams, watching: boolean): void {
  const [version, match] = [query.get('resourceVersion') ?? '', query.get('resourceVersionMatch') ?? ''];
  const field = 'resourceVersionMatch';
  const initial = query.get('sendInitialEvents') !== null;
  const refused = (why: string): Error => invalidOptions('List', [cause.forbidden(field, why)]);
  if (watching) {
    if (initial && match !== 'NotOlderThan')
      throw refused('sendInitialEvents requires setting resourceVersionMatch to NotOlderThan');
    if (!initial && match !== '')
      throw refused('resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided');
    return;
  }
  if (match !== '') {
    if (version === '') throw refused('resourceVersionMatch is forbidden unless resourceVersion is provided');
    if ((query.get('continue') ?? '') !== '')
      throw refused('resourceVersionMatch is forbidden when continue is provided');
    if (match !== 'Exact' && match !== 'NotOlderThan')
      throw invalidOptions('List', [cause.notSupported(field, match, ['Exact', 'NotOlderThan', ''])]);
    if (match === 'Exact' && version === '0')
      throw refused('resourceVersionMatch "exact" is forbidden for resourceVersion "0"');
  }
  if (version !== '' && !/^\d+$/.test(version)) throw badRequest(`invalid resource version: ${unreadable(version)}`);
  if ((query.get('continue') ?? '') !== '' && version !== '' && version !== '0')
    throw badRequest('specifying resource version is not allowed when using continue');
}

const unreadable = (version: string): string =>
  `resourceVersion: Invalid value: ${JSON.stringify(version)}: strconv.ParseUint: parsing ${JSON.stringify(version)}: invalid syntax`;

/** The real server answers a get and a watch at a revision that is no number with 500. @throws StatusError */
export function checkRevision(version: string): void {
  if (!/^\d*$/.test(version)) throw new StatusError(500, '', unreadable(version));
}
