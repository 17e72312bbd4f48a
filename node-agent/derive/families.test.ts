/** What a node derives decides every address of a dual-stack cluster as the language says. */
import { describe, expect, it } from '@jest/globals';
import { RESERVED_ID } from '@weir/identity';
import type { PolicyKind } from '@weir/policy';
import { mixedPoliciesArbitrary } from '@weir/policy/testing/network-policies.ts';
import {
  OUTSIDE_ADDRESSES,
  type PolicyObject,
  PREFIXES,
  policiesArbitrary,
  trafficArbitrary,
} from '@weir/policy/testing/worlds.ts';
import fc from 'fast-check';
import { NAMESPACES, TRUTH_CASES } from '../../test/e2e/truth-cases.ts';
import { runs } from '../../test/runs.ts';
import { DIRECTIONS } from './rows.ts';
import { SELF, Stack, type StackOptions, type StackPod } from './testing/dual-stack.ts';

const http = (port: number) => [{ name: 'http', port, protocol: 'TCP' as const }];
const pod = (
  namespace: string,
  name: string,
  labels: Record<string, string>,
  node: string,
  addresses: readonly string[],
  namedPorts: StackPod['namedPorts'] = [],
): StackPod => ({ namespace, name, labels, node, addresses, namedPorts });

/** Pods of both families and of one. */
const OPTIONS: StackOptions = {
  namespaces: { a: { team: 'red' }, b: { team: 'blue' } },
  pods: [
    pod('a', 'web', { app: 'web', tier: 'front' }, SELF, ['10.244.0.6', 'fd00:244::6'], http(80)),
    pod('a', 'api', { app: 'api', tier: 'back' }, SELF, ['fd00:244::7'], http(8080)),
    pod('b', 'cli', { app: 'cli', host: 'x' }, SELF, ['10.244.0.8'], http(81)),
    pod('a', 'db', { app: 'db', tier: 'back' }, 'other', ['10.244.1.6', 'fd00:244:0:1::6']),
    pod('b', 'web', { app: 'web', tier: 'front' }, 'other', ['fd00:244:0:1::7'], http(8080)),
  ],
  nodes: [
    {
      name: SELF,
      addresses: ['10.9.0.1', 'fd00:9::1'],
      podCidrs: ['10.244.0.0/24', 'fd00:244::/64'],
      labels: { zone: 'a' },
    },
    {
      ...{ name: 'other', addresses: ['10.9.0.2', 'fd00:9::2'], furtherAddresses: ['192.0.2.2', '2001:db8:2::2'] },
      podCidrs: ['10.244.1.0/24', 'fd00:244:0:1::/64'],
      labels: { zone: 'b', app: 'web' },
    },
    { name: 'control', addresses: ['10.9.0.3', 'fd00:9::3'], podCidrs: [], labels: { zone: 'b', 'role/control': '' } },
  ],
  control: ['control'],
  apiServers: ['10.1.9.9', '2001:db8:1::9'],
};
/** In pod CIDRs. */
const NOBODYS = ['10.244.0.99', '10.244.1.99', 'fd00:244::99', 'fd00:244:0:1::99'];
const ADDRESSES = [
  ...OPTIONS.pods.flatMap(({ addresses }) => addresses),
  ...OPTIONS.nodes.flatMap(({ addresses }) => addresses),
  ...(OPTIONS.apiServers ?? []),
  ...OUTSIDE_ADDRESSES.filter((address) => !NOBODYS.includes(address)),
  ...NOBODYS,
];

/** Names prefixes, for a pod of another policy: the rules of others have no class for these. */
const ELSEWHERE = fc
  .subarray([...PREFIXES])
  .filter((prefixes) => prefixes.length > 0)
  .map((prefixes): PolicyObject => {
    const spec = { endpointSelector: { matchLabels: { app: 'cli' } }, egress: [{ toCIDR: prefixes }] };
    const kind = 'CiliumNetworkPolicy';
    return { kind, object: { apiVersion: 'cilium.io/v2', kind, metadata: { name: 'e', namespace: 'b' }, spec } };
  });
const policiesOfAll = fc
  .tuple(fc.oneof(policiesArbitrary, mixedPoliciesArbitrary), fc.array(ELSEWHERE, { maxLength: 1 }))
  .map((both) => both.flat());

describe('a dual-stack node', () => {
  it('decides as the oracle does, by any address of either family', async () => {
    const seen = new Set<string>();
    const traffics = fc.array(trafficArbitrary, { minLength: 1, maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(policiesOfAll, traffics, async (policies, all) => {
        const stack = new Stack(OPTIONS);
        await stack.apply(policies);
        for (const subject of stack.endpoints.filter(({ node }) => node === SELF)) {
          for (const direction of DIRECTIONS) {
            for (const address of ADDRESSES) {
              const peer = NOBODYS.includes(address) ? ({ kind: 'unknown' } as const) : stack.peerAt(address);
              for (const traffic of all) {
                const expected = stack.expected(direction, subject, peer, traffic);
                const is = stack.decided(direction, subject.id, address, traffic);
                if (is !== expected)
                  expect({ subject: subject.name, direction, address, traffic, is }).toEqual({ expected });
                seen.add(`${peer.kind} ${address.includes(':') ? 6 : 4} ${expected}`);
              }
            }
          }
        }
      }),
      { numRuns: runs(120) },
    );
    // Every kind of peer of both families was allowed and denied, or the property proves less than it says.
    const kinds = ['endpoint', 'node', 'outside', 'unknown'].flatMap((kind) => [`${kind} 4`, `${kind} 6`]);
    expect([...seen].sort()).toEqual(kinds.flatMap((kind) => [`${kind} allow`, `${kind} deny`]).sort());
  });

  it('has an identity for each address, of both families', async () => {
    const stack = new Stack(OPTIONS);
    await stack.apply([]);
    const { ipcache } = stack.world;
    const identity = (address: string): number | undefined =>
      ipcache.get(`${address}/${address.includes(':') ? 128 : 32}`)?.identity;
    for (const { addresses, identity: own } of stack.endpoints)
      expect(addresses.map(identity)).toEqual(addresses.map(() => own));
    const named = (address: string): string | undefined =>
      Object.entries(RESERVED_ID).find(([, id]) => id === identity(address))?.[0];
    expect(
      OPTIONS.nodes.map(({ addresses, furtherAddresses = [] }) => [...addresses, ...furtherAddresses].map(named)),
    ).toEqual([
      ['host', 'host'],
      ['remote-node', 'remote-node', 'remote-node', 'remote-node'],
      ['kube-apiserver', 'kube-apiserver'],
    ]);
    expect(['0.0.0.0/0', '::/0'].map((prefix) => ipcache.get(prefix)?.identity)).toEqual([
      RESERVED_ID.world,
      RESERVED_ID['world-ipv6'],
    ]);
  });
});

describe('the truth table, where each pod has both families', () => {
  const pods = Object.keys(NAMESPACES).flatMap((namespace, row) =>
    ['a', 'b', 'c'].map((name, at): StackPod => {
      const [web, alt] = namespace === 'x' && name === 'c' ? [81, 80] : [80, 81];
      const ports = { web, alt };
      return {
        ...{ namespace, name, labels: { pod: name }, node: (row + at) % 2 === 0 ? SELF : 'other' },
        addresses: [`10.244.0.${3 * row + at + 1}`, `fd00:244::${3 * row + at + 1}`],
        namedPorts: Object.entries(ports).map(([port, number]) => ({ name: port, port: number, protocol: 'TCP' })),
      };
    }),
  );
  const namespaces = Object.fromEntries(
    Object.entries(NAMESPACES).map(([name, labels]) => [name, { 'kubernetes.io/metadata.name': name, ...labels }]),
  );
  const flows = [6, 17].flatMap((protocol) => [80, 81].map((port) => ({ protocol, port })));

  it.each(TRUTH_CASES)('%s', async (_title, objects) => {
    const stack = new Stack({ namespaces, pods, nodes: [] });
    await stack.apply(
      (objects as readonly (PolicyObject['object'] & { readonly kind: Exclude<PolicyKind, 'BareRules'> })[]).map(
        (object) => ({
          kind: object.kind,
          object: { ...object, metadata: { ...(object.metadata as object), name: 'p' } },
        }),
      ),
    );
    for (const subject of stack.endpoints.filter(({ node }) => node === SELF))
      for (const peer of stack.endpoints.filter((other) => other !== subject))
        for (const direction of DIRECTIONS)
          for (const flow of flows) {
            const expected = peer.addresses.map((address) =>
              stack.expected(direction, subject, { kind: 'endpoint', endpoint: peer, address }, flow),
            );
            const is = peer.addresses.map((address) => stack.decided(direction, subject.id, address, flow));
            expect({ subject: subject.name, peer: peer.name, direction, flow, is }).toMatchObject({
              is: expected,
            });
          }
  });
});
