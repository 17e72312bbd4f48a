import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import {
  ApiError,
  type CiliumEndpoint,
  type CiliumEndpointSlice,
  type KubeEvent,
  type KubeObject,
  type PeerSet,
  type Pod,
  REQUEST_TIMEOUT_MS,
  type ResolvedPolicyObject,
  resources,
} from '@weir/kube';
import { type AnyTable, createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { eventually } from '../../test/eventually.ts';
import { PodEvents } from '../core/pod-events.ts';
import { inputTables, tableKey } from '../create-tables.ts';
import { last, TableSink } from '../parts/table-sink.ts';
import type { RemoteEndpointRow } from '../tables.ts';
import { FakeCore, quiet, recordingLogger } from '../testing/fake-core.ts';
import { UninstallMark } from '../uninstall/mark.ts';
import { CiliumEndpointWriter } from './cilium-endpoints.ts';
import { Connection } from './connection.ts';
import { NodeTables } from './nodes.ts';
import { PodEventWriter } from './pod-event-writer.ts';
import {
  endpointSliceParts,
  identityParts,
  mergeEndpoint,
  mergePeerSet,
  peerSetParts,
  podParts,
  policyParts,
  policyStatusParts,
  unreadPolicyParts,
} from './rows.ts';
import { Kubernetes } from './source.ts';
import { FakeClient } from './testing/fake-client.ts';

let core: FakeCore;
let client: FakeClient;
let connection: Connection;
const stops: (() => Promise<void>)[] = [];

beforeEach(() => {
  core = new FakeCore();
  client = new FakeClient();
  connection = new Connection(createStateDB({ freeze: true }), quiet);
});
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
  connection.stop();
});

function rows<T>(table: { readonly name: string }): readonly T[] {
  using snapshot = core.db.read();
  return [...snapshot.all(table as AnyTable)] as T[];
}
/** Lets everything that is already due happen. */
const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setTimeout(resolve, 2));
};
/** Waits until the connection says so. */
const said = (message: RegExp) =>
  eventually(
    async () => connection.status().message,
    (now) => message.test(now),
  );

function slice(hash: string, slice: number, slices: number, identities: readonly number[]): PeerSet {
  return {
    apiVersion: 'weir.dev/v1alpha1',
    kind: 'PeerSet',
    metadata: { name: slice === 0 ? hash : `${hash}-${slice}` },
    spec: { hash, selector: { requirements: [] }, identities, slice, slices },
  };
}
function policy(name: string, generation: unknown): ResolvedPolicyObject {
  const source = { kind: 'CiliumNetworkPolicy', namespace: 'default', name, uid: `u-${name}`, generation };
  return {
    apiVersion: 'weir.dev/v1alpha1',
    kind: 'ResolvedPolicy',
    metadata: { name },
    spec: { source, rules: [] },
  } as unknown as ResolvedPolicyObject;
}

describe('TableSink', () => {
  it('initialises the table with the first list, in the same transaction', () => {
    const { db, tables } = core;
    const sink = new TableSink({ db, log: quiet, table: tables.policies, parts: policyParts, merge: last });
    expect(db.pendingInitialisers(tables.policies)).toEqual(['kubernetes']);
    sink.upsert(policy('early', 1));
    expect(db.pendingInitialisers(tables.policies)).toHaveLength(1);
    sink.replace([policy('a', 1)]);
    expect(db.pendingInitialisers(tables.policies)).toEqual([]);
    expect(rows(tables.policies)).toEqual([
      { uid: 'u-a', kind: 'CiliumNetworkPolicy', namespace: 'default', name: 'a', generation: 1, rules: [] },
    ]);
  });

  it('isolates an object that cannot be read, and keeps what it said before', () => {
    const log = recordingLogger();
    const sink = new TableSink({ db: core.db, log, table: core.tables.policies, parts: policyParts, merge: last });
    sink.replace([policy('a', 1), policy('b', 'x')]);
    sink.upsert(policy('a', 'bad'));
    sink.replace([policy('a', 'bad'), policy('c', 3)]);
    expect(
      rows<{ name: string; generation: number }>(core.tables.policies).map((row) => [row.name, row.generation]),
    ).toEqual([
      ['a', 1],
      ['c', 3],
    ]);
    expect(log.lines.filter((line) => line.level === 'error')).toHaveLength(3);
  });

  it('notes a policy that cannot be read, until it can or is gone', () => {
    const { db, tables } = core;
    const sink = new TableSink({ db, log: quiet, table: tables.unreadPolicies, parts: unreadPolicyParts, merge: last });
    const unread = () => rows<{ uid: string; generation: number }>(tables.unreadPolicies);
    const newer = policy('a', 2);
    const bad = { ...newer, spec: { ...newer.spec, rules: [{ subject: 'x', verdict: 1 }] } } as never;
    sink.replace([bad, policy('b', 1), policy('c', 'x')]);
    expect(unread()).toEqual([
      { uid: 'u-a', generation: 2, problem: expect.stringContaining('spec.rules[0].direction is absent') },
      { uid: 'u-c', generation: 0, problem: expect.stringContaining('spec.source.generation is "x"') },
    ]);
    sink.upsert(policy('a', 3));
    sink.delete(policy('c', 'x'));
    expect(unread()).toEqual([]);
  });

  it('does not write what has not changed', () => {
    const sink = new TableSink({
      db: core.db,
      log: quiet,
      table: core.tables.policies,
      parts: policyParts,
      merge: last,
    });
    sink.replace([policy('a', 1)]);
    using stream = core.db.changes(core.tables.policies);
    stream.next();
    sink.replace([policy('a', 1)]);
    sink.upsert(policy('a', 1));
    expect(stream.next()).toEqual([]);
  });

  it('does not read again what a list has in the version that it had', () => {
    const { db, tables } = core;
    const read: string[] = [];
    const sink = new TableSink({
      db,
      log: quiet,
      table: tables.policies,
      parts: (object: ResolvedPolicyObject) => {
        read.push(`${object.metadata.name} ${object.metadata.resourceVersion}`);
        return policyParts(object);
      },
      merge: last,
    });
    const at = (name: string, generation: unknown, resourceVersion?: string, uid = name): ResolvedPolicyObject => {
      const object = policy(name, generation);
      return { ...object, metadata: { name, uid, ...(resourceVersion === undefined ? {} : { resourceVersion }) } };
    };
    const reads = (change: () => void): readonly [readonly string[], readonly string[]] => {
      read.length = 0;
      change();
      const said = rows<{ name: string; generation: number }>(tables.policies);
      return [[...read], said.map(({ name, generation }) => `${name} ${generation}`)];
    };
    reads(() => sink.replace([at('a', 1, '5'), at('b', 1, '6'), at('gone', 1, '7')], '7'));
    expect(reads(() => sink.replace([at('a', 1, '5'), at('b', 2, '8')], '9'))).toEqual([['b 8'], ['a 1', 'b 2']]);
    reads(() => sink.upsert(at('a', 3, '10')));
    expect(reads(() => sink.replace([at('a', 3, '10'), at('b', 2, '8')], '10'))).toEqual([[], ['a 3', 'b 2']]);
    // Another object of this name.
    const another = [at('a', 4, '10', 'anew'), at('b', 2, '8')];
    expect(reads(() => sink.replace(another, '10'))).toEqual([['a 10'], ['a 4', 'b 2']]);
    // The state was put back: versions begin again from an earlier one, and mean other contents.
    const back = [at('a', 9, '10', 'anew'), at('b', 9, '8')];
    expect(reads(() => sink.replace(back, '9'))).toEqual([
      ['a 10', 'b 8'],
      ['a 9', 'b 9'],
    ]);
    reads(() => sink.upsert(at('c', 1, '20')));
    const earlier = [at('a', 8, '10', 'anew'), at('b', 9, '8'), at('c', 1, '20')];
    expect(reads(() => sink.replace(earlier, '19'))).toEqual([
      ['a 10', 'b 8', 'c 20'],
      ['a 8', 'b 9', 'c 1'],
    ]);
    // Without a version nothing is known of it. What cannot be read is read again.
    const bare = [at('a', 8), at('b', 'bad', '21'), at('c', 1, '20')];
    for (const version of ['21', '22'])
      expect(reads(() => sink.replace(bare, version))).toEqual([
        ['a undefined', 'b 21'],
        ['a 8', 'b 9', 'c 1'],
      ]);
  });

  it('leaves rows of others alone', () => {
    const local = { hash: 'local', selector: { requirements: [] }, identities: [], origin: 'local' as const };
    core.db.write([core.tables.peerSets], (txn) => txn.upsert(core.tables.peerSets, local));
    const sink = new TableSink({
      db: core.db,
      log: quiet,
      table: core.tables.peerSets,
      parts: peerSetParts,
      merge: mergePeerSet,
    });
    sink.replace([slice('h', 0, 1, [1])]);
    sink.replace([]);
    expect(rows(core.tables.peerSets)).toEqual([local]);
  });

  it('does not take what another wrote under one of its keys for its own', () => {
    const { db, tables } = core;
    const local = { hash: 'h', selector: { requirements: [] }, identities: [7], origin: 'local' as const };
    db.write([tables.peerSets], (txn) => txn.upsert(tables.peerSets, local));
    const sink = new TableSink({
      db,
      log: quiet,
      table: tables.peerSets,
      parts: peerSetParts,
      merge: mergePeerSet,
      owns: ({ origin }) => origin === 'cluster',
    });
    sink.replace([slice('h', 0, 2, [1])]);
    sink.replace([]);
    expect(rows(tables.peerSets)).toEqual([local]);
    sink.replace([slice('h', 0, 1, [1])]);
    expect(rows(tables.peerSets)).toEqual([{ ...local, identities: [1], origin: 'cluster' }]);
    sink.replace([]);
    expect(rows(tables.peerSets)).toEqual([]);
  });

  it('equals a plain model on random traces of sliced peer sets: never half a set', () => {
    const object = fc.record({
      hash: fc.constantFrom('h1', 'h2'),
      slice: fc.nat(2),
      slices: fc.integer({ min: 1, max: 3 }),
      identities: fc.uniqueArray(fc.nat(9)),
    });
    const step = fc.oneof(
      fc.record({ do: fc.constant('upsert' as const), object }),
      fc.record({ do: fc.constant('delete' as const), object }),
      fc.record({ do: fc.constant('replace' as const), objects: fc.array(object, { maxLength: 4 }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 25 }), (steps) => {
        core = new FakeCore();
        const sink = new TableSink({
          db: core.db,
          log: quiet,
          table: core.tables.peerSets,
          parts: peerSetParts,
          merge: mergePeerSet,
        });
        const model = new Map<string, PeerSet>();
        const known = new Map<string, readonly number[]>();
        const make = (o: { hash: string; slice: number; slices: number; identities: readonly number[] }): PeerSet =>
          slice(o.hash, o.slice, o.slices, o.identities);
        for (const step of steps) {
          if (step.do === 'replace') {
            model.clear();
            const items = [...new Map(step.objects.map(make).map((item) => [item.metadata.name, item])).values()];
            for (const item of items) model.set(item.metadata.name, item);
            sink.replace(items);
          } else {
            const item = make(step.object);
            if (step.do === 'upsert') {
              model.set(item.metadata.name, item);
              sink.upsert(item);
            } else {
              model.delete(item.metadata.name);
              sink.delete(item);
            }
          }
          for (const hash of ['h1', 'h2']) {
            const of = [...model.values()].map((set) => set.spec).filter((spec) => spec.hash === hash);
            const wanted = of.find((spec) => spec.slice === 0)?.slices ?? 0;
            const present = Array.from({ length: wanted }, (_, at) =>
              of.find((spec) => spec.slice === at && spec.slices === wanted),
            );
            if (of.length === 0) known.delete(hash);
            else if (wanted > 0 && present.every((spec) => spec !== undefined)) {
              known.set(
                hash,
                [...new Set(present.flatMap((spec) => spec.identities))].sort((a, b) => a - b),
              );
            }
          }
          const expected = [...known]
            .sort(([a], [b]) => (a < b ? -1 : 1))
            .map(([hash, identities]) => ({ hash, identities }));
          expect(
            rows<{ hash: string; identities: readonly number[] }>(core.tables.peerSets).map(({ hash, identities }) => ({
              hash,
              identities,
            })),
          ).toEqual(expected);
        }
      }),
      { numRuns: 150 },
    );
  });
});

describe('rows', () => {
  it('reads identities', () => {
    const identity = {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumIdentity',
      metadata: { name: '1234' },
      'security-labels': { 'k8s:id': 'x' },
    };
    expect(identityParts(identity).get(tableKey.identity(1234))).toMatchObject({
      id: 1234,
      labels: { 'k8s:id': 'x' },
    });
    expect(() => identityParts({ ...identity, metadata: { name: 'abc' } })).toThrow('metadata.name');
  });
  it('keeps a pod that moves from one slice to another', () => {
    const ces = (name: string, pods: readonly string[]): CiliumEndpointSlice => ({
      apiVersion: 'cilium.io/v2alpha1',
      kind: 'CiliumEndpointSlice',
      metadata: { name },
      namespace: 'default',
      endpoints: pods.map((pod) => ({
        name: pod,
        id: 0,
        identity: 7,
        networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '192.0.2.1' },
      })),
    });
    const sink = new TableSink({
      db: core.db,
      log: quiet,
      table: core.tables.remoteEndpoints,
      parts: endpointSliceParts,
      merge: mergeEndpoint,
    });
    sink.replace([ces('s1', ['p'])]);
    sink.upsert(ces('s2', ['p']));
    sink.upsert(ces('s1', []));
    expect(rows(core.tables.remoteEndpoints)).toEqual([
      { namespace: 'default', name: 'p', addresses: ['10.0.0.1'], identity: 7, node: '192.0.2.1', namedPorts: [] },
    ]);
  });
  it('gives nobody the rights of a pod of which two slices tell differently: one of them may be of the pod before', () => {
    const slice = (name: string, ip: string, identity: number, uid?: string): CiliumEndpointSlice => ({
      apiVersion: 'cilium.io/v2alpha1',
      kind: 'CiliumEndpointSlice',
      metadata: { name, ...(uid === undefined ? {} : { annotations: { 'weir.dev/pod-uids': uid } }) },
      namespace: 'd',
      endpoints: [{ name: 'p', id: 0, identity, networking: { addressing: [{ ipv4: ip }], node: '192.0.2.1' } }],
    });
    const sink = new TableSink({
      db: core.db,
      log: quiet,
      table: core.tables.remoteEndpoints,
      parts: endpointSliceParts,
      merge: mergeEndpoint,
    });
    const said = (): readonly unknown[] =>
      rows<RemoteEndpointRow>(core.tables.remoteEndpoints).map(({ identity, addresses, podUid }) => [
        identity,
        [...addresses].sort(),
        podUid,
      ]);
    const unknown = [0, ['10.0.0.1', '10.0.0.2'], undefined];
    sink.replace([slice('s1', '10.0.0.1', 7, 'u-before')]);
    // A pod of the same name, while the slice that told of the one before is not written yet, or is written late.
    sink.upsert(slice('s2', '10.0.0.2', 8, 'u-now'));
    expect(said()).toEqual([unknown]);
    sink.upsert(slice('s1', '10.0.0.1', 7, 'u-before'));
    expect(said()).toEqual([unknown]);
    sink.replace([slice('s1', '10.0.0.1', 7, 'u-before'), slice('s2', '10.0.0.2', 8, 'u-now')]);
    expect(said()).toEqual([unknown]);
    sink.delete(slice('s1', '10.0.0.1', 7));
    expect(said()).toEqual([[8, ['10.0.0.2'], 'u-now']]);
    // Where the slices do not say which pod: two identities are two pods.
    sink.replace([slice('s1', '10.0.0.1', 7), slice('s2', '10.0.0.1', 8)]);
    expect(said()).toEqual([[0, ['10.0.0.1'], undefined]]);
    // One pod that moves from slice to slice.
    sink.replace([slice('s1', '10.0.0.1', 7, 'u'), slice('s2', '10.0.0.1', 7, 'u')]);
    expect(said()).toEqual([[7, ['10.0.0.1'], 'u']]);
  });
  it('reads which pods a slice is of, and nothing from a list that is not of its endpoints', () => {
    const uids = (annotation: string | undefined) => {
      const slice: CiliumEndpointSlice = {
        apiVersion: 'cilium.io/v2alpha1',
        kind: 'CiliumEndpointSlice',
        metadata: {
          name: 's',
          ...(annotation === undefined ? {} : { annotations: { 'weir.dev/pod-uids': annotation } }),
        },
        namespace: 'd',
        endpoints: ['p', 'q'].map((name) => ({ name, id: 0, identity: 7, networking: { addressing: [], node: '' } })),
      };
      return [...endpointSliceParts(slice).values()].map(({ podUid }) => podUid);
    };
    expect(uids('u-p,u-q')).toEqual(['u-p', 'u-q']);
    expect(uids(',u-q')).toEqual([undefined, 'u-q']);
    for (const other of [undefined, '', 'u-p', 'u-p,u-q,u-r']) expect(uids(other)).toEqual([undefined, undefined]);
  });
  it('reads the named ports of containers, and of init containers that keep running, in order', () => {
    const port = (name: string | undefined, containerPort: number, protocol?: string) => ({
      ...(name === undefined ? {} : { name }),
      containerPort,
      ...(protocol === undefined ? {} : { protocol }),
    });
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'p', namespace: 'd', uid: 'u' },
      spec: {
        nodeName: 'n1',
        containers: [
          { name: 'a', ports: [port('web', 8080), port(undefined, 9090), port('dns', 53, 'UDP')] },
          { name: 'b' },
          { name: 'c', ports: [port('odd', 70000), port('tap', 5, 'OTHER')] },
        ],
        initContainers: [
          { name: 'i', restartPolicy: 'Always', ports: [port('side', 15000, 'TCP')] },
          { name: 'j', ports: [port('gone', 1)] },
        ],
      },
    };
    expect(podParts('n1')(pod).get('d/p')?.namedPorts).toEqual([
      { name: 'web', port: 8080, protocol: 'TCP' },
      { name: 'dns', port: 53, protocol: 'UDP' },
      { name: 'side', port: 15000, protocol: 'TCP' },
    ]);
    const slices = endpointSliceParts({
      apiVersion: 'cilium.io/v2alpha1',
      kind: 'CiliumEndpointSlice',
      metadata: { name: 's' },
      namespace: 'd',
      endpoints: [
        {
          name: 'p',
          id: 0,
          identity: 7,
          networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '192.0.2.1' },
          'named-ports': [{ name: 'web', port: 8080, protocol: 'TCP' }],
        },
      ],
    });
    expect(slices.get('d/p')?.namedPorts).toEqual([{ name: 'web', port: 8080, protocol: 'TCP' }]);
  });
  it('keeps what the operator says of a policy apart from what is enforced', () => {
    const status = { observedGeneration: 1, conditions: [], summary: { nodes: '0/0', endpoints: 0, rules: 0 } };
    const said = { ...policy('a', 1), status } as ResolvedPolicyObject;
    expect([...policyStatusParts(policy('a', 1))]).toEqual([]);
    expect(policyStatusParts(said).get('u-a')).toEqual({ uid: 'u-a', status });
    expect(policyParts(said)).toEqual(policyParts(policy('a', 1)));
    expect(() => policyStatusParts({ ...said, status: { conditions: 'no' } } as never)).toThrow('status.conditions');
    const kind = { ...said.spec.source, kind: 'NetworkPolicy' } as never;
    expect(policyParts({ ...said, spec: { ...said.spec, source: kind } }).get('u-a')?.kind).toBe('NetworkPolicy');
  });
  it('knows a static pod by the uid that its sandbox has', () => {
    const annotations = { 'kubernetes.io/config.mirror': 'static-uid' };
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'p-n1', namespace: 'd', uid: 'mirror-uid', annotations },
      spec: { nodeName: 'n1' },
    } as Pod;
    expect(podParts('n1')(pod).get('d/p-n1')).toMatchObject({
      uid: 'static-uid',
      mirrorUid: 'mirror-uid',
      // As the operator reads it: both must come to one label set.
      serviceAccount: undefined,
    });
  });

  it('takes only pods of this node that have a network of their own', () => {
    const pod = (spec: object) => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'p', namespace: 'd', uid: 'u' },
      spec,
    });
    expect(podParts('n1')(pod({ nodeName: 'n1' })).size).toBe(1);
    expect(podParts('n1')(pod({ nodeName: 'n2' })).size).toBe(0);
    expect(podParts('n1')(pod({ nodeName: 'n1', hostNetwork: true })).size).toBe(0);
  });
});

describe('addresses of a pod of this node', () => {
  const addresses = (status: Pod['status']): unknown => {
    const object: Pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { namespace: 'd', name: 'p' },
      spec: { nodeName: 'n1' },
      ...(status === undefined ? {} : { status }),
    };
    return podParts('n1')(object).get('d/p')?.addresses;
  };
  const sandbox = (status: string) => ({ conditions: [{ type: 'PodReadyToStartContainers', status }] });
  const podIPs = [{ ip: '10.1.0.2' }, { ip: 'fd00::2' }];

  it('are those of its status, until it has finished and its sandbox is gone', () => {
    expect(addresses(undefined)).toEqual([]);
    expect(addresses({ phase: 'Running', podIP: '10.1.0.2' })).toEqual(['10.1.0.2']);
    expect(addresses({ phase: 'Running', podIPs, ...sandbox('False') })).toEqual(['10.1.0.2', 'fd00::2']);
    expect(addresses({ phase: 'Succeeded', podIPs, ...sandbox('True') })).toEqual(['10.1.0.2', 'fd00::2']);
    expect(addresses({ phase: 'Failed', podIPs, ...sandbox('False') })).toEqual([]);
    expect(addresses({ phase: 'Failed', podIPs })).toEqual([]);
  });
});

describe('NodeTables', () => {
  it('says where API servers are, by their own slice alone, once both kinds are listed', () => {
    const { db, tables } = core;
    const nodes = new NodeTables({
      db,
      nodeName: 'n1',
      nodes: tables.nodes,
      apiserverAddresses: tables.apiserverAddresses,
    });
    stops.push(async () => nodes.stop());
    const node = (name: string, address: string, podCIDR: string) => ({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name },
      spec: { podCIDR },
      status: {
        addresses: [
          { type: 'InternalIP', address },
          { type: 'Hostname', address: name },
        ],
      },
    });
    nodes.nodeSink.replace([node('n1', '192.0.2.1', '10.1.1.0/24'), node('n2', '192.0.2.2', '10.1.2.0/24')], '1');
    expect(db.pendingInitialisers(tables.nodes)).toHaveLength(1);
    nodes.sliceSink.replace(
      [
        {
          apiVersion: 'discovery.k8s.io/v1',
          kind: 'EndpointSlice',
          metadata: { name: 'kubernetes', namespace: 'default' },
          addressType: 'IPv4',
          endpoints: [{ addresses: ['192.0.2.1'] }, { addresses: ['203.0.113.5'] }],
        },
        {
          apiVersion: 'discovery.k8s.io/v1',
          kind: 'EndpointSlice',
          metadata: { name: 'web-x', namespace: 'default' },
          addressType: 'IPv4',
          endpoints: [{ addresses: ['192.0.2.2'] }],
        },
      ],
      '1',
    );
    expect([db.pendingInitialisers(tables.nodes), db.pendingInitialisers(tables.apiserverAddresses)]).toEqual([[], []]);
    expect(rows(tables.nodes)).toEqual([
      { name: 'n1', addresses: ['192.0.2.1'], podCidrs: ['10.1.1.0/24'], kubeApiserver: true },
      { name: 'n2', addresses: ['192.0.2.2'], podCidrs: ['10.1.2.0/24'], kubeApiserver: false },
    ]);
    expect(rows(tables.apiserverAddresses)).toEqual([{ address: '192.0.2.1' }, { address: '203.0.113.5' }]);
  });
});

describe('Connection', () => {
  it('takes silence for an answer only when a request would have ended', () => {
    jest.useFakeTimers();
    try {
      const log = recordingLogger();
      const subject = new Connection(createStateDB({ freeze: true }), log);
      stops.push(async () => subject.stop());
      subject.failed('nodes', new ApiError('no answer within 30000 ms', { status: 0, reason: 'Timeout' }), 5_000);
      jest.advanceTimersByTime(5_000 + REQUEST_TIMEOUT_MS);
      expect(subject.status().ok).toBe(false);
      jest.advanceTimersByTime(60_000);
      expect(subject.status().ok).toBe(true);
      expect(log.lines.map(({ message }) => message)).toEqual([
        expect.stringContaining('requests to the API server fail'),
        'requests to the API server succeed again',
      ]);
    } finally {
      jest.useRealTimers();
    }
  });

  it('names the address asked and what to set, while the API server has never answered', () => {
    const log = recordingLogger();
    const subject = new Connection(createStateDB({ freeze: true }), log);
    stops.push(async () => subject.stop());
    const message = 'GET https://10.96.0.1:443/api/v1/nodes: no connection within 5000 ms';
    for (const what of ['nodes', 'pods', 'nodes']) {
      subject.failed(what, new ApiError(message, { status: 0, reason: 'Unreachable' }), 200);
    }
    expect(log.lines.map(({ level }) => level)).toEqual(['warn', 'debug', 'debug']);
    expect(log.lines[0]?.fields).toEqual({
      what: 'nodes',
      error: message,
      fix: expect.stringContaining('apiServer.host'),
    });
  });
});

describe('PodEventWriter', () => {
  const pod = { namespace: 'default', name: 'app1', uid: 'pod-uid' };
  const events = () => client.writes.map(({ object }) => object as KubeEvent & { readonly reportingInstance: string });

  it('writes one Event for each reason of each pod, and counts', async () => {
    const writer = new PodEventWriter({ core, client, nodeName: 'n1', connection, writesPerSecond: 1000 });
    stops.push(() => writer.stop());
    writer.start();
    let now = Date.parse('2026-01-01T00:00:00.5Z');
    const told = new PodEvents(core, () => now);
    told.warn(pod, 'AddressConflict', 'first');
    await client.written(1);
    now += 61_000;
    told.warn(pod, 'AddressConflict', 'second');
    await client.written(2);
    told.warn(pod, 'HostPortNotMapped', 'other');
    await client.written(3);
    expect(events()).toMatchObject([
      {
        kind: 'Event',
        metadata: { namespace: 'default', name: expect.stringMatching(/^app1\.[0-9a-f]{16}$/) },
        involvedObject: { kind: 'Pod', ...pod },
        ...{ type: 'Warning', reason: 'AddressConflict', message: 'first', count: 1 },
        ...{ firstTimestamp: '2026-01-01T00:00:00Z', lastTimestamp: '2026-01-01T00:00:00Z' },
        ...{ reportingComponent: 'weir-agent', reportingInstance: 'n1' },
      },
      { message: 'second', count: 2, firstTimestamp: '2026-01-01T00:00:00Z', lastTimestamp: '2026-01-01T00:01:01Z' },
      { reason: 'HostPortNotMapped', count: 1 },
    ]);
    expect(new Set(events().map(({ metadata }) => metadata.name)).size).toBe(2);
  });

  it('gives up what the API server will never take, and tries again what it may', async () => {
    const writer = new PodEventWriter({ core, client, nodeName: 'n1', connection, writesPerSecond: 1000 });
    stops.push(() => writer.stop());
    writer.start();
    client.failure = new ApiError('is being terminated', { status: 403, reason: 'Forbidden', namespaceGone: true });
    new PodEvents(core).warn(pod, 'AddressConflict', 'gone');
    await eventually(
      async () => client.applied,
      (count) => count > 0,
    );
    await settle();
    expect(connection.status().ok).toBe(true);
    client.failure = new Error('down');
    new PodEvents(core).warn(pod, 'AddressConflict', 'here');
    await said(/events: down/);
    client.failure = undefined;
    await client.written(1);
    expect(events()).toMatchObject([{ message: 'here', count: 2 }]);
  });

  it('tells of the node in the namespace and by the uid that kubectl describe looks for, at most once a minute', async () => {
    const writer = new PodEventWriter({ core, client, nodeName: 'n1', connection, writesPerSecond: 1000 });
    stops.push(() => writer.stop());
    writer.start();
    let now = 1_000_000;
    const told = new PodEvents(core, () => now);
    told.warnNode('n1', 'EnforcementRemoved', 'first');
    await client.written(1);
    now += 59_000;
    told.warnNode('n1', 'EnforcementRemoved', 'too soon');
    told.tellDelayed();
    told.warnNode('n1', 'EnforcementRemoved', 'too soon, too');
    now += 1_000;
    told.tellDelayed();
    await client.written(2);
    told.warnNode('n1', 'EnforcementRemoved', 'overtaken');
    now += 60_000;
    told.warnNode('n1', 'EnforcementRemoved', 'second');
    told.tellDelayed();
    // Pods' Events are tidied away after a while, the node's are not.
    now += 900_000;
    told.warn(pod, 'AddressConflict', 'of a pod');
    await client.written(4);
    expect(events()).toMatchObject([
      { metadata: { namespace: 'default' }, involvedObject: { kind: 'Node', name: 'n1', uid: 'n1' }, message: 'first' },
      { message: 'too soon, too', count: 3 },
      { message: 'second', count: 5 },
      { message: 'of a pod' },
    ]);
    expect(events()[0]?.involvedObject).not.toHaveProperty('namespace');
    using snapshot = core.db.read();
    expect(snapshot.count(core.tables.podEvents)).toBe(2);
  });

  it('forgets those of pods that are gone', () => {
    let now = 0;
    const told = new PodEvents(core, () => now);
    for (const name of ['a', 'b']) {
      now += 400_000;
      told.warn({ namespace: 'ns', name, uid: name }, 'AddressConflict', '');
    }
    now += 400_000;
    told.warn({ namespace: 'ns', name: 'c' }, 'AddressConflict', '');
    using snapshot = core.db.read();
    expect(Array.from(snapshot.all(core.tables.podEvents), ({ pod: of }) => of.name)).toEqual(['b', 'c']);
  });
});

describe('CiliumEndpointWriter', () => {
  it('takes a namespace that is being deleted for no failure', async () => {
    const writer = new CiliumEndpointWriter({ core, client, nodeName: 'n1', connection });
    stops.push(() => writer.stop());
    writer.start();
    client.failure = new ApiError('is being terminated', { status: 403, reason: 'Forbidden', namespaceGone: true });
    const pod = { namespace: 'going', name: 'app1', uid: 'pod-uid' };
    await core.upsertEndpoint({
      id: 1,
      ifindex: 3,
      interfaceName: 'weir1',
      addresses: ['10.1.0.2'],
      pod,
      createdAt: '',
    });
    await eventually(
      async () => client.applied,
      (count) => count > 0,
    );
    await settle();
    expect([client.applied, client.writes, connection.status().ok]).toEqual([1, [], true]);
  });

  it('has the object of a static pod owned by what the API has of that pod', async () => {
    const writer = new CiliumEndpointWriter({ core, client, nodeName: 'n1', connection });
    stops.push(() => writer.stop());
    writer.start();
    const pod = { namespace: 'default', name: 'app1', uid: 'static-uid' };
    core.db.write([core.tables.localPods], (txn) =>
      txn.upsert(core.tables.localPods, {
        ...pod,
        mirrorUid: 'mirror-uid',
        ...{ labels: {}, serviceAccount: 'default', namedPorts: [], addresses: [] },
      }),
    );
    await core.upsertEndpoint({
      id: 1,
      ifindex: 3,
      interfaceName: 'weir1',
      addresses: ['10.1.0.2'],
      pod,
      createdAt: '',
    });
    await client.written(1);
    expect(client.writes[0]?.object?.metadata.ownerReferences).toMatchObject([{ kind: 'Pod', uid: 'mirror-uid' }]);
  });

  it('writes a pod endpoint once, on change again, and deletes it with the endpoint', async () => {
    const writer = new CiliumEndpointWriter({ core, client, nodeName: 'n1', connection });
    stops.push(() => writer.stop());
    writer.start();
    const endpoint = {
      id: 1,
      ifindex: 3,
      interfaceName: 'weir1',
      addresses: ['10.1.0.2'],
      pod: { namespace: 'default', name: 'app1', uid: 'pod-uid' },
      createdAt: '',
    };
    await core.upsertEndpoint(endpoint);
    await core.upsertEndpoint({
      ...endpoint,
      id: 2,
      ifindex: 4,
      addresses: ['10.1.0.3'],
      pod: { namespace: 'default', name: 'no-uid' },
    } as never);
    await client.written(1);
    expect(client.writes[0]).toMatchObject({
      verb: 'apply',
      object: {
        metadata: {
          name: 'app1',
          namespace: 'default',
          annotations: { 'weir.dev/node': 'n1' },
          ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'app1', uid: 'pod-uid' }],
        },
        status: {
          id: 1,
          identity: { id: 1001, labels: ['k8s:app=web'] },
          networking: { addressing: [{ ipv4: '10.1.0.2' }] },
          policy: { ingress: { enforcing: true } },
          state: 'ready',
        },
      },
    });
    core.db.write([core.tables.endpoints], (txn) =>
      txn.upsert(core.tables.endpoints, { ...endpoint, createdAt: 'later' }),
    );
    await settle();
    expect(client.writes).toHaveLength(1);
    await core.deleteEndpoint(1);
    await client.written(2);
    expect(client.writes[1]).toEqual({ verb: 'delete', plural: 'ciliumendpoints', name: 'app1', uid: 'uid-app1' });
  });

  it('gives the object of a pod that has two endpoints to the newer one, and to the other when that goes', async () => {
    const writer = new CiliumEndpointWriter({ core, client, nodeName: 'n1', connection });
    stops.push(() => writer.stop());
    const pod = { namespace: 'default', name: 'app1', uid: 'pod-uid' };
    const endpoint = (id: number) => ({
      id,
      ifindex: id,
      interfaceName: `w${id}`,
      addresses: [`10.1.0.${id}`],
      createdAt: '',
      pod,
    });
    await core.upsertEndpoint(endpoint(3));
    await core.upsertEndpoint(endpoint(4));
    writer.start();
    await client.written(1);
    await core.deleteEndpoint(4);
    await client.written(2);
    expect(client.writes.map(({ verb, object }) => [verb, (object as CiliumEndpoint).status?.id])).toEqual([
      ['apply', 4],
      ['apply', 3],
    ]);
  });

  it('tries again what the API server refuses, says so until all is written, and never deletes what it has not written', async () => {
    const log = recordingLogger();
    connection = new Connection(createStateDB({ freeze: true }), log);
    client.failure = new ApiError('down', { status: 503, reason: 'ServiceUnavailable' });
    const writer = new CiliumEndpointWriter({ core, client, nodeName: 'n1', connection });
    stops.push(() => writer.stop());
    writer.start();
    const endpoint = (id: number) => {
      const pod = { namespace: 'default', name: `app${id}`, uid: 'pod-uid' };
      return { id, ifindex: id, interfaceName: `w${id}`, addresses: [`10.1.0.${id}`], createdAt: '', pod };
    };
    await core.upsertEndpoint(endpoint(3));
    await core.upsertEndpoint(endpoint(4));
    await said(/ciliumendpoints: down/);
    await core.deleteEndpoint(3);
    client.failure = undefined;
    await client.written(1);
    await settle();
    await said(/^connected$/);
    expect(client.writes.map(({ verb, name }) => [verb, name])).toEqual([['apply', 'app4']]);
    expect(log.lines.map((line) => line.level).filter((level) => level !== 'debug')).toEqual(['warn', 'info']);
  });
});

describe('removal of this node', () => {
  const daemonSet = { namespace: 'weir', name: 'weir-agent' };
  const marked = (name: string, value: string): KubeObject => ({
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name, namespace: 'weir', annotations: { 'weir.dev/uninstall': value } },
  });
  function started(objects: readonly KubeObject[]): { source: Kubernetes; mark: UninstallMark; seen: string[] } {
    client.objects.set('daemonsets', [...objects]);
    const mark = new UninstallMark(core.db, daemonSet);
    const source = new Kubernetes({ core, client, nodeName: 'n1', sources: () => [mark.source], log: quiet });
    stops.push(async () => {
      mark.stop();
      await source.stop();
    });
    const seen: string[] = [];
    mark.values.subscribe((value) => seen.push(value));
    source.start();
    return { source, mark, seen };
  }

  it('is asked for by the mark on the own DaemonSet, and by no other', async () => {
    const { mark, seen } = started([marked('other', 'x'), marked('weir-agent', '2026-01-01T00:00:00Z')]);
    await client.written(1);
    await eventually(
      async () => seen,
      ({ length }) => length > 0,
    );
    expect(seen).toEqual(['2026-01-01T00:00:00Z']);
    const late: string[] = [];
    mark.values.subscribe((value) => late.push(value));
    await eventually(async () => late.length > 0, Boolean);
    expect(late).toEqual(seen);
  });

  it('may watch what the core watches, too: each has its own list', async () => {
    const seen: string[] = [];
    const sink = {
      replace: (items: readonly KubeObject[]) => void seen.push(...items.map(({ metadata }) => metadata.name)),
      upsert: () => undefined,
      delete: () => undefined,
    };
    client.objects.set('namespaces', [{ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'default' } }]);
    const own = { resource: resources.Namespace, sink };
    const source = new Kubernetes({ core, client, nodeName: 'n1', sources: () => [own, own], log: quiet });
    stops.push(() => source.stop());
    source.start();
    await eventually(async () => seen.length === 2 && source.status().ok, Boolean);
    expect(rows(core.tables.namespaces)).toHaveLength(1);
    expect(core.db.pendingInitialisers(core.tables.namespaces)).toEqual([]);
  });

  it('is not asked for by a DaemonSet without the mark', async () => {
    const { seen } = started([marked('other', 'x'), marked('weir-agent', '')]);
    await client.written(1);
    await settle();
    expect(seen).toEqual([]);
  });

  it('is told once, after which nothing is written any more', async () => {
    const { source } = started([]);
    await client.written(1);
    client.failure = new ApiError('down', { status: 503, reason: 'ServiceUnavailable' });
    const told = source.markRemoved('stamp');
    await settle();
    client.failure = undefined;
    await told;
    expect(client.writes.at(-1)?.object).toMatchObject({
      kind: 'NodePolicyStatus',
      metadata: { name: 'n1', annotations: { 'weir.dev/removed': 'stamp' } },
      status: { counts: { endpoints: 0, policies: 0 }, failures: [] },
    });
    const count = client.writes.length;
    core.setRealised({ revision: 9, policyVersion: '9' });
    const pod = { namespace: 'default', name: 'p', uid: 'pod-uid' };
    await core.upsertEndpoint({
      id: 1,
      ifindex: 3,
      interfaceName: 'weir1',
      addresses: ['10.1.0.2'],
      pod,
      createdAt: '',
    });
    await settle();
    expect(client.writes).toHaveLength(count);
  });

  it('gives up telling when the agent stops', async () => {
    const { source } = started([]);
    await client.written(1);
    client.failure = new ApiError('down', { status: 503, reason: 'ServiceUnavailable' });
    const told = source.markRemoved('stamp');
    await Promise.all([expect(told).rejects.toThrow('stopped'), settle().then(() => source.stop())]);
  });
});

describe('Kubernetes', () => {
  it('initialises every input table from the first lists, and stops', async () => {
    const status = { observedGeneration: 1, conditions: [] };
    client.objects.set('resolvedpolicies', [{ ...policy('a', 1), status } as KubeObject]);
    const source = new Kubernetes({ core, client, nodeName: 'n1', log: quiet });
    stops.push(() => source.stop());
    const { db, tables } = core;
    const inputs = [
      tables.policies,
      tables.peerSets,
      tables.identities,
      tables.remoteEndpoints,
      tables.nodes,
      tables.localPods,
      tables.namespaces,
      tables.apiserverAddresses,
    ];
    expect(inputs.map((table) => db.pendingInitialisers(table as AnyTable))).toEqual(inputs.map(() => ['kubernetes']));
    expect(source.status()).toMatchObject({ ok: false, message: expect.stringContaining('resolvedpolicies') });
    source.start();
    await Promise.all(inputs.map((table) => db.initialisedWatch(table as AnyTable).wait()));
    await eventually(
      async () => [source.status().message, rows(tables.policyStatuses).length] as const,
      ([message, count]) => message === 'connected' && count === 1,
    );
    expect(rows(tables.policies)).toHaveLength(1);
    expect(rows(tables.policyStatuses)).toEqual([{ uid: 'u-a', status }]);
  });

  it('knows the addresses of Services', async () => {
    const service = (name: string, spec: object, ip?: string) =>
      ({
        metadata: { name, namespace: 'd' },
        spec,
        status: { loadBalancer: { ingress: [{ hostname: 'x' }, { ip }] } },
      }) as unknown as KubeObject;
    client.objects.set('services', [
      service('a', { clusterIPs: ['10.96.0.2', 'fd00::2'], externalIPs: ['192.0.2.1'] }, '192.0.2.2'),
      service('headless', { clusterIPs: ['None'] }),
      service('elsewhere', { type: 'ExternalName' }),
    ]);
    const source = new Kubernetes({ core, client, nodeName: 'n1', log: quiet });
    stops.push(() => source.stop());
    source.start();
    await core.db.initialisedWatch(core.tables.services).wait();
    const none = { namespace: 'd', addresses: [] };
    expect(rows(core.tables.services)).toEqual([
      { namespace: 'd', name: 'a', addresses: ['10.96.0.2', 'fd00::2', '192.0.2.1', '192.0.2.2'] },
      { ...none, name: 'elsewhere' },
      { ...none, name: 'headless' },
    ]);
  });

  it('is connected again once its watches are accepted, though nothing happens in the cluster', async () => {
    jest.useFakeTimers();
    try {
      const log = recordingLogger();
      const source = new Kubernetes({ core, client, nodeName: 'n1', log });
      stops.push(() => source.stop());
      source.start();
      await jest.advanceTimersByTimeAsync(2_000);
      expect(source.status()).toEqual({ ok: true, message: 'connected' });
      client.fail(new ApiError('watch: connect ECONNREFUSED', { status: 0, reason: 'Unreachable' }));
      await jest.advanceTimersByTimeAsync(20_000);
      expect(source.status()).toMatchObject({ ok: false, message: expect.stringContaining('ECONNREFUSED') });
      client.failure = undefined;
      // The longest wait before it is tried again, and a moment that a watch must last.
      await jest.advanceTimersByTimeAsync(6_100);
      expect(source.status()).toEqual({ ok: true, message: 'connected' });
      const said = log.lines.filter(({ level }) => level !== 'debug').map(({ message }) => message);
      expect(said.at(-1)).toBe('the API server answers again');
    } finally {
      jest.useRealTimers();
    }
  });

  it('waits for nothing, and warns once, when it may not read Services', async () => {
    client.forbidden.add('services');
    const log = recordingLogger();
    const source = new Kubernetes({ core, client, nodeName: 'n1', log });
    stops.push(() => source.stop());
    source.start();
    await Promise.all(inputTables(core.tables).map((table) => core.db.initialisedWatch(table).wait()));
    // The second refusal.
    await eventually(async () => log.lines.some(({ level }) => level === 'debug'), Boolean);
    expect(source.status()).toEqual({ ok: true, message: 'connected' });
    expect(log.lines.filter(({ level }) => level === 'warn').map(({ message }) => message)).toEqual([
      expect.stringContaining('ClusterRole weir-agent'),
    ]);
  });
});
