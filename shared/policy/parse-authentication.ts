/** `authentication` of an element (spec 1.2): nobody authenticates yet. */
import { ASKING, type ElementContext } from './context.ts';
import { checkFields, isObject, type Json, member, nearest, type Problems, show } from './problems.ts';

const AUTHENTICATION = 'authentication';

/** Reports what cannot be read, and what is required, as nobody authenticates. */
export function checkAuthentication(json: Json, context: ElementContext, problems: Problems): void {
  const value = member(json, 'authentication');
  if (value === undefined || value === null) return;
  const path = `${context.path}.authentication`;
  if (context.verdict === 'deny') {
    problems.invalid(path, 'a deny takes no authentication: remove it');
    return;
  }
  if (!isObject(value)) {
    problems.invalid(path, `${show(value)} is not {mode: ...}`);
    return;
  }
  checkFields(value, ['mode'], path, problems);
  const mode = member(value, 'mode');
  if (mode === 'disabled') return;
  if (mode === 'required' || mode === 'test-always-fail')
    problems.unsupported(`${path}.mode`, `mutual authentication is not supported by Weir yet; ${ASKING}`);
  else problems.invalid(`${path}.mode`, `${show(mode)} is no mode: write disabled, required or test-always-fail`);
}

/** A member is authentication, misspelt. */
export function mayAuthenticate(json: Json): boolean {
  return Object.keys(json).some((field) => field !== AUTHENTICATION && nearest(field, [AUTHENTICATION]) !== undefined);
}
