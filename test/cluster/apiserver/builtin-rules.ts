/** Defaults and rules of built-in kinds beyond their schemas: the part that manifests in the wild depend on. */
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
import { selectorRules } from './label-rules.ts';
import { disruptionBudget, endpointSlice, endpoints, event, lease, node } from './more-rules.ts';
import { networkPolicy } from './network-policy-rules.ts';
import { objects, pod, podSpecDefaults, podSpecRules, setDefault } from './pod-rules.ts';
import type { Strategy } from './registry.ts';
import { webhookConfiguration } from './webhook-rules.ts';

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
        if (strategy.type === 'RollingUpdate') setDefault(ensureObject(strategy, 'rollingUpdate'), 'partition', 0);
        const claims = ensureObject(spec, 'persistentVolumeClaimRetentionPolicy');
        setDefault(claims, 'whenDeleted', 'Retain');
        setDefault(claims, 'whenScaled', 'Retain');
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
  if (isObject(template)) {
    out.push(...podSpecRules(object(template, 'spec'), 'spec.template.spec'));
    const restart = text(template, 'spec', 'restartPolicy');
    if (restart !== 'Always' && ['OnFailure', 'Never'].includes(restart))
      out.push(cause.notSupported('spec.template.spec.restartPolicy', restart, ['Always']));
  }
  if (kind === 'Deployment') out.push(...strategyRules(object(o, 'spec', 'strategy')));
  out.push(...selectorRules(at(o, 'spec', 'selector'), 'spec.selector'));
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

function strategyRules(strategy: JsonObject): Cause[] {
  if (strategy.type !== 'Recreate' && strategy.type !== 'RollingUpdate')
    return [cause.notSupported('spec.strategy', strategy, ['Recreate', 'RollingUpdate'])];
  const none = (value: Json | undefined): boolean => value === 0 || value === '0%';
  const rolling = object(strategy, 'rollingUpdate');
  if (strategy.type !== 'RollingUpdate' || !none(rolling.maxSurge) || !none(rolling.maxUnavailable)) return [];
  return [
    cause.invalid(
      'spec.strategy.rollingUpdate.maxUnavailable',
      rolling.maxUnavailable,
      'may not be 0 when `maxSurge` is 0',
    ),
  ];
}

const job: Strategy = {
  defaults: (o) => {
    const spec = ensureObject(o, 'spec');
    setDefault(spec, 'backoffLimit', 6);
    setDefault(spec, 'completions', 1);
    setDefault(spec, 'parallelism', 1);
    setDefault(spec, 'suspend', false);
    setDefault(spec, 'completionMode', 'NonIndexed');
    setDefault(spec, 'manualSelector', false);
    setDefault(spec, 'podReplacementPolicy', 'TerminatingOrFailed');
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
    setDefault(labels, 'controller-uid', uid);
    setDefault(labels, 'job-name', name);
  },
  validate: (o) => {
    const template = at(o, 'spec', 'template');
    if (!isObject(template)) return [];
    const out = podSpecRules(object(template, 'spec'), 'spec.template.spec');
    if (text(template, 'spec', 'restartPolicy') === 'Always')
      out.push(cause.required('spec.template.spec.restartPolicy', 'valid values: "OnFailure", "Never"'));
    return out;
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
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
          ),
        );
      }
    }
    for (const key of Object.keys(object(o, 'data'))) {
      if (Object.hasOwn(object(o, 'binaryData'), key))
        out.push(cause.invalid(`data[${key}]`, key, 'duplicate of key present in binaryData'));
    }
    if (previous?.immutable === true && o.immutable !== true)
      out.push(cause.forbidden('immutable', 'field is immutable when `immutable` is set'));
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
  validate: (o, previous) => {
    if (previous !== undefined && previous.type !== o.type)
      return [cause.invalid('type', o.type, 'field is immutable')];
    const needed = o.type === 'kubernetes.io/tls' ? ['tls.crt', 'tls.key'] : [];
    return needed.filter((key) => object(o, 'data')[key] === undefined).map((key) => cause.required(`data[${key}]`));
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
  EndpointSlice: endpointSlice,
  Endpoints: endpoints,
  Event: event,
  PodDisruptionBudget: disruptionBudget,
  Lease: lease,
  Node: node,
  Namespace: namespace,
  RoleBinding: binding,
  ClusterRoleBinding: binding,
  PriorityClass: priorityClass,
  ValidatingWebhookConfiguration: webhookConfiguration,
};
