/** Discovery: /version, /api, /apis and each group version, in the legacy and the aggregated shape. */
import type { Json, JsonObject } from './json.ts';
import { apiVersionOf, type Registry, type Resource } from './registry.ts';
import { hasScale } from './subresources.ts';

/** The release whose behaviour the server follows. */
export const VERSION: JsonObject = {
  major: '1',
  minor: '34',
  gitVersion: 'v1.34.0-weir',
  gitCommit: '',
  gitTreeState: 'clean',
  buildDate: '1970-01-01T00:00:00Z',
  goVersion: 'none',
  compiler: 'node',
  platform: 'linux/amd64',
};

const EVICTION: JsonObject = { group: 'policy', version: 'v1', kind: 'Eviction' };
const SCALE: JsonObject = { group: 'autoscaling', version: 'v1', kind: 'Scale' };

const VERBS = ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'];

/** The order in which the real server lists them for objects that definitions define. */
const CUSTOM_VERBS = ['delete', 'deletecollection', 'get', 'list', 'patch', 'create', 'update', 'watch'];

function verbsOf(resource: Resource): string[] {
  if (resource.custom) return CUSTOM_VERBS;
  return resource.storage === '/namespaces' ? VERBS.filter((verb) => verb !== 'deletecollection') : VERBS;
}

const groupVersion = (group: string, version: string): string => apiVersionOf({ group, version });

export const apiVersions = (): JsonObject => ({
  kind: 'APIVersions',
  versions: ['v1'],
  serverAddressByClientCIDRs: [],
});

/** Groups that answer reviews only; they have no stored objects. */
export const REVIEW_GROUPS: Readonly<Record<string, readonly { plural: string; kind: string; namespaced: boolean }[]>> =
  {
    'authorization.k8s.io': [
      { plural: 'selfsubjectaccessreviews', kind: 'SelfSubjectAccessReview', namespaced: false },
      { plural: 'selfsubjectrulesreviews', kind: 'SelfSubjectRulesReview', namespaced: false },
      { plural: 'subjectaccessreviews', kind: 'SubjectAccessReview', namespaced: false },
      { plural: 'localsubjectaccessreviews', kind: 'LocalSubjectAccessReview', namespaced: true },
    ],
    'authentication.k8s.io': [{ plural: 'selfsubjectreviews', kind: 'SelfSubjectReview', namespaced: false }],
  };

export const servesGroup = (registry: Registry, group: string): boolean => allGroups(registry).has(group);

function allGroups(registry: Registry): Map<string, string[]> {
  const groups = registry.groups();
  for (const group of Object.keys(REVIEW_GROUPS)) groups.set(group, ['v1']);
  return groups;
}

export function apiGroup(group: string, versions: readonly string[]): JsonObject {
  const all = versions.map((version): JsonObject => ({ groupVersion: groupVersion(group, version), version }));
  return { kind: 'APIGroup', apiVersion: 'v1', name: group, versions: all, preferredVersion: all[0] ?? {} };
}

export function apiGroupList(registry: Registry): JsonObject {
  const groups: Json[] = [];
  for (const [group, versions] of allGroups(registry)) {
    if (group === '') continue;
    const { kind: _k, apiVersion: _a, ...entry } = apiGroup(group, versions);
    groups.push(entry);
  }
  return { kind: 'APIGroupList', apiVersion: 'v1', groups };
}

export function groupOf(registry: Registry, group: string): JsonObject | undefined {
  const versions = allGroups(registry).get(group);
  return versions === undefined ? undefined : apiGroup(group, versions);
}

export function resourceList(registry: Registry, group: string, version: string): JsonObject | undefined {
  const served = registry.inGroupVersion(group, version);
  const reviews = version === 'v1' ? (REVIEW_GROUPS[group] ?? []) : [];
  if (served.length === 0 && reviews.length === 0) return undefined;
  const resources: Json[] = [];
  for (const resource of served) {
    const base: JsonObject = { namespaced: resource.namespaced, kind: resource.kind };
    resources.push({
      name: resource.plural,
      singularName: resource.singular,
      ...base,
      verbs: verbsOf(resource),
      ...(resource.shortNames.length === 0 ? {} : { shortNames: [...resource.shortNames] }),
      ...(resource.categories.length === 0 ? {} : { categories: [...resource.categories] }),
      storageVersionHash: '',
    });
    if (resource.statusSubresource) {
      resources.push({
        name: `${resource.plural}/status`,
        singularName: '',
        ...base,
        verbs: ['get', 'patch', 'update'],
      });
    }
    if (hasScale(resource)) {
      resources.push({
        name: `${resource.plural}/scale`,
        singularName: '',
        namespaced: true,
        ...SCALE,
        verbs: ['get', 'patch', 'update'],
      });
    }
    if (resource.storage === '/pods') {
      resources.push({ name: 'pods/binding', singularName: '', namespaced: true, kind: 'Binding', verbs: ['create'] });
      resources.push({ name: 'pods/eviction', singularName: '', namespaced: true, ...EVICTION, verbs: ['create'] });
    }
    if (resource.storage === '/namespaces')
      resources.push({ name: 'namespaces/finalize', singularName: '', ...base, verbs: ['update'] });
  }
  for (const review of reviews) {
    resources.push({
      name: review.plural,
      singularName: review.kind.toLowerCase(),
      namespaced: review.namespaced,
      kind: review.kind,
      verbs: ['create'],
    });
  }
  const typed = group === '' ? {} : { apiVersion: 'v1' };
  return { kind: 'APIResourceList', ...typed, groupVersion: groupVersion(group, version), resources };
}

/** The aggregated document: of the core group alone, or of all others. */
export function aggregated(registry: Registry, core: boolean): JsonObject {
  const items: Json[] = [];
  for (const [group, versions] of allGroups(registry)) {
    if ((group === '') !== core) continue;
    items.push({
      metadata: group === '' ? {} : { name: group },
      versions: versions.map((version) => ({
        version,
        resources: [
          ...registry.inGroupVersion(group, version).map(aggregatedResource),
          ...(REVIEW_GROUPS[group] ?? []).map((review) => ({
            resource: review.plural,
            responseKind: { group: '', version: '', kind: review.kind },
            scope: review.namespaced ? 'Namespaced' : 'Cluster',
            singularResource: review.kind.toLowerCase(),
            verbs: ['create'],
          })),
        ],
        freshness: 'Current',
      })),
    });
  }
  return { kind: 'APIGroupDiscoveryList', apiVersion: 'apidiscovery.k8s.io/v2', metadata: {}, items };
}

function aggregatedResource(resource: Resource): JsonObject {
  const { group, version, kind } = resource;
  // Built-in kinds leave out what the document says around them already.
  const responseKind = resource.custom ? { group, version, kind } : { group: '', version: '', kind };
  const verbs = ['get', 'patch', 'update'];
  const subresources: { subresource: string; responseKind: JsonObject; verbs: string[] }[] = [];
  if (resource.statusSubresource) subresources.push({ subresource: 'status', responseKind, verbs });
  if (hasScale(resource)) subresources.push({ subresource: 'scale', responseKind: SCALE, verbs });
  if (resource.storage === '/pods') {
    const binding = { group: '', version: '', kind: 'Binding' };
    subresources.push({ subresource: 'binding', responseKind: binding, verbs: ['create'] });
    subresources.push({ subresource: 'eviction', responseKind: EVICTION, verbs: ['create'] });
  }
  if (resource.storage === '/namespaces')
    subresources.push({ subresource: 'finalize', responseKind, verbs: ['update'] });
  subresources.sort((a, b) => (a.subresource < b.subresource ? -1 : 1));
  return {
    resource: resource.plural,
    responseKind,
    scope: resource.namespaced ? 'Namespaced' : 'Cluster',
    singularResource: resource.singular,
    verbs: verbsOf(resource),
    ...(resource.shortNames.length === 0 ? {} : { shortNames: [...resource.shortNames] }),
    ...(resource.categories.length === 0 ? {} : { categories: [...resource.categories] }),
    ...(subresources.length === 0 ? {} : { subresources }),
  };
}
