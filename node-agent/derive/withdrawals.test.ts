/** What an agent takes back of what it found, while it does not know all that it needs for its first plan. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import type { EndpointStateRow, NodeRow } from '../tables.ts';
import { rule, World } from './testing/engine-world.ts';
import { WITHDRAW_AFTER_MS } from './withdrawals.ts';

const ENFORCED: EndpointStateRow['enforced'] = { ingress: true, egress: false };
const CIDR = 0x0100_0001;
const OWN = 0x0300_0001;

let world: World;

/** The kernel has endpoint 1 as pod `web` of app a (256), and these addresses beside its own. */
function found(ipcache: Readonly<Record<string, number>>, endpoint: { identity?: number } = {}): void {
  const { identity = 256 } = endpoint;
  world.engine.adopt({
    endpoints: [{ id: 1, ifindex: 101, ipv4: '10.0.0.1', identity, slot: 3, revision: 9, enforced: ENFORCED }],
    slots: new Map(),
    ipcache: Object.entries({ '10.0.0.1/32': identity, ...ipcache }),
    interrupted: false,
  });
}

async function withdraw(): Promise<{ addresses: string[]; endpoints: readonly number[] }> {
  while (world.engine.pull(100));
  const { addresses, endpoints } = await world.engine.withdraw();
  expect(new Set(addresses.map(({ identity }) => identity)).size).toBeLessThanOrEqual(1);
  expect(addresses.every(({ identity }) => identity === 0)).toBe(true);
  return { addresses: addresses.map(({ prefix }) => prefix).sort(), endpoints };
}

/** As `withdraw`, when the time is over that the first plan may take. */
async function later(): Promise<ReturnType<typeof withdraw>> {
  await withdraw();
  world.pass(WITHDRAW_AFTER_MS);
  return withdraw();
}

function node(name: string, addresses: readonly string[]): void {
  const row: NodeRow = { name, addresses, podCidrs: [], kubeApiserver: false };
  world.db.write([world.tables.nodes], (txn) => txn.upsert(world.tables.nodes, row));
}

/** Each remote pod at 10.9.9.1. */
function claimed(...identities: readonly number[]): void {
  for (const [at, identity] of identities.entries()) world.remote(`r${at}`, '10.9.9.1', identity);
}

function dropRemote(name: string): void {
  world.db.write([world.tables.remoteEndpoints], (txn) => txn.delete(world.tables.remoteEndpoints, `ns/${name}`));
}

const NOTHING = { addresses: [], endpoints: [] };

beforeEach(() => {
  world = new World();
  world.namespace();
  world.pod('web', 'a');
  world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-web' } });
  world.identity(256, 'a');
  world.identity(257, 'b');
});

describe('addresses that were found', () => {
  it('stay while the slices say the same of them, or a node or an endpoint without a pod does', async () => {
    node('n2', ['192.0.2.9']);
    world.endpoint(2, { ipv4: '10.0.0.2', labels: { 'k8s:app': 'x' } });
    world.remote('r', '10.9.9.1', 257);
    found({
      '10.9.9.1/32': 257,
      '192.0.2.9/32': 6,
      '10.0.0.2/32': OWN,
      '198.51.100.7/32': CIDR,
      '198.51.100.0/24': CIDR + 1,
      '0.0.0.0/0': 2,
      '10.9.0.0/16': 0,
    });
    expect(await later()).toEqual(NOTHING);
  });

  it.each([
    ['a pod with other labels', 257, () => claimed(256)],
    ['nobody any more', 257, () => undefined],
    ['two pods', 257, () => claimed(257, 256)],
    ['a pod, where a rule named the address', CIDR, () => claimed(257)],
    ['no endpoint of this node any more', OWN, () => undefined],
    ['no node any more', 6, () => undefined],
    ['a node', 257, () => node('n2', ['10.9.9.1'])],
  ])('become unknown when they are of %s', async (_, identity, now) => {
    now();
    found({ '10.9.9.1/32': identity });
    expect(await later()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
    expect(await withdraw()).toEqual(NOTHING);
  });

  it('of a new pod become unknown when what is around them says otherwise', async () => {
    world.remote('r', '10.9.9.1', 257);
    world.remote('s', '10.8.8.1', 257);
    found({ '10.9.0.0/16': CIDR, '10.8.0.0/16': 0 });
    expect(await later()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
  });

  it('become unknown with a later change, and only those that it touches are looked at', async () => {
    world.remote('r', '10.9.9.1', 257);
    world.remote('s', '10.9.9.2', 257);
    found({ '10.9.9.1/32': 257, '10.9.9.2/32': 257 });
    expect(await later()).toEqual(NOTHING);
    world.remote('r', '10.9.9.7', 257);
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
    dropRemote('s');
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['10.9.9.2/32'] });
    expect(world.engine.withdrawn()).toMatchObject({ addresses: 2, endpoints: 0 });
  });

  it('stay for as long as an ordinary start takes, and while the slices are not complete', async () => {
    const done = world.db.initialiser(world.tables.remoteEndpoints, 'reflector');
    found({ '10.9.9.1/32': 257 });
    expect(await later()).toEqual(NOTHING);
    expect(world.engine.dueAt()).toBeUndefined();
    world.db.write([world.tables.remoteEndpoints], (txn) => done(txn));
    expect(await withdraw()).toEqual(NOTHING);
    expect(world.engine.dueAt()).toBe(2 * WITHDRAW_AFTER_MS);
    world.pass(WITHDRAW_AFTER_MS - 1);
    expect(await withdraw()).toEqual(NOTHING);
    world.pass(1);
    // Until somebody has looked: a timer may come a moment early.
    expect(world.engine.dueAt()).toBe(2 * WITHDRAW_AFTER_MS);
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
    expect(world.engine.dueAt()).toBeUndefined();
  });

  it('of nodes stay while nodes are not complete', async () => {
    const done = world.db.initialiser(world.tables.nodes, 'reflector');
    found({ '192.0.2.9/32': 6 });
    expect(await later()).toEqual(NOTHING);
    world.db.write([world.tables.nodes], (txn) => done(txn));
    node('n2', ['192.0.2.9']);
    expect(await withdraw()).toEqual(NOTHING);
  });
});

describe('an endpoint that was found', () => {
  it('stays while its pod has the labels of its identity, whatever a slice that is late says', async () => {
    world.remote('web', '10.0.0.1', 257, [], 'u-web');
    found({});
    expect(await later()).toEqual(NOTHING);
  });

  it('stays while its new labels have no identity yet', async () => {
    world.remote('web', '10.0.0.1', 256, [], 'u-web');
    world.pod('web', 'c');
    found({});
    expect(await later()).toEqual(NOTHING);
  });

  const withoutNamespace = (): void => {
    world.db.write([world.tables.namespaces], (txn) => txn.delete(world.tables.namespaces, 'ns'));
  };

  it.each([
    ['its pod has other labels', () => world.pod('web', 'b')],
    [
      'its namespace is not known, and the slices say that it has another identity',
      () => {
        withoutNamespace();
        world.remote('web', '10.0.0.1', 257, [], 'u-web');
      },
    ],
    [
      'its pod is deleted',
      () => void world.db.write([world.tables.localPods], (txn) => txn.delete(world.tables.localPods, 'ns/web')),
    ],
  ])('is closed, with its address, when %s', async (_, now) => {
    now();
    found({});
    expect(await later()).toEqual({ addresses: ['10.0.0.1/32'], endpoints: [1] });
    expect(await withdraw()).toEqual(NOTHING);
    expect(world.engine.asFound(1)).toMatchObject({ identity: 0, slot: 0, enforced: { ingress: true, egress: true } });
    expect(world.engine.withdrawn()).toMatchObject({ addresses: 1, endpoints: 1 });
  });

  it('stays when the slices give its address to a pod that is not here', async () => {
    withoutNamespace();
    world.remote('other', '10.0.0.1', 257, [], 'u-other');
    found({});
    expect(await later()).toEqual(NOTHING);
  });
});

describe('the first plan', () => {
  it('says who they are, gives every endpoint a new revision, and nothing is withdrawn any more', async () => {
    world.remote('r', '10.9.9.1', 256);
    world.peerSet('a', [256]);
    world.policy('p', 1, [rule('a', 'a', 7)]);
    found({ '10.9.9.1/32': 257 });
    expect(await later()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
    await world.plan();
    expect(world.ipcache.get('10.9.9.1/32')?.identity).toBe(256);
    expect(world.states.get(1)).toMatchObject({ identity: 256, state: 'ready' });
    expect(world.states.get(1)?.revision).toBeGreaterThan(9);
    expect(world.engine.withdrawn()).toBeUndefined();
    dropRemote('r');
    expect(await withdraw()).toEqual(NOTHING);
  });

  it('opens an endpoint that was closed as a new one: not before every policy that may select it is in force', async () => {
    world.pod('web', 'b');
    found({});
    expect((await later()).endpoints).toEqual([1]);
    world.peerSet('b', [257]);
    world.policy('p', 1, [rule('b', 'c', 7)]);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({
      state: 'waiting-for-identity',
      enforced: { ingress: true, egress: true },
    });
    world.peerSet('c', []);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 257, state: 'ready', policies: { p: 1 } });
  });
});
