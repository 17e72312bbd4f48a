import { describe, expect, it } from '@jest/globals';
import { parsePrefix, prefixContains } from '@weir/net';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { Addresses } from './addresses.ts';
import { IpcacheDeriver } from './ipcache.ts';
import { LocalNumbers } from './numbers.ts';
import { Pace } from './pace.ts';
import { basic, rule } from './testing/model-world.ts';

type Step = (ipcache: IpcacheDeriver) => void;

const address = fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.1.1', 'fd00::1');
const remote = (name: string, at: string, identity: number) => ({
  namespace: '',
  name,
  addresses: [at],
  identity,
  node: '192.0.2.1',
  namedPorts: [],
});
const cidr = fc.constantFrom('10.0.0.0/8', '10.0.0.0/24', '10.0.0.0/31', '10.0.0.1/32', 'fd00::/8', 'no prefix');
const identity = fc.constantFrom(0, 256, 257);
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.tuple(fc.constantFrom('self', 'a', 'b'), fc.subarray(['10.0.0.1', 'fd00::1']), fc.array(cidr), fc.boolean()).map(
    ([name, addresses, podCidrs, kubeApiserver]): Step =>
      (ipcache) =>
        ipcache.setNode({ name, addresses, podCidrs, kubeApiserver }, name),
  ),
  fc.tuple(fc.constantFrom('a', 'b'), fc.array(address, { maxLength: 2 }), identity).map(
    ([name, addresses, of]): Step =>
      (ipcache) =>
        ipcache.setRemote({ namespace: '', name, addresses, identity: of, node: '192.0.2.1', namedPorts: [] }, name),
  ),
  fc.tuple(fc.array(address, { maxLength: 2 }), identity).map(
    ([at, of]): Step =>
      (ipcache) =>
        ipcache.setLocal(7, at, of),
  ),
  fc.tuple(address, fc.boolean()).map(
    ([at, there]): Step =>
      (ipcache) =>
        ipcache.setApiserver(there ? { address: at } : undefined, at),
  ),
  fc.tuple(cidr, fc.boolean()).map(
    ([text, named]): Step =>
      (ipcache) =>
        ipcache.setRuleCidr(text, named),
  ),
);

function setUp(found: ReadonlyMap<string, number> = new Map()) {
  const db = createStateDB({ freeze: true });
  const ipcache = new IpcacheDeriver({ db, nodeName: 'self', numbers: new LocalNumbers(db) });
  const addresses = new Addresses({
    db,
    ipcache,
    pace: new Pace(
      () => 0,
      async () => {},
    ),
  });
  addresses.adopt(found);
  return { ipcache, addresses };
}

/** Identity of an address, looked for in every prefix. */
function judge(kernel: ReadonlyMap<string, number>, at: string): number {
  const inner = parsePrefix(at);
  let best = { bits: -1, identity: 0 };
  for (const [prefix, of] of kernel) {
    const outer = parsePrefix(prefix);
    if (outer.bits > best.bits && prefixContains(outer, inner)) best = { bits: outer.bits, identity: of };
  }
  return best.identity;
}

describe('identities of this node alone', () => {
  it('are those of CIDRs that policies name, and of label sets that the cluster does not number', async () => {
    const world = basic();
    world.policy('cidr', 1, [{ ...rule('a', undefined, 8), peers: [{ cidr: '192.0.2.0/24', except: [] }] }]);
    world.endpoint(9, { labels: { 'k8s:app': 'nine' } });
    await world.plan();
    expect([...world.model.localIdentities()]).toEqual([
      { id: expect.any(Number), labels: { 'cidr:192.0.2.0/24': '', 'reserved:world': '' } },
      { id: world.model.info(9)?.identity, labels: { 'k8s:app': 'nine' } },
    ]);
  });
});

describe('the addresses', () => {
  it('are what every claim says, whatever came before, and tell of each identity that an address leaves', async () => {
    const found = fc.uniqueArray(fc.tuple(cidr, identity), { selector: ([prefix]) => prefix });
    const rounds = fc.array(fc.tuple(fc.array(step, { maxLength: 4 }), fc.subarray([256, 257])), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(found, rounds, async (atStart, all) => {
        const kernel = new Map<string, number>(atStart.filter(([prefix]) => prefix.includes('/')));
        const { ipcache, addresses } = setUp(kernel);
        for (const [steps, wait] of [...all, [[], []] as const]) {
          for (const each of steps) each(ipcache);
          const before = new Map(kernel);
          const { upserts, deletes, moved, movedByDelete } = await addresses.settle(new Set(wait), true);
          for (const row of upserts) kernel.set(row.prefix, row.identity);
          for (const prefix of deletes) kernel.delete(prefix);
          const told = [...moved, ...movedByDelete].map(String);
          for (const at of [
            '10.0.0.1',
            '10.0.0.2',
            '10.0.0.9',
            '10.0.1.1',
            '10.9.9.9',
            '192.0.2.9',
            'fd00::1',
            'fd00::9',
          ]) {
            const [was, is] = [judge(before, at), judge(kernel, at)];
            if (was !== is) expect(told).toContain(`${was},${is}`);
          }
          for (const id of [0, 1, 2, 256, 257]) expect(addresses.has(id)).toBe([...kernel.values()].includes(id));
          expect(addresses.size).toBe(kernel.size);
        }
        for (const [prefix, of] of kernel) expect(ipcache.row(prefix)?.identity).toBe(of);
        expect(ipcache.dirty.size).toBe(0);
      }),
      { numRuns: runs(300) },
    );
  });

  it('of a node are kube-apiserver where API servers are, and nowhere else', () => {
    const { ipcache } = setUp();
    const identity = (at: string): number | undefined => ipcache.row(`${at}/32`)?.identity;
    for (const address of ['192.0.2.3', '203.0.113.5']) ipcache.setApiserver({ address }, address);
    const outside = identity('203.0.113.5');
    const control = { name: 'control', podCidrs: [], kubeApiserver: true };
    ipcache.setNode({ ...control, addresses: ['192.0.2.3', '192.0.2.4'] }, 'control');
    expect(['192.0.2.3', '192.0.2.4'].map(identity)).toEqual([7, 6]);
    // A taken node reports the address of an API server, which is not there.
    const taken = { name: 'taken', podCidrs: [], kubeApiserver: true };
    ipcache.setNode({ ...taken, addresses: ['192.0.2.9', '192.0.2.3', '203.0.113.5'] }, 'taken');
    expect(['192.0.2.9', '192.0.2.3', '203.0.113.5'].map(identity)).toEqual([6, 7, 7]);
    ipcache.dirty.clear();
    ipcache.setApiserver(undefined, '192.0.2.3');
    expect([...ipcache.dirty]).toEqual(['192.0.2.3/32']);
    expect(identity('192.0.2.3')).toBe(6);
    ipcache.setNode(undefined, 'taken');
    expect(identity('203.0.113.5')).toBe(outside);
  });

  it('of both families are known without inputs: outside, and those that never leave the node', () => {
    const { ipcache } = setUp();
    const rows = (...prefixes: string[]) => prefixes.map((prefix) => ipcache.row(prefix)?.identity);
    expect(rows('0.0.0.0/0', '::/0', 'fe80::/10')).toEqual([2, 10, 1]);
    // Neither a node nor a rule makes a link-local address another's.
    ipcache.setNode(
      { name: 'taken', addresses: ['fe80::1', '2001:db8::9'], podCidrs: [], kubeApiserver: false },
      'taken',
    );
    ipcache.setRuleCidr('fe80::2/128', true);
    expect(rows('fe80::1/128', 'fe80::2/128', '2001:db8::9/128')).toEqual([undefined, undefined, 6]);
  });

  it('of one endpoint are its own in both families', () => {
    const { ipcache } = setUp();
    const identities = () => ['10.1.1.7/32', 'fd00::7/128'].map((prefix) => ipcache.row(prefix)?.identity);
    ipcache.setLocal(7, ['10.1.1.7', 'fd00::7'], 256);
    expect(identities()).toEqual([256, 256]);
    ipcache.dirty.clear();
    ipcache.setLocal(7, ['fd00::7'], 256);
    expect([...ipcache.dirty].sort()).toEqual(['10.1.1.7/32', 'fd00::7/128']);
    expect(identities()).toEqual([undefined, 256]);
  });

  it('of pods are theirs, whatever a node says of itself', () => {
    const { ipcache } = setUp();
    const identity = (at: string): number | undefined => ipcache.row(`${at}/32`)?.identity;
    const node = (name: string, addresses: string[], podCidrs: string[]): void =>
      ipcache.setNode({ name, addresses, podCidrs, kubeApiserver: false }, name);
    ipcache.setLocal(7, ['10.1.1.7'], 256);
    ipcache.setRemote(remote('web', '10.1.2.8', 257), 'web');
    node('self', ['192.0.2.1'], ['10.1.1.0/24']);
    node('a', ['192.0.2.2'], ['10.1.2.0/24']);
    // A taken node reports the addresses of pods, and of pods to come.
    node('taken', ['192.0.2.9', '10.1.1.7', '10.1.2.8', '10.1.2.9'], ['10.1.9.0/24']);
    expect(['192.0.2.9', '10.1.1.7', '10.1.2.8', '10.1.2.9'].map(identity)).toEqual([6, 256, 257, undefined]);
    // An endpoint here is one, also where nobody knows of pod CIDRs.
    node('self', ['192.0.2.1'], []);
    expect(identity('10.1.1.7')).toBe(256);

    // Nodes may be known before the pod CIDRs that say what they are not.
    node('taken', ['10.1.3.3', '192.0.2.9'], []);
    expect(identity('10.1.3.3')).toBe(6);
    ipcache.dirty.clear();
    node('late', [], ['10.1.3.0/24']);
    expect([...ipcache.dirty].sort()).toEqual(['10.1.3.0/24', '10.1.3.3/32']);
    expect(identity('10.1.3.3')).toBeUndefined();
    node('late', [], []);
    expect(identity('10.1.3.3')).toBe(6);
  });

  it('of a node are all that it says it has, and of this one those that its kernel has', () => {
    const { ipcache } = setUp();
    const identity = (at: string): number | undefined => ipcache.row(`${at}/32`)?.identity;
    const node = (name: string, addresses: string[], furtherAddresses: string[], podCidrs: string[] = []): void =>
      ipcache.setNode({ name, addresses, furtherAddresses, podCidrs, kubeApiserver: false }, name);
    node('a', ['192.0.2.2'], ['198.51.100.2', '198.51.100.3', '10.1.2.1', '198.51.100.0/24'], ['10.1.2.0/24']);
    node('self', ['192.0.2.1'], ['198.51.100.9']);
    expect(['192.0.2.2', '198.51.100.2', '198.51.100.3'].map(identity)).toEqual([6, 6, 6]);
    // A pod's, a prefix, and what this node's kernel would say itself.
    expect(['10.1.2.1', '198.51.100.9'].map(identity)).toEqual([undefined, undefined]);
    expect(ipcache.row('198.51.100.0/24')).toBeUndefined();
    node('a', ['192.0.2.2'], ['198.51.100.2']);
    expect(['198.51.100.2', '198.51.100.3'].map(identity)).toEqual([6, undefined]);
  });

  it('outside have a number of their own, but for those of pod networks', async () => {
    const { ipcache, addresses } = setUp();
    const prefixes = ['10.1.0.0/16', '10.1.2.0/24', '192.0.2.0/24'];
    for (const prefix of prefixes) ipcache.setRuleCidr(prefix, true);
    const numbered = prefixes.map((prefix) => ipcache.cidrPeer(prefix));
    expect(numbered.map((peer) => peer?.cidr)).toEqual(prefixes);
    await addresses.settle(new Set(), true);

    ipcache.setNode({ name: 'a', addresses: [], podCidrs: ['10.1.2.0/23'], kubeApiserver: false }, 'a');
    expect([...ipcache.dirty].sort()).toEqual(['10.1.2.0/23', '10.1.2.0/24']);
    expect(ipcache.row('10.1.2.0/24')?.identity).toBe(0);
    expect(ipcache.row('10.1.0.0/16')?.identity).toBe(numbered[0]?.id);

    ipcache.setNode(undefined, 'a');
    expect(ipcache.row('10.1.2.0/24')?.identity).toBe(numbered[1]?.id);
    expect([...ipcache.leaving()]).toEqual([]);
    ipcache.setRuleCidr('10.1.2.0/24', false);
    expect([...ipcache.leaving()]).toEqual([[numbered[1]?.id, '10.1.2.0/24']]);
    await addresses.settle(new Set(), true);
    expect([...ipcache.leaving()]).toEqual([]);
  });
});
