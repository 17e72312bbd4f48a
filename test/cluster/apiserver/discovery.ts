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

const SCALE: JsonObject = { group: 'autoscaling', version: 'v1', kind: 'Scale' };

const VERBS = ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'];

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
  for (const [group, versions] of allGroups(registry)) if (group !== '') groups.push(apiGroup(group, versions));
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
      verbs: VERBS,
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
    }
  }
  for (const review of reviews) {
    resources.push({
      name: review.plural,
      singularName: '',
      namespaced: review.namespaced,
      kind: review.kind,
      verbs: ['create'],
    });
  }
  return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion: groupVersion(group, version), resources };
}

/** The aggregated document: of the core group alone, or of all others. */
export function aggregated(registry: Registry, core: boolean): JsonObject {
  const items: Json[] = [];
  for (const [group, versions] of allGroups(registry)) {
    if ((group === '') !== core) continue;
    items.push({
      metadata: { name: group === '' ? null : group, creationTimestamp: null },
      versions: versions.map((version) => ({
        version,
        freshness: 'Current',
        resources: [
          ...registry.inGroupVersion(group, version).map(aggregatedResource),
          ...(REVIEW_GROUPS[group] ?? []).map((review) => ({
            resource: review.plural,
            responseKind: { group, version, kind: review.kind },
            scope: review.namespaced ? 'Namespaced' : 'Cluster',
            singularResource: '',
            verbs: ['create'],
          })),
        ],
      })),
    });
  }
  return { kind: 'APIGroupDiscoveryList', apiVersion: 'apidiscovery.k8s.io/v2', metadata: {}, items };
}

function aggregatedResource(resource: Resource): JsonObject {
  const responseKind = { group: resource.group, version: resource.version, kind: resource.kind };
  const verbs = ['get', 'patch', 'update'];
  const subresources: Json[] = [];
  if (resource.statusSubresource) subresources.push({ subresource: 'status', responseKind, verbs });
  if (hasScale(resource)) subresources.push({ subresource: 'scale', responseKind: SCALE, verbs });
  return {
    resource: resource.plural,
    responseKind,
    scope: resource.namespaced ? 'Namespaced' : 'Cluster',
    singularResource: resource.singular,
    verbs: VERBS,
    ...(resource.shortNames.length === 0 ? {} : { shortNames: [...resource.shortNames] }),
    ...(resource.categories.length === 0 ? {} : { categories: [...resource.categories] }),
    ...(subresources.length === 0 ? {} : { subresources }),
  };
}
