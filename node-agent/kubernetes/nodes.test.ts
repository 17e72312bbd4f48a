import { describe, it } from '@jest/globals';
import type { EndpointSlice, KubeNode } from '@weir/kube';
import { parsePrefix, prefixContains } from '@weir/net';
import { checkIncremental } from '@weir/statedb/testing';
import fc from 'fast-check';
import { FakeCore } from '../testing/fake-core.ts';
import { NodeTables } from './nodes.ts';

const ADDRESSES = ['192.0.2.1', '192.0.2.2', '203.0.113.5'];

const addresses = fc.array(fc.constantFrom(...ADDRESSES), { maxLength: 2 });
const node = fc.record({
  name: fc.constantFrom('a', 'b', 'c', 'self'),
  created: fc.constantFrom('2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'),
  addresses,
  further: addresses,
  podCidrs: fc.subarray(['10.1.0.0/16', '10.1.1.0/24', '10.1.1.9/30', '10.2.0.0/24', 'fd00::/64', 'nonsense'], {
    maxLength: 2,
  }),
});
type NodeSeed = Parameters<Parameters<typeof node.map>[0]>[0];
const slice = fc.record({ name: fc.constantFrom('kubernetes', 'forged', 'web'), addresses });
const step = fc.oneof(
  fc.record({ do: fc.constant('node' as const), node, gone: fc.boolean() }),
  fc.record({ do: fc.constant('slice' as const), slice, gone: fc.boolean() }),
  fc.record({ do: fc.constant('nodes' as const), nodes: fc.uniqueArray(node, { selector: ({ name }) => name }) }),
  fc.record({ do: fc.constant('slices' as const), slices: fc.uniqueArray(slice, { selector: ({ name }) => name }) }),
);

function nodeObject({ name, created, addresses, further, podCidrs }: NodeSeed): KubeNode {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: {
      name,
      creationTimestamp: created,
      annotations: { 'weir.dev/addresses': further.join() },
    },
    spec: { podCIDRs: podCidrs },
    status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
  };
}

/** Whether no older node has some of it. */
function counts(cidr: string, { name, created }: NodeSeed, all: readonly NodeSeed[]): boolean {
  if (name === 'self' || cidr === 'nonsense') return true;
  const prefix = parsePrefix(cidr);
  return !all
    .filter((other) => other.created < created || (other.created === created && other.name < name))
    .flatMap(({ podCidrs }) => podCidrs.filter((text) => text !== 'nonsense').map((text) => parsePrefix(text)))
    .some((other) => prefixContains(other, prefix) || prefixContains(prefix, other));
}

function sliceObject(name: string, addresses: readonly string[]): EndpointSlice {
  const service = name === 'web' ? 'web' : 'kubernetes';
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace: 'default', labels: { 'kubernetes.io/service-name': service } },
    addressType: 'IPv4',
    endpoints: [{ addresses }],
  };
}

describe('NodeTables', () => {
  it('say after every call which nodes serve the API, whose pod CIDRs count and where the API servers are, complete once both kinds are listed', async () => {
    await checkIncremental({
      step,
      create() {
        const { db, tables } = new FakeCore();
        const subject = new NodeTables({
          db,
          nodeName: 'self',
          nodes: tables.nodes,
          apiserverAddresses: tables.apiserverAddresses,
        });
        const nodes = new Map<string, NodeSeed>();
        const slices = new Map<string, readonly string[]>();
        const listed = { nodes: false, slices: false };
        return {
          apply(step) {
            switch (step.do) {
              case 'node': {
                const { name } = step.node;
                subject.nodeSink[step.gone ? 'delete' : 'upsert'](nodeObject(step.node));
                if (step.gone) nodes.delete(name);
                else nodes.set(name, step.node);
                return;
              }
              case 'slice': {
                const { name, addresses } = step.slice;
                subject.sliceSink[step.gone ? 'delete' : 'upsert'](sliceObject(name, addresses));
                if (step.gone) slices.delete(name);
                else slices.set(name, addresses);
                return;
              }
              case 'nodes':
                subject.nodeSink.replace(step.nodes.map(nodeObject), '1');
                nodes.clear();
                for (const one of step.nodes) nodes.set(one.name, one);
                listed.nodes = true;
                return;
              case 'slices':
                subject.sliceSink.replace(
                  step.slices.map(({ name, addresses }) => sliceObject(name, addresses)),
                  '1',
                );
                slices.clear();
                for (const { name, addresses } of step.slices) slices.set(name, addresses);
                listed.slices = true;
            }
          },
          incremental() {
            using snapshot = db.read();
            return [
              [...snapshot.all(tables.nodes)],
              [...snapshot.all(tables.apiserverAddresses)].map(({ address }) => address),
              [snapshot.initialised(tables.nodes), snapshot.initialised(tables.apiserverAddresses)],
            ];
          },
          recompute() {
            const servers = new Set([...slices].flatMap(([name, of]) => (name === 'kubernetes' ? of : [])));
            const complete = listed.nodes && listed.slices;
            return [
              [...nodes.values()]
                .sort((a, b) => (a.name < b.name ? -1 : 1))
                .map((one) => ({
                  name: one.name,
                  addresses: [...new Set(one.addresses)],
                  ...(one.further.length === 0 ? {} : { furtherAddresses: [...new Set(one.further)] }),
                  podCidrs: one.podCidrs.filter((cidr) => counts(cidr, one, [...nodes.values()])),
                  kubeApiserver: [...one.addresses, ...one.further].some((address) => servers.has(address)),
                })),
              ADDRESSES.filter((address) => servers.has(address)),
              [complete, complete],
            ];
          },
          dispose: () => subject.stop(),
        };
      },
    });
  });
});
