/** An agent that knows who has which address, and not yet by which rules. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import type { EndpointStateRow, KernelEndpoint, NodeRow } from '../tables.ts';
import { DELETED_GRACE_MS } from './identities.ts';
import { rule, World } from './testing/model-world.ts';

const ENFORCED: EndpointStateRow['enforced'] = { ingress: true, egress: false };
const BOTH: EndpointStateRow['enforced'] = { ingress: true, egress: true };
const CIDR = 0x0100_0001;
const OWN = 0x0300_0001;
const EARLY = { rules: false };

let world: World;

/** The kernel has endpoint 1 as pod `web` of app a (256), and these addresses beside its own. */
function found(ipcache: Readonly<Record<string, number>>, judged: Partial<KernelEndpoint> = {}): void {
  const own = { id: 1, ifindex: 101, addresses: ['10.0.0.1'], identity: 256, slot: 3, revision: 9, enforced: ENFORCED };
  world.model.adopt({
    endpoints: [{ ...own, ...judged }],
    slots: new Map(),
    ipcache: Object.entries({ '0.0.0.0/0': 2, '::/0': 10, 'fe80::/10': 1, '10.0.0.1/32': 256, ...ipcache }),
  });
}

/** By prefix, the identities that addresses get; undefined: none any more. */
async function moved(): Promise<Readonly<Record<string, number | undefined>>> {
  const { ipcache, moved: from, ipcacheGone } = await world.plan(EARLY);
  const changed = ipcache.filter(({ prefix }) => from.has(prefix));
  return Object.fromEntries([
    ...changed.map(({ prefix, identity }) => [prefix, identity] as const),
    ...ipcacheGone.map((prefix) => [prefix, undefined] as const),
  ]);
}

function node(name: string, addresses: readonly string[], podCidrs: readonly string[] = []): void {
  const row: NodeRow = { name, addresses, podCidrs, kubeApiserver: false };
  world.db.write([world.tables.nodes], (txn) => txn.upsert(world.tables.nodes, row));
}

function dropPod(name: string): void {
  world.db.write([world.tables.localPods], (txn) => txn.delete(world.tables.localPods, `ns/${name}`));
}

beforeEach(() => {
  world = new World();
  world.namespace();
  world.pod('web', 'a');
  world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-web' } });
  world.identity(256, 'a');
  world.identity(257, 'b');
});

describe('addresses that were found', () => {
  it('stay while the inputs say the same of them, and CIDRs that only rules may explain', async () => {
    node('n2', ['192.0.2.9']);
    world.endpoint(2, { addresses: ['10.0.0.2'], labels: { 'k8s:app': 'x' } });
    world.remote('r', '10.9.9.1', 257);
    found({
      '10.9.9.1/32': 257,
      '192.0.2.9/32': 6,
      '198.51.100.7/32': CIDR,
      '198.51.100.0/24': CIDR + 1,
    });
    expect(await moved()).toEqual({ '10.0.0.2/32': 0 });
    expect(await moved()).toEqual({});
  });

  it.each([
    ['another pod', 257, 0, () => world.remote('r', '10.9.9.1', 256)],
    ['nobody any more', 257, undefined, () => undefined],
    ['no endpoint of this node any more', OWN, undefined, () => undefined],
    ['no node any more', 6, undefined, () => undefined],
    ['a node', 257, 6, () => node('n2', ['10.9.9.1'])],
    ['a pod, where a rule named the address', CIDR, 0, () => world.remote('r', '10.9.9.1', 257)],
    ['a pod of unknown labels', 257, 0, () => world.remote('r', '10.9.9.1', 999)],
    [
      'two pods',
      257,
      0,
      () => {
        world.remote('r', '10.9.9.1', 257);
        world.remote('s', '10.9.9.1', 256);
      },
    ],
  ])('that are of %s get no identity that the rules in force may not know', async (_, before, after, now) => {
    now();
    found({ '10.9.9.1/32': before });
    expect(await moved()).toEqual({ '10.9.9.1/32': after });
    expect(await moved()).toEqual({});
  });

  it('follow each later change', async () => {
    world.remote('r', '10.9.9.1', 257);
    found({ '10.9.9.1/32': 257 });
    expect(await moved()).toEqual({});
    world.remote('r', '10.9.9.7', 257);
    expect(await moved()).toEqual({ '10.9.9.1/32': undefined, '10.9.9.7/32': 0 });
    await world.plan();
    expect(world.ipcache.get('10.9.9.7/32')?.identity).toBe(257);
  });

  it('pods of a node that joined are not outside of the cluster', async () => {
    node('n9', [], ['10.50.0.0/24', '10.60.0.0/24']);
    found({ '10.60.0.0/24': 0 });
    expect(await moved()).toEqual({ '10.50.0.0/24': 0 });
  });
});

describe('an endpoint that was found', () => {
  it('stays while its pod has the labels of its identity, or its new labels have none yet', async () => {
    found({});
    expect((await world.plan(EARLY)).endpoints).toEqual([]);
    world.pod('web', 'c');
    expect((await world.plan(EARLY)).endpoints).toEqual([]);
  });

  it('is closed, with its address, when its pod has other labels, until rules are known', async () => {
    found({});
    world.pod('web', 'b');
    expect(await moved()).toEqual({ '10.0.0.1/32': 0 });
    expect(world.states.get(1)).toMatchObject({ identity: 0, slot: 0, enforced: BOTH, state: 'waiting-for-identity' });
    expect(world.states.get(1)?.revision).toBeGreaterThan(9);
    expect(world.states.get(1)?.reason).toContain('closed until every policy has been read');
    // Nor is it opened when it is again who it was: rules may have changed with it.
    world.pod('web', 'a');
    expect((await world.plan(EARLY)).endpoints).toEqual([]);
    world.peerSet('a', [256]);
    world.policy('p', 1, [rule('a', 'a', 7)]);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 256, state: 'ready', policies: { p: 1 } });
    expect(world.ipcache.get('10.0.0.1/32')?.identity).toBe(256);
  });

  it('that was closed is opened as a new one: not before every policy that may select it is in force', async () => {
    found({});
    world.pod('web', 'b');
    await world.plan(EARLY);
    world.peerSet('b', [257]);
    world.policy('p', 1, [rule('b', 'c', 7)]);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'waiting-for-identity', enforced: BOTH });
    world.peerSet('c', []);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 257, state: 'ready', policies: { p: 1 } });
  });

  it('is closed a moment after its pod was deleted', async () => {
    found({});
    dropPod('web');
    expect((await world.plan(EARLY)).endpoints).toEqual([]);
    expect(world.model.dueAt()).toBe(DELETED_GRACE_MS);
    world.pass(DELETED_GRACE_MS);
    expect((await world.plan(EARLY)).endpoints).toMatchObject([{ id: 1, slot: 0, enforced: BOTH }]);
  });

  it('is closed when nobody knows whose it is', async () => {
    world.endpoint(1, { found: { identity: 999 } });
    found({});
    expect((await world.plan(EARLY)).endpoints).toMatchObject([{ id: 1, slot: 0, enforced: BOTH }]);
  });

  it('stays open where policies are not enforced', async () => {
    world = new World({ policyMode: 'never' });
    world.namespace();
    world.identity(257, 'b');
    world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-web' } });
    world.pod('web', 'b');
    found({});
    expect((await world.plan(EARLY)).endpoints).toEqual([]);
  });
});

it('a new endpoint has no state before rules are known, and is then judged by all of them', async () => {
  world.pod('new', 'b');
  world.endpoint(2, { addresses: ['10.0.0.2'], pod: { namespace: 'ns', name: 'new', uid: 'u-new' } });
  found({});
  expect((await world.plan(EARLY)).endpoints).toEqual([]);
  await world.plan();
  expect(world.states.get(2)).toMatchObject({ identity: 257, state: 'ready' });
  expect(world.ipcache.get('10.0.0.2/32')?.identity).toBe(257);
});

it('what stays as it was found keeps the revision that the kernel has by then', async () => {
  found({}, { slot: 0, enforced: { ingress: false, egress: false } });
  await world.plan(EARLY);
  world.model.renewed([[1, 12]]);
  await world.plan();
  expect(world.states.get(1)).toMatchObject({ revision: 12, state: 'ready' });
});
