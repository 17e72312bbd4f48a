/** Label and field selectors of list and watch requests. */
import { badRequest } from './errors.ts';
import { type JsonObject, stringMap, text } from './json.ts';
import { labelTests } from './label-selector.ts';
import type { Resource } from './registry.ts';

export type Predicate = (object: JsonObject) => boolean;

/** @throws StatusError BadRequest when the selector cannot be parsed. */
export function labelPredicate(selector: string): Predicate | undefined {
  const tests = labelTests(selector);
  if (tests.length === 0) return undefined;
  return (object) => {
    const labels = stringMap(object, 'metadata', 'labels');
    return tests.every((test) => test(labels));
  };
}

/** Kinds whose fields the real server names in its refusal, and those of which it only says that it does not know one. */
const TERSE = new Set([
  '/pods',
  '/nodes',
  '/services',
  '/namespaces',
  '/secrets',
  '/events',
  'apps/replicasets',
  'batch/jobs',
]);

/** @throws StatusError BadRequest when the selector cannot be parsed or names a field that the kind does not index. */
function fieldPredicate(selector: string, resource: Resource): Predicate | undefined {
  const tests = split(selector).map((requirement) => {
    const match = /^(.*?)(==|!=|=)(.*)$/s.exec(requirement);
    if (match === null) throw badRequest(`invalid selector: '${selector}'; can't understand '${requirement}'`);
    const [, field = '', operator, escaped = ''] = match;
    const value = unescaped(escaped);
    const read = fieldReader(field, resource);
    return operator === '!=' ? (o: JsonObject) => read(o) !== value : (o: JsonObject) => read(o) === value;
  });
  if (tests.length === 0) return undefined;
  return (object) => tests.every((test) => test(object));
}

/** At commas that no backslash escapes. */
function split(selector: string): string[] {
  return selector.split(/(?<!\\),/).filter((part) => part !== '');
}

function unescaped(value: string): string {
  const raw = /(?<!\\)[=,]/.exec(value);
  if (raw !== null) throw badRequest(`invalid field selector: unescaped character in value: ${raw[0].charCodeAt(0)}`);
  return value.replaceAll(/\\([\\,=])/g, '$1');
}

function fieldReader(field: string, resource: Resource): (object: JsonObject) => string {
  if (field === 'metadata.name') return (object) => text(object, 'metadata', 'name');
  if (field === 'metadata.namespace') return (object) => text(object, 'metadata', 'namespace');
  const read = Object.hasOwn(resource.fields, field) ? resource.fields[field] : undefined;
  if (read !== undefined) return read;
  throw badRequest(
    TERSE.has(resource.storage) || resource.custom
      ? `field label not supported: ${field}`
      : `${JSON.stringify(field)} is not a known field selector: only "metadata.name", "metadata.namespace"`,
  );
}

/** Both selectors together; undefined selects everything. */
export function predicate(labels: string, fields: string, resource: Resource): Predicate | undefined {
  const byLabel = labelPredicate(labels);
  const byField = fieldPredicate(fields, resource);
  if (byLabel === undefined) return byField;
  if (byField === undefined) return byLabel;
  return (object) => byLabel(object) && byField(object);
}
