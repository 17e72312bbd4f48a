/** Rules of object metadata: names, labels, what only the server sets. */
import { randomBytes } from 'node:crypto';
import { type Cause, cause } from './errors.ts';
import { type JsonObject, list, object, stringMap, text } from './json.ts';
import type { Resource } from './registry.ts';

const LABEL_NAMES = new Set(['namespaces', 'services']);
const FREE_NAMES = 'rbac.authorization.k8s.io';
const DNS_LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const QUALIFIED = /^([a-z0-9]([-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const LABEL_VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;

export function metadataRules(resource: Resource, o: JsonObject): Cause[] {
  const out: Cause[] = [];
  const name = text(o, 'metadata', 'name');
  if (name === '') out.push(cause.required('metadata.name', 'name or generateName is required'));
  else if (resource.group === FREE_NAMES) {
    if (/[/%]|^\.\.?$/.test(name))
      out.push(cause.invalid('metadata.name', name, "may not contain '/' or '%', or be '.' or '..'"));
  } else if (LABEL_NAMES.has(resource.plural)) {
    if (!DNS_LABEL.test(name) || name.length > 63) {
      out.push(
        cause.invalid(
          'metadata.name',
          name,
          "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
      );
    }
  } else if (!SUBDOMAIN.test(name) || name.length > 253) {
    out.push(
      cause.invalid(
        'metadata.name',
        name,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
      ),
    );
  }
  for (const [key, value] of Object.entries(stringMap(o, 'metadata', 'labels'))) {
    if (!QUALIFIED.test(key))
      out.push(
        cause.invalid(
          'metadata.labels',
          key,
          "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        ),
      );
    if (!LABEL_VALUE.test(value))
      out.push(
        cause.invalid(
          'metadata.labels',
          value,
          "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        ),
      );
  }
  for (const key of Object.keys(object(o, 'metadata', 'annotations'))) {
    if (!QUALIFIED.test(key))
      out.push(
        cause.invalid(
          'metadata.annotations',
          key,
          "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        ),
      );
  }
  list(o, 'metadata', 'ownerReferences').forEach((owner, i) => {
    for (const field of ['apiVersion', 'kind', 'name', 'uid']) {
      if (text(owner, field) === '') {
        out.push(cause.invalid(`metadata.ownerReferences[${i}].${field}`, '', `${field} must not be empty`));
      }
    }
  });
  return out;
}

const ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/** Five characters as the real server appends to generateName. */
export function nameSuffix(): string {
  return [...randomBytes(5)].map((byte) => ALPHABET[byte % ALPHABET.length]).join('');
}

/** RFC 3339 with whole seconds, as object timestamps are. */
export const timestamp = (date: Date): string => `${date.toISOString().slice(0, 19)}Z`;
