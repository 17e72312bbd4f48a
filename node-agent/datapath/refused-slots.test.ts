/** A kernel that has no room for a change of a slot: nothing passes meanwhile that neither the rules before nor the new ones let through. */
import { afterEach, describe, expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import type { ResolvedRule } from '@weir/policy';
import { tableKey } from '../create-tables.ts';
import { Agent, hashOf, type Input, input, Node, PROBES, REMOTE, start } from './testing/transition-world.ts';

const rule = (more: Partial<ResolvedRule>, cookie: number): ResolvedRule => ({
  subject: hashOf('a'),
  direction: 'egress',
  verdict: 'allow',
  defaultDeny: true,
  cookie,
  path: `spec[${cookie}]`,
  ...more,
});
const everybody = rule({ peers: [{ entity: 'all' }] }, 1);
const deny = (...apps: readonly ('b' | 'c' | 'd')[]): ResolvedRule =>
  rule({ verdict: 'deny', peers: apps.map((app) => ({ peerSet: hashOf(app) })) }, 2);

const agents: Agent[] = [];
afterEach(async () => {
  for (const agent of agents.splice(0)) await agent.end();
});

/** Changes meet a kernel that refuses some, until it has room. `peer`: the address that is looked at. */
async function refused(
  before: readonly Input[],
  change: readonly Input[],
  { what = /weir_classes|policy_classes/, peer = REMOTE[2] as string, but = (_: string): boolean => false } = {},
) {
  const node = new Node();
  const history = [...start(), ...before];
  const agent = await Agent.start(node, history);
  agents.push(agent);
  await agent.round();
  node.begin();
  let room = false;
  let refusals = 0;
  node.refuses = (operation, key) => {
    const no = !room && what.test(operation) && !but(Buffer.from(key ?? []).toString('hex'));
    if (no) refusals += 1;
    return no;
  };
  agent.apply(change);
  for (let round = 0; round < 3; round += 1) {
    node.now += 1000;
    await agent.round();
  }
  expect(refusals).toBeGreaterThan(0);
  const meanwhile = [...node.log];
  const give = async (): Promise<void> => {
    room = true;
    for (let round = 0; round < 20 && agent.failing.length > 0; round += 1) {
      node.now += 3000;
      await new Promise((resolve) => setTimeout(resolve, 20));
      await agent.round();
    }
    node.now += 3000;
    await agent.round();
  };
  const settled = async (more: readonly Input[] = []): Promise<Map<number, boolean[]>> => {
    const other = new Node();
    const fresh = await Agent.start(other, [...history, ...change, ...more]);
    await fresh.round();
    await fresh.end();
    return other.verdicts();
  };
  /** Operations after which endpoint 1 let something through to the pod. */
  const passed = (log: readonly Node['log'][number][]): string[] =>
    log.flatMap(({ endpoint, verdicts, operation }) =>
      endpoint === 1 &&
      PROBES.some(({ direction, peer: of }, index) => direction === 'egress' && of === peer && verdicts[index])
        ? [operation]
        : [],
    );
  /** Whether endpoint 1 may send to an address now. */
  const goes = (to: string): boolean =>
    PROBES.some(
      ({ direction, peer: of }, index) => direction === 'egress' && of === to && node.verdicts().get(1)?.[index],
    );
  /** From now on only a new address is refused. */
  const relax = (): void => {
    const there = new Set(Array.from(node.maps.ipcache.keys(), (key) => Buffer.from(key).toString('hex')));
    node.refuses = (operation, key) =>
      !room && operation === 'update ipcache' && !there.has(Buffer.from(key ?? []).toString('hex'));
  };
  return { node, agent, relax, meanwhile, give, settled, passed, goes };
}

/** Peers by the ports that rules allow their sets, and whether another denies them: each combination is a class. */
describe('while peers of a class come and go', () => {
  const ports = [80, 443] as const;
  const members = new Map<string, Set<number>>();
  /** The identity is in the sets of these ports alone, and of those who are denied. */
  const peer = (id: number, opens: readonly number[], denied = false): Input => {
    const sets = new Map<string, boolean>([
      ...ports.map((port) => [`s${port}`, opens.includes(port)] as const),
      ['sd', denied],
    ]);
    return (tables, db) => {
      const labels: Record<string, string> = {
        'k8s:io.cilium.k8s.policy.cluster': 'default',
        'k8s:io.kubernetes.pod.namespace': 'ns',
        'k8s:app': `x${id}`,
      };
      for (const [set, is] of sets) {
        const ids = members.get(set) ?? new Set();
        members.set(set, ids);
        if (is) ids.add(id);
        else ids.delete(id);
        if (is) labels[`k8s:${set}`] = '1';
        const selector = { requirements: [{ key: `k8s:${set}`, operator: 'In' as const, values: ['1'] }] };
        const row = { hash: `hash-${set}`, selector, identities: [...ids], origin: 'cluster' as const };
        db.write([tables.peerSets], (txn) => txn.upsert(tables.peerSets, row));
      }
      const key = tableKey.identity(id);
      db.write([tables.identities], (txn) => {
        if (opens.length === 0 && !denied) txn.delete(tables.identities, key);
        else txn.upsert(tables.identities, { id, labels, labelsKey: labelsKey(labels) });
      });
    };
  };
  const tcp = (port: number) => [{ protocol: 'TCP' as const, from: port, to: port }];
  const rules = [
    ...ports.map((port, at) => rule({ peers: [{ peerSet: `hash-s${port}` }], ports: tcp(port) }, 10 + at)),
    rule({ verdict: 'deny', peers: [{ peerSet: 'hash-sd' }] }, 3),
    rule({ peers: [{ entity: 'all' }], ports: [{ protocol: 'UDP', from: 53, to: 53 }] }, 4),
  ];
  const opened = (node: Node, to: string): number[] =>
    PROBES.flatMap(({ direction, peer: of, port }, index) =>
      direction === 'egress' && of === to && node.verdicts().get(1)?.[index] ? [port] : [],
    );
  const begin = async (): Promise<{
    node: Node;
    agent: Agent;
    after: (ms: number, ...inputs: Input[]) => Promise<void>;
  }> => {
    members.clear();
    const node = new Node();
    const first = [peer(401, [80]), peer(402, [443]), input.remote(0, 401), input.remote(1, 402)];
    const agent = await Agent.start(node, [...start(), ...first, input.policy('p', 1, rules)]);
    agents.push(agent);
    await agent.round();
    const after = async (ms: number, ...inputs: Input[]): Promise<void> => {
      node.now += ms;
      // The clock of retries is another.
      if (agent.failing.length > 0) await new Promise((resolve) => setTimeout(resolve, 150));
      agent.apply(inputs);
      await agent.round();
    };
    await after(5000);
    await after(5000);
    return { node, agent, after };
  };

  it('a class number is given to others though nothing was trimmed meanwhile, as plans were long', async () => {
    const { node, agent, after } = await begin();
    await after(100, input.remote(0, undefined), peer(401, []), peer(403, [80, 443]), input.remote(0, 403));
    await after(2500, peer(404, [80], true), input.remote(2, 404));
    expect(agent.failing).toEqual([]);
    expect(REMOTE.map((to) => opened(node, to))).toEqual([[80, 443, 53], [443, 53], []]);
    expect(node.problems).toEqual([]);
  });

  it('a slot that was refused until its numbers were given to others takes all of it once it may', async () => {
    const { node, agent, after } = await begin();
    node.refuses = (operation) => /weir_classes|policy_classes/.test(operation);
    await after(100, input.remote(0, undefined), peer(401, []), peer(403, [80, 443]));
    await after(2500);
    await after(2500, peer(404, [80], true));
    expect(agent.failing).not.toEqual([]);
    node.refuses = () => false;
    await after(100, input.remote(2, 404));
    for (let round = 0; round < 10 && agent.failing.length > 0; round += 1) await after(1000);
    await after(3000, input.remote(0, 403));
    await after(3000);
    expect(agent.failing).toEqual([]);
    expect(REMOTE.map((to) => opened(node, to))).toEqual([[80, 443, 53], [443, 53], []]);
    expect(node.problems).toEqual([]);
  });

  it('a slot in which somebody has the class still that others are to have is followed by another, which is edited as any', async () => {
    const { node, agent, after } = await begin();
    const slot = (): string | undefined => node.placing().slots.get(1);
    const before = slot();
    node.refuses = (operation) => /weir_classes|policy_classes/.test(operation);
    // The number of 402's class is given to 404's, while the kernel has 402 there still.
    await after(100, peer(402, [80]));
    await after(2500);
    await after(2500, peer(404, [80], true), input.remote(2, 404));
    expect(agent.failing).not.toEqual([]);
    expect(opened(node, REMOTE[2])).toEqual([]);
    node.refuses = () => false;
    for (let round = 0; round < 10 && agent.failing.length > 0; round += 1) await after(1000);
    await after(3000);
    expect(agent.failing).toEqual([]);
    const followed = slot();
    expect(followed).not.toBe(before);
    expect(REMOTE.map((to) => opened(node, to))).toEqual([[80, 53], [80, 53], []]);
    await after(3000, peer(405, [443]), input.remote(0, 405));
    expect(slot()).toBe(followed);
    expect(opened(node, REMOTE[0])).toEqual([443, 53]);
    expect(node.problems).toEqual([]);
  });
});

describe('while the kernel takes no element of a slot', () => {
  const relabel = [input.peerSet('b', [301, 311]), input.identity(311, 'b'), input.remote(2, 311)];

  it('a pod that is denied before and after it gets other labels is denied all the time', async () => {
    const world = await refused([input.policy('p', 1, [everybody, deny('b', 'c')]), input.remote(2, 302)], relabel);
    expect(world.passed(world.meanwhile)).toEqual([]);
    await world.give();
    expect(world.passed(world.node.log)).toEqual([]);
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('a pod that comes, and that a rule denies, is denied', async () => {
    const world = await refused([input.policy('p', 1, [everybody, deny('b', 'c')])], relabel);
    expect(world.passed(world.meanwhile.filter(({ operation }) => /update ipcache/.test(operation)))).toEqual([]);
    await world.give();
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('a pod that the old and the new rules deny is denied, though only the new slot has its labels', async () => {
    const world = await refused(
      [input.policy('p', 1, [everybody, deny('b', 'c')]), input.remote(2, 302)],
      [...relabel, input.policy('p', 2, [everybody, deny('b', 'c', 'd')])],
    );
    expect(world.passed(world.meanwhile)).toEqual([]);
    await world.give();
    expect(world.passed(world.node.log)).toEqual([]);
    expect(world.node.verdicts()).toEqual(await world.settled());
  });
});

describe('a CIDR', () => {
  const outside = '192.0.2.5';
  const cidr = (verdict: 'allow' | 'deny', prefix: string): ResolvedRule =>
    rule({ verdict, peers: [{ cidr: prefix }] }, 2);
  const full = { what: /update ipcache/, peer: outside };

  it('that is denied before and after stays denied while the kernel does not take the new one', async () => {
    const world = await refused(
      [input.policy('p', 1, [everybody, cidr('deny', '192.0.2.0/24')])],
      [input.policy('p', 2, [everybody, cidr('deny', '192.0.2.0/25')])],
      full,
    );
    expect(world.passed(world.meanwhile)).toEqual([]);
    await world.give();
    expect(world.passed(world.node.log)).toEqual([]);
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('that the kernel does not take keeps the rules before in force, those that name it, and no others away', async () => {
    const other = rule({ peers: [{ peerSet: hashOf('b') }] }, 3);
    const world = await refused(
      [input.policy('p', 1, [cidr('allow', '192.0.2.0/24'), other])],
      [
        input.policy('p', 2, [cidr('allow', '192.0.2.0/25')]),
        input.policy('q', 1, [{ ...rule({ peers: [{ peerSet: hashOf('a') }] }, 1), subject: hashOf('b') }]),
      ],
      full,
    );
    expect([world.goes(REMOTE[1]), world.goes(outside)]).toEqual([true, true]);
    const second = PROBES.findIndex(({ direction, peer }) => direction === 'egress' && peer === outside);
    expect(world.node.verdicts().get(2)?.[second]).toBe(false);
    await world.give();
    expect([world.goes(REMOTE[1]), world.goes(outside)]).toEqual([false, true]);
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('that others name for the first time is denied as before while the kernel does not take the slot that denies what is around it', async () => {
    const other = { ...cidr('allow', '192.0.2.0/24'), subject: hashOf('b') };
    const world = await refused(
      [input.policy('p', 1, [everybody, cidr('deny', '192.0.0.0/8')])],
      [input.policy('q', 1, [other])],
      { peer: outside },
    );
    expect(world.passed(world.meanwhile)).toEqual([]);
    await world.give();
    expect(world.passed(world.node.log)).toEqual([]);
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('that is denied is not opened by one around it, for which the kernel has room', async () => {
    const other = { ...cidr('allow', '192.0.2.0/24'), subject: hashOf('b') };
    const outer = { ...cidr('allow', '192.0.0.0/16'), cookie: 3 };
    const world = await refused(
      [input.policy('p', 1, [rule({ peers: [{ peerSet: hashOf('b') }] }, 1)])],
      [input.policy('q', 1, [other])],
      full,
    );
    // Whichever asks first gets the one place that there is.
    const elements = (): number => [...world.node.maps.ipcache.keys()].length;
    const places = elements() + 1;
    world.node.refuses = (operation) => operation === 'update ipcache' && elements() >= places;
    world.agent.apply([input.policy('p', 2, [outer, cidr('deny', '192.0.2.0/24')])]);
    for (let round = 0; round < 15; round += 1) {
      world.node.now += 1000;
      await new Promise((resolve) => setTimeout(resolve, 50));
      await world.agent.round();
      expect(world.goes(outside)).toBe(false);
    }
    world.node.refuses = () => false;
    await world.give();
    expect([world.goes(outside), world.goes('192.0.2.77')]).toEqual([false, false]);
    expect(world.passed(world.node.log)).toEqual([]);
  });

  it('that keeps an endpoint at the rules before opens them to no pod whose labels only the new ones know', async () => {
    const other = '10.0.5.2';
    const world = await refused(
      [input.policy('p', 1, [everybody, deny('b', 'c')]), input.remote(2, 302)],
      [
        ...[input.peerSet('b', [301, 311]), input.identity(311, 'b'), input.remote(2, 311)],
        input.policy('p', 2, [everybody, deny('b', 'c', 'd'), cidr('deny', '198.51.100.0/24')]),
      ],
      // Addresses that the kernel has it takes: those of pods.
      { what: /update ipcache/, but: (key) => key.includes(Buffer.from([10, 0, 1, 3]).toString('hex')) },
    );
    expect(world.passed(world.meanwhile)).toEqual([]);
    // Endpoint 2 has no rules: it goes on with everybody.
    const second = PROBES.findIndex(({ direction, peer }) => direction === 'egress' && peer === REMOTE[2]);
    expect(world.node.verdicts().get(2)?.[second]).toBe(true);
    expect(world.goes(other)).toBe(false);
    // A pod that comes is unknown to the rules before, too.
    world.relax();
    world.agent.apply([input.remote(0, 311)]);
    await world.agent.round();
    expect(world.goes(REMOTE[0])).toBe(false);
    await world.give();
    expect(world.passed(world.node.log)).toEqual([]);
    expect(world.node.overstaying()).toEqual([]);
    expect(world.node.verdicts()).toEqual(await world.settled([input.remote(0, 311)]));
  });

  it('that keeps an endpoint at the rules before leaves no flow to a pod that both deny by now', async () => {
    const world = await refused(
      [input.policy('p', 1, [everybody, deny('c'), cidr('deny', '192.0.2.0/24')])],
      [input.policy('p', 2, [everybody, deny('c', 'd'), cidr('deny', '192.0.2.0/25')])],
      full,
    );
    expect([world.goes(outside), world.goes(REMOTE[1])]).toEqual([false, true]);
    // Addresses that it has the kernel takes again. The number of these labels is one that it knows.
    world.relax();
    world.agent.apply([input.remote(1, 302)]);
    await world.agent.round();
    expect([world.goes(outside), world.goes(REMOTE[1])]).toEqual([false, false]);
    expect(world.node.overstaying()).toEqual([]);
    await world.give();
    expect(world.node.verdicts()).toEqual(await world.settled([input.remote(1, 302)]));
  });
});
