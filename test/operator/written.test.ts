/**
 * What the operator writes and agents read, through an API server: no list loses its meaning on the way. In a rule an absent list means anybody
 * and everything, an empty one nobody and nothing.
 */
import { afterEach, describe, expect, it } from '@jest/globals';
import { type ResolvedPolicyObject, resources } from '@weir/kube';
import { policyParts } from '../../node-agent/kubernetes/rows.ts';
import { cnp, knp, namespace, node, pod } from '../../operator/testing.ts';
import { createWorld, type World } from './world.ts';

let world: World | undefined;
afterEach(async () => world?.stop());

interface ReadRule {
  readonly direction: string;
  readonly peers?: readonly {
    readonly peerSet?: string;
    readonly cidr?: string;
    readonly entity?: string;
    readonly fqdn?: string;
  }[];
  readonly ports?: readonly unknown[];
}

/** The rules of each policy, by name, as an agent reads them. */
async function read({ client }: World): Promise<ReadonlyMap<string, readonly ReadRule[]>> {
  const { items } = await client.list(resources.ResolvedPolicy);
  return new Map(
    (items as ResolvedPolicyObject[]).flatMap((object) =>
      [...policyParts(object).values()].map(({ name, rules }) => [name, rules] as const),
    ),
  );
}

const ports = { toPorts: [{ ports: [{ port: '443', protocol: 'TCP' }] }] };

describe('a rule that an agent reads', () => {
  it('names nobody where the policy names nobody, and anybody only where it names no peer', async () => {
    world = await createWorld();
    const { client } = world;
    const elements: Readonly<Record<string, object>> = {
      endpoints: { toEndpoints: [] },
      cidrs: { toCIDR: [] },
      sets: { toCIDRSet: [], ...ports },
      entities: { toEntities: [] },
      groups: { toGroups: [{ aws: { securityGroupsIds: ['sg-none'] } }], ...ports },
      services: { toServices: [{ k8sService: { serviceName: 'none', namespace: 'ns' } }] },
      group: { toCIDRSet: [{ cidrGroupRef: 'none' }], ...ports },
      nodes: { toNodes: [] },
    };
    for (const [name, egress] of Object.entries(elements))
      await client.create(
        resources.CiliumNetworkPolicy,
        cnp(`default/${name}`, { endpointSelector: {}, egress: [egress] }),
      );
    await client.create(
      resources.CiliumNetworkPolicy,
      cnp('default/anybody', { endpointSelector: {}, egress: [{ ...ports }] }),
    );
    await world.settle(await world.operator());
    const rules = await read(world);
    expect([...rules.keys()].sort()).toEqual([...Object.keys(elements), 'anybody'].sort());
    for (const [name, each] of rules) {
      expect([name, each.length]).not.toEqual([name, 0]);
      for (const { peers } of each) expect([name, peers]).toEqual([name, name === 'anybody' ? undefined : []]);
    }
    expect(rules.get('anybody')?.map((rule) => rule.ports?.length)).toEqual([1]);
  });

  it('names nodes by a set that no pod is in, and carries its own labels', async () => {
    world = await createWorld();
    const { client } = world;
    await client.create(
      resources.CiliumNetworkPolicy,
      cnp('default/nodes', {
        endpointSelector: {},
        labels: [{ key: 'team', value: 'red' }],
        egress: [{ toNodes: [{ matchLabels: { zone: 'a' } }] }],
      }),
    );
    await world.settle(await world.operator());
    const [rule] = (await read(world)).get('nodes') ?? [];
    expect(rule).toMatchObject({ peers: [{ peerSet: expect.any(String) }], labels: ['unspec:team=red'] });
    const { items } = await client.list(resources.PeerSet);
    const sets = items as readonly { readonly spec: object }[];
    expect(sets.map(({ spec }) => spec)).toContainEqual(
      expect.objectContaining({
        identities: [],
        selector: {
          requirements: [
            { key: 'node:zone', operator: 'In', values: ['a'] },
            { key: 'reserved:remote-node', operator: 'Exists', values: [] },
          ],
        },
      }),
    );
  });

  it.each(['default', 'mars'])(
    'names no pods for a NetworkPolicy with nothing but an ipBlock, in cluster %s',
    async (clusterName) => {
      world = await createWorld();
      const { client } = world;
      await client.create(resources.KubeNode, node('n1', 'True', { podCIDRs: ['10.0.0.0/24'] }));
      await client.create(resources.Namespace, namespace('ns', { team: 'red' }));
      for (const [name, ip] of [
        ['web', '10.0.0.1'],
        ['other', '10.0.0.2'],
      ] as const)
        await client.create(resources.Pod, pod(`ns/${name}`, { app: name }, { ip, node: 'n1' }));
      await client.create(
        resources.NetworkPolicy,
        knp('ns/block', {
          podSelector: { matchLabels: { app: 'web' } },
          ingress: [{ from: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['192.0.2.0/24'] } }] }],
        }),
      );
      await world.settle(await world.operator({ clusterName }));
      const rules = (await read(world)).get('block') ?? [];
      expect(rules.length).toBeGreaterThan(0);
      for (const { peers } of rules) {
        expect(peers?.length).toBeGreaterThan(0);
        for (const peer of peers ?? []) expect(Object.keys(peer).sort()).toEqual(['cidr', 'everyone', 'except']);
      }
      // The one set is of the policy's subjects.
      const { items } = await client.list(resources.PeerSet);
      expect(items).toHaveLength(1);
    },
  );
});
