/** How far a node says it is, and what holds that back. */
import { describe, expect, it } from '@jest/globals';
import { rule, World } from '../derive/testing/model-world.ts';
import { RealisedReport } from './report.ts';
import type { RealisedSources } from './sources.ts';
import { addressed, node, SOURCES } from './testing/reported-node.ts';

describe('an agent whose enforcement is off', () => {
  it('fails each policy that selects an endpoint, once, whatever the kernel has acknowledged', async () => {
    const { world, failures } = node('never');
    world.peerSet('c', []);
    world.policy('nobody', 1, [rule('c', 'a', 9)]);
    expect(await failures(0)).toEqual([]);
    for (const id of [1, 2]) {
      addressed(world, `a${id}`, `10.0.0.${id}`);
      world.pod(`a${id}`, 'a');
      world.endpoint(id, { pod: { namespace: 'ns', name: `a${id}`, uid: `u-a${id}` } });
    }
    const off = {
      uid: 'p',
      reason: 'EnforcementOff',
      message:
        'no policy is enforced on this node, as its agent runs with `--policy-enforcement never` (`policyEnforcement` of the chart)',
    };
    expect(await failures(1)).toEqual([{ ...off, generation: 3 }]);
    world.policy('p', 4, [rule('a', undefined, 7)]);
    expect(await failures(2)).toEqual([{ ...off, generation: 4 }]);
    world.policy('p', 5, [rule('c', undefined, 7)]);
    expect(await failures(3)).toEqual([]);
  });
});

describe('endpoints of one identity', () => {
  /** Three endpoints that policies `p` and `old` select; the kernel has all of the first, nothing of the third. */
  async function three() {
    const made = node();
    const { world, report } = made;
    world.policy('old', 1, [rule('a', undefined, 8)]);
    const places = [1, 2, 3];
    for (const id of places) {
      addressed(world, `a${id}`, `10.0.0.${id}`);
      world.pod(`a${id}`, 'a');
      world.endpoint(id, { pod: { namespace: 'ns', name: `a${id}`, uid: `u-a${id}` } });
    }
    await world.plan();
    const [first] = world.model.states();
    const acknowledged = new Map([...world.model.states()].map((state) => [state.id, state]));
    const second = acknowledged.get(2);
    if (second !== undefined) acknowledged.set(2, { ...second, policies: { ...second.policies, p: 2 } });
    acknowledged.delete(3);
    const says = (more: Partial<RealisedSources>): unknown => {
      const sources = { ...SOURCES, endpoints: { acknowledged: (id: number) => acknowledged.get(id) }, ...more };
      report.take(sources);
      const policies = report.policies(sources);
      const { failures } = report.read();
      return {
        policies: Array.from(policies, ([uid, { generation, endpoints }]) => `${uid} ${generation} at ${endpoints}`),
        failures: failures.map(({ uid, reason, message }) => `${uid} ${reason}: ${message}`),
      };
    };
    return { ...made, first, says };
  }
  const policies = ['old 0 at 3', 'p 0 at 3'];

  it('have their policies as one object, from plan to plan', async () => {
    const { world, first } = await three();
    const shared = (): Set<unknown> => new Set([...world.model.states()].map((state) => state.policies));
    expect(shared()).toEqual(new Set([{ old: 1, p: 3 }]));
    expect(shared().size).toBe(1);
    // Another endpoint comes, and one gets another revision.
    addressed(world, 'a4', '10.0.0.4');
    world.pod('a4', 'a');
    world.endpoint(4, { pod: { namespace: 'ns', name: 'a4', uid: 'u-a4' } });
    world.endpoint(2, { pod: { namespace: 'ns', name: 'a2', uid: 'u-a2' }, ifindex: 999 });
    await world.plan();
    expect([...world.model.states()].every((state) => state.policies === first?.policies)).toBe(true);
    world.policy('p', 4, [rule('a', 'b', 9)]);
    await world.plan();
    expect(shared().size).toBe(1);
    expect(shared()).toEqual(new Set([{ old: 1, p: 4 }]));
  });

  it('are told of together: the generation that all of them have, and of each fault the first', async () => {
    const { says } = await three();
    expect(says({})).toEqual({ policies, failures: [] });
    const broken = { reached: 0, broken: new Error('x') };
    expect(says({ sync: broken })).toEqual({
      policies,
      failures: ['old RoundFailed: endpoint 3: x', 'p RoundFailed: endpoint 2: x (and 1 more)'],
    });
    const faults = (...of: readonly string[]) => of.map((each) => ({ part: 'endpoint', of: each, problem: 'gone' }));
    expect(says({ audit: { faults: () => faults('2', '3') as never } })).toMatchObject({
      failures: ['old', 'p'].map((uid) =>
        expect.stringMatching(`^${uid} EnforcementRemoved: endpoint 2: .*and 1 more`),
      ),
    });
    const failing = [2, 3].map((id) => ({ row: { id }, error: new Error(`no ${id}`) }));
    const writer = { ...SOURCES.writer, endpoints: { failing: () => failing } };
    expect(says({ writer: writer as unknown as RealisedSources['writer'] })).toMatchObject({
      failures: ['old', 'p'].map((uid) => `${uid} KernelRefused: endpoint 2: no 2 (and 1 more)`),
    });
    expect(says({})).toEqual({ policies, failures: [] });
  });
});

describe('a policy whose PeerSet does not come', () => {
  it('holds back what the node has read for 5 s, then only itself', async () => {
    const world = new World();
    let now = 0;
    const { db, tables, model } = world;
    const report = new RealisedReport({
      db,
      tables,
      model,
      policyMode: 'default',
      now: () => now,
    });
    const said = async (atMs: number, version: string, broken?: Error): Promise<readonly unknown[]> => {
      now = atMs;
      using snapshot = db.read();
      const revision = snapshot.revision(tables.policies);
      db.write([tables.policyVersions], (txn) => txn.upsert(tables.policyVersions, { revision, version }));
      await world.plan();
      report.take({ ...SOURCES, sync: { reached: revision, broken } });
      const { policyVersion, failures } = report.read();
      return [policyVersion, failures.map(({ uid, generation, reason }) => `${uid} ${generation} ${reason}`)];
    };
    world.peerSet('a', [256]);
    world.policy('old', 1, [rule('a', undefined, 7)]);
    expect(await said(0, '10')).toEqual(['10', []]);
    world.policy('old', 2, [rule('a', 'b', 7)]);
    world.policy('new', 1, [rule('c', undefined, 7)]);
    expect(await said(0, '12')).toEqual(['10', []]);
    expect(await said(4_999, '12')).toEqual(['10', []]);
    const waiting = ['new 1 PeerSetMissing', 'old 2 PeerSetMissing'];
    expect(await said(5_000, '12')).toEqual(['12', waiting]);
    world.policy('other', 4, [rule('a', undefined, 7)]);
    expect(await said(5_001, '13')).toEqual(['13', waiting]);
    world.peerSet('b', [257]);
    world.peerSet('c', [258]);
    // They have come, but not to the kernel.
    expect(await said(5_002, '14', new Error('full'))).toEqual(['13', []]);
    expect(await said(5_003, '14')).toEqual(['14', []]);
  });
});

it('a policy that cannot be read is a failure from the version on that brought it', async () => {
  const { world, failures } = node();
  const { db, tables } = world;
  world.policy('p', 3, [rule('a', 'b', 7)]);
  await failures(0);
  const row = { uid: 'p', generation: 4, problem: 'spec.rules[0].verdict is 1, not a verdict' };
  let due = false;
  world.model.onPending(() => {
    due = true;
  });
  db.write([tables.unreadPolicies], (txn) => txn.upsert(tables.unreadPolicies, row));
  expect(due).toBe(true);
  expect(await failures(1)).toEqual([
    {
      uid: 'p',
      generation: 4,
      reason: 'PolicyUnreadable',
      message: 'spec.rules[0].verdict is 1, not a verdict; what was read of the policy before stays enforced',
    },
  ]);
  db.write([tables.unreadPolicies], (txn) => txn.delete(tables.unreadPolicies, 'p'));
  expect(await failures(2)).toEqual([]);
});

it('a policy that is gone holds the version back while an endpoint still has it, or is a failure', async () => {
  const { world, report } = node();
  const { db, tables } = world;
  world.policy('gone', 1, [rule('a', undefined, 8)]);
  world.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-a' } });
  await world.plan();
  const had = world.states.get(1);
  db.write([tables.policies], (txn) => txn.delete(tables.policies, 'gone'));
  await world.plan();
  const said = (version: string, more: Partial<RealisedSources>): unknown => {
    const revision = Number(version);
    db.write([tables.policyVersions], (txn) => txn.upsert(tables.policyVersions, { revision, version }));
    report.take({
      ...SOURCES,
      sync: { reached: revision, broken: undefined },
      endpoints: { acknowledged: () => had },
      ...more,
    });
    const { policyVersion, failures } = report.read();
    return [policyVersion, failures.map(({ uid, generation, reason }) => `${uid} ${generation} ${reason}`)];
  };
  const has = { acknowledged: () => world.states.get(1) };
  expect(said('1000', { endpoints: has })).toEqual(['1000', []]);
  expect(said('1001', {})).toEqual(['1000', []]);
  const failing = () => [{ row: { id: 1 }, error: new Error('E2BIG') }];
  const writer = { ...SOURCES.writer, endpoints: { failing } } as unknown as RealisedSources['writer'];
  expect(said('1002', { writer })).toEqual(['1002', ['gone 1 KernelRefused', 'p 3 KernelRefused']]);
  expect(said('1003', { endpoints: has })).toEqual(['1003', []]);
});
