/** Names, keys and values as the real server judges and words them. */
import { type Cause, cause } from './errors.ts';
import { isObject, type Json, list, object, scalarText } from './json.ts';

const LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
const SUBDOMAIN = String.raw`${LABEL}(\.${LABEL})*`;
const NAME_PART = '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]';
const VALUE = '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?';

const whole = (pattern: string): RegExp => new RegExp(`^${pattern}$`);
const [IS_LABEL, IS_SUBDOMAIN, IS_NAME, IS_VALUE] = [LABEL, SUBDOMAIN, NAME_PART, VALUE].map(whole) as [
  RegExp,
  RegExp,
  RegExp,
  RegExp,
];

const used = (examples: readonly string[], pattern: string): string =>
  `(e.g. ${examples.map((example) => `'${example}'`).join(',  or ')}, regex used for validation is '${pattern}')`;

const tooLong = (most: number): string => `must be no more than ${most} characters`;

/** What is wrong with a DNS label. */
export function dnsLabelFaults(value: string): string[] {
  const out: string[] = [];
  if (value.length > 63) out.push(tooLong(63));
  if (!IS_LABEL.test(value))
    out.push(
      IS_SUBDOMAIN.test(value)
        ? 'must not contain dots'
        : `a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character ${used(['my-name', '123-abc'], LABEL)}`,
    );
  return out;
}

/** What is wrong with a DNS subdomain. */
export function subdomainFaults(value: string): string[] {
  const out: string[] = [];
  if (value.length > 253) out.push(tooLong(253));
  if (!IS_SUBDOMAIN.test(value))
    out.push(
      `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character ${used(['example.com'], SUBDOMAIN)}`,
    );
  return out;
}

/** What is wrong with the key of a label or an annotation: `name` or `prefix/name`. */
export function keyFaults(key: string): string[] {
  const parts = key.split('/');
  const must =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
  const how = used(['MyName', 'my.name', '123-abc'], NAME_PART);
  if (parts.length > 2)
    return [
      `a qualified name ${must} ${how} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
    ];
  const out: string[] = [];
  const [prefix, name = ''] = parts.length === 2 ? parts : [undefined, key];
  if (prefix === '') out.push('prefix part must be non-empty');
  else if (prefix !== undefined) out.push(...subdomainFaults(prefix).map((fault) => `prefix part ${fault}`));
  if (name === '') out.push('name part must be non-empty');
  else if (name.length > 63) out.push(`name part ${tooLong(63)}`);
  if (!IS_NAME.test(name)) out.push(`name part ${must} ${how}`);
  return out;
}

export function valueFaults(value: string): string[] {
  const out: string[] = [];
  if (value.length > 63) out.push(tooLong(63));
  if (!IS_VALUE.test(value))
    out.push(
      `a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character ${used(['MyValue', 'my_value', '12345'], VALUE)}`,
    );
  return out;
}

/** What is wrong with the name of a port (an IANA service name). */
export function portNameFaults(value: string): string[] {
  const out: string[] = [];
  if (value.length > 15) out.push(tooLong(15));
  if (!/^[-a-z0-9]+$/.test(value)) out.push('must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)');
  if (!/[a-z]/.test(value)) out.push('must contain at least one letter (a-z)');
  if (value.includes('--')) out.push('must not contain consecutive hyphens');
  if (value.startsWith('-') || value.endsWith('-')) out.push('must not begin or end with a hyphen');
  return out;
}

export const faults = (field: string, value: Json, found: readonly string[]): Cause[] =>
  found.map((fault) => cause.invalid(field, value, fault));

/** Rules of a LabelSelector. */
export function selectorRules(selector: Json | undefined, path: string): Cause[] {
  if (!isObject(selector)) return [];
  const out: Cause[] = [];
  for (const [key, value] of Object.entries(object(selector, 'matchLabels')).sort(([a], [b]) => (a < b ? -1 : 1))) {
    out.push(...faults(`${path}.matchLabels`, key, keyFaults(key)));
    out.push(...faults(`${path}.matchLabels`, value, valueFaults(scalarText(value))));
  }
  list(selector, 'matchExpressions').forEach((expression, i) => {
    out.push(...expressionRules(isObject(expression) ? expression : {}, `${path}.matchExpressions[${i}]`));
  });
  return out;
}

function expressionRules(expression: { [key: string]: Json }, where: string): Cause[] {
  const out: Cause[] = [];
  const operator = scalarText(expression.operator);
  const values = list(expression, 'values');
  if (operator === 'In' || operator === 'NotIn') {
    if (values.length === 0)
      out.push(cause.required(`${where}.values`, "must be specified when `operator` is 'In' or 'NotIn'"));
  } else if (operator === 'Exists' || operator === 'DoesNotExist') {
    if (values.length > 0)
      out.push(
        cause.forbidden(`${where}.values`, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
      );
  } else out.push(cause.invalid(`${where}.operator`, operator, 'not a valid selector operator'));
  const key = scalarText(expression.key);
  out.push(...faults(`${where}.key`, key, keyFaults(key)));
  values.forEach((value, i) => {
    out.push(...faults(`${where}.values[${i}]`, value, valueFaults(scalarText(value))));
  });
  return out;
}

/** Whether a LabelSelector selects these labels; an absent one selects nothing. */
export function matchesSelector(selector: Json | undefined, labels: { readonly [key: string]: Json }): boolean {
  if (!isObject(selector)) return false;
  for (const [key, value] of Object.entries(object(selector, 'matchLabels'))) if (labels[key] !== value) return false;
  return list(selector, 'matchExpressions').every((expression) => {
    const key = isObject(expression) ? scalarText(expression.key) : '';
    const has = Object.hasOwn(labels, key);
    const among = has && list(expression, 'values').includes(labels[key] ?? null);
    switch (isObject(expression) ? expression.operator : '') {
      case 'In':
        return among;
      case 'NotIn':
        return !among;
      case 'Exists':
        return has;
      case 'DoesNotExist':
        return !has;
      default:
        return false;
    }
  });
}
