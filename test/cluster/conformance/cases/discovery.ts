import { isObject, textOf } from '../client.ts';
import type { Case, Json, JsonObject, Pick } from '../types.ts';
import { define, definition, only, some } from './objects.ts';

/** The groups that the embedded server serves; the real one has more. */
const GROUPS = [
  '',
  'apiextensions.k8s.io',
  'apps',
  'authentication.k8s.io',
  'authorization.k8s.io',
  'batch',
  'coordination.k8s.io',
  'discovery.k8s.io',
  'events.k8s.io',
  'networking.k8s.io',
  'policy',
  'rbac.authorization.k8s.io',
  'scheduling.k8s.io',
];

const RESOURCES: Readonly<Record<string, readonly string[]>> = {
  '/api/v1': [
    'pods',
    'pods/status',
    'pods/binding',
    'pods/eviction',
    'namespaces',
    'namespaces/status',
    'namespaces/finalize',
    'nodes',
    'nodes/status',
    'services',
    'services/status',
    'endpoints',
    'configmaps',
    'secrets',
    'serviceaccounts',
    'events',
  ],
  '/apis/apps/v1': [
    'deployments',
    'deployments/status',
    'deployments/scale',
    'daemonsets',
    'daemonsets/status',
    'replicasets',
    'replicasets/scale',
    'statefulsets',
  ],
  '/apis/networking.k8s.io/v1': ['networkpolicies', 'networkpolicies/status'],
  '/apis/discovery.k8s.io/v1': ['endpointslices'],
  '/apis/events.k8s.io/v1': ['events'],
  '/apis/coordination.k8s.io/v1': ['leases'],
  '/apis/policy/v1': ['poddisruptionbudgets', 'poddisruptionbudgets/status'],
  '/apis/scheduling.k8s.io/v1': ['priorityclasses'],
  '/apis/batch/v1': ['jobs', 'jobs/status', 'cronjobs'],
  '/apis/rbac.authorization.k8s.io/v1': ['roles', 'rolebindings', 'clusterroles', 'clusterrolebindings'],
  '/apis/apiextensions.k8s.io/v1': ['customresourcedefinitions', 'customresourcedefinitions/status'],
  '/apis/authorization.k8s.io/v1': [
    'selfsubjectaccessreviews',
    'subjectaccessreviews',
    'localsubjectaccessreviews',
    'selfsubjectrulesreviews',
  ],
  '/apis/authentication.k8s.io/v1': ['selfsubjectreviews'],
};

const list = (value: Json, key: string): JsonObject[] =>
  isObject(value) && Array.isArray(value[key]) ? value[key].filter(isObject) : [];

const byName = (entries: readonly JsonObject[], wanted: readonly string[], key = 'name'): JsonObject[] =>
  wanted.flatMap((name) => entries.filter((entry) => entry[key] === name));

const AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';

/** Groups of the aggregated document with the resources of our list. */
const aggregated =
  (groups: readonly string[]): Pick =>
  (body) =>
    groups.map((group) => {
      const item = list(body, 'items').find((entry) => (only('metadata', 'name')(entry) ?? '') === group);
      const version = list(item ?? null, 'versions').find((entry) => entry.version === 'v1');
      const wanted = RESOURCES[group === '' ? '/api/v1' : `/apis/${group}/v1`] ?? [];
      const resources = byName(list(version ?? null, 'resources'), wanted, 'resource').map((resource) => ({
        ...resource,
        subresources: list(resource, 'subresources').filter((sub) =>
          wanted.includes(`${textOf(resource.resource)}/${textOf(sub.subresource)}`),
        ),
      }));
      return { metadata: item?.metadata ?? null, freshness: version?.freshness ?? null, resources };
    });

export const discovery: readonly Case[] = [
  {
    name: 'version and health',
    run: async (api) => {
      await api.get('/version', {
        pick: (body) => ({
          fields: isObject(body)
            ? Object.keys(body)
                .filter((k) => !/^(emulation|minCompat)/.test(k))
                .sort()
            : [],
          ...(some('major', 'minor')(body) as JsonObject),
        }),
      });
      for (const path of ['/healthz', '/readyz', '/livez']) await api.get(path);
    },
  },
  {
    name: 'groups and resources',
    run: async (api) => {
      await api.get('/api', { pick: some('kind', 'versions') });
      await api.get('/apis', {
        pick: (body) => ({
          ...(some('kind', 'apiVersion')(body) as JsonObject),
          groups: byName(list(body, 'groups'), GROUPS).map(noted),
        }),
      });
      for (const group of ['apps', 'networking.k8s.io']) await api.get(`/apis/${group}`, { pick: noted });
      for (const [path, wanted] of Object.entries(RESOURCES)) {
        await api.get(path, {
          pick: (body) => ({
            ...(some('kind', 'apiVersion', 'groupVersion')(body) as JsonObject),
            resources: byName(list(body, 'resources'), wanted).map(({ storageVersionHash: _hash, ...rest }) => rest),
          }),
        });
      }
    },
  },
  {
    name: 'aggregated discovery',
    run: async (api) => {
      await api.get('/api', { accept: AGGREGATED, pick: aggregated(['']) });
      await api.get('/apis', { accept: AGGREGATED, pick: aggregated(GROUPS.filter((group) => group !== '')) });
    },
  },
  {
    name: 'custom resources in discovery and OpenAPI',
    run: async (api) => {
      const crd = definition(
        api,
        'Widget',
        { type: 'object', required: ['size'], properties: { size: { type: 'integer', description: 'How big.' } } },
        { subresources: { status: {} } },
        { names: { plural: 'widgets', kind: 'Widget', shortNames: ['wd'], categories: ['all'] } },
      );
      const apiVersion = await define(api, crd);
      const group = `${api.run}.example.com`;
      await api.get(`/apis/${group}`);
      await api.get(`/apis/${apiVersion}`, {
        pick: (body) => ({
          ...(body as JsonObject),
          resources: list(body, 'resources').map(({ storageVersionHash: _hash, ...rest }) => rest),
        }),
      });
      await api.get('/apis', {
        accept: AGGREGATED,
        note: 'its group',
        pick: (body) => list(body, 'items').filter((entry) => only('metadata', 'name')(entry) === group),
      });
      await api.until(`/openapi/v3/apis/${apiVersion}`, (reply) => reply.status === 200);
      await api.get(`/openapi/v3/apis/${apiVersion}`, {
        pick: (body) => {
          const schemas = only('components', 'schemas')(body);
          const found = isObject(schemas)
            ? Object.entries(schemas).find(([name]) => name.endsWith('.Widget'))
            : undefined;
          return {
            properties: only('properties', 'spec')(found?.[1] ?? null),
            kinds: only('x-kubernetes-group-version-kind')(found?.[1] ?? null),
          };
        },
      });
    },
  },
  {
    name: 'OpenAPI of built-in kinds',
    run: async (api) => {
      const paths: Pick = (body) =>
        GROUPS.map((group) => (group === '' ? 'api/v1' : `apis/${group}/v1`)).filter((path) =>
          isObject(only('paths', path)(body)),
        );
      await api.get('/openapi/v3', { pick: paths });
      await api.get('/openapi/v3/apis/networking.k8s.io/v1', {
        pick: fieldsOf(
          'io.k8s.api.networking.v1.NetworkPolicy',
          'io.k8s.api.networking.v1.NetworkPolicySpec',
          'io.k8s.api.networking.v1.NetworkPolicyPort',
        ),
      });
      await api.get('/openapi/v3/api/v1', {
        pick: fieldsOf('io.k8s.api.core.v1.Pod', 'io.k8s.api.core.v1.Container', 'io.k8s.api.core.v1.ServiceSpec'),
      });
      await api.get('/openapi/v2', { pick: (body) => some('swagger')(body) });
    },
  },
  {
    name: 'paths that are not there',
    run: async (api) => {
      for (const path of [
        '/nope',
        '/api/v2',
        '/api/v1/nopes',
        '/apis/nope.example.com',
        '/apis/nope.example.com/v1',
        '/apis/nope.example.com/v1/things',
        '/apis/apps/v9',
        '/apis/apps/v1/nopes',
        '/openapi/v3/apis/nope.example.com/v1',
      ])
        await api.get(path);
      await api.get(api.at('v1', 'nodes'));
      await api.get(api.at('v1', 'configmaps', 'a', 'status'));
      await api.get(api.at('v1', 'configmaps', 'a', 'b/c'));
      await api.get('/api/v1/configmaps/a');
    },
  },
  {
    name: 'access reviews',
    run: async (api) => {
      const review = async (kind: string, spec: JsonObject, path: string): Promise<void> => {
        await api.post(
          path,
          { apiVersion: 'authorization.k8s.io/v1', kind, spec },
          {
            pick: (body) => ({
              ...(some('kind', 'apiVersion', 'spec')(body) as JsonObject),
              allowed: only('status', 'allowed')(body),
            }),
          },
        );
      };
      const resourceAttributes = { verb: 'delete', resource: 'pods', namespace: 'default' };
      await review(
        'SelfSubjectAccessReview',
        { resourceAttributes },
        '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
      );
      await api.post(
        '/apis/authentication.k8s.io/v1/selfsubjectreviews',
        { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' },
        { pick: some('kind', 'apiVersion') },
      );
    },
  },
];

const noted: Pick = (body) =>
  isObject(body) ? { ...body, versions: list(body, 'versions').filter((v) => v.version === 'v1') } : body;

const fieldsOf =
  (...kinds: readonly string[]): Pick =>
  (body) =>
    Object.fromEntries(
      kinds.map((kind) => {
        const schemas = only('components', 'schemas')(body);
        // The two servers name their schemas differently; kinds are told by their own annotation and name.
        const end = kind.replace(/^.*(?=\.v1\.)/, '');
        const schema = isObject(schemas)
          ? (Object.entries(schemas).find(([name]) => name.endsWith(end))?.[1] ?? null)
          : null;
        const properties = only('properties')(schema);
        return [
          kind,
          {
            fields: isObject(properties) ? Object.keys(properties).sort() : [],
            kinds: only('x-kubernetes-group-version-kind')(schema),
          },
        ];
      }),
    );
