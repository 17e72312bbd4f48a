/** The built-in kinds. Controllers are not part of the server: workloads are stored, nothing acts on them. */
import { RULES } from './builtin-rules.ts';
import type { BuiltinSchemas } from './builtin-schema.ts';
import { AGE, COLUMNS, NAME } from './columns.ts';
import { eventFromStored, eventToStored } from './events.ts';
import { at, type JsonObject, scalarText, text } from './json.ts';
import { modernEvent } from './more-rules.ts';
import { apiVersionOf, type Resource, type Strategy } from './registry.ts';

interface Kind {
  readonly gv: string;
  readonly kind: string;
  readonly plural: string;
  readonly short?: string[];
  readonly cluster?: boolean;
  readonly status?: boolean;
  readonly generation?: boolean;
  readonly model?: string;
  readonly categories?: string[];
  readonly fields?: Record<string, (object: JsonObject) => string>;
}

const by =
  (...path: string[]) =>
  (object: JsonObject): string => {
    const found = at(object, ...path);
    return scalarText(found);
  };

const POD_FIELDS = {
  'spec.nodeName': by('spec', 'nodeName'),
  'spec.restartPolicy': by('spec', 'restartPolicy'),
  'spec.schedulerName': by('spec', 'schedulerName'),
  'spec.serviceAccountName': by('spec', 'serviceAccountName'),
  'spec.hostNetwork': (object: JsonObject) => String(at(object, 'spec', 'hostNetwork') === true),
  'status.phase': by('status', 'phase'),
  'status.podIP': by('status', 'podIP'),
  'status.nominatedNodeName': by('status', 'nominatedNodeName'),
};

const EVENT_FIELDS = {
  ...Object.fromEntries(
    ['kind', 'namespace', 'name', 'uid', 'apiVersion', 'resourceVersion', 'fieldPath'].flatMap((name) => [
      [`involvedObject.${name}`, by('involvedObject', name)],
    ]),
  ),
  reason: by('reason'),
  type: by('type'),
  reportingComponent: by('reportingComponent'),
  source: (object: JsonObject) => text(object, 'source', 'component') || text(object, 'reportingComponent'),
};

const workload = { status: true, generation: true, categories: ['all'] };
const rbac = 'rbac.authorization.k8s.io/v1';

const KINDS: readonly Kind[] = [
  {
    gv: 'v1',
    kind: 'Namespace',
    plural: 'namespaces',
    short: ['ns'],
    cluster: true,
    status: true,
    fields: { 'status.phase': by('status', 'phase') },
  },
  {
    gv: 'v1',
    kind: 'Pod',
    plural: 'pods',
    short: ['po'],
    status: true,
    generation: true,
    categories: ['all'],
    fields: POD_FIELDS,
  },
  {
    gv: 'v1',
    kind: 'Node',
    plural: 'nodes',
    short: ['no'],
    cluster: true,
    status: true,
    fields: { 'spec.unschedulable': (o) => String(at(o, 'spec', 'unschedulable') === true) },
  },
  {
    gv: 'v1',
    kind: 'Service',
    plural: 'services',
    short: ['svc'],
    status: true,
    categories: ['all'],
    fields: { 'spec.clusterIP': by('spec', 'clusterIP'), 'spec.type': by('spec', 'type') },
  },
  { gv: 'v1', kind: 'Endpoints', plural: 'endpoints', short: ['ep'] },
  { gv: 'v1', kind: 'ConfigMap', plural: 'configmaps', short: ['cm'] },
  { gv: 'v1', kind: 'Secret', plural: 'secrets', fields: { type: by('type') } },
  { gv: 'v1', kind: 'ServiceAccount', plural: 'serviceaccounts', short: ['sa'] },
  { gv: 'v1', kind: 'Event', plural: 'events', short: ['ev'], model: 'CoreV1Event', fields: EVENT_FIELDS },
  {
    gv: 'events.k8s.io/v1',
    kind: 'Event',
    plural: 'events',
    short: ['ev'],
    model: 'EventsV1Event',
    fields: EVENT_FIELDS,
  },
  { gv: 'discovery.k8s.io/v1', kind: 'EndpointSlice', plural: 'endpointslices', generation: true },
  { gv: 'apps/v1', kind: 'Deployment', plural: 'deployments', short: ['deploy'], ...workload },
  { gv: 'apps/v1', kind: 'DaemonSet', plural: 'daemonsets', short: ['ds'], ...workload },
  {
    gv: 'apps/v1',
    kind: 'ReplicaSet',
    plural: 'replicasets',
    short: ['rs'],
    ...workload,
    fields: { 'status.replicas': by('status', 'replicas') },
  },
  { gv: 'apps/v1', kind: 'StatefulSet', plural: 'statefulsets', short: ['sts'], ...workload },
  {
    gv: 'batch/v1',
    kind: 'Job',
    plural: 'jobs',
    ...workload,
    fields: { 'status.successful': by('status', 'succeeded') },
  },
  { gv: 'batch/v1', kind: 'CronJob', plural: 'cronjobs', short: ['cj'], ...workload },
  { gv: 'networking.k8s.io/v1', kind: 'NetworkPolicy', plural: 'networkpolicies', short: ['netpol'], generation: true },
  { gv: rbac, kind: 'Role', plural: 'roles' },
  { gv: rbac, kind: 'RoleBinding', plural: 'rolebindings' },
  { gv: rbac, kind: 'ClusterRole', plural: 'clusterroles', cluster: true },
  { gv: rbac, kind: 'ClusterRoleBinding', plural: 'clusterrolebindings', cluster: true },
  { gv: 'coordination.k8s.io/v1', kind: 'Lease', plural: 'leases' },
  {
    gv: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingWebhookConfiguration',
    plural: 'validatingwebhookconfigurations',
    cluster: true,
    generation: true,
  },
  {
    gv: 'scheduling.k8s.io/v1',
    kind: 'PriorityClass',
    plural: 'priorityclasses',
    short: ['pc'],
    cluster: true,
    generation: true,
  },
  {
    gv: 'policy/v1',
    kind: 'PodDisruptionBudget',
    plural: 'poddisruptionbudgets',
    short: ['pdb'],
    status: true,
    generation: true,
  },
  {
    gv: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    plural: 'customresourcedefinitions',
    short: ['crd', 'crds'],
    cluster: true,
    status: true,
    generation: true,
    categories: ['api-extensions'],
  },
];

const CONDITIONAL = new Set(['leases', 'customresourcedefinitions', 'poddisruptionbudgets']);

/** All built-in resources; `strategies` override the rules of kinds that need the store. */
export function builtinResources(schemas: BuiltinSchemas, strategies: Record<string, Strategy>): Resource[] {
  return KINDS.map((kind) => {
    const [group, version] = kind.gv.includes('/') ? (kind.gv.split('/') as [string, string]) : ['', kind.gv];
    const event = kind.kind === 'Event';
    return {
      group,
      version,
      plural: kind.plural,
      singular: kind.kind.toLowerCase(),
      kind: kind.kind,
      listKind: `${kind.kind}List`,
      namespaced: kind.cluster !== true,
      shortNames: kind.short ?? [],
      categories: kind.categories ?? [],
      statusSubresource: kind.status === true,
      hasGeneration: kind.generation === true,
      conditionalUpdates: CONDITIONAL.has(kind.plural),
      schema: schemas.ref(kind.model ?? `V1${kind.kind}`),
      resolve: schemas.resolve,
      columns: COLUMNS[kind.kind] ?? [NAME, AGE],
      custom: false,
      storage: event ? '/events' : `${group}/${kind.plural}`,
      storageVersion: event ? 'v1' : apiVersionOf({ group, version }),
      fields: kind.fields ?? {},
      strategy: strategies[kind.kind] ?? RULES[kind.kind] ?? {},
      ...(event && group !== '' ? { fromStored: eventFromStored, toStored: eventToStored, strategy: modernEvent } : {}),
    };
  });
}
