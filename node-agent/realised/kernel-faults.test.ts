/** What the kernel refuses or loses: which policies say so. */
import { describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import { rule } from '../derive/testing/model-world.ts';
import type { RealisedReport } from './report.ts';
import type { RealisedSources } from './sources.ts';
import { node, SOURCES } from './testing/reported-node.ts';

/** What is said when the kernel refuses to take the addresses, or to let go of them. */
function refused(report: RealisedReport, rows: Readonly<Record<string, number>>, deleted = false): readonly string[] {
  const failing = Object.entries(rows).map(([prefix, identity]) => {
    const source = identity === 6 ? 'remote-node' : 'endpoint';
    return { row: { prefix, identity, source }, deleted, error: new Error('ENOSPC') };
  });
  const writer = { ...SOURCES.writer, ipcache: { failing: () => failing } };
  report.take({ ...SOURCES, writer: writer as unknown as RealisedSources['writer'] });
  return report
    .read()
    .failures.map(({ uid, generation, reason, message }) => `${uid} ${generation} ${reason}: ${message}`);
}

describe('an address that the kernel does not take', () => {
  it('fails the policies that name it, and those of the endpoint that has it', async () => {
    const { world, report } = node();
    world.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-a' } });
    world.endpoint(2, { pod: { namespace: 'ns', name: 'b', uid: 'u-b' }, addresses: ['10.0.0.2', 'fd00::2'] });
    const wide: ResolvedRule = {
      ...rule('a', undefined, 8),
      peers: [{ cidr: '192.0.2.0/24', except: ['192.0.2.7/32'] }],
    };
    world.policy('wide', 2, [wide]);
    world.policy('other', 1, [rule('b', 'a', 9)]);
    await world.plan();
    const failing = (...prefixes: readonly string[]) =>
      refused(report, Object.fromEntries(prefixes.map((prefix) => [prefix, 999])));
    expect(failing('198.51.100.1/32')).toEqual([]);
    expect(failing('198.51.100.1/32', '192.0.2.7/32')).toEqual([
      'wide 2 KernelRefused: the kernel refuses 192.0.2.7/32 (and 1 more on this node): ENOSPC',
    ]);
    for (const own of ['10.0.0.2/32', 'fd00::2/128'])
      expect(failing(own)).toEqual([`other 1 KernelRefused: the kernel refuses ${own}: ENOSPC`]);
    expect(failing()).toEqual([]);
  });

  it('fails the policies that name its pod as a peer, be it by a list, by labels, by this node or by an entity', async () => {
    const { world, report } = node();
    world.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-a' } });
    world.endpoint(2, { pod: { namespace: 'ns', name: 'b', uid: 'u-b' } });
    world.endpoint(3, { labels: { 'k8s:app': 'c' } });
    world.identity(258, 'b', 'v2');
    // Identity 259 is listed, and its labels have not come.
    world.peerSet('b', [257, 259]);
    world.peerSet('c', []);
    world.policy('to-c', 1, [rule('a', 'c', 8)]);
    world.policy('of-b', 1, [rule('b', 'a', 9)]);
    world.policy('inside', 1, [{ ...rule('a', undefined, 10), peers: [{ entity: 'cluster' }] }]);
    world.policy('nodes', 1, [{ ...rule('a', undefined, 11), peers: [{ entity: 'remote-node' }] }]);
    world.policy('anybody', 1, [rule('a', undefined, 12)]);
    await world.plan();
    const says = (prefix: string): string => `KernelRefused: the kernel refuses ${prefix}: ENOSPC`;
    for (const identity of [257, 258, 259])
      expect(refused(report, { '10.0.9.1/32': identity })).toEqual([
        `inside 1 ${says('10.0.9.1/32')}`,
        `p 3 ${says('10.0.9.1/32')}`,
      ]);
    const own = world.model.info(3)?.identity ?? 0;
    expect(refused(report, { '10.0.9.2/32': own })).toEqual([
      `inside 1 ${says('10.0.9.2/32')}`,
      `to-c 1 ${says('10.0.9.2/32')}`,
    ]);
    expect(refused(report, { '192.0.2.9/32': 6 })).toEqual([
      `inside 1 ${says('192.0.2.9/32')}`,
      `nodes 1 ${says('192.0.2.9/32')}`,
    ]);
    expect(refused(report, { '203.0.113.9/32': 2 })).toEqual([]);
  });

  it('fails nothing when it is one that the kernel does not let go of', async () => {
    const { world, report } = node();
    world.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-a' } });
    await world.plan();
    expect(refused(report, { '10.0.9.1/32': 257 })).toHaveLength(1);
    expect(refused(report, { '10.0.9.1/32': 257 }, true)).toEqual([]);
    expect(refused(report, { '10.0.0.1/32': 256 }, true)).toEqual([]);
  });
});

it('rounds that fail acknowledge nothing new', () => {
  const { report } = node();
  const acknowledged = (reached: number, broken?: Error): readonly number[] => {
    report.take({ ...SOURCES, sync: { reached, broken } });
    const realised = report.read();
    return [realised.settled, realised.acknowledged];
  };
  expect(acknowledged(4)).toEqual([4, 4]);
  expect(acknowledged(5, new Error('full'))).toEqual([4, 4]);
  expect(acknowledged(6)).toEqual([6, 6]);
});

it('what somebody took away of an endpoint fails its policies; where none can be looked at, those of all', async () => {
  const { world, report } = node();
  world.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-a' } });
  world.endpoint(2, { pod: { namespace: 'ns', name: 'b', uid: 'u-b' } });
  world.policy('other', 1, [rule('b', 'a', 9)]);
  await world.plan();
  const failing = (...faults: ReturnType<RealisedSources['audit']['faults']>): readonly string[] => {
    report.take({ ...SOURCES, audit: { faults: () => faults } });
    return report.read().failures.map(({ uid, reason, message }) => `${uid} ${reason}: ${message}`);
  };
  expect(failing({ part: 'endpoint', of: '1', problem: 'gone', error: 'EPERM' })).toEqual([
    'p EnforcementRemoved: endpoint 1: gone; it cannot be restored: EPERM',
  ]);
  expect(failing({ part: 'endpoint', of: '?', problem: 'cannot be looked at: EMFILE' })).toEqual([
    'other EnforcementRemoved: endpoint 2: cannot be looked at: EMFILE',
    'p EnforcementRemoved: endpoint 1: cannot be looked at: EMFILE',
  ]);
  expect(failing({ part: 'slot', of: '4', problem: 'gone' })[1]).toBe(
    'p EnforcementRemoved: endpoint 1: policy slot 4: gone',
  );
});
