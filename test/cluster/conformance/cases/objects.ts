/** What the cases create, and what they look at in answers. */
import { isObject, textOf } from '../client.ts';
import type { Json, JsonObject, Pick, Session } from '../types.ts';

export const configMap = (
  name: string,
  data: Record<string, string> = { a: '1' },
  labels?: Record<string, string>,
): JsonObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, ...(labels === undefined ? {} : { labels }) },
  data,
});

/** A pod that no scheduler and no controller touches. */
export const pod = (
  name: string,
  spec: JsonObject = {},
  labels: Record<string, string> = { app: name },
): JsonObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, labels },
  spec: {
    schedulerName: 'nobody',
    automountServiceAccountToken: false,
    containers: [{ name: 'main', image: 'example.com/app:1' }],
    ...spec,
  },
});

export const template = (labels: Record<string, string>): JsonObject => ({
  metadata: { labels },
  spec: { containers: [{ name: 'main', image: 'example.com/app:1' }] },
});

/** Pods can be created once the namespace has its default account. */
export async function readyForPods(api: Session): Promise<void> {
  await api.until(api.at('v1', 'serviceaccounts', 'default'), (reply) => reply.status === 200);
}

export const items = (body: Json): Json[] => (isObject(body) && Array.isArray(body.items) ? body.items : []);

export const nameOf = (object: Json): string =>
  isObject(object) && isObject(object.metadata) ? textOf(object.metadata.name) : '';

/** Only the names in a list, and what its metadata says. */
export const names: Pick = (body) =>
  isObject(body) ? { kind: body.kind ?? null, items: items(body).map(nameOf), metadata: body.metadata ?? null } : body;

/** Only the names: where the cluster has other objects too, filtered by `mine`. */
export const namesOf =
  (mine: (name: string) => boolean): Pick =>
  (body) =>
    items(body).map(nameOf).filter(mine);

/** The value at a path. */
export const only =
  (...path: readonly string[]): Pick =>
  (body) => {
    let at: Json = body;
    for (const key of path) at = isObject(at) ? (at[key] ?? null) : null;
    return at;
  };

/** Without the fields at these dotted paths; a star stands for every entry of a list. */
export const without =
  (...paths: readonly string[]): Pick =>
  (body) => {
    const copy = structuredClone(body);
    for (const path of paths) drop(copy, path.split('.'));
    return copy;
  };

function drop(value: Json, [key = '', ...rest]: readonly string[]): void {
  if (key === '*' && Array.isArray(value)) for (const entry of value) drop(entry, rest);
  if (!isObject(value)) return;
  if (rest.length === 0) delete value[key];
  else drop(value[key] ?? null, rest);
}

/** The fields at these dotted paths only; what is missing is null. */
export const some =
  (...paths: readonly string[]): Pick =>
  (body) => {
    const out: JsonObject = {};
    for (const path of paths) {
      const keys = path.split('.');
      const last = keys.pop() ?? '';
      let at = out;
      for (const key of keys) {
        const next = isObject(at[key]) ? at[key] : {};
        at[key] = next;
        at = next;
      }
      at[last] = only(...keys, last)(body);
    }
    return out;
  };

/** A definition with one version `v1` of that schema of `spec`; its group belongs to this run. */
export function definition(
  api: Session,
  kind: string,
  spec: JsonObject,
  version: JsonObject = {},
  extra: JsonObject = {},
): JsonObject {
  const plural = `${kind.toLowerCase()}s`;
  const group = `${api.run}.example.com`;
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: 'Namespaced',
      names: { plural, kind },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: {
            openAPIV3Schema: {
              type: 'object',
              properties: { spec, status: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
            },
          },
          ...version,
        },
      ],
      ...extra,
    },
  };
}

export const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';

/** Creates a definition, waits until its objects are served, and removes it after the case. */
export async function define(api: Session, crd: JsonObject): Promise<string> {
  const name = nameOf(crd);
  const made = await api.quiet('POST', CRDS, { body: crd });
  if (made.status !== 201) throw new Error(`definition ${name}: HTTP ${made.status} ${JSON.stringify(made.body)}`);
  api.after(() => api.quiet('DELETE', `${CRDS}/${name}`));
  await established(api, crd);
  const spec = crd.spec as JsonObject;
  return `${textOf(spec.group)}/v1`;
}

export async function established(api: Session, crd: JsonObject): Promise<void> {
  await api.until(`${CRDS}/${nameOf(crd)}`, ({ object }) => {
    const status = object.status;
    const conditions = isObject(status) && Array.isArray(status.conditions) ? status.conditions : [];
    return conditions.some((c) => isObject(c) && c.type === 'Established' && c.status === 'True');
  });
  const spec = crd.spec as JsonObject;
  const plural = textOf((spec.names as JsonObject).plural);
  for (const version of spec.versions as JsonObject[]) {
    if (version.served === true)
      await api.until(`/apis/${textOf(spec.group)}/${textOf(version.name)}/${plural}`, (reply) => reply.status === 200);
  }
}

export const widget = (api: Session, name: string, spec: JsonObject = {}): JsonObject => ({
  apiVersion: `${api.run}.example.com/v1`,
  kind: 'Widget',
  metadata: { name },
  spec,
});
