/** The CRDs as they were before policies were judged by a schema: an API server may hold objects from then, or under CRDs of others. */
import { crds } from '@weir/kube';

/** What a schema judges values by, beside their types. */
const JUDGES = new Set([
  ...['pattern', 'enum', 'minLength', 'maxLength', 'minimum', 'maximum', 'minItems', 'maxItems'],
  ...['required', 'oneOf', 'not', 'x-kubernetes-validations'],
]);

export function looseCrds(): object[] {
  return crds().map((crd) => {
    const { spec } = crd as { readonly spec: { readonly group: string } };
    return spec.group === 'cilium.io' ? (loosened(crd) as object) : crd;
  });
}

function loosened(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(loosened);
  if (typeof schema !== 'object' || schema === null) return schema;
  // Names of fields are no keywords.
  const entries = Object.entries(schema).filter(([key, value]) => !(JUDGES.has(key) && !isFields(value)));
  return Object.fromEntries(entries.map(([key, value]) => [key, loosened(value)]));
}

/** A schema, so that its key is the name of a field: none of ours is called as a keyword, but `not` is one with a schema as its value. */
function isFields(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'type' in value;
}
