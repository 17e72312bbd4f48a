/** CIDRs that policies begin and cease to name: the slots of others, which name some too, stay as they are. */
import { expect, it } from '@jest/globals';
import { parsePrefix, prefixContains } from '@weir/net';
import type { ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { rowsByClass } from './classes.ts';
import { classAt } from './testing/class-at.ts';
import { freshLike, rule, settle, World } from './testing/model-world.ts';

const OUTSIDE = { cidr: '198.51.0.0/16', except: ['198.51.100.0/24'] };
const HOST = '192.0.2.1';
/** No compiler takes it. */
const BAD: ResolvedRule = { ...rule('b', 'b', 9), ports: [{ protocol: 'TCP', from: 9, to: 5 }] };

const egress = (app: string, cookie: number, ...peers: NonNullable<ResolvedRule['peers']>): ResolvedRule => ({
  ...rule(app, undefined, cookie),
  direction: 'egress',
  peers,
});

/**
 * Endpoint 1, of app a, may reach what is outside; endpoint 2, of app b, has policies that change; endpoint 3, of app c, may reach API servers alone,
 * and no rule of it names a CIDR.
 */
function world(): World {
  const made = new World();
  made.namespace();
  for (const [at, app] of ['a', 'b', 'c'].entries()) {
    made.peerSet(app, [256 + at]);
    made.identity(256 + at, app);
    made.pod(app, app);
    made.endpoint(1 + at, { pod: { namespace: 'ns', name: app, uid: `u-${app}` } });
  }
  made.policy('a', 1, [
    egress('a', 1, OUTSIDE),
    { ...egress('a', 2, { entity: 'kube-apiserver' }), verdict: 'deny' },
    { ...egress('a', 3, { entity: 'world' }), verdict: 'deny', ports: [{ protocol: 'TCP', from: 25, to: 25 }] },
  ]);
  made.policy('c', 1, [egress('c', 4, { entity: 'kube-apiserver' })]);
  return made;
}

const isWithin = (inner: string, outer: string): boolean => prefixContains(parsePrefix(outer), parsePrefix(inner));

function apiserver({ db, tables }: World, address: string, is: boolean): void {
  db.write([tables.apiserverAddresses], (txn) => {
    if (is) txn.upsert(tables.apiserverAddresses, { address });
    else txn.delete(tables.apiserverAddresses, address);
  });
}

/** Whether this node is an API server's. */
function hostServes({ db, tables }: World, kubeApiserver: boolean): void {
  const self = { name: 'self', addresses: [HOST], podCidrs: [], kubeApiserver };
  db.write([tables.nodes], (txn) => txn.upsert(tables.nodes, self));
}

/** What the endpoint may do with an address of the prefix, at port 80. */
function verdict(of: World, prefix: string, endpoint = 1): string {
  const slot = of.slots.get(of.states.get(endpoint)?.slot ?? 0);
  if (slot === undefined) return 'open';
  const rows = rowsByClass(slot, 'egress').get(classAt(of.ipcache, slot.classes.egress, prefix)) ?? [];
  return rows.find(({ protocol, from, to }) => protocol === 6 && from <= 80 && 80 <= to)?.verdict ?? 'none';
}

it('of others stay as they are, and judge the addresses as before', async () => {
  const one = world();
  await settle(one);
  const ofFirst = () => [one.states.get(1), one.slots.get(one.states.get(1)?.slot ?? 0)];
  const [state, slot] = ofFirst();
  one.policy('b', 1, [egress('b', 7, { cidr: '203.0.113.0/24' })]);
  await settle(one);
  one.policy('b', 2, [egress('b', 7, { cidr: '198.51.7.0/24' }, { cidr: '198.51.100.7/32' })]);
  await settle(one);
  // Neither the slot nor the endpoint's word is another one.
  expect(ofFirst().map((row, at) => row === [state, slot][at])).toEqual([true, true]);
  expect(['198.51.7.0/24', '198.51.100.7/32', '198.51.0.0/16'].map((prefix) => verdict(one, prefix))).toEqual([
    'allow',
    'none',
    'allow',
  ]);
  one.db.write([one.tables.policies], (txn) => txn.delete(one.tables.policies, 'b'));
  await settle(one);
  expect(ofFirst().map((row, at) => row === [state, slot][at])).toEqual([true, true]);
});

it('of API servers are closed to whom only these are open once they are no such server, though a policy names them', async () => {
  const one = world();
  one.policy('b', 1, [egress('b', 7, { cidr: '198.51.100.7/32' })]);
  for (const [is, expected] of [
    [true, 'allow'],
    [false, 'none'],
  ] as const) {
    apiserver(one, '198.51.100.7', is);
    await settle(one);
    expect(one.ipcache.get('198.51.100.7/32')?.identity).toBeGreaterThan(0);
    expect(verdict(one, '198.51.100.7/32', 3)).toBe(expected);
  }
});

it('are not all that serves the API: the host is open to whom only API servers are for as long as it is one', async () => {
  const one = world();
  for (const [is, expected] of [
    [true, 'allow'],
    [false, 'none'],
    [true, 'allow'],
  ] as const) {
    hostServes(one, is);
    await settle(one);
    expect(one.ipcache.get(`${HOST}/32`)?.identity).toBe(1);
    expect(verdict(one, `${HOST}/32`, 3)).toBe(expected);
  }
});

it('come and go, of rules and of API servers, and the same is computed as at once', async () => {
  const prefixes = ['198.51.7.0/24', '198.51.100.7/32', '198.51.0.0/16', '203.0.113.9/32', '203.0.113.0/24'];
  const step = fc.record({
    cidrs: fc.subarray(prefixes),
    except: fc.subarray(prefixes, { maxLength: 1 }),
    bad: fc.boolean(),
    servers: fc.subarray(['198.51.100.7', '203.0.113.9', '198.51.7.1']),
    host: fc.boolean(),
    plans: fc.integer({ min: 0, max: 2 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
      const grown = world();
      await settle(grown);
      for (const [at, { cidrs, except, bad, servers, host, plans }] of steps.entries()) {
        const peers = cidrs.map((cidr) => ({ cidr, except: except.filter((one) => isWithin(one, cidr)) }));
        grown.policy('b', 1 + at, [egress('b', 7, ...peers), ...(bad ? [BAD] : [])]);
        for (const address of ['198.51.100.7', '203.0.113.9', '198.51.7.1'])
          apiserver(grown, address, servers.includes(address));
        hostServes(grown, host);
        for (let plan = 0; plan < plans; plan += 1) await grown.plan();
      }
      const last = steps.at(-1);
      if (last?.bad) grown.policy('b', 99, [egress('b', 7, ...last.cidrs.map((cidr) => ({ cidr })))]);
      await settle(grown);
      expect(grown.result()).toEqual((await freshLike(grown)).result());
      // Every number that has gone is in no slot.
      const known = new Set([...grown.numbers.cidrs()].map(([, id]) => id));
      for (const { compiled } of grown.slots.values())
        for (const { members } of compiled.egress.classes)
          for (const id of members) if (id >= 0x01000000 && id < 0x02000000) expect(known).toContain(id);
    }),
    { numRuns: runs(100) },
  );
});
