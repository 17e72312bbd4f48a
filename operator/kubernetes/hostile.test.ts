/** Objects as no API server validates them, in every field that is read: none ends the operator, and none changes what others have. */
import { describe, expect, it } from '@jest/globals';
import type {
  EndpointSlice,
  KubeNode,
  KubeObject,
  Namespace,
  NodePolicyStatus,
  Pod,
  ResolvedPolicyObject,
  Service,
} from '@weir/kube';
import { nested, pathsIn, withAt } from '../../test/hostile.ts';
import { TestModel } from '../model/testing/test-model.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import { adoptedIdentity, adoptedSlice, sliceObject } from './objects.ts';
import {
  namespaceRow,
  nodeReportRow,
  nodeRow,
  podRow,
  policyRow,
  resolvedVersionRow,
  serviceRow,
  serviceSliceRow,
} from './rows.ts';
import { servicePeersOf } from './service-peers.ts';
import { readable } from './shapes.ts';

const HOSTILE: readonly (() => unknown)[] = [
  () => nested(90),
  () => Array.from({ length: 200 }, (_, at) => ({ [`x${at}`]: at })),
  () => 'x'.repeat(100_000),
  () => ({ ['k'.repeat(100_000)]: 1 }),
  () => null,
  () => undefined,
  () => -1.5,
  () => true,
  () => [],
  () => [null],
  () => [[]],
  () => ({}),
  () => 'constructor',
  () => ({ constructor: { generation: 1 }, toString: 1 }),
];

/** What identifies an object the API server itself gives it. */
const GIVEN = ['metadata.name', 'metadata.namespace', 'metadata', 'kind', 'apiVersion'];

const PORTS = [{ name: 'web', containerPort: 80, protocol: 'TCP' }];
const TENANTS_POD = pod('tenant/p', { app: 'a' }, { ip: '10.0.0.2', node: 'n1', ports: PORTS });
const FAILURES = [{ uid: 'victim', generation: 1, reason: 'KernelRefused', message: 'x' }];

interface Sample {
  readonly kind: string;
  readonly object: KubeObject;
  /** Puts the object into the model. A throw is this object's own matter. */
  readonly put: (model: TestModel, object: never) => void;
}

const SAMPLES: readonly Sample[] = [
  {
    kind: 'Pod',
    object: {
      ...TENANTS_POD,
      spec: { ...TENANTS_POD.spec, serviceAccountName: 's', initContainers: [{ name: 'i' }] },
    } as Pod,
    put: (model, object: Pod) => model.setPod(podRow(object)),
  },
  {
    kind: 'Namespace',
    object: namespace('tenant', { team: 'red' }),
    put: (model, object: Namespace) => model.setNamespace(namespaceRow(object)),
  },
  {
    kind: 'Node',
    object: node('n2', 'True', { podCIDRs: ['10.0.2.0/24'], addresses: ['192.0.2.2'] }),
    put: (model, object: KubeNode) => model.setNode(nodeRow(object)),
  },
  {
    kind: 'Service',
    object: {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 's', namespace: 'tenant', labels: { tier: 'x' } },
      spec: { type: 'ClusterIP', selector: { app: 'a' } },
    } as Service,
    put: (model, object: Service) => model.setService(servicePeersOf(serviceRow(object), () => [])),
  },
  {
    kind: 'EndpointSlice',
    object: {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: 's-1', namespace: 'tenant', labels: { 'kubernetes.io/service-name': 's' } },
      addressType: 'IPv4',
      endpoints: [{ addresses: ['192.0.2.1'] }],
    } as EndpointSlice,
    put: (model, object: EndpointSlice) => {
      const bare = { metadata: { name: 's', namespace: 'tenant' } } as Service;
      model.setService(servicePeersOf(serviceRow(bare), () => [serviceSliceRow(object)]));
    },
  },
  {
    kind: 'NodePolicyStatus',
    object: {
      ...report('n2', { failures: FAILURES, policyVersion: '7' }),
      metadata: { name: 'n2', ownerReferences: [{ kind: 'Node', uid: 'n2' }] },
    } as NodePolicyStatus,
    put: (model, object: NodePolicyStatus) => model.setReport(nodeReportRow(object)),
  },
  {
    kind: 'ResolvedPolicy',
    object: {
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'ResolvedPolicy',
      metadata: { name: 'cnp-tenant.p', resourceVersion: '9' },
      spec: {
        source: { kind: 'CiliumNetworkPolicy', namespace: 'tenant', name: 'p', uid: 'u', generation: 1 },
        rules: [],
      },
    } as ResolvedPolicyObject,
    put: (model, object: ResolvedPolicyObject) => model.setResolvedVersion(resolvedVersionRow(object)),
  },
];

function world(): TestModel {
  const model = new TestModel({ cluster: 'default', identityGraceMs: 0, now: () => 0, statusIntervalMs: 0 });
  for (const name of ['victim', 'tenant']) model.setNamespace(namespaceRow(namespace(name)));
  model.setNode(nodeRow(node('n1')));
  model.setPod(podRow(pod('tenant/other', { app: 'b' }, { ip: '10.0.0.3', node: 'n1', uid: 'other' })));
  model.setPod(podRow(pod('victim/web', { app: 'web' }, { ip: '10.0.0.1', node: 'n1', uid: 'web' })));
  const object = cnp('victim/p', { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{}] });
  const metadata = { ...object.metadata, uid: 'victim', generation: 1 };
  model.setPolicy(policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
  const named = cnp('tenant/services', {
    endpointSelector: {},
    egress: [
      {
        toServices: [
          { k8sService: { serviceName: 's' } },
          { k8sServiceSelector: { selector: { matchLabels: { tier: 'x' } } } },
        ],
      },
    ],
  });
  const own = { ...named.metadata, uid: 'named', generation: 1 };
  model.setPolicy(policyRow({ ...named, metadata: own }, 'CiliumNetworkPolicy'));
  model.setReport(nodeReportRow(report('n1', { policyVersion: '1' })));
  model.flush();
  return model;
}

/** Takes the object as far as its rows can be made; a model that throws has ended the operator. */
function take({ put }: Sample, model: TestModel, object: KubeObject): void {
  try {
    put(model, object as never);
  } catch {
    // As the sink does: it is left out alone.
    return;
  }
  model.flush();
}

describe.each(SAMPLES)('a $kind', (sample) => {
  it('is read, or left out alone, whatever a field of it is', () => {
    const model = world();
    for (const path of pathsIn(sample.object))
      if (!GIVEN.includes(path.join('.')))
        for (const hostile of HOSTILE) take(sample, model, withAt(sample.object, path, hostile()) as KubeObject);
    using snapshot = model.db.read();
    const victims = [...snapshot.all(model.tables.slices)].filter(({ row }) => row.namespace === 'victim');
    expect(victims.map(({ row }) => row.endpoints.map(({ name }) => name))).toEqual([['web']]);
    // Nothing of another type is written anywhere: the API server would refuse a whole slice for one port.
    for (const { row } of snapshot.all(model.tables.slices))
      for (const { 'named-ports': ports = [] } of row.endpoints)
        for (const each of ports)
          expect(each).toEqual({ name: expect.any(String), port: expect.any(Number), protocol: expect.any(String) });
    for (const { row } of snapshot.all(model.tables.identities))
      for (const value of Object.values(row.labels)) expect(typeof value).toBe('string');
  });
});

it('a failure whose policy, reason or message is missing says nothing', () => {
  const failures = [{}, { uid: 'victim' }, { uid: 'victim', generation: 1 }, ...FAILURES] as typeof FAILURES;
  expect(nodeReportRow(report('n1', { failures })).failures).toEqual({ victim: FAILURES });
});

it.each([
  [2000, undefined, 2000, 0],
  [2000, 2020, 2000, 20],
  [2010, 1, 2000, 10],
  [3, 'many', 3, 0],
])('of %i failures of a report, which says %s, %i count', (listed, failureCount, counted, unlisted) => {
  const failures = Array.from({ length: listed }, (_, n) => ({
    uid: `u${n}`,
    generation: 1,
    reason: 'KernelRefused',
    message: 'full',
  }));
  const row = nodeReportRow(report('n1', { failures, failureCount: failureCount as number }));
  expect([Object.keys(row.failures).length, row.unlisted]).toEqual([counted, unlisted]);
});

/** What the operator writes, and another hand changed since: it is adopted at the next start, or is overwritten. */
const WRITTEN: readonly (readonly [string, KubeObject, (object: never) => boolean, (object: never) => unknown])[] = [
  [
    'CiliumEndpointSlice',
    sliceObject({
      name: 'ces-victim-0',
      namespace: 'victim',
      endpoints: [
        {
          ...{ name: 'web', id: 0, identity: 256, uid: 'u' },
          networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '192.0.2.1' },
          'named-ports': [{ name: 'web', port: 80, protocol: 'TCP' }],
        },
      ],
    }),
    readable.slice,
    adoptedSlice,
  ],
  [
    'CiliumIdentity',
    {
      ...{ apiVersion: 'cilium.io/v2', kind: 'CiliumIdentity', metadata: { name: '256' } },
      'security-labels': { 'k8s:app': 'web' },
    } as KubeObject,
    readable.identity,
    adoptedIdentity,
  ],
];

it.each(WRITTEN)('a %s that counts as readable is read, whatever a field of it is', (_, object, counts, adopt) => {
  const changed = [...pathsIn(object)]
    .filter((path) => !GIVEN.includes(path.join('.')))
    .flatMap((path) => HOSTILE.map((hostile) => withAt(object, path, hostile()) as never));
  const read = changed.filter((each) => counts(each));
  expect(read.length).toBeGreaterThan(0);
  for (const each of read) expect(() => adopt(each)).not.toThrow();
});
