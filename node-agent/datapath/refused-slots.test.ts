/** A kernel that has no room for a change of a slot: nothing passes meanwhile that neither the rules before nor the new ones let through. */
import { afterEach, describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
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

/** A pod at the third address goes from one identity to another, in a kernel that takes no element of a slot until `room`. */
async function relabelled(before: readonly Input[], change: readonly Input[]) {
  const node = new Node();
  const history = [...start(), ...before];
  const agent = await Agent.start(node, history);
  agents.push(agent);
  await agent.round();
  node.begin();
  let room = false;
  let refusals = 0;
  node.refuses = (operation) => {
    const refused = !room && /weir_classes|policy_classes/.test(operation);
    if (refused) refusals += 1;
    return refused;
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
  const settled = async (): Promise<Map<number, boolean[]>> => {
    const other = new Node();
    const fresh = await Agent.start(other, [...history, ...change]);
    await fresh.round();
    await fresh.end();
    return other.verdicts();
  };
  /** Operations after which endpoint 1 let something through to the pod. */
  const passed = (log: readonly Node['log'][number][]): string[] =>
    log.flatMap(({ endpoint, verdicts, operation }) =>
      endpoint === 1 &&
      PROBES.some(({ direction, peer }, index) => direction === 'egress' && peer === REMOTE[2] && verdicts[index])
        ? [operation]
        : [],
    );
  return { node, agent, meanwhile, give, settled, passed };
}

describe('while the kernel takes no element of a slot', () => {
  const relabel = [input.peerSet('b', [301, 311]), input.identity(311, 'b'), input.remote(2, 311)];

  it('a pod that is denied before and after it gets other labels is denied all the time', async () => {
    const world = await relabelled([input.policy('p', 1, [everybody, deny('b', 'c')]), input.remote(2, 302)], relabel);
    expect(world.passed(world.meanwhile)).toEqual([]);
    await world.give();
    expect(world.passed(world.node.log)).toEqual([]);
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('a pod that comes, and that a rule denies, is denied', async () => {
    const world = await relabelled([input.policy('p', 1, [everybody, deny('b', 'c')])], relabel);
    expect(world.passed(world.meanwhile.filter(({ operation }) => /update ipcache/.test(operation)))).toEqual([]);
    await world.give();
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('a pod that the old and the new rules deny is denied, though only the new slot has its labels', async () => {
    const world = await relabelled(
      [input.policy('p', 1, [everybody, deny('b', 'c')]), input.remote(2, 302)],
      [...relabel, input.policy('p', 2, [everybody, deny('b', 'c', 'd')])],
    );
    expect(world.passed(world.meanwhile)).toEqual([]);
    await world.give();
    expect(world.passed(world.node.log)).toEqual([]);
    expect(world.node.verdicts()).toEqual(await world.settled());
  });

  it('others go over to labels that no rule names', async () => {
    const world = await relabelled(
      [input.policy('p', 1, [everybody, deny('b')]), input.remote(2, 303)],
      [...relabel.slice(0, 2), input.remote(0, 311), input.identity(314, undefined as never), input.remote(2, 302)],
    );
    expect(
      world.node
        .verdicts()
        .get(1)
        ?.some((verdict, index) => verdict && PROBES[index]?.peer === REMOTE[2]),
    ).toBe(true);
    await world.give();
  });
});
