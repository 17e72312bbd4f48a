/**
 * What a tenant writes where the system, or Weir, writes: reserved labels, annotations and finalizers, on everything that is a tenant's.
 * Each is ignored or refused: who is judged as whom, and by which rules, is the same with it and without it.
 */
import { describe, expect, it } from '@jest/globals';
import type { KubeObject, Namespace, Pod, Service } from '@weir/kube';
import { formatLabels, formatSelector } from '@weir/labels';
import { createStateDB } from '@weir/statedb';
import { firstValueFrom } from 'rxjs';
import { endpointSliceParts, namespaceParts, podParts, serviceParts } from '../node-agent/kubernetes/rows.ts';
import { UNINSTALL_ANNOTATION, UninstallMark } from '../node-agent/uninstall/mark.ts';
import { identityObject, resolvedObject, sliceObject } from '../operator/kubernetes/objects.ts';
import { namespaceRow, nodeRow, podRow, policyRow } from '../operator/kubernetes/rows.ts';
import { TestModel } from '../operator/model/testing/test-model.ts';
import { ccnp, cnp, knp, namespace, node, pod } from '../operator/testing.ts';
import type { PolicyObjectKind } from '../operator/types.ts';

type Kind = 'Pod' | 'Namespace' | 'Service' | 'CiliumNetworkPolicy' | 'NetworkPolicy';
type Objects = readonly (KubeObject & { readonly spec?: unknown })[];

const allowFrom = (from: object, subject: object = {}) => ({
  endpointSelector: subject,
  ingress: [{ fromEndpoints: [from] }],
});

/** Of the tenant, in namespace `tenant`; and what others have there or anywhere. */
const TENANTS: Objects = [
  namespace('tenant', { team: 'red' }),
  pod('tenant/evil', { app: 'evil' }, { ip: '10.0.0.1', node: 'n1' }),
  cnp('tenant/own', allowFrom({ matchLabels: { app: 'evil' } }, { matchLabels: { app: 'evil' } })),
  knp('tenant/np', { podSelector: { matchLabels: { app: 'evil' } }, ingress: [{ from: [{ podSelector: {} }] }] }),
  {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 's', namespace: 'tenant' },
    spec: { clusterIPs: ['10.9.0.1'] },
  } as Service,
];
const OTHERS: Objects = [
  namespace('victim', { team: 'blue' }),
  pod('victim/web', { app: 'web' }, { ip: '10.0.0.2', node: 'n1' }),
  pod('victim/admin', { app: 'admin' }, { ip: '10.0.0.3', node: 'n1' }),
  cnp('victim/own', allowFrom({ matchLabels: { app: 'admin' } }, { matchLabels: { app: 'web' } })),
  cnp('victim/namespaced', allowFrom({ matchLabels: { 'k8s:io.kubernetes.pod.namespace': 'victim' } })),
  ccnp(
    'teams',
    allowFrom(
      { matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'blue' } },
      { matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'blue' } },
    ),
  ),
  ccnp('accounts', allowFrom({ matchLabels: { 'io.cilium.k8s.policy.serviceaccount': 'admin' } })),
  ccnp('clusters', allowFrom({ matchLabels: { 'io.cilium.k8s.policy.cluster': 'other' } })),
  ccnp('reserved', allowFrom({ matchLabels: { 'reserved:kube-apiserver': '' } })),
  ccnp('bare', allowFrom({ matchLabels: { host: '' } })),
];

const asGiven = (object: KubeObject): KubeObject => {
  const { namespace: ns, name } = object.metadata;
  return { ...object, metadata: { ...object.metadata, uid: `${object.kind}-${ns ?? ''}-${name}`, generation: 1 } };
};

/** What comes of the objects, in the operator and on node n1. Identities are called by their labels. */
function derived(objects: Objects) {
  const model = new TestModel({ cluster: 'default', identityGraceMs: 0, now: () => 0 });
  model.setNode(nodeRow(node('n1')));
  const agent: unknown[] = [];
  const policies: Readonly<Record<string, PolicyObjectKind>> = {
    CiliumNetworkPolicy: 'CiliumNetworkPolicy',
    CiliumClusterwideNetworkPolicy: 'CiliumClusterwideNetworkPolicy',
    NetworkPolicy: 'NetworkPolicy',
  };
  // Namespaces first, as pods wait for theirs.
  for (const object of objects
    .map(asGiven)
    .toSorted((a, b) => Number(b.kind === 'Namespace') - Number(a.kind === 'Namespace'))) {
    const kind = policies[object.kind ?? ''];
    if (object.kind === 'Namespace') {
      model.setNamespace(namespaceRow(object as Namespace));
      agent.push(...namespaceParts(object as Namespace).values());
    } else if (object.kind === 'Pod') {
      model.setPod(podRow(object as Pod));
      agent.push(...podParts('n1')(object as Pod).values());
    } else if (object.kind === 'Service') agent.push(...serviceParts(object as Service).values());
    else if (kind !== undefined) model.setPolicy(policyRow(object, kind));
  }
  const { identities, peerSets, resolved, slices, statuses } = model.flush();
  const rows = <T>(edits: readonly { readonly row: T | undefined }[]): T[] => edits.flatMap(({ row }) => row ?? []);
  const labels = new Map(rows(identities).map(({ id, labels: own }) => [id, formatLabels(own).join(',')]));
  const endpoints = rows(slices).flatMap((row) => [...endpointSliceParts(sliceObject(row)).values()]);
  const podsOf = (id: number): string[] =>
    endpoints.filter(({ identity }) => identity === id).map(({ namespace: ns, name }) => `${ns}/${name}`);
  const written = [
    ...rows(identities).map(identityObject),
    ...rows(slices).map(sliceObject),
    ...rows(resolved).map(resolvedObject),
  ];
  return {
    endpoints: endpoints.map(({ identity, ...endpoint }) => ({ ...endpoint, labels: labels.get(identity) })),
    /** Who is in which set. */
    sets: Object.fromEntries(
      rows(peerSets).map(({ selector, identities: ids }) => [formatSelector(selector), ids.flatMap(podsOf).sort()]),
    ),
    rules: rows(resolved).map(({ name, rules }) => ({ name, rules })),
    statuses: rows(statuses).map(({ key, status }) => ({
      key,
      conditions: status.conditions.map(({ type, status: is, reason }) => [type, is, reason]),
    })),
    agent,
    /** Nothing of ours carries what a tenant put on something of his. */
    metadata: written.flatMap(({ metadata }) => [
      Object.keys(metadata).sort(),
      Object.keys(metadata.annotations ?? {}),
    ]),
  };
}

const BASE = derived([...TENANTS, ...OTHERS]);

const withMetadata = (kind: Kind, field: 'labels' | 'annotations', more: Readonly<Record<string, string>>): Objects =>
  TENANTS.map((object) =>
    object.kind === kind
      ? { ...object, metadata: { ...object.metadata, [field]: { ...object.metadata[field], ...more } } }
      : object,
  );

const KINDS: readonly Kind[] = ['Pod', 'Namespace', 'Service', 'CiliumNetworkPolicy', 'NetworkPolicy'];

/** Keys, with what somebody would claim by them. The last ones are no label keys to an API server, which refuses them. */
const LABELS: readonly (readonly [string, string])[] = [
  ['io.kubernetes.pod.namespace', 'victim'],
  ['io.kubernetes.pod.name', 'web'],
  ['io.kubernetes.pod.uid', 'Pod-victim-web'],
  ['io.cilium.k8s.policy.serviceaccount', 'admin'],
  ['io.cilium.k8s.policy.cluster', 'other'],
  ['io.cilium.k8s.namespace.labels.team', 'blue'],
  ['io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name', 'victim'],
  ['io.cilium.k8s.anything', 'x'],
  ['k8s:io.kubernetes.pod.namespace', 'victim'],
  ['k8s:app', 'admin'],
  ['any:app', 'admin'],
  ['unspec:app', 'admin'],
  [':app', 'admin'],
  ['reserved:kube-apiserver', ''],
  ['reserved:host', ''],
  ['cidr:10.0.0.0/8', ''],
  ['fqdn:example.com', ''],
  ['node:n1', ''],
];

describe('a reserved label', () => {
  it('there is something to claim', () => {
    const claimed = TENANTS.map((object) =>
      object.kind === 'Namespace' ? namespace('tenant', { team: 'blue' }) : object,
    );
    expect(derived([...claimed, ...OTHERS]).sets).not.toEqual(BASE.sets);
    expect(Object.values(BASE.sets).some((pods) => pods.includes('victim/web'))).toBe(true);
  });

  it.each(LABELS)('%s=%s of a pod is ignored', (key, value) => {
    const { agent, ...rest } = derived([...withMetadata('Pod', 'labels', { [key]: value }), ...OTHERS]);
    const { agent: _, ...base } = BASE;
    expect(rest).toEqual(base);
    // The node keeps what the pod says, and takes its identity from the same function.
    expect(agent).toHaveLength(BASE.agent.length);
  });

  it.each(LABELS)('%s=%s of a namespace is a label of the namespace, and makes its pods nobody else', (key, value) => {
    const { endpoints, sets, rules, statuses } = derived([
      ...withMetadata('Namespace', 'labels', { [key]: value }),
      ...OTHERS,
    ]);
    expect({ sets, rules, statuses }).toEqual({ sets: BASE.sets, rules: BASE.rules, statuses: BASE.statuses });
    const evil = endpoints.find(({ name }) => name === 'evil')?.labels?.split(',') ?? [];
    const before = BASE.endpoints.find(({ name }) => name === 'evil')?.labels?.split(',') ?? [];
    const own = evil.filter((label) => !before.includes(label));
    expect(before.every((label) => evil.includes(label))).toBe(true);
    for (const label of own) expect(label).toBe(`k8s:io.cilium.k8s.namespace.labels.${key}=${value}`);
    expect(own).toHaveLength(key.includes(':') ? 0 : 1);
  });

  it.each(
    (['Service', 'CiliumNetworkPolicy', 'NetworkPolicy'] as const).flatMap((kind) =>
      LABELS.map(([key, value]) => [kind, key, value] as const),
    ),
  )('of a %s, %s=%s is ignored', (kind, key, value) => {
    expect(derived([...withMetadata(kind, 'labels', { [key]: value }), ...OTHERS])).toEqual(BASE);
  });
});

const NAMESPACE = 'io.kubernetes.pod.namespace';
const is = (key: string, operator: string, ...values: string[]) => ({
  matchExpressions: [{ key, operator, ...(values.length === 0 ? {} : { values }) }],
});

/** Selectors by which a tenant would be a subject elsewhere, and what Valid says of each. */
const SUBJECTS: readonly (readonly [string, object, string])[] = [
  ['the victim by k8s:', { matchLabels: { [`k8s:${NAMESPACE}`]: 'victim' } }, 'InvalidSpec'],
  ['the victim by any source', { matchLabels: { [NAMESPACE]: 'victim' } }, 'InvalidSpec'],
  ['not the own', is(`k8s:${NAMESPACE}`, 'NotIn', 'tenant'), 'InvalidSpec'],
  ['none', is(NAMESPACE, 'DoesNotExist'), 'InvalidSpec'],
  ['both', is(`k8s:${NAMESPACE}`, 'In', 'tenant', 'victim'), 'Valid'],
  ['any', is(NAMESPACE, 'Exists'), 'Valid'],
  ['the victim by a source that nobody has', { matchLabels: { [`cni:${NAMESPACE}`]: 'victim' } }, 'Valid'],
  ['no source that nobody has', is(`cni:${NAMESPACE}`, 'DoesNotExist'), 'Valid'],
  ['a reserved label', { matchLabels: { 'reserved:host': '' } }, 'Valid'],
  ['no reserved label', is('reserved:host', 'DoesNotExist'), 'Valid'],
  ['no label of an endpoint that begins', is('reserved:init', 'DoesNotExist'), 'Valid'],
  ['the label of an endpoint that begins', { matchLabels: { 'reserved:init': '' } }, 'Valid'],
  ["another namespace's labels", { matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'blue' } }, 'Valid'],
  ['another cluster', { matchLabels: { 'io.cilium.k8s.policy.cluster': 'other' } }, 'Valid'],
  ['no other cluster', is('io.cilium.k8s.policy.cluster', 'NotIn', 'other'), 'Valid'],
  ['a label that no pod can have', { matchLabels: { 'io.cilium.k8s.anything': 'x' } }, 'Valid'],
];

describe('a policy of the tenant', () => {
  it.each(SUBJECTS)('that selects %s has no subject but its own pods', (_, endpointSelector, reason) => {
    const policy = cnp('tenant/hostile', { endpointSelector, ingressDeny: [{ fromEntities: ['all'] }] });
    const { rules, sets, statuses } = derived([...TENANTS, policy, ...OTHERS]);
    const named = Object.entries(sets).filter(([text]) => !(text in BASE.sets));
    for (const [, pods] of named) for (const each of pods) expect(each).toBe('tenant/evil');
    expect(rules.filter(({ name }) => name !== 'cnp-tenant.hostile')).toEqual(BASE.rules);
    expect(statuses.find(({ key }) => key === 'cnp/tenant/hostile')?.conditions[0]?.[2]).toBe(reason);
  });

  it.each([
    [NAMESPACE, 'victim'],
    ['io.cilium.k8s.policy.serviceaccount', 'admin'],
    ['io.cilium.k8s.namespace.labels.team', 'blue'],
  ])('in networking.k8s.io, %s is a label that no pod has', (key, value) => {
    const policies = [
      knp('tenant/subject', { podSelector: { matchLabels: { [key]: value } }, ingress: [] }),
      knp('tenant/peer', {
        podSelector: {},
        ingress: [{ from: [{ podSelector: { matchLabels: { [key]: value } } }] }],
      }),
    ];
    const { statuses, sets } = derived([...TENANTS, ...policies, ...OTHERS]);
    const reasonOf = (name: string) =>
      statuses.find(({ key: each }) => each === `knp/tenant/${name}`)?.conditions[0]?.[2];
    expect([reasonOf('subject'), reasonOf('peer')]).toEqual(['InvalidSpec', 'UnsupportedField']);
    for (const [text, pods] of Object.entries(sets)) if (!(text in BASE.sets)) expect(pods).toEqual(['tenant/evil']);
  });
});

const ANNOTATIONS: readonly (readonly [string, string])[] = [
  [UNINSTALL_ANNOTATION, '2026-01-01T00:00:00Z'],
  ['weir.dev/removed', '2026-01-01T00:00:00Z'],
  ['weir.dev/pod-uids', 'Pod-victim-web'],
  ['weir.dev/anything', 'x'],
  ['policy.cilium.io/name', 'victim/own'],
  ['policy.cilium.io/no-track-port', '80'],
  ['policy.cilium.io/proxy-visibility', '<Ingress/80/TCP/HTTP>'],
  ['io.cilium.proxy-visibility', '<'],
  ['io.cilium.no-track-port', '80'],
  ['network.cilium.io/wrong', 'x'],
  ['service.cilium.io/global', 'true'],
  ['cni.projectcalico.org/podIP', '10.0.0.2/32'],
];

describe('an annotation', () => {
  it.each(KINDS.flatMap((kind) => ANNOTATIONS.map(([key, value]) => [kind, key, value] as const)))(
    'of a %s, %s=%s is ignored',
    (kind, key, value) => {
      expect(derived([...withMetadata(kind, 'annotations', { [key]: value }), ...OTHERS])).toEqual(BASE);
    },
  );

  it.each(['Pod-victim-web', ''])(
    "that makes a pod the mirror of a static one (%j) changes that pod's own row alone",
    (uid) => {
      const key = 'kubernetes.io/config.mirror';
      const { agent, ...rest } = derived([...withMetadata('Pod', 'annotations', { [key]: uid }), ...OTHERS]);
      const { agent: before, ...base } = BASE;
      expect(rest).toEqual(base);
      const changed = agent.filter((row, at) => JSON.stringify(row) !== JSON.stringify(before[at]));
      expect(changed).toMatchObject(
        uid === '' ? [] : [{ namespace: 'tenant', name: 'evil', uid, mirrorUid: 'Pod-tenant-evil' }],
      );
    },
  );

  it('asks an agent to go only on its own DaemonSet', async () => {
    const mark = new UninstallMark(createStateDB(), { namespace: 'weir', name: 'weir-agent' });
    const first = firstValueFrom(mark.values);
    const annotations = { [UNINSTALL_ANNOTATION]: 'forged' };
    const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    for (const metadata of [
      { namespace: 'tenant', name: 'weir-agent', annotations },
      { namespace: 'weir', name: 'other', annotations },
      { name: 'weir-agent', annotations },
    ]) {
      mark.upsert({ apiVersion: 'apps/v1', kind: 'DaemonSet', metadata });
      // One value would hide another that came in the same turn.
      await turn();
      await turn();
    }
    mark.upsert({
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { namespace: 'weir', name: 'weir-agent', annotations: { [UNINSTALL_ANNOTATION]: 'x' } },
    });
    expect(await first).toBe('x');
  });
});

const FINALIZERS = ['tenant.example/stay', 'foregroundDeletion', 'orphan', 'weir.dev/keep', 'cilium.io/ces'];

describe('a finalizer', () => {
  const withFinalizers = (kind: Kind, more: object): Objects =>
    TENANTS.map((object) =>
      object.kind === kind ? { ...object, metadata: { ...object.metadata, finalizers: FINALIZERS, ...more } } : object,
    );
  const deletionTimestamp = '2026-01-01T00:00:00Z';

  it.each(KINDS)('of a %s changes nothing, and nothing of ours carries it', (kind) => {
    expect(derived([...withFinalizers(kind, {}), ...OTHERS])).toEqual(BASE);
  });

  it.each(['Namespace', 'Service', 'CiliumNetworkPolicy', 'NetworkPolicy'] as const)(
    'that keeps a deleted %s keeps it as it is, until it is gone',
    (kind) => {
      expect(derived([...withFinalizers(kind, { deletionTimestamp }), ...OTHERS])).toEqual(BASE);
    },
  );

  it.each(['Succeeded', 'Failed'])('keeps no address for a deleted pod whose containers have ended (%s)', (phase) => {
    const kept = withFinalizers('Pod', { deletionTimestamp }).map((object) =>
      object.kind === 'Pod' ? { ...object, status: { ...(object as Pod).status, phase } } : object,
    );
    const { endpoints, agent } = derived([...kept, ...OTHERS]);
    expect(endpoints.map(({ name }) => name)).toEqual(['admin', 'web']);
    expect(agent).toContainEqual(expect.objectContaining({ name: 'evil', addresses: [] }));
  });

  it('keeps no address from the pod that has it next', () => {
    const next = pod('victim/next', { app: 'next' }, { ip: '10.0.0.1', node: 'n1' });
    const { endpoints } = derived([...withFinalizers('Pod', { deletionTimestamp }), ...OTHERS, next]);
    expect(endpoints.filter(({ addresses }) => addresses.includes('10.0.0.1')).map(({ name }) => name)).toEqual([
      'next',
    ]);
  });
});
