/** Objects as no API server validates them, in every field that is read: each is left out alone, and what comes after it is taken. */

import { expect, it } from '@jest/globals';
import type { KubeClient, KubeObject, Resource, WatchEvent } from '@weir/kube';
import type { AnyTable } from '@weir/statedb';
import { eventually } from '../../test/eventually.ts';
import { nested, pathsIn, withAt } from '../../test/hostile.ts';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { UninstallMark } from '../uninstall/mark.ts';
import { Kubernetes } from './source.ts';

/** Lists nothing; its watches tell what they were given. */
class TellingClient {
  readonly #plural: string;
  readonly #objects: readonly KubeObject[];
  /** How often the kind was listed: once, unless something threw. */
  lists = 0;
  /** All of it was taken. */
  taken = false;

  constructor(plural: string, objects: readonly KubeObject[]) {
    this.#plural = plural;
    this.#objects = objects;
  }

  listPage<T extends KubeObject>({ plural }: Resource<T>): Promise<{ items: T[]; resourceVersion: string }> {
    if (plural === this.#plural) this.lists += 1;
    return Promise.resolve({ items: [], resourceVersion: '1' });
  }
  async *watch<T extends KubeObject>(
    { plural }: Resource<T>,
    { signal }: { readonly signal?: AbortSignal },
  ): AsyncGenerator<WatchEvent<T>> {
    if (plural === this.#plural) {
      for (const object of this.#objects) yield { type: 'MODIFIED', object: object as T };
      this.taken = true;
    }
    await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()));
  }
  get(): Promise<never> {
    return Promise.reject(new Error('nothing is read'));
  }
  close(): void {}
}

/** What the agent has made of the objects, one after the other, all of one name; and how often it had to list. */
async function readOf(
  { plural, table }: Pick<Sample, 'plural' | 'table'>,
  objects: readonly KubeObject[],
): Promise<{ readonly rows: readonly unknown[]; readonly lists: number }> {
  const core = new FakeCore();
  const versioned = objects.map((object, at) => ({
    ...object,
    metadata: { ...object.metadata, uid: 'uid', resourceVersion: String(at + 2) },
  }));
  const client = new TellingClient(plural, versioned);
  const own = client as unknown as KubeClient;
  const daemonSet = { namespace: 'weir', name: 'weir-agent' };
  const mark = new UninstallMark(core.db, daemonSet);
  const kubernetes = new Kubernetes({ core, client: own, nodeName: 'n1', sources: () => [mark.source], log: quiet });
  kubernetes.start();
  try {
    await eventually(
      () => Promise.resolve(client),
      ({ taken, lists }) => taken || lists > 1,
    );
    using snapshot = core.db.read();
    const found = core.db.tables().find((info) => info.name === table)?.table as AnyTable;
    return { rows: [...snapshot.all(found)], lists: client.lists };
  } finally {
    await kubernetes.stop();
  }
}

interface Sample {
  readonly plural: string;
  readonly table: string;
  readonly object: KubeObject & Readonly<Record<string, unknown>>;
}

const SAMPLES: readonly Sample[] = [
  {
    plural: 'pods',
    table: 'localPods',
    object: {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'p', namespace: 'a', labels: { a: 'b' }, annotations: { 'kubernetes.io/config.mirror': 'x' } },
      spec: {
        nodeName: 'n1',
        serviceAccountName: 's',
        hostNetwork: false,
        containers: [{ ports: [{ name: 'web', containerPort: 80, protocol: 'TCP' }] }],
        initContainers: [{ restartPolicy: 'Always', ports: [{ name: 'init', containerPort: 81 }] }],
      },
      status: {
        phase: 'Running',
        podIP: '10.1.0.1',
        podIPs: [{ ip: '10.1.0.1' }],
        conditions: [{ type: 'Ready', status: 'True' }],
      },
    },
  },
  {
    plural: 'namespaces',
    table: 'namespaces',
    object: { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'a', labels: { a: 'b' } } },
  },
  {
    plural: 'services',
    table: 'services',
    object: {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 's', namespace: 'a' },
      spec: { clusterIPs: ['10.2.0.1'], externalIPs: ['192.0.2.1'] },
      status: { loadBalancer: { ingress: [{ ip: '192.0.2.2' }] } },
    },
  },
  {
    plural: 'nodes',
    table: 'nodes',
    object: {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'n2' },
      spec: { podCIDR: '10.1.0.0/24', podCIDRs: ['10.1.0.0/24'] },
      status: { addresses: [{ type: 'InternalIP', address: '192.0.2.9' }] },
    },
  },
  {
    plural: 'endpointslices',
    table: 'apiserverSlices',
    object: {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: 'kubernetes', namespace: 'default', labels: { 'kubernetes.io/service-name': 'kubernetes' } },
      endpoints: [{ addresses: ['192.0.2.3'] }],
    },
  },
  {
    plural: 'ciliumidentities',
    table: 'identities',
    object: {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumIdentity',
      metadata: { name: '300' },
      'security-labels': { 'k8s:a': 'b' },
    },
  },
  {
    plural: 'ciliumendpointslices',
    table: 'remoteEndpoints',
    object: {
      apiVersion: 'cilium.io/v2alpha1',
      kind: 'CiliumEndpointSlice',
      metadata: { name: 'ces-a-0', annotations: { 'weir.dev/pod-uids': 'u' } },
      namespace: 'a',
      endpoints: [
        {
          name: 'p',
          id: 0,
          identity: 300,
          networking: { addressing: [{ ipv4: '10.1.0.1', ipv6: '' }], node: '192.0.2.9' },
          'named-ports': [{ name: 'web', port: 80, protocol: 'TCP' }],
        },
      ],
    },
  },
  {
    plural: 'peersets',
    table: 'peerSets',
    object: {
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'PeerSet',
      metadata: { name: 'h' },
      spec: { hash: 'h', selector: { requirements: [] }, identities: [300], slice: 0, slices: 1 },
    },
  },
  {
    plural: 'resolvedpolicies',
    table: 'policies',
    object: {
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'ResolvedPolicy',
      metadata: { name: 'cnp-a.p' },
      spec: {
        source: { kind: 'CiliumNetworkPolicy', namespace: 'a', name: 'p', uid: 'u', generation: 1 },
        rules: [
          {
            subject: 'h',
            direction: 'ingress',
            verdict: 'allow',
            peers: [{ peerSet: 'h' }, { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }],
            ports: [{ protocol: 'TCP', from: 1, to: 2 }],
            defaultDeny: true,
            cookie: 1,
            path: 'spec.ingress[0]',
          },
        ],
      },
      status: { conditions: [{ type: 'Ready', status: 'True', reason: 'Programmed', message: 'x' }] },
    },
  },
];

/** What identifies an object the API server itself gives it. */
const GIVEN = ['metadata.name', 'metadata.namespace', 'metadata', 'kind', 'apiVersion'];

const LONG = 'x'.repeat(1_000_000);
const HOSTILE: readonly (() => unknown)[] = [
  () => nested(10_000),
  () => Array.from({ length: 2000 }, (_, at) => ({ [`x${at}`]: at })),
  () => LONG,
  () => ({ [LONG]: 1 }),
  () => null,
  () => -1.5,
  () => true,
  () => [null],
  () => [[]],
  () => ({ __proto__: null, constructor: 1 }),
];

it.each(SAMPLES)('$plural', async (sample) => {
  const { object } = sample;
  const paths = [...pathsIn(object)].filter((path) => !GIVEN.includes(path.join('.')));
  const bad = paths.flatMap((path) => HOSTILE.map((hostile) => withAt(object, path, hostile())));
  const wanted = await readOf(sample, [object]);
  expect(wanted.rows).toHaveLength(1);
  expect(await readOf(sample, [...(bad as KubeObject[]), object])).toEqual(wanted);
});
