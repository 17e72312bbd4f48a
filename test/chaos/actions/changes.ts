/** What users do: edits of policies, labels, pods. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';
import { APPS, edited, NAMESPACES, namespaceLabels, podLabels, rule, TIERS } from '../world/generate.ts';
import { type Element, type Labels, NAMESPACE_KEY, type Rule } from '../world/policy.ts';
import { type Action, action } from './action.ts';

const MOST_POLICIES = 7;
const FEWEST_POLICIES = 2;

async function createPolicy(stage: Stage, random: Random): Promise<void> {
  const namespace = random.chance(0.3) ? undefined : random.pick(NAMESPACES);
  await stage.createPolicy(namespace, rule(random));
}

async function editPolicy(stage: Stage, random: Random): Promise<void> {
  const policy = random.pick(stage.world.wanted());
  const before = policy.versions.newest.rule;
  if (before !== undefined) await stage.editPolicy(policy, edited(random, before));
}

async function deletePolicy(stage: Stage, random: Random): Promise<void> {
  await stage.deletePolicy(random.pick(stage.world.wanted()));
}

/** Two policies exchange their rules. */
async function swapPolicies(stage: Stage, random: Random): Promise<void> {
  const [one, other] = random.some(stage.world.wanted(), 2);
  const [first, second] = [one?.versions.newest.rule, other?.versions.newest.rule];
  if (one === undefined || other === undefined || first === undefined || second === undefined) return;
  await Promise.all([stage.editPolicy(one, second), stage.editPolicy(other, first)]);
}

function otherLabels(random: Random, before: Labels): Labels {
  for (;;) {
    const labels = random.chance(0.5) ? podLabels(random) : { ...before, tier: random.pick(TIERS) };
    if (JSON.stringify(labels) !== JSON.stringify(before)) return labels;
  }
}

async function relabel(stage: Stage, random: Random): Promise<void> {
  const pod = random.pick(stage.world.pods());
  await stage.relabel(pod, otherLabels(random, pod.labels));
}

/** A pod moves from one value to another of a set, while a policy that names both gets a set with a third. */
async function widen(stage: Stage, random: Random): Promise<void> {
  const pod = random.pick(stage.world.pods());
  const { tier = 'x' } = pod.labels;
  const [next = 'y', third = 'z'] = random.chance(0.5)
    ? TIERS.filter((each) => each !== tier)
    : TIERS.filter((each) => each !== tier).reverse();
  const set = (values: readonly string[]): readonly Element[] => [
    { endpoints: [{ matchExpressions: [{ key: 'tier', operator: 'In', values }] }] },
  ];
  const direction = random.pick(['ingress', 'ingress', 'egress'] as const);
  const subject = { matchExpressions: [{ key: 'app', operator: 'In', values: random.some(APPS, 3) } as const] };
  const deny = random.chance(0.7);
  const make = (values: readonly string[]): Rule => ({
    subject,
    allow: deny ? {} : { [direction]: set(values) },
    deny: deny ? { [direction]: set(values) } : {},
    ...(deny ? { defaultDeny: { [direction]: false } } : {}),
  });
  const policy = await stage.createPolicy(pod.namespace, make([tier, next]));
  await sleep(random.between(500, 2500));
  const moved = stage.relabel(pod, { ...pod.labels, tier: next });
  await Promise.all([stage.editPolicy(policy, make([tier, next, third])), moved]);
}

async function relabelNamespace(stage: Stage, random: Random): Promise<void> {
  const name = random.pick(NAMESPACES);
  const before = stage.world.namespaces.get(name) ?? {};
  await stage.relabelNamespace(name, before.team === undefined || random.chance(0.6) ? otherTeam(random, before) : {});
}

function otherTeam(random: Random, before: Labels): Labels {
  for (;;) {
    const labels = namespaceLabels(random);
    if (labels.team !== before.team) return labels;
  }
}

/** A pod goes, and another with other labels comes to its node at once: it may get the same address. */
async function replacePod(stage: Stage, random: Random): Promise<void> {
  const pod = random.pick(stage.world.pods());
  const labels = otherLabels(random, pod.labels);
  const namespace = random.pick(NAMESPACES);
  const atOnce = random.chance(0.3);
  await stage.deletePod(pod);
  if (!atOnce) await stage.gone(pod, 3000);
  await stage.createPod({ namespace, node: pod.node, labels });
}

/** A policy lets in whom a pod's labels name, and nobody else; then another pod comes in its place. */
async function inherit(stage: Stage, random: Random): Promise<void> {
  const pod = random.pick(stage.world.pods());
  const labels = otherLabels(random, pod.labels);
  const known = { matchLabels: pod.labels, matchExpressions: [{ key: NAMESPACE_KEY, operator: 'Exists' }] } as const;
  const subject = { matchExpressions: [{ key: 'app', operator: 'In', values: random.some(APPS, 2) } as const] };
  await stage.createPolicy(undefined, { subject, allow: { ingress: [{ endpoints: [known] }] }, deny: {} });
  await sleep(random.between(500, 2500));
  const operator = random.pick(['freeze', 'kill', 'leave'] as const);
  if (operator !== 'leave') stage.note(`${operator} the operators`);
  if (operator === 'freeze') stage.freezeOperators();
  if (operator === 'kill') await stage.killOperators();
  await stage.deletePod(pod);
  await stage.gone(pod, 3000);
  await stage.createPod({ namespace: pod.namespace, node: pod.node, labels });
}

/** All of a node's pods are replaced: where it has few addresses, one gets what another had. */
async function reuse(stage: Stage, random: Random): Promise<void> {
  const node = random.between(1, stage.cluster.nodes.length);
  for (const pod of stage.podsOf(node)) {
    await stage.deletePod(pod);
    await stage.gone(pod, 3000);
    await stage.createPod({ namespace: pod.namespace, node, labels: otherLabels(random, pod.labels) });
  }
}

async function createPod(stage: Stage, random: Random): Promise<void> {
  // Where there are the fewest: pod CIDRs are small.
  const counts = stage.cluster.nodes.map((_, index) => stage.podsOf(index + 1).length);
  const node = counts.indexOf(Math.min(...counts)) + 1;
  await stage.createPod({ namespace: random.pick(NAMESPACES), node, labels: podLabels(random) });
}

async function deletePod(stage: Stage, random: Random): Promise<void> {
  await stage.deletePod(random.pick(stage.world.pods()));
}

/** More when there are few, none when there are enough. */
const onlyIf =
  (condition: (stage: Stage) => boolean, play: Action['play'], otherwise: Action['play']): Action['play'] =>
  (stage, random) =>
    condition(stage) ? play(stage, random) : otherwise(stage, random);

const policies = (stage: Stage): number => stage.world.wanted().length;

export const changes = (pods: number): readonly Action[] => [
  action('policy-edit', 10, editPolicy, 'policy edited'),
  action(
    'policy-create',
    3,
    onlyIf((stage) => policies(stage) < MOST_POLICIES, createPolicy, deletePolicy),
    'policy created',
  ),
  action(
    'policy-delete',
    3,
    onlyIf((stage) => policies(stage) > FEWEST_POLICIES, deletePolicy, createPolicy),
    'policy deleted',
  ),
  action('policy-swap', 2, swapPolicies, 'policy edited'),
  action('relabel', 6, relabel, 'pod relabelled'),
  action(
    'widen',
    4,
    onlyIf((stage) => policies(stage) < MOST_POLICIES, widen, deletePolicy),
    'pod relabelled',
  ),
  action(
    'inherit',
    3,
    onlyIf((stage) => policies(stage) < MOST_POLICIES, inherit, deletePolicy),
    'pod deleted',
  ),
  action('namespace-labels', 2, relabelNamespace, 'namespace relabelled'),
  action('pod-replace', 5, replacePod, 'pod created', 'pod deleted'),
  action('pod-reuse', 2, reuse, 'address reused'),
  action(
    'pod-create',
    1,
    onlyIf((stage) => stage.world.pods().length <= pods, createPod, deletePod),
    'pod created',
  ),
  action(
    'pod-delete',
    1,
    onlyIf((stage) => stage.world.pods().length >= pods, deletePod, createPod),
    'pod deleted',
  ),
];
