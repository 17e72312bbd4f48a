/** What a node derives decides every address of a dual-stack cluster as the language says: policies as users write them in, packets by address out. */
import { expect, it } from '@jest/globals';
import { RESERVED_ID } from '@weir/identity';
import { labelsKey, matches, podIdentityLabels } from '@weir/labels';
import {
  type OracleEndpoint,
  type OracleWorld,
  oracleVerdict,
  parsePolicy,
  peerAt,
  type ResolvedRule,
  resolve,
} from '@weir/policy';
import {
  OUTSIDE_ADDRESSES,
  type PolicyObject,
  PREFIXES,
  policiesArbitrary,
  trafficArbitrary,
} from '@weir/policy/testing/worlds.ts';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import type { PolicyRow } from '../tables.ts';
import { DIRECTIONS } from './rows.ts';
import { classAt } from './testing/class-at.ts';
import { settle, World } from './testing/model-world.ts';

const TEAMS = { a: 'red', b: 'blue' } as const;

function pod(
  namespace: 'a' | 'b',
  name: string,
  podLabels: Record<string, string>,
  node: string,
  ...addresses: string[]
) {
  const facts = { namespace, namespaceLabels: { team: TEAMS[namespace] }, podLabels, serviceAccount: 'default' };
  const labels = podIdentityLabels({ ...facts, cluster: 'default' });
  return { name: `${namespace}/${name}`, namespace, pod: name, podLabels, labels, node, addresses };
}

/** Pods of both families and of one; `self` has the first three. */
const PODS = [
  pod('a', 'web', { app: 'web', tier: 'front' }, 'self', '10.244.0.6', 'fd00:244::6'),
  pod('a', 'api', { app: 'api', tier: 'back' }, 'self', 'fd00:244::7'),
  pod('b', 'cli', { app: 'cli', host: 'x' }, 'self', '10.244.0.8'),
  pod('a', 'db', { app: 'db', tier: 'back' }, 'other', '10.244.1.6', 'fd00:244:0:1::6'),
  pod('b', 'web', { app: 'web', tier: 'front' }, 'other', 'fd00:244:0:1::7'),
];
const NODES = [
  { name: 'self', addresses: ['10.9.0.1', 'fd00:9::1'], podCidrs: ['10.244.0.0/24', 'fd00:244::/64'] },
  { name: 'other', addresses: ['10.9.0.2', 'fd00:9::2'], podCidrs: ['10.244.1.0/24', 'fd00:244:0:1::/64'] },
  { name: 'control', addresses: ['10.9.0.3', 'fd00:9::3'], podCidrs: [] },
];
const API_SERVERS = ['10.1.9.9', '2001:db8:1::9'];
/** In pod CIDRs, and nobody's. */
const NOBODYS = ['10.244.0.99', '10.244.1.99', 'fd00:244::99', 'fd00:244:0:1::99'];

const ORACLE: OracleWorld = {
  endpoints: PODS,
  nodes: NODES.map(({ name, addresses }) => ({ name, addresses, kubeApiserver: name === 'control' })),
  externalApiServers: API_SERVERS,
};
const ADDRESSES = [
  ...PODS.flatMap(({ addresses }) => addresses),
  ...NODES.flatMap(({ addresses }) => addresses),
  ...API_SERVERS,
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

const identityOf = (endpoint: OracleEndpoint): number => 256 + PODS.findIndex(({ name }) => name === endpoint.name);

async function derived(policies: readonly PolicyObject[]) {
  const world = new World();
  const { db, tables } = world;
  const parsed = policies.flatMap(({ object, kind }) => parsePolicy(object, kind).rules);
  let cookie = 0;
  const { rules, selectors } = resolve(parsed, { cookieOf: () => (cookie += 1) });
  db.write([tables.namespaces, tables.nodes, tables.apiserverAddresses], (txn) => {
    for (const [name, team] of Object.entries(TEAMS)) txn.upsert(tables.namespaces, { name, labels: { team } });
    for (const node of NODES) txn.upsert(tables.nodes, { ...node, kubeApiserver: node.name === 'control' });
    const [, , control] = NODES;
    for (const address of [...API_SERVERS, ...(control?.addresses ?? [])])
      txn.upsert(tables.apiserverAddresses, { address });
  });
  db.write([tables.identities, tables.localPods, tables.remoteEndpoints, tables.endpoints], (txn) => {
    for (const [at, one] of PODS.entries()) {
      const { namespace, pod: name, addresses, labels, node } = one;
      const uid = `u-${namespace}-${name}`;
      txn.upsert(tables.identities, { id: identityOf(one), labels, labelsKey: labelsKey(labels) });
      if (node !== 'self') {
        const row = { namespace, name, addresses, identity: identityOf(one), node: '10.9.0.2', namedPorts: [] };
        txn.upsert(tables.remoteEndpoints, row);
        continue;
      }
      const pod = { namespace, name, uid };
      const more = { labels: one.podLabels, serviceAccount: 'default', namedPorts: [], addresses };
      txn.upsert(tables.localPods, { ...pod, ...more });
      const link = { id: at + 1, ifindex: 100 + at, interfaceName: `lxc${at}`, createdAt: '2026-01-01T00:00:00Z' };
      txn.upsert(tables.endpoints, { ...link, addresses, pod });
    }
  });
  db.write([tables.peerSets, tables.policies], (txn) => {
    for (const [hash, selector] of selectors) {
      const identities = PODS.filter(({ labels }) => matches(selector, labels)).map(identityOf);
      txn.upsert(tables.peerSets, { hash, selector, identities, origin: 'cluster' });
    }
    const row = (rules: readonly ResolvedRule[]): PolicyRow => ({
      ...{ uid: 'p', kind: 'CiliumClusterwideNetworkPolicy', name: 'p', generation: 1 },
      rules,
    });
    txn.upsert(tables.policies, row(rules));
  });
  await settle(world);
  return { world, rules: parsed };
}

/** As the datapath decides (bpf/policy.h). */
function decided(
  { states, slots, ipcache }: World,
  endpoint: number,
  direction: (typeof DIRECTIONS)[number],
  address: string,
  { protocol, port }: { readonly protocol: number; readonly port: number },
): string {
  const state = states.get(endpoint);
  if (state === undefined) return 'no state';
  if (!state.enforced[direction]) return 'allow';
  const slot = slots.get(state.slot);
  if (slot === undefined) return 'no slot';
  const { scope, classes } = slot.compiled[direction];
  const number = classAt(ipcache, slot.classes[direction], `${address}/${address.includes(':') ? 128 : 32}`);
  const named = classes.find(({ members }) => slot.classes[direction].get(members[0] ?? 0) === number);
  const scopes = [scope.unknown, scope.pod, scope.world];
  const rows = scopes[number] ?? named?.rows ?? [];
  const listed = [1, 6, 17, 58, 132].includes(protocol);
  const [key, at] = listed ? [protocol, port] : [0, protocol];
  return rows.find((row) => row.protocol === key && row.from <= at && at <= row.to)?.verdict ?? 'deny';
}

it('decides as the oracle does, by any address of either family', async () => {
  const seen = new Map<string, Set<string>>();
  await fc.assert(
    fc.asyncProperty(
      fc.tuple(policiesArbitrary, fc.array(ELSEWHERE, { maxLength: 1 })).map((both) => both.flat()),
      fc.array(trafficArbitrary, { minLength: 1, maxLength: 3 }),
      async (policies, traffics) => {
        const { world, rules } = await derived(policies);
        for (const [at, subject] of PODS.filter(({ node }) => node === 'self').entries()) {
          for (const direction of DIRECTIONS) {
            for (const address of ADDRESSES) {
              const peer = NOBODYS.includes(address) ? ({ kind: 'unknown' } as const) : peerAt(ORACLE, address);
              for (const traffic of traffics) {
                const { verdict } = oracleVerdict(rules, direction, subject, peer, traffic);
                const is = decided(world, at + 1, direction, address, traffic);
                if (is !== verdict)
                  expect({ subject: subject.name, direction, address, traffic, is }).toEqual({ is: verdict });
                const family = `${peer.kind} ${address.includes(':') ? 6 : 4}`;
                seen.set(family, (seen.get(family) ?? new Set()).add(verdict));
              }
            }
          }
        }
      },
    ),
    { numRuns: runs(120) },
  );
  // Every kind of peer of both families was allowed and denied, or the property proves less than it says.
  for (const kind of ['endpoint', 'node', 'outside', 'unknown'])
    for (const family of [4, 6])
      expect(`${kind} ${family}: ${[...(seen.get(`${kind} ${family}`) ?? [])].sort().join()}`).toBe(
        `${kind} ${family}: allow,deny`,
      );
});

it('has an identity for each address, of both families', async () => {
  const { world } = await derived([]);
  const identity = (address: string): number | undefined =>
    world.ipcache.get(`${address}/${address.includes(':') ? 128 : 32}`)?.identity;
  for (const one of PODS) expect(one.addresses.map(identity)).toEqual(one.addresses.map(() => identityOf(one)));
  const { host } = RESERVED_ID;
  expect(NODES.map(({ addresses }) => addresses.map(identity))).toEqual([
    [host, host],
    [RESERVED_ID['remote-node'], RESERVED_ID['remote-node']],
    [RESERVED_ID['kube-apiserver'], RESERVED_ID['kube-apiserver']],
  ]);
  expect(['0.0.0.0/0', '::/0'].map((prefix) => world.ipcache.get(prefix)?.identity)).toEqual([
    RESERVED_ID.world,
    RESERVED_ID['world-ipv6'],
  ]);
});
