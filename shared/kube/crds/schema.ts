/** Small builders for structural OpenAPI v3 schemas. */

export type Schema = { readonly [key: string]: unknown };

const described = (description: string | undefined): Schema => (description === undefined ? {} : { description });

export const text = (description?: string): Schema => ({ type: 'string', ...described(description) });
export const whole = (description?: string): Schema => ({
  type: 'integer',
  format: 'int64',
  ...described(description),
});
export const flag = (description?: string): Schema => ({ type: 'boolean', ...described(description) });
export const list = (items: Schema, description?: string): Schema => ({
  type: 'array',
  items,
  ...described(description),
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
export const open = (properties: Record<string, Schema>, description?: string): Schema => ({
  type: 'object',
  properties,
  'x-kubernetes-preserve-unknown-fields': true,
  ...described(description),
});

export interface CrdSpec {
  readonly group: string;
  readonly version: string;
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

/** A CustomResourceDefinition with one served and stored version. */
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
      versions: [
        {
          name: spec.version,
          served: true,
          storage: true,
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
        },
      ],
    },
  };
}
