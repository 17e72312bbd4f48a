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
import type { Strategy } from './registry.ts';

const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;

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
  for (const container of [...objects(spec, 'containers'), ...objects(spec, 'initContainers')]) {
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

export function podSpecRules(spec: JsonObject, path: string): Cause[] {
  const out: Cause[] = [];
  const names = new Set<string>();
  if (list(spec, 'containers').length === 0 && spec.containers !== undefined)
    out.push(cause.required(`${path}.containers`));
  for (const field of ['initContainers', 'containers']) {
    objects(spec, field).forEach((container, i) => {
      const where = `${path}.${field}[${i}]`;
      const name = text(container, 'name');
      if (container.name !== undefined && !LABEL.test(name)) {
        out.push(
          cause.invalid(
            `${where}.name`,
            name,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
          ),
        );
      }
      if (names.has(name)) out.push(cause.duplicate(`${where}.name`, name));
      names.add(name);
      if (text(container, 'image') === '') out.push(cause.required(`${where}.image`));
      objects(container, 'ports').forEach((port, j) => {
        out.push(...portRule(port.containerPort, `${where}.ports[${j}].containerPort`));
        out.push(...protocolRule(port.protocol, `${where}.ports[${j}].protocol`));
      });
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
      });
    });
  }
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

export const pod: Strategy = {
  defaults: (o) => {
    const spec = ensureObject(o, 'spec');
    podSpecDefaults(spec);
    setDefault(spec, 'enableServiceLinks', true);
    setDefault(spec, 'serviceAccountName', 'default');
    spec.serviceAccount = text(spec, 'serviceAccountName');
    setDefault(spec, 'preemptionPolicy', 'PreemptLowerPriority');
    setDefault(spec, 'priority', 0);
  },
  prepareCreate: (o) => {
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
