/** What an agent takes back of what it found, while it does not know all that it needs for its first plan. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import type { EndpointStateRow, NodeRow } from '../tables.ts';
import { rule, World } from './testing/model-world.ts';
import { WITHDRAW_AFTER_MS } from './withdrawals.ts';

const ENFORCED: EndpointStateRow['enforced'] = { ingress: true, egress: false };
const CIDR = 0x0100_0001;
const OWN = 0x0300_0001;

let world: World;

/** The kernel has endpoint 1 as pod `web` of app a (256), and these addresses beside its own. */
function found(
  ipcache: Readonly<Record<string, number>>,
  { identity = 256, interrupted = false }: { readonly identity?: number; readonly interrupted?: boolean } = {},
): void {
  world.model.adopt({
    endpoints: [{ id: 1, ifindex: 101, ipv4: '10.0.0.1', identity, slot: 3, revision: 9, enforced: ENFORCED }],
    slots: new Map(),
    ipcache: Object.entries({ '10.0.0.1/32': identity, ...ipcache }),
    interrupted,
  });
}

interface Taken {
  readonly addresses: readonly string[];
  readonly endpoints: readonly number[];
}

async function withdraw(): Promise<Taken> {
  while (world.model.pull(100));
  const { addresses, endpoints, reopened } = await world.model.withdraw();
  world.model.withdrawalDone();
  expect(reopened).toEqual([]);
  expect(addresses.every(({ identity }) => identity === 0)).toBe(true);
  return { addresses: addresses.map(({ prefix }) => prefix).sort(), endpoints };
}

/** What is given back. */
async function returned(): Promise<unknown> {
  while (world.model.pull(100));
  const { addresses, endpoints, reopened, renew } = await world.model.withdraw();
  world.model.withdrawalDone();
  expect(endpoints).toEqual([]);
  return {
    addresses: Object.fromEntries(addresses.map(({ prefix, identity }) => [prefix, identity])),
    reopened,
    renew,
  };
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
    expect(world.model.withdrawn()).toMatchObject({ addresses: 2, endpoints: 0 });
  });

  it('stay for as long as an ordinary start takes, and while the slices are not complete', async () => {
    const done = world.db.initialiser(world.tables.remoteEndpoints, 'reflector');
    found({ '10.9.9.1/32': 257 });
    expect(await later()).toEqual(NOTHING);
    expect(world.model.dueAt()).toBeUndefined();
    world.db.write([world.tables.remoteEndpoints], (txn) => done(txn));
    expect(await withdraw()).toEqual(NOTHING);
    expect(world.model.dueAt()).toBe(2 * WITHDRAW_AFTER_MS);
    world.pass(WITHDRAW_AFTER_MS - 1);
    expect(await withdraw()).toEqual(NOTHING);
    world.pass(1);
    // Until somebody has looked: a timer may come a moment early.
    expect(world.model.dueAt()).toBe(2 * WITHDRAW_AFTER_MS);
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
    expect(world.model.dueAt()).toBeUndefined();
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
    expect(world.model.asFound(1)).toMatchObject({ identity: 0, slot: 0, enforced: { ingress: true, egress: true } });
    expect(world.model.withdrawn()).toMatchObject({ addresses: 1, endpoints: 1 });
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
    expect(world.model.withdrawn()).toEqual({ addresses: 0, endpoints: 0 });
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

describe('while API servers or nodes are not complete', () => {
  const server = (name: string, addresses: readonly string[]): void =>
    void world.db.write([world.tables.nodes], (txn) =>
      txn.upsert(world.tables.nodes, { name, addresses, podCidrs: [], kubeApiserver: true }),
    );

  it('addresses of API servers stay, and are looked at when they are', async () => {
    const done = world.db.initialiser(world.tables.apiserverAddresses, 'reflector');
    server('n1', ['192.0.2.1']);
    node('n2', ['192.0.2.2']);
    found({ '192.0.2.1/32': 7, '192.0.2.2/32': 7 });
    expect(await later()).toEqual(NOTHING);
    world.db.write([world.tables.apiserverAddresses], (txn) => {
      txn.upsert(world.tables.apiserverAddresses, { address: '192.0.2.1' });
      done(txn);
    });
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['192.0.2.2/32'] });
  });

  it('so do those of nodes, but not where a pod has them', async () => {
    const done = world.db.initialiser(world.tables.nodes, 'reflector');
    world.db.write([world.tables.apiserverAddresses], (txn) =>
      txn.upsert(world.tables.apiserverAddresses, { address: '192.0.2.1' }),
    );
    world.remote('r', '192.0.2.4', 257);
    found({ '192.0.2.1/32': 7, '192.0.2.2/32': 6, '192.0.2.3/32': 6, '192.0.2.4/32': 6 });
    expect(await later()).toEqual({ ...NOTHING, addresses: ['192.0.2.4/32'] });
    server('n1', ['192.0.2.1']);
    world.db.write([world.tables.nodes], (txn) => {
      txn.upsert(world.tables.nodes, { name: 'n2', addresses: ['192.0.2.2'], podCidrs: [], kubeApiserver: false });
      done(txn);
    });
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['192.0.2.3/32'] });
  });
});

describe('what was taken back', () => {
  it('is given back when a slice was away for a moment', async () => {
    world.remote('r', '10.9.9.1', 257);
    found({ '10.9.9.1/32': 257 });
    expect(await later()).toEqual(NOTHING);
    dropRemote('r');
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
    world.remote('r', '10.9.9.1', 256);
    expect(await withdraw()).toEqual(NOTHING);
    world.remote('r', '10.9.9.1', 257);
    expect(await returned()).toEqual({ addresses: { '10.9.9.1/32': 257 }, reopened: [], renew: true });
    expect(world.model.withdrawn()).toMatchObject({ addresses: 0, endpoints: 0 });
    world.remote('r', '10.9.9.1', 256);
    expect(await withdraw()).toEqual({ ...NOTHING, addresses: ['10.9.9.1/32'] });
  });

  it('is given back to an endpoint whose pod has its labels again, not to one of which nothing is known', async () => {
    found({});
    world.pod('web', 'b');
    expect(await later()).toEqual({ addresses: ['10.0.0.1/32'], endpoints: [1] });
    world.db.write([world.tables.namespaces], (txn) => txn.delete(world.tables.namespaces, 'ns'));
    world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-web' }, mac: '02:00:00:00:00:01' });
    expect(await withdraw()).toEqual(NOTHING);
    world.namespace();
    expect(await withdraw()).toEqual(NOTHING);
    world.pod('web', 'a');
    expect(await returned()).toEqual({ addresses: { '10.0.0.1/32': 256 }, reopened: [1], renew: true });
    expect(world.model.asFound(1)).toMatchObject({ identity: 256, slot: 3, enforced: ENFORCED });
  });
});

describe('what is not given back', () => {
  it('to an endpoint whose pod has labels without a number yet, whatever a slice that is late says', async () => {
    world.remote('web', '10.0.0.1', 256, [], 'u-web');
    found({});
    world.pod('web', 'b');
    expect(await later()).toEqual({ addresses: ['10.0.0.1/32'], endpoints: [1] });
    world.pod('web', 'c');
    expect(await withdraw()).toEqual(NOTHING);
    world.pod('web', 'a');
    expect(await returned()).toMatchObject({ reopened: [1] });
  });

  it('to an address that had only what is around it', async () => {
    world.remote('r', '10.50.0.7', 257);
    found({ '0.0.0.0/0': 2 });
    expect(await later()).toEqual({ ...NOTHING, addresses: ['10.50.0.7/32'] });
    dropRemote('r');
    expect(await withdraw()).toEqual(NOTHING);
  });
});

describe('without slices', () => {
  it('endpoints of this node are closed all the same, and their addresses unknown; no other is looked at', async () => {
    world.db.initialiser(world.tables.remoteEndpoints, 'reflector');
    found({ '10.9.9.1/32': 257 });
    world.pod('web', 'b');
    expect(await later()).toEqual({ addresses: ['10.0.0.1/32'], endpoints: [1] });
  });
});

describe('without pods', () => {
  beforeEach(() => {
    world.db.initialiser(world.tables.localPods, 'reflector');
    world.db.write([world.tables.localPods], (txn) => txn.delete(world.tables.localPods, 'ns/web'));
  });

  it('an endpoint stays while the slices do not name its pod, or name it with another uid on this node', async () => {
    node('self', ['192.0.2.9']);
    found({});
    expect(await later()).toEqual(NOTHING);
    world.remote('web', '10.0.0.1', 257, [], 'u-web-2');
    expect(await withdraw()).toEqual(NOTHING);
  });

  it('one whose pod was made anew on another node is closed', async () => {
    node('self', ['192.0.2.8']);
    world.remote('web', '10.9.9.9', 256, [], 'u-web-2');
    found({});
    expect(await later()).toEqual({ addresses: ['10.0.0.1/32'], endpoints: [1] });
  });

  it('one of which no file tells whose it is goes by whom the slices give its address', async () => {
    world.endpoint(1, { found: { identity: 256 } });
    world.remote('web', '10.0.0.1', 256, [], 'u-web');
    found({});
    expect(await later()).toEqual(NOTHING);
    world.remote('web', '10.0.0.1', 257, [], 'u-web');
    expect(await withdraw()).toEqual({ addresses: ['10.0.0.1/32'], endpoints: [1] });
  });
});

it('pods of a node that joined are not outside of the cluster', async () => {
  const joined: NodeRow = {
    name: 'n9',
    addresses: [],
    podCidrs: ['10.50.0.0/24', '10.60.0.0/24'],
    kubeApiserver: false,
  };
  world.db.write([world.tables.nodes], (txn) => txn.upsert(world.tables.nodes, joined));
  found({ '0.0.0.0/0': 2, '10.60.0.0/24': 0 });
  expect(await later()).toEqual({ ...NOTHING, addresses: ['10.50.0.0/24'] });
});

it('nothing is closed where policies are not enforced', async () => {
  world = new World({ policyMode: 'never' });
  world.namespace();
  world.identity(256, 'a');
  world.identity(257, 'b');
  world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-web' } });
  world.pod('web', 'b');
  found({});
  expect((await later()).endpoints).toEqual([]);
});

it('endpoints get new revisions at once where an agent before died in a change, once', async () => {
  found({}, { interrupted: true });
  const none = { addresses: {}, reopened: [] };
  expect(await returned()).toEqual({ ...none, renew: true });
  expect(await returned()).toEqual({ ...none, renew: false });
});
