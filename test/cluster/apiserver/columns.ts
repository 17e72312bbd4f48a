/** The columns that `kubectl get` shows for built-in kinds; those of custom kinds come from their definitions. */
import { at, type Json, type JsonObject, list, number, object, scalarText, stringMap, text } from './json.ts';
import type { Column } from './registry.ts';

/** A duration as kubectl shows it: `45s`, `5m30s`, `3h`, `2d4h`, `400d`. */
function humanDuration(milliseconds: number): string {
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds < -1) return '<invalid>';
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  const pair = (value: number, big: string, rest: number, small: string): string =>
    rest === 0 ? `${value}${big}` : `${value}${big}${rest}${small}`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return pair(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return pair(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (hours < 192) return pair(days, 'd', hours % 24, 'h');
  if (days < 730) return `${days}d`;
  const years = Math.floor(days / 365);
  return years < 8 ? pair(years, 'y', days % 365, 'd') : `${years}y`;
}

export function age(timestamp: string, now: Date): string {
  const then = Date.parse(timestamp);
  return Number.isNaN(then) ? '<unknown>' : humanDuration(now.getTime() - then);
}

type Value = Column['value'];

const col = (name: string, value: Value, priority = 0, type = 'string'): Column => ({
  name,
  type,
  priority,
  description: name,
  value,
  ...(name === 'Name' ? { format: 'name' } : {}),
});

const path =
  (...keys: string[]): Value =>
  (o) => {
    const found = at(o, ...keys);
    return found === undefined || found === null || found === ''
      ? '<none>'
      : typeof found === 'object'
        ? JSON.stringify(found)
        : found;
  };
const count =
  (...keys: string[]): Value =>
  (o) =>
    number(o, ...keys) ?? 0;
const size =
  (...keys: string[]): Value =>
  (o) => {
    const found = at(o, ...keys);
    return Array.isArray(found) ? found.length : Object.keys(object(o, ...keys)).length;
  };

export const NAME = col('Name', (o) => text(o, 'metadata', 'name'));
export const AGE = col('Age', (o, now) => age(text(o, 'metadata', 'creationTimestamp'), now));

const labels = (map: Record<string, string>): string =>
  Object.keys(map).length === 0
    ? '<none>'
    : Object.keys(map)
        .sort()
        .map((key) => `${key}=${map[key]}`)
        .join(',');

export function selectorText(value: Json | undefined): string {
  const parts = Object.entries(stringMap(value, 'matchLabels')).map(([key, entry]) => `${key}=${entry}`);
  for (const expression of list(value, 'matchExpressions')) {
    const values = list(expression, 'values').map(scalarText).join(',');
    const key = text(expression, 'key');
    const operator = text(expression, 'operator');
    if (operator === 'Exists') parts.push(key);
    else if (operator === 'DoesNotExist') parts.push(`!${key}`);
    else parts.push(`${key} ${operator.toLowerCase()} (${values})`);
  }
  return parts.length === 0 ? '<none>' : parts.join(',');
}

const containers = col(
  'Containers',
  (o) =>
    list(o, 'spec', 'template', 'spec', 'containers')
      .map((c) => text(c, 'name'))
      .join(','),
  1,
);
const images = col(
  'Images',
  (o) =>
    list(o, 'spec', 'template', 'spec', 'containers')
      .map((c) => text(c, 'image'))
      .join(','),
  1,
);
const selector = col('Selector', (o) => selectorText(at(o, 'spec', 'selector')), 1);

function podStatus(o: JsonObject): string {
  if (text(o, 'metadata', 'deletionTimestamp') !== '') return 'Terminating';
  for (const status of list(o, 'status', 'containerStatuses')) {
    const reason = text(status, 'state', 'waiting', 'reason') || text(status, 'state', 'terminated', 'reason');
    if (reason !== '') return reason;
  }
  return text(o, 'status', 'reason') || text(o, 'status', 'phase') || 'Unknown';
}

const statuses = (o: JsonObject): Json[] => list(o, 'status', 'containerStatuses');

function nodeStatus(o: JsonObject): string {
  const ready = list(o, 'status', 'conditions').find((c) => text(c, 'type') === 'Ready');
  const word = ready === undefined ? 'Unknown' : text(ready, 'status') === 'True' ? 'Ready' : 'NotReady';
  return at(o, 'spec', 'unschedulable') === true ? `${word},SchedulingDisabled` : word;
}

const nodeAddress =
  (type: string): Value =>
  (o) =>
    text(
      list(o, 'status', 'addresses').find((a) => text(a, 'type') === type),
      'address',
    ) || '<none>';

function nodeRoles(o: JsonObject): string {
  const prefix = 'node-role.kubernetes.io/';
  const roles = Object.keys(stringMap(o, 'metadata', 'labels'))
    .filter((key) => key.startsWith(prefix))
    .map((key) => key.slice(prefix.length));
  return roles.length === 0 ? '<none>' : roles.sort().join(',');
}

function servicePorts(o: JsonObject): string {
  const ports = list(o, 'spec', 'ports').map((p) => {
    const nodePort = number(p, 'nodePort');
    return `${number(p, 'port') ?? ''}${nodePort === undefined ? '' : `:${nodePort}`}/${text(p, 'protocol') || 'TCP'}`;
  });
  return ports.length === 0 ? '<none>' : ports.join(',');
}

function endpointsText(o: JsonObject): string {
  const all = list(o, 'subsets').flatMap((subset) =>
    list(subset, 'addresses').flatMap((address) =>
      list(subset, 'ports').map((port) => `${text(address, 'ip')}:${number(port, 'port') ?? ''}`),
    ),
  );
  return all.length === 0
    ? '<none>'
    : all.slice(0, 3).join(',') + (all.length > 3 ? ` + ${all.length - 3} more...` : '');
}

const eventTime = (o: JsonObject): string =>
  text(o, 'series', 'lastObservedTime') ||
  text(o, 'lastTimestamp') ||
  text(o, 'eventTime') ||
  text(o, 'metadata', 'creationTimestamp');

const roleRef = col('Role', (o) => `${text(o, 'roleRef', 'kind')}/${text(o, 'roleRef', 'name')}`);
const createdAt = col('Created At', (o) => text(o, 'metadata', 'creationTimestamp'));
const replicas = [
  col('Desired', count('spec', 'replicas'), 0, 'integer'),
  col('Current', count('status', 'replicas'), 0, 'integer'),
  col('Ready', count('status', 'readyReplicas'), 0, 'integer'),
];
const ready: Value = (o) => `${number(o, 'status', 'readyReplicas') ?? 0}/${number(o, 'spec', 'replicas') ?? 0}`;

/** Three addresses, and how many more there are. */
function few(all: readonly Json[]): string {
  const shown = all.slice(0, 3).map(scalarText).join(',');
  return all.length > 3 ? `${shown} + ${all.length - 3} more...` : shown;
}

export const COLUMNS: Readonly<Record<string, readonly Column[]>> = {
  Namespace: [NAME, col('Status', path('status', 'phase')), AGE],
  Pod: [
    NAME,
    col(
      'Ready',
      (o) => `${statuses(o).filter((s) => at(s, 'ready') === true).length}/${list(o, 'spec', 'containers').length}`,
    ),
    col('Status', podStatus),
    col('Restarts', (o) => String(statuses(o).reduce<number>((sum, s) => sum + (number(s, 'restartCount') ?? 0), 0))),
    AGE,
    col('IP', path('status', 'podIP'), 1),
    col('Node', path('spec', 'nodeName'), 1),
    col('Nominated Node', path('status', 'nominatedNodeName'), 1),
    col('Readiness Gates', path('spec', 'readinessGates'), 1),
  ],
  Node: [
    NAME,
    col('Status', nodeStatus),
    col('Roles', nodeRoles),
    AGE,
    col('Version', (o) => text(o, 'status', 'nodeInfo', 'kubeletVersion')),
    col('Internal-IP', nodeAddress('InternalIP'), 1),
    col('External-IP', nodeAddress('ExternalIP'), 1),
    col('OS-Image', path('status', 'nodeInfo', 'osImage'), 1),
    col('Kernel-Version', path('status', 'nodeInfo', 'kernelVersion'), 1),
    col('Container-Runtime', path('status', 'nodeInfo', 'containerRuntimeVersion'), 1),
  ],
  Service: [
    NAME,
    col('Type', path('spec', 'type')),
    col('Cluster-IP', path('spec', 'clusterIP')),
    col('External-IP', (o) => list(o, 'spec', 'externalIPs').map(scalarText).join(',') || '<none>'),
    col('Port(s)', servicePorts),
    AGE,
    col('Selector', (o) => labels(stringMap(o, 'spec', 'selector')), 1),
  ],
  Endpoints: [NAME, col('Endpoints', endpointsText), AGE],
  EndpointSlice: [
    NAME,
    col('AddressType', path('addressType')),
    col(
      'Ports',
      (o) =>
        list(o, 'ports')
          .map((p) => number(p, 'port') ?? '*')
          .join(',') || '<unset>',
    ),
    col('Endpoints', (o) => few(list(o, 'endpoints').flatMap((e) => list(e, 'addresses'))) || '<unset>'),
    AGE,
  ],
  ConfigMap: [
    NAME,
    col('Data', (o) => Object.keys(object(o, 'data')).length + Object.keys(object(o, 'binaryData')).length),
    AGE,
  ],
  Secret: [NAME, col('Type', path('type')), col('Data', size('data')), AGE],
  ServiceAccount: [NAME, col('Secrets', size('secrets')), AGE],
  Event: [
    col('Last Seen', (o, now) => age(eventTime(o), now)),
    col('Type', path('type')),
    col('Reason', path('reason')),
    col('Object', (o) => `${text(o, 'involvedObject', 'kind').toLowerCase()}/${text(o, 'involvedObject', 'name')}`),
    col('Subobject', path('involvedObject', 'fieldPath'), 1),
    col('Source', (o) => text(o, 'source', 'component') || text(o, 'reportingComponent'), 1),
    col('Message', (o) => text(o, 'message')),
    col('Name', (o) => text(o, 'metadata', 'name'), 1),
  ],
  Deployment: [
    NAME,
    col('Ready', ready),
    col('Up-to-date', count('status', 'updatedReplicas')),
    col('Available', count('status', 'availableReplicas')),
    AGE,
    containers,
    images,
    selector,
  ],
  ReplicaSet: [NAME, ...replicas, AGE, containers, images, selector],
  StatefulSet: [NAME, col('Ready', ready), AGE, containers, images],
  DaemonSet: [
    NAME,
    col('Desired', count('status', 'desiredNumberScheduled'), 0, 'integer'),
    col('Current', count('status', 'currentNumberScheduled'), 0, 'integer'),
    col('Ready', count('status', 'numberReady'), 0, 'integer'),
    col('Up-to-date', count('status', 'updatedNumberScheduled'), 0, 'integer'),
    col('Available', count('status', 'numberAvailable'), 0, 'integer'),
    col('Node Selector', (o) => labels(stringMap(o, 'spec', 'template', 'spec', 'nodeSelector'))),
    AGE,
    containers,
    images,
    selector,
  ],
  Job: [
    NAME,
    col(
      'Status',
      (o) =>
        text(
          list(o, 'status', 'conditions').find((c) => text(c, 'status') === 'True'),
          'type',
        ) || 'Running',
    ),
    col('Completions', (o) => `${number(o, 'status', 'succeeded') ?? 0}/${number(o, 'spec', 'completions') ?? 1}`),
    AGE,
  ],
  CronJob: [
    NAME,
    col('Schedule', path('spec', 'schedule')),
    col('Suspend', (o) => String(at(o, 'spec', 'suspend') === true)),
    AGE,
  ],
  NetworkPolicy: [NAME, col('Pod-Selector', (o) => selectorText(at(o, 'spec', 'podSelector'))), AGE],
  Role: [NAME, createdAt],
  ClusterRole: [NAME, createdAt],
  RoleBinding: [NAME, roleRef, AGE],
  ClusterRoleBinding: [NAME, roleRef, AGE],
  Lease: [NAME, col('Holder', path('spec', 'holderIdentity')), AGE],
  PriorityClass: [
    NAME,
    col('Value', count('value'), 0, 'integer'),
    col('Global-Default', (o) => at(o, 'globalDefault') === true, 0, 'boolean'),
    AGE,
  ],
  PodDisruptionBudget: [
    NAME,
    col('Min Available', (o) => scalarText(at(o, 'spec', 'minAvailable')) || 'N/A'),
    col('Max Unavailable', (o) => scalarText(at(o, 'spec', 'maxUnavailable')) || 'N/A'),
    col('Allowed Disruptions', count('status', 'disruptionsAllowed'), 0, 'integer'),
    AGE,
  ],
  CustomResourceDefinition: [NAME, createdAt],
};
