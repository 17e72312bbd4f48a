import { describe, expect, it } from '@jest/globals';
import type { DatapathEvent } from '@weir/bpf';
import { ip4 } from '@weir/bpf/testing';
import { namingOf } from '../derive/naming.ts';
import { basic, rule, type World } from '../derive/testing/model-world.ts';
import { FlowNames } from './names.ts';
import type { PeerNaming } from './types.ts';

/**
 * Endpoint 1 is ns/web (identity 256, 10.0.0.1), endpoint 2 is ns/other (10.0.0.2); ns/far (10.1.0.9) is elsewhere. The kernel has the first
 * generation of a policy `p`.
 */
async function cluster(
  peerNamings: readonly PeerNaming[] = [],
): Promise<{ readonly world: World; readonly names: FlowNames }> {
  const world = basic();
  world.pod('other', 'b');
  world.identity(257, 'b');
  world.endpoint(2, { pod: { namespace: 'ns', name: 'other', uid: 'u-other' } });
  world.remote('far', '10.1.0.9', 300);
  const { db, model, tables } = world;
  db.write([tables.nodes, tables.services], (txn) => {
    txn.upsert(tables.nodes, { name: 'node-2', addresses: ['192.0.2.2'], podCidrs: [], kubeApiserver: false });
    txn.upsert(tables.services, { namespace: 'ns', name: 'shop', addresses: ['10.96.0.7'] });
  });
  await world.plan();
  return {
    world,
    names: new FlowNames({
      naming: namingOf(model, () => ({ p: 1 })),
      bootOffset: () => 0n,
      db,
      services: tables.services,
      peerNamings: () => peerNamings,
    }),
  };
}

/** Endpoint 1 sends from `src`. */
function forged(src: string, fields: Partial<DatapathEvent> = {}): DatapathEvent {
  return {
    timeNs: 0n,
    kind: 'drop',
    direction: 1,
    reason: 3,
    reasonName: 'invalid-source',
    protocol: 17,
    endpoint: 1,
    family: 4,
    src: ip4(src),
    dst: ip4('10.1.0.9'),
    sport: 0,
    dport: 0,
    ethertype: 0x0800,
    icmpType: 0,
    icmpCode: 0,
    tcpFlags: 0,
    ifindex: 101,
    srcIdentity: 256,
    dstIdentity: 300,
    cookie: 0,
    length: 60,
    revision: 1,
    ...fields,
  };
}

describe('a packet whose source address is not the endpoint’s own', () => {
  it.each([
    ['another pod of the node', '10.0.0.2', ' It is that of ns/other.'],
    ['a pod elsewhere', '10.1.0.9', ' It is that of ns/far.'],
    ['a node', '192.0.2.2', ' It is that of node-2.'],
    ['a Service', '10.96.0.7', ' It is that of service ns/shop.'],
    ['nobody who is known', '203.0.113.1', ''],
  ])('is named after the pod that sent it, and says whose address it has: that of %s', async (_, src, claim) => {
    const { names } = await cluster();
    expect(names.event(forged(src))).toMatchObject({
      endpoint: 1,
      reason: 'invalid-source',
      source: { address: src, identity: 256, name: 'ns/web', labels: expect.arrayContaining(['k8s:app=a']) },
      destination: { address: '10.1.0.9', identity: 300, name: 'ns/far' },
      message: `The source address is not the endpoint's own.${claim}`,
    });
    expect(names.event(forged(src)).source).not.toHaveProperty('service');
  });

  it('by ARP has no address in the event, and is named after who sent it all the same', async () => {
    const { names } = await cluster();
    const none = new Uint8Array(0);
    const arp = forged('10.0.0.2', {
      family: 0,
      src: none,
      dst: none,
      ethertype: 0x0806,
      srcIdentity: 0,
      dstIdentity: 0,
      protocol: 0,
    });
    expect(names.event(arp)).toMatchObject({
      source: { address: '', identity: 256, name: 'ns/web' },
      destination: { address: '', identity: 0 },
      message: "The source address is not the endpoint's own.",
    });
  });

  it('of another kind than IP is named after who sent it, with its EtherType', async () => {
    const { names } = await cluster();
    const none = new Uint8Array(0);
    const foreign = { reason: 5, reasonName: 'unknown-l3', family: 0, src: none, dst: none, protocol: 0 };
    const event = (direction: number, ethertype = 0x8864) =>
      names.event(forged('10.0.0.1', { ...foreign, direction, ethertype, srcIdentity: 0, dstIdentity: 0 }));
    expect(event(1)).toMatchObject({
      source: { address: '', name: 'ns/web' },
      destination: { address: '', identity: 0 },
    });
    expect(event(0).source).toEqual({ address: '', identity: 0 });
    expect(event(1).message).toMatch(/VLAN tag\. Its EtherType is 0x8864\.$/);
    // The kernel has taken the tag off, and shows what it was around.
    for (const inner of [0x0800, 0x0806, 0x86dd])
      expect(event(1, inner).message).toMatch(/VLAN tag\. It has a VLAN tag, around EtherType 0x0?8[06d]+\.$/);
  });

  it('of an endpoint that is gone is named after its number', async () => {
    const { world, names } = await cluster();
    world.dropEndpoint(1);
    await world.plan();
    expect(names.event(forged('10.0.0.2'))).toMatchObject({
      source: { identity: 256, name: 'endpoint 1' },
      message: "The source address is not the endpoint's own. It is that of ns/other.",
    });
  });
});

it('names the owner of the address where the source is the sender’s own', async () => {
  const { names } = await cluster();
  const event = names.event(forged('10.0.0.1', { reason: 8, reasonName: 'policy' }));
  expect(event.source).toMatchObject({ address: '10.0.0.1', identity: 256, name: 'ns/web' });
});

it('says by which names an address is looked up here, at most five', async () => {
  const { names } = await cluster([
    {
      backendOf: () => [],
      hostNames: (address) => (address === '10.1.0.9' ? ['a', 'b', 'c', 'd', 'e', 'f'] : []),
    },
  ]);
  const event = names.event(forged('10.0.0.1', { reason: 1, reasonName: 'policy' }));
  expect(event.destination.hostNames).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(event.source.hostNames).toBeUndefined();
});

it('says of either end which Services it is a backend of, by address, port and protocol', async () => {
  const backends = new Map([['10.1.0.9 53 17', ['ns/dns', 'ns/other']]]);
  const asked: string[] = [];
  const { names } = await cluster([
    {
      backendOf: (address, port, protocol) => {
        const key = `${address} ${port} ${protocol}`;
        asked.push(key);
        return backends.get(key) ?? [];
      },
    },
  ]);
  const policy = { reason: 1, reasonName: 'policy' };
  const sent = names.event(forged('10.0.0.1', { ...policy, sport: 4000, dport: 53 }));
  expect(sent.destination.backendOf).toEqual(['ns/dns', 'ns/other']);
  expect(sent.source.backendOf).toBeUndefined();
  const other = names.event(forged('10.0.0.1', { ...policy, sport: 4000, dport: 53, protocol: 6 }));
  expect(other.destination.backendOf).toBeUndefined();
  // What has no ports is nobody's backend.
  asked.length = 0;
  names.event(forged('10.0.0.1', { ...policy, protocol: 1 }));
  expect(asked).toEqual([]);
});

it('names the policies by which nothing is said to a group, or the rule that denies it', async () => {
  const { world, names } = await cluster();
  world.policy('p', 1, [{ ...rule('a', 'b', 5), direction: 'egress', path: 'spec.egress[0]' }]);
  await world.plan();
  const said = (cookie: number) =>
    names.event(forged('10.0.0.1', { reason: 17, reasonName: 'group-address', cookie })).policies;
  expect(said(0)).toEqual(['cnp ns/p']);
  expect(said(5)).toEqual(['cnp ns/p spec.egress[0]']);
});

it.each([
  [6, true],
  [17, true],
  [132, true],
  [50, false],
  [60, false],
])('gives ports only to protocols that have some: %d, %j', async (protocol, some) => {
  const { names } = await cluster();
  const event = names.event(forged('10.0.0.1', { reason: 8, reasonName: 'policy', protocol }));
  expect([event.sourcePort, event.destinationPort]).toEqual(some ? [0, 0] : [undefined, undefined]);
});
