/** Small builders for structural OpenAPI v3 schemas. */

export type Schema = { readonly [key: string]: unknown };

const described = (description: string | undefined): Schema => (description === undefined ? {} : { description });

/** @param limits what else a value must be: `pattern`, `enum`, `maxLength` */
export const text = (description?: string, limits: Schema = {}): Schema => ({
  type: 'string',
  ...described(description),
  ...limits,
});
export const whole = (description?: string, limits: Schema = {}): Schema => ({
  type: 'integer',
  format: 'int64',
  ...described(description),
  ...limits,
});
export const flag = (description?: string): Schema => ({ type: 'boolean', ...described(description) });
export const list = (items: Schema, description?: string, limits: Schema = {}): Schema => ({
  type: 'array',
  items,
  ...described(description),
  ...limits,
});
/** One value to server-side apply: of a map by keys, an API server leaves null when the last key is taken away, and refuses that. */
export const map = (values: Schema, description?: string): Schema => ({
  type: 'object',
  'x-kubernetes-map-type': 'atomic',
  additionalProperties: values,
  ...described(description),
});
/** An object with exactly these fields; others are pruned. */
export const fields = (properties: Record<string, Schema>, description?: string, required?: string[]): Schema => ({
  type: 'object',
  properties,
  ...described(description),
  ...(required === undefined ? {} : { required }),
});
/** An object that also keeps fields nobody declared, so that the operator can see and name them. */
export const open = (properties: Record<string, Schema>, description?: string, limits: Schema = {}): Schema => ({
  type: 'object',
  properties,
  'x-kubernetes-preserve-unknown-fields': true,
  ...described(description),
  ...limits,
});

/** Rules in CEL, each with what to write instead. */
export const rules = (...all: readonly (readonly [rule: string, message: string])[]): Schema => ({
  'x-kubernetes-validations': all.map(([rule, message]) => ({ rule, message })),
});

/** Exactly one of these fields; each with what its value must be to count. */
export const oneOf = (fields: Readonly<Record<string, Schema | undefined>>): Schema => ({
  oneOf: Object.entries(fields).map(([field, value]) => ({
    required: [field],
    ...(value === undefined ? {} : { properties: { [field]: value } }),
  })),
});

export interface CrdSpec {
  readonly group: string;
  readonly version: string;
  /** Earlier versions of the same schema, which are served, too. */
  readonly earlier?: readonly string[];
  readonly kind: string;
  readonly plural: string;
  readonly singular: string;
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
  readonly scope: 'Namespaced' | 'Cluster';
  readonly description: string;
  readonly properties: Record<string, Schema>;
  readonly required?: readonly string[];
  readonly columns?: readonly {
    name: string;
    type: string;
    jsonPath: string;
    description?: string;
    priority?: number;
  }[];
  readonly statusSubresource?: boolean;
}

/** A CustomResourceDefinition with one stored version. */
export function crd(spec: CrdSpec): object {
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${spec.plural}.${spec.group}`, labels: { 'app.kubernetes.io/part-of': 'weir' } },
    spec: {
      group: spec.group,
      names: {
        kind: spec.kind,
        listKind: `${spec.kind}List`,
        plural: spec.plural,
        singular: spec.singular,
        ...(spec.shortNames === undefined ? {} : { shortNames: spec.shortNames }),
        ...(spec.categories === undefined ? {} : { categories: spec.categories }),
      },
      scope: spec.scope,
      versions: [spec.version, ...(spec.earlier ?? [])].map((name) => ({
        name,
        served: true,
        storage: name === spec.version,
        ...(spec.columns === undefined ? {} : { additionalPrinterColumns: spec.columns }),
        ...(spec.statusSubresource === true ? { subresources: { status: {} } } : {}),
        schema: {
          openAPIV3Schema: {
            type: 'object',
            description: spec.description,
            properties: {
              apiVersion: text('Version of the schema of this object.'),
              kind: text('Kind of this object.'),
              metadata: { type: 'object' },
              ...spec.properties,
            },
            ...(spec.required === undefined ? {} : { required: spec.required }),
          },
        },
      })),
    },
  };
}
