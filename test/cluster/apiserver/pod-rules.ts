/** Pods, and pod specs inside templates: defaults, rules, and what may change after creation. */
import { type Cause, cause } from './errors.ts';
import {
  at,
  ensureObject,
  equal,
  isObject,
  type Json,
  type JsonObject,
  list,
  object,
  scalarText,
  stringMap,
  text,
} from './json.ts';
import { dnsLabelFaults, faults, portNameFaults, subdomainFaults } from './label-rules.ts';
import type { Strategy } from './registry.ts';

export function setDefault(target: JsonObject, key: string, value: Json): void {
  if (target[key] === undefined || target[key] === null) target[key] = value;
}

export const objects = (value: Json | undefined, ...path: string[]): JsonObject[] =>
  list(value, ...path).filter(isObject);

/** Defaults of a pod spec, also inside templates. */
export function podSpecDefaults(spec: JsonObject): void {
  setDefault(spec, 'restartPolicy', 'Always');
  setDefault(spec, 'terminationGracePeriodSeconds', 30);
  setDefault(spec, 'dnsPolicy', 'ClusterFirst');
  setDefault(spec, 'schedulerName', 'default-scheduler');
  setDefault(spec, 'securityContext', {});
  if (text(spec, 'serviceAccountName') !== '') spec.serviceAccount = text(spec, 'serviceAccountName');
  if (spec.terminationGracePeriodSeconds === -1) spec.terminationGracePeriodSeconds = 1;
  for (const container of [...objects(spec, 'containers'), ...objects(spec, 'initContainers')]) {
    if (spec.hostNetwork === true)
      for (const port of objects(container, 'ports')) setDefault(port, 'hostPort', port.containerPort ?? null);
    const image = text(container, 'image');
    const tagged = /:[^/]*$/.test(image) && !image.endsWith(':latest');
    setDefault(container, 'imagePullPolicy', tagged || image.includes('@') ? 'IfNotPresent' : 'Always');
    setDefault(container, 'resources', {});
    setDefault(container, 'terminationMessagePath', '/dev/termination-log');
    setDefault(container, 'terminationMessagePolicy', 'File');
    for (const port of objects(container, 'ports')) setDefault(port, 'protocol', 'TCP');
    for (const name of ['livenessProbe', 'readinessProbe', 'startupProbe']) {
      const probe = container[name];
      if (!isObject(probe)) continue;
      setDefault(probe, 'timeoutSeconds', 1);
      setDefault(probe, 'periodSeconds', 10);
      setDefault(probe, 'successThreshold', 1);
      setDefault(probe, 'failureThreshold', 3);
      if (isObject(probe.httpGet)) {
        setDefault(probe.httpGet, 'scheme', 'HTTP');
        setDefault(probe.httpGet, 'path', '/');
      }
    }
    for (const variable of objects(container, 'env')) {
      const ref = at(variable, 'valueFrom', 'fieldRef');
      if (isObject(ref)) setDefault(ref, 'apiVersion', 'v1');
    }
  }
  for (const volume of objects(spec, 'volumes')) {
    for (const [kind, mode] of [
      ['configMap', 420],
      ['secret', 420],
      ['projected', 420],
      ['downwardAPI', 420],
    ] as const) {
      const source = volume[kind];
      if (isObject(source)) setDefault(source, 'defaultMode', mode);
    }
    if (isObject(volume.hostPath)) setDefault(volume.hostPath, 'type', '');
  }
}

const DNS_POLICIES = ['ClusterFirstWithHostNet', 'ClusterFirst', 'Default', 'None'];
const PULL_POLICIES = ['Always', 'IfNotPresent', 'Never'];
const HANDLERS = ['exec', 'httpGet', 'tcpSocket', 'grpc'];

function containerRules(container: JsonObject, where: string, hostNetwork: boolean): Cause[] {
  const out: Cause[] = [];
  const names = new Set<string>();
  objects(container, 'ports').forEach((port, j) => {
    const at = `${where}.ports[${j}]`;
    const name = text(port, 'name');
    if (name !== '') {
      out.push(...faults(`${at}.name`, name, portNameFaults(name)));
      if (names.has(name)) out.push(cause.duplicate(`${at}.name`, name));
      names.add(name);
    }
    if (port.containerPort === 0) out.push(cause.required(`${at}.containerPort`));
    else out.push(...portRule(port.containerPort, `${at}.containerPort`));
    if (hostNetwork && port.hostPort !== port.containerPort)
      out.push(cause.invalid(`${at}.hostPort`, port.hostPort, 'must match `containerPort` when `hostNetwork` is true'));
    out.push(...protocolRule(port.protocol, `${at}.protocol`));
  });
  objects(container, 'env').forEach((variable, j) => {
    if (text(variable, 'name') === '') out.push(cause.required(`${where}.env[${j}].name`));
  });
  for (const name of ['livenessProbe', 'readinessProbe', 'startupProbe']) {
    const probe = container[name];
    if (isObject(probe) && !HANDLERS.some((handler) => isObject(probe[handler])))
      out.push(cause.required(`${where}.${name}`, 'must specify a handler type'));
  }
  if (!PULL_POLICIES.includes(scalarText(container.imagePullPolicy)))
    out.push(cause.notSupported(`${where}.imagePullPolicy`, container.imagePullPolicy, PULL_POLICIES));
  return out;
}

export function podSpecRules(spec: JsonObject, path: string): Cause[] {
  const out: Cause[] = [];
  const names = new Set<string>();
  if (list(spec, 'containers').length === 0 && spec.containers !== undefined)
    out.push(cause.required(`${path}.containers`));
  for (const field of ['initContainers', 'containers']) {
    objects(spec, field).forEach((container, i) => {
      const where = `${path}.${field}[${i}]`;
      const name = text(container, 'name');
      if (container.name !== undefined) out.push(...faults(`${where}.name`, name, dnsLabelFaults(name)));
      if (names.has(name)) out.push(cause.duplicate(`${where}.name`, name));
      names.add(name);
      if (text(container, 'image') === '') out.push(cause.required(`${where}.image`));
      out.push(...containerRules(container, where, spec.hostNetwork === true));
      const volumes = new Set(objects(spec, 'volumes').map((volume) => text(volume, 'name')));
      objects(container, 'volumeMounts').forEach((mount, j) => {
        const wanted = text(mount, 'name');
        if (mount.name !== undefined && !volumes.has(wanted)) {
          out.push({
            reason: 'FieldValueNotFound',
            message: `Not found: ${JSON.stringify(wanted)}`,
            field: `${where}.volumeMounts[${j}].name`,
          });
        }
        if (text(mount, 'mountPath') === '') out.push(cause.required(`${where}.volumeMounts[${j}].mountPath`));
      });
    });
  }
  const node = text(spec, 'nodeName');
  if (node !== '') out.push(...faults(`${path}.nodeName`, node, subdomainFaults(node)));
  if (!DNS_POLICIES.includes(scalarText(spec.dnsPolicy)))
    out.push(cause.notSupported(`${path}.dnsPolicy`, spec.dnsPolicy, DNS_POLICIES));
  const restart = text(spec, 'restartPolicy');
  if (!['Always', 'OnFailure', 'Never'].includes(restart)) {
    out.push(cause.notSupported(`${path}.restartPolicy`, restart, ['Always', 'OnFailure', 'Never']));
  }
  return out;
}

export function portRule(value: Json | undefined, path: string): Cause[] {
  if (typeof value !== 'number' || (value >= 1 && value <= 65535)) return [];
  return [cause.invalid(path, value, 'must be between 1 and 65535, inclusive')];
}

export function protocolRule(value: Json | undefined, path: string): Cause[] {
  if (value === undefined || ['TCP', 'UDP', 'SCTP'].includes(scalarText(value))) return [];
  return [cause.notSupported(path, value, ['SCTP', 'TCP', 'UDP'])];
}

/** Pod fields that may change after creation; all others are immutable. */
function podUpdateRules(next: JsonObject, previous: JsonObject): Cause[] {
  const mask = (pod: JsonObject): JsonObject => {
    const spec = { ...object(pod, 'spec') };
    for (const field of [
      'activeDeadlineSeconds',
      'tolerations',
      'terminationGracePeriodSeconds',
      'schedulingGates',
      'ephemeralContainers',
    ]) {
      delete spec[field];
    }
    for (const field of ['containers', 'initContainers']) {
      if (Array.isArray(spec[field]))
        spec[field] = objects(spec, field).map((c) => ({ ...c, image: '', imagePullPolicy: '' }));
    }
    return spec;
  };
  if (equal(mask(next), mask(previous))) return [];
  return [
    cause.forbidden(
      'spec',
      'pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)',
    ),
  ];
}

/** What the real server's admission adds to a pod; nobody owns it. */
function admitted(spec: JsonObject): void {
  setDefault(spec, 'serviceAccountName', 'default');
  spec.serviceAccount = text(spec, 'serviceAccountName');
  setDefault(spec, 'preemptionPolicy', 'PreemptLowerPriority');
  setDefault(spec, 'priority', 0);
  const tolerations = objects(spec, 'tolerations');
  for (const key of ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']) {
    const covers = (t: JsonObject): boolean =>
      (t.key === key || (t.key ?? '') === '') && (t.effect === 'NoExecute' || (t.effect ?? '') === '');
    if (!tolerations.some(covers))
      tolerations.push({ key, operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 300 });
  }
  spec.tolerations = tolerations;
}

export const pod: Strategy = {
  defaults: (o) => {
    const spec = ensureObject(o, 'spec');
    podSpecDefaults(spec);
    setDefault(spec, 'enableServiceLinks', true);
  },
  prepareCreate: (o) => {
    admitted(ensureObject(o, 'spec'));
    o.status = { phase: 'Pending', qosClass: qosClass(o) };
  },
  validate: (o, previous) => [
    ...podSpecRules(object(o, 'spec'), 'spec'),
    ...(previous === undefined ? [] : podUpdateRules(o, previous)),
  ],
};

function qosClass(o: JsonObject): string {
  const all = objects(o, 'spec', 'containers');
  const demands = all.map((c) => [stringMap(c, 'resources', 'requests'), stringMap(c, 'resources', 'limits')] as const);
  if (demands.every(([requests, limits]) => Object.keys(requests).length + Object.keys(limits).length === 0))
    return 'BestEffort';
  const guaranteed = demands.every(([requests, limits]) =>
    ['cpu', 'memory'].every((r) => limits[r] !== undefined && (requests[r] ?? limits[r]) === limits[r]),
  );
  return guaranteed ? 'Guaranteed' : 'Burstable';
}
