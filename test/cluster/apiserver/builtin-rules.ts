/** Defaults and rules of built-in kinds beyond their schemas: the part that manifests in the wild depend on. */
import { type Cause, cause } from './errors.ts';
import {
  at,
  ensureObject,
  equal,
  isObject,
  type JsonObject,
  list,
  object,
  scalarText,
  stringMap,
  text,
} from './json.ts';
import { objects, pod, podSpecDefaults, podSpecRules, portRule, protocolRule, setDefault } from './pod-rules.ts';
import type { Strategy } from './registry.ts';

function workload(kind: string): Strategy {
  const scaled = kind !== 'DaemonSet';
  return {
    defaults: (o) => {
      const spec = ensureObject(o, 'spec');
      const template = spec.template;
      if (isObject(template)) {
        podSpecDefaults(ensureObject(template, 'spec'));
      }
      if (scaled) setDefault(spec, 'replicas', 1);
      if (kind !== 'ReplicaSet') setDefault(spec, 'revisionHistoryLimit', 10);
      if (kind === 'Deployment') {
        setDefault(spec, 'progressDeadlineSeconds', 600);
        const strategy = ensureObject(spec, 'strategy');
        setDefault(strategy, 'type', 'RollingUpdate');
        if (strategy.type === 'RollingUpdate') {
          const rolling = ensureObject(strategy, 'rollingUpdate');
          setDefault(rolling, 'maxSurge', '25%');
          setDefault(rolling, 'maxUnavailable', '25%');
        }
      }
      if (kind === 'DaemonSet') {
        const strategy = ensureObject(spec, 'updateStrategy');
        setDefault(strategy, 'type', 'RollingUpdate');
        if (strategy.type === 'RollingUpdate') {
          const rolling = ensureObject(strategy, 'rollingUpdate');
          setDefault(rolling, 'maxSurge', 0);
          setDefault(rolling, 'maxUnavailable', 1);
        }
      }
      if (kind === 'StatefulSet') {
        setDefault(spec, 'podManagementPolicy', 'OrderedReady');
        const strategy = ensureObject(spec, 'updateStrategy');
        setDefault(strategy, 'type', 'RollingUpdate');
      }
    },
    validate: (o, previous) => workloadRules(o, previous, kind),
  };
}

function workloadRules(o: JsonObject, previous: JsonObject | undefined, kind: string): Cause[] {
  const out: Cause[] = [];
  const template = at(o, 'spec', 'template');
  const wanted = stringMap(o, 'spec', 'selector', 'matchLabels');
  if (isObject(at(o, 'spec', 'selector')) && isObject(template)) {
    const labels = stringMap(template, 'metadata', 'labels');
    const expressions = list(o, 'spec', 'selector', 'matchExpressions').length;
    if (Object.keys(wanted).length === 0 && expressions === 0) {
      out.push(
        cause.invalid(
          'spec.selector',
          {},
          'empty selector is invalid for deployment'.replace('deployment', kind.toLowerCase()),
        ),
      );
    } else if (Object.entries(wanted).some(([key, value]) => labels[key] !== value)) {
      out.push(cause.invalid('spec.template.metadata.labels', labels, '`selector` does not match template `labels`'));
    }
  }
  if (isObject(template)) out.push(...podSpecRules(object(template, 'spec'), 'spec.template.spec'));
  if (
    previous !== undefined &&
    kind !== 'ReplicaSet' &&
    !equal(at(o, 'spec', 'selector'), at(previous, 'spec', 'selector'))
  ) {
    out.push(cause.invalid('spec.selector', at(o, 'spec', 'selector'), 'field is immutable'));
  }
  const replicas = at(o, 'spec', 'replicas');
  if (typeof replicas === 'number' && replicas < 0) {
    out.push(cause.invalid('spec.replicas', replicas, 'must be greater than or equal to 0'));
  }
  return out;
}

const job: Strategy = {
  defaults: (o) => {
    const spec = ensureObject(o, 'spec');
    setDefault(spec, 'backoffLimit', 6);
    setDefault(spec, 'completions', 1);
    setDefault(spec, 'parallelism', 1);
    setDefault(spec, 'suspend', false);
    const template = spec.template;
    if (isObject(template)) podSpecDefaults(ensureObject(template, 'spec'));
  },
  prepareCreate: (o) => {
    const spec = ensureObject(o, 'spec');
    const uid = text(o, 'metadata', 'uid');
    const name = text(o, 'metadata', 'name');
    if (spec.manualSelector === true || !isObject(spec.template)) return;
    setDefault(spec, 'selector', { matchLabels: { 'batch.kubernetes.io/controller-uid': uid } });
    const labels = ensureObject(ensureObject(spec.template, 'metadata'), 'labels');
    setDefault(labels, 'batch.kubernetes.io/controller-uid', uid);
    setDefault(labels, 'batch.kubernetes.io/job-name', name);
  },
  validate: (o) => {
    const template = at(o, 'spec', 'template');
    return isObject(template) ? podSpecRules(object(template, 'spec'), 'spec.template.spec') : [];
  },
};

const configMap: Strategy = {
  validate: (o, previous) => {
    const out: Cause[] = [];
    for (const key of [...Object.keys(object(o, 'data')), ...Object.keys(object(o, 'binaryData'))]) {
      if (!/^[-._a-zA-Z0-9]+$/.test(key)) {
        out.push(
          cause.invalid(
            `data[${key}]`,
            key,
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
          ),
        );
      }
    }
    if (previous?.immutable === true && !(equal(previous.data, o.data) && equal(previous.binaryData, o.binaryData))) {
      out.push(cause.forbidden('data', 'field is immutable when `immutable` is set'));
    }
    return out;
  },
};

const secret: Strategy = {
  defaults: (o) => {
    setDefault(o, 'type', 'Opaque');
    const plain = o.stringData;
    if (isObject(plain)) {
      const data = ensureObject(o, 'data');
      for (const [key, value] of Object.entries(plain)) data[key] = Buffer.from(scalarText(value)).toString('base64');
      delete o.stringData;
    }
  },
  validate: (o, previous) =>
    previous !== undefined && previous.type !== o.type ? [cause.invalid('type', o.type, 'field is immutable')] : [],
};

const networkPolicy: Strategy = {
  defaults: (o) => {
    const spec = ensureObject(o, 'spec');
    setDefault(spec, 'podSelector', {});
    if (spec.policyTypes === undefined)
      spec.policyTypes = spec.egress === undefined ? ['Ingress'] : ['Ingress', 'Egress'];
    for (const rule of [...objects(spec, 'ingress'), ...objects(spec, 'egress')]) {
      for (const port of objects(rule, 'ports')) setDefault(port, 'protocol', 'TCP');
    }
  },
  validate: (o) => {
    const out: Cause[] = [];
    for (const direction of ['ingress', 'egress']) {
      objects(o, 'spec', direction).forEach((rule, i) => {
        objects(rule, 'ports').forEach((port, j) => {
          const where = `spec.${direction}[${i}].ports[${j}]`;
          out.push(...protocolRule(port.protocol, `${where}.protocol`), ...portRule(port.port, `${where}.port`));
          if (port.endPort !== undefined && typeof port.port !== 'number') {
            out.push(
              cause.invalid(`${where}.endPort`, port.endPort, 'may not be specified when `port` is non-numeric'),
            );
          } else if (typeof port.endPort === 'number' && typeof port.port === 'number' && port.endPort < port.port) {
            out.push(cause.invalid(`${where}.endPort`, port.endPort, 'must be greater than or equal to `port`'));
          }
        });
        const field = direction === 'ingress' ? 'from' : 'to';
        objects(rule, field).forEach((peer, j) => {
          const where = `spec.${direction}[${i}].${field}[${j}]`;
          if (Object.keys(peer).length === 0) out.push(cause.required(where, 'must specify a peer'));
          if (peer.ipBlock !== undefined && Object.keys(peer).length > 1) {
            out.push(cause.forbidden(where, 'may not specify both ipBlock and another peer'));
          }
        });
      });
    }
    list(o, 'spec', 'policyTypes').forEach((type, i) => {
      if (type !== 'Ingress' && type !== 'Egress') {
        out.push(cause.notSupported(`spec.policyTypes[${i}]`, type, ['Egress', 'Ingress']));
      }
    });
    return out;
  },
};

const namespace: Strategy = {
  prepareCreate: (o) => {
    o.spec = { finalizers: ['kubernetes'] };
    o.status = { phase: 'Active' };
  },
  defaults: (o) => {
    const metadata = ensureObject(o, 'metadata');
    const name = text(metadata, 'name');
    if (name !== '') ensureObject(metadata, 'labels')['kubernetes.io/metadata.name'] = name;
  },
};

const binding: Strategy = {
  defaults: (o) => {
    for (const subject of objects(o, 'subjects')) {
      if (subject.kind !== 'ServiceAccount') setDefault(subject, 'apiGroup', 'rbac.authorization.k8s.io');
    }
    if (isObject(o.roleRef)) setDefault(o.roleRef, 'apiGroup', 'rbac.authorization.k8s.io');
  },
  validate: (o, previous) =>
    previous !== undefined && !equal(o.roleRef, previous.roleRef)
      ? [cause.invalid('roleRef', o.roleRef, 'cannot change roleRef')]
      : [],
};

const priorityClass: Strategy = {
  defaults: (o) => setDefault(o, 'preemptionPolicy', 'PreemptLowerPriority'),
  validate: (o, previous) =>
    previous !== undefined && o.value !== previous.value ? [cause.invalid('value', o.value, 'field is immutable')] : [],
};

export const RULES: Readonly<Record<string, Strategy>> = {
  Pod: pod,
  Deployment: workload('Deployment'),
  DaemonSet: workload('DaemonSet'),
  ReplicaSet: workload('ReplicaSet'),
  StatefulSet: workload('StatefulSet'),
  Job: job,
  ConfigMap: configMap,
  Secret: secret,
  NetworkPolicy: networkPolicy,
  Namespace: namespace,
  RoleBinding: binding,
  ClusterRoleBinding: binding,
  PriorityClass: priorityClass,
};
