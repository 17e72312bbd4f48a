/** Label and field selectors of list and watch requests. */
import { badRequest } from './errors.ts';
import { type JsonObject, stringMap, text } from './json.ts';
import type { Resource } from './registry.ts';

export type Predicate = (object: JsonObject) => boolean;

const NAME = '[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?';
const SET = new RegExp(String.raw`^(${NAME})\s+(in|notin)\s*\(([^)]*)\)$`);
const EQUALITY = new RegExp(String.raw`^(${NAME})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)$`);
const ORDER = new RegExp(String.raw`^(${NAME})\s*([<>])\s*(\d+)$`);
const EXISTS = new RegExp(String.raw`^(!?)\s*(${NAME})$`);

/** Splits at commas outside parentheses. */
function requirements(selector: string): string[] {
  return selector
    .split(/,(?![^(]*\))/)
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

/** @throws StatusError BadRequest when the selector cannot be parsed. */
export function labelPredicate(selector: string): Predicate | undefined {
  const tests = requirements(selector).map(labelTest);
  if (tests.length === 0) return undefined;
  return (object) => {
    const labels = stringMap(object, 'metadata', 'labels');
    return tests.every((test) => test(labels));
  };
}

function labelTest(requirement: string): (labels: Record<string, string>) => boolean {
  const set = SET.exec(requirement);
  if (set !== null) {
    const [, key = '', operator, values = ''] = set;
    const wanted = values.split(',').map((value) => value.trim());
    const isIn = (labels: Record<string, string>): boolean => labels[key] !== undefined && wanted.includes(labels[key]);
    return operator === 'in' ? isIn : (labels) => !isIn(labels);
  }
  const equality = EQUALITY.exec(requirement);
  if (equality !== null) {
    const [, key = '', operator, value = ''] = equality;
    return operator === '!=' ? (labels) => labels[key] !== value : (labels) => labels[key] === value;
  }
  const order = ORDER.exec(requirement);
  if (order !== null) {
    const [, key = '', operator, bound] = order;
    return (labels) => (operator === '>' ? Number(labels[key]) > Number(bound) : Number(labels[key]) < Number(bound));
  }
  const exists = EXISTS.exec(requirement);
  if (exists !== null) {
    const [, negated, key = ''] = exists;
    return (labels) => Object.hasOwn(labels, key) !== (negated === '!');
  }
  throw badRequest(
    `unable to parse requirement: "${requirement}" is no label requirement; write key=value, key!=value, key in (a,b), key notin (a,b), key or !key`,
  );
}

/** @throws StatusError BadRequest when the selector cannot be parsed or names a field that the kind does not index. */
export function fieldPredicate(selector: string, resource: Resource): Predicate | undefined {
  const tests = requirements(selector).map((requirement) => {
    const match = /^([^=!]+)(==|=|!=)(.*)$/.exec(requirement);
    if (match === null) throw badRequest(`invalid selector: '${selector}'; can't understand '${requirement}'`);
    const [, field = '', operator, value = ''] = match;
    const read = fieldReader(field, resource);
    return operator === '!=' ? (o: JsonObject) => read(o) !== value : (o: JsonObject) => read(o) === value;
  });
  if (tests.length === 0) return undefined;
  return (object) => tests.every((test) => test(object));
}

function fieldReader(field: string, resource: Resource): (object: JsonObject) => string {
  if (field === 'metadata.name') return (object) => text(object, 'metadata', 'name');
  if (field === 'metadata.namespace') return (object) => text(object, 'metadata', 'namespace');
  const read = Object.hasOwn(resource.fields, field) ? resource.fields[field] : undefined;
  if (read === undefined) {
    const known = ['metadata.name', 'metadata.namespace', ...Object.keys(resource.fields)].join(', ');
    throw badRequest(`field label not supported: ${field} (${resource.plural} support ${known})`);
  }
  return read;
}

/** Both selectors together; undefined selects everything. */
export function predicate(labels: string, fields: string, resource: Resource): Predicate | undefined {
  const byLabel = labelPredicate(labels);
  const byField = fieldPredicate(fields, resource);
  if (byLabel === undefined) return byField;
  if (byField === undefined) return byLabel;
  return (object) => byLabel(object) && byField(object);
}
