/** A request, whatever carried it, and the parameters that verbs share. */
import { badRequest } from './errors.ts';
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

export function isDryRun(values: readonly string[]): boolean {
  const given = values.filter((value) => value !== '');
  if (given.some((value) => value !== 'All')) {
    throw badRequest(`dryRun: Unsupported value: ${JSON.stringify(given[0])}: supported values: "All"`);
  }
  return given.length > 0;
}

/** The fieldManager parameter, or what the User-Agent starts with. */
export function managerOf(request: ApiRequest): string {
  return request.query.get('fieldManager') || request.userAgent.split('/')[0] || 'unknown';
}

export function deleteOptions(request: ApiRequest): DeleteOptions {
  const { query, body } = request;
  const grace = isObject(body) && typeof body.gracePeriodSeconds === 'number' ? body.gracePeriodSeconds : undefined;
  const graceText = query.get('gracePeriodSeconds');
  const seconds = grace ?? (graceText === null ? undefined : integer('gracePeriodSeconds', graceText));
  const policy = text(body, 'propagationPolicy') || (query.get('propagationPolicy') ?? '');
  const orphan = isObject(body) && body.orphanDependents === true ? 'Orphan' : '';
  const [uid, resourceVersion] = [text(body, 'preconditions', 'uid'), text(body, 'preconditions', 'resourceVersion')];
  const preconditions = { ...(uid === '' ? {} : { uid }), ...(resourceVersion === '' ? {} : { resourceVersion }) };
  const chosen = policy || orphan;
  return {
    ...(seconds === undefined ? {} : { gracePeriodSeconds: seconds }),
    ...(chosen === '' ? {} : { propagationPolicy: chosen as 'Background' | 'Foreground' | 'Orphan' }),
    ...(Object.keys(preconditions).length === 0 ? {} : { preconditions }),
    dryRun: isDryRun([...query.getAll('dryRun'), ...list(body, 'dryRun').map(String)]),
  };
}
