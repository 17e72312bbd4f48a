import { describe, it } from '@jest/globals';
import type { EndpointSlice, KubeNode } from '@weir/kube';
import { checkIncremental } from '@weir/statedb/testing';
import fc from 'fast-check';
import { FakeCore } from '../testing/fake-core.ts';
import { NodeTables } from './nodes.ts';

const ADDRESSES = ['192.0.2.1', '192.0.2.2', '203.0.113.5'];

const addresses = fc.array(fc.constantFrom(...ADDRESSES), { maxLength: 2 });
const node = fc.record({ name: fc.constantFrom('a', 'b', 'c'), addresses });
const slice = fc.record({ name: fc.constantFrom('kubernetes', 'forged', 'web'), addresses });
const step = fc.oneof(
  fc.record({ do: fc.constant('node' as const), node, gone: fc.boolean() }),
  fc.record({ do: fc.constant('slice' as const), slice, gone: fc.boolean() }),
  fc.record({ do: fc.constant('nodes' as const), nodes: fc.uniqueArray(node, { selector: ({ name }) => name }) }),
  fc.record({ do: fc.constant('slices' as const), slices: fc.uniqueArray(slice, { selector: ({ name }) => name }) }),
);

function nodeObject(name: string, addresses: readonly string[]): KubeNode {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name },
    spec: { podCIDR: '10.1.0.0/24' },
    status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
  };
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
  it('say after every call which nodes serve the API and where the API servers are, complete once both kinds are listed', async () => {
    await checkIncremental({
      step,
      create() {
        const { db, tables } = new FakeCore();
        const subject = new NodeTables({ db, nodes: tables.nodes, apiserverAddresses: tables.apiserverAddresses });
        const nodes = new Map<string, readonly string[]>();
        const slices = new Map<string, readonly string[]>();
        const listed = { nodes: false, slices: false };
        return {
          apply(step) {
            switch (step.do) {
              case 'node': {
                const { name, addresses } = step.node;
                subject.nodeSink[step.gone ? 'delete' : 'upsert'](nodeObject(name, addresses));
                if (step.gone) nodes.delete(name);
                else nodes.set(name, [...new Set(addresses)]);
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
                subject.nodeSink.replace(
                  step.nodes.map(({ name, addresses }) => nodeObject(name, addresses)),
                  '1',
                );
                nodes.clear();
                for (const { name, addresses } of step.nodes) nodes.set(name, [...new Set(addresses)]);
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
              [...nodes]
                .sort(([a], [b]) => (a < b ? -1 : 1))
                .map(([name, of]) => ({
                  name,
                  addresses: of,
                  podCidrs: ['10.1.0.0/24'],
                  kubeApiserver: of.some((address) => servers.has(address)),
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
