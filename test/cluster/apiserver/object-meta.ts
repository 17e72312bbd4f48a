/** Rules of object metadata: names, labels, what only the server sets. */
import { randomBytes } from 'node:crypto';
import { type Cause, cause } from './errors.ts';
import { type JsonObject, list, object, scalarText, stringMap, text } from './json.ts';
import { dnsLabelFaults, faults, keyFaults, subdomainFaults, valueFaults } from './label-rules.ts';
import type { Resource } from './registry.ts';

const LABEL_NAMES = new Set(['namespaces', 'services']);
const OWN_FINALIZERS = new Set([
  'orphan',
  'foregroundDeletion',
  'kubernetes',
  'customresourcecleanup.apiextensions.k8s.io',
]);
const FREE_NAMES = 'rbac.authorization.k8s.io';

export function metadataRules(resource: Resource, o: JsonObject): Cause[] {
  const out: Cause[] = [];
  const name = text(o, 'metadata', 'name');
  const prefix = text(o, 'metadata', 'generateName');
  // The prefix may end in what the suffix puts right.
  if (prefix !== '' && resource.group !== FREE_NAMES)
    out.push(...faults('metadata.generateName', prefix, nameFaults(resource, prefix.replace(/[-.]$/, 'a'))));
  if (name === '') out.push(cause.required('metadata.name', 'name or generateName is required'));
  else if (resource.group === FREE_NAMES) {
    if (/[/%]|^\.\.?$/.test(name))
      out.push(cause.invalid('metadata.name', name, "may not contain '/' or '%', or be '.' or '..'"));
  } else out.push(...faults('metadata.name', name, nameFaults(resource, name)));
  for (const [key, value] of Object.entries(stringMap(o, 'metadata', 'labels'))) {
    out.push(...faults('metadata.labels', key, keyFaults(key)));
    out.push(...faults('metadata.labels', value, valueFaults(value)));
  }
  for (const key of Object.keys(object(o, 'metadata', 'annotations'))) {
    out.push(...faults('metadata.annotations', key, keyFaults(key.toLowerCase())));
  }
  list(o, 'metadata', 'finalizers').forEach((finalizer, i) => {
    out.push(...finalizerFaults(`metadata.finalizers[${i}]`, scalarText(finalizer)));
  });
  for (const owner of list(o, 'metadata', 'ownerReferences')) {
    for (const field of ['apiVersion', 'kind', 'name', 'uid']) {
      if (text(owner, field) === '') {
        const what = field === 'apiVersion' ? 'version must' : 'must';
        out.push(cause.invalid(`metadata.ownerReferences.${field}`, '', `${what} not be empty`));
      }
    }
  }
  return out;
}

function nameFaults(resource: Resource, name: string): string[] {
  if (LABEL_NAMES.has(resource.plural) && resource.group === '') {
    return dnsLabelFaults(name);
  }
  return subdomainFaults(name);
}

/** Finalizers of others than the server itself are qualified by a domain. */
function finalizerFaults(field: string, name: string): Cause[] {
  const wrong = faults(field, name, keyFaults(name));
  if (wrong.length > 0 || name.includes('/') || OWN_FINALIZERS.has(name)) return wrong;
  return [cause.invalid(field, name, 'name is neither a standard finalizer name nor is it fully qualified')];
}

const ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/** Five characters as the real server appends to generateName. */
export function nameSuffix(): string {
  return [...randomBytes(5)].map((byte) => ALPHABET[byte % ALPHABET.length]).join('');
}

/** RFC 3339 with whole seconds, as object timestamps are. */
export const timestamp = (date: Date): string => `${date.toISOString().slice(0, 19)}Z`;
