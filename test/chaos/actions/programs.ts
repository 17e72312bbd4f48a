/** Programs that die, hang, or start where they are not told all. */
import { setTimeout as sleep } from 'node:timers/promises';
import { now } from '../clock.ts';
import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';
import { podLabels } from '../world/generate.ts';
import { type Action, action } from './action.ts';
import { AGENT } from './api.ts';

export const anyNode = (stage: Stage, random: Random): number => random.between(1, stage.cluster.nodes.length);

async function killOperators(stage: Stage): Promise<void> {
  stage.note('kill the operators');
  await stage.killOperators();
}

async function freezeOperators(stage: Stage): Promise<void> {
  stage.note('freeze the operators');
  stage.freezeOperators();
}

async function killLeader(stage: Stage): Promise<void> {
  const operator = await stage.cluster.leader();
  if (operator === undefined) return;
  stage.note(`kill operator ${operator}, which leads`);
  await stage.faults.kill({ operator });
  stage.ledger.took('leader killed');
}

/** Longer than another operator takes to lead after the last one was heard of. */
const USURPED_MS = 15_000;

async function relabelOne(stage: Stage, random: Random): Promise<void> {
  const pods = stage.world.pods();
  if (pods.length > 0) await stage.relabel(random.pick(pods), podLabels(random));
}

/** The leader hangs in the middle of its work until another leads, and goes on where it was. */
async function usurpLeader(stage: Stage, random: Random): Promise<void> {
  for (const number of stage.cluster.operators.keys()) stage.faults.revive({ operator: number + 1 });
  const ms = random.pick([0, 20, 100]);
  await relabelOne(stage, random);
  await sleep(ms);
  const operator = await stage.cluster.leader();
  if (operator !== undefined) {
    stage.note(`freeze operator ${operator}, which leads`);
    stage.faults.freeze({ operator });
    const end = now() + USURPED_MS;
    while ((await stage.cluster.leader()) === operator && now() < end) await sleep(50);
    if (now() < end) stage.ledger.took('leader frozen past its lease');
  }
  await relabelOne(stage, random);
  await sleep(random.pick([0, 300, 1500]));
  if (operator === undefined) return;
  stage.note(`operator ${operator} wakes`);
  stage.faults.revive({ operator });
}

async function killAgent(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`kill the agent of node-${node}`);
  await stage.faults.kill({ agent: node });
}

async function freezeAgent(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`freeze the agent of node-${node}`);
  stage.faults.freeze({ agent: node });
}

/** Kinds without which an agent plans no rules. */
const NEEDED = ['resolvedpolicies', 'peersets', 'namespaces', 'ciliumidentities', 'pods', 'nodes'] as const;
/** Longer than an agent takes to learn who has which address. */
const DEAF_MS = 3_000;

/** An agent dies, pods change, and its successor cannot read one kind; then more change. */
async function deafAgent(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  const resource = random.pick(NEEDED);
  stage.note(`kill the agent of node-${node}; its successor cannot list ${resource}`);
  await stage.faults.kill({ agent: node });
  await relabelOne(stage, random);
  stage.faults.add(
    `${resource} cannot be listed`,
    stage.cluster.api.faults.fail(503, { verb: 'list', resource, userAgent: AGENT }),
  );
  stage.world.deaf(now());
  stage.faults.revive({ agent: node });
  await sleep(DEAF_MS);
  await relabelOne(stage, random);
  await sleep(random.pick([0, 500, 1500]));
}

export const PROGRAMS: readonly Action[] = [
  action('operator-kill', 3, killOperators, 'operator killed'),
  action('operator-freeze', 4, freezeOperators, 'operator frozen'),
  action('leader-kill', 2, killLeader, 'leader killed'),
  action('leader-usurp', 2, usurpLeader, 'leader frozen past its lease'),
  action('agent-kill', 4, killAgent, 'agent killed'),
  action('agent-freeze', 4, freezeAgent, 'agent frozen'),
  action('agent-deaf', 2, deafAgent, 'agent killed'),
];
