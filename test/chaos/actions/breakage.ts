/** What goes wrong in a cluster. What is broken stays so until the round's end, unless it mends itself before. */
import { existsSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestFilter } from '../../cluster/apiserver/types.ts';
import { now } from '../clock.ts';
import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';
import { podLabels } from '../world/generate.ts';
import { type Action, action } from './action.ts';

const AGENT = 'weir-agent';
const OPERATOR = 'weir-operator';

const anyNode = (stage: Stage, random: Random): number => random.between(1, stage.cluster.nodes.length);

async function killOperator(stage: Stage): Promise<void> {
  stage.note('kill the operator');
  await stage.faults.kill('operator');
}

async function freezeOperator(stage: Stage): Promise<void> {
  stage.note('freeze the operator');
  stage.faults.freeze('operator');
}

async function killAgent(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`kill the agent of node-${node}`);
  await stage.faults.kill(node);
}

async function freezeAgent(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`freeze the agent of node-${node}`);
  stage.faults.freeze(node);
}

/** Requests that a fault of the API server concerns: of everybody, or of one kind. */
function requests(random: Random): RequestFilter {
  const write = { verb: 'apply', userAgent: OPERATOR } as const;
  return random.pick<RequestFilter>([
    { userAgent: AGENT },
    { userAgent: OPERATOR },
    { ...write, resource: 'resolvedpolicies' },
    { ...write, resource: 'resolvedpolicies' },
    { ...write, resource: 'peersets' },
    { ...write, resource: 'ciliumidentities' },
    { ...write, resource: 'ciliumendpointslices' },
    { verb: 'apply', resource: 'nodepolicystatuses', userAgent: AGENT },
    { verb: 'list' },
  ]);
}

async function failRequests(stage: Stage, random: Random): Promise<void> {
  const status = random.pick([500, 503, 503, 429, 409]);
  const filter = requests(random);
  const { userAgent = random.pick([AGENT, OPERATOR]), ...rest } = filter;
  stage.note(`the API server answers ${status} to ${JSON.stringify({ ...rest, userAgent })}`);
  stage.faults.add('API requests fail', stage.cluster.api.faults.fail(status, { ...rest, userAgent }));
}

async function slowRequests(stage: Stage, random: Random): Promise<void> {
  const ms = random.pick([100, 400, 1500]);
  const { userAgent = random.pick([AGENT, OPERATOR]), ...rest } = requests(random);
  stage.note(`the API server takes ${ms} ms for ${JSON.stringify({ ...rest, userAgent })}`);
  stage.faults.add('API requests are slow', stage.cluster.api.faults.delay(ms, { ...rest, userAgent }));
}

const AGENT_WATCHES = [
  'resolvedpolicies',
  'resolvedpolicies',
  'peersets',
  'ciliumidentities',
  'ciliumendpointslices',
  'pods',
  'namespaces',
] as const;
const OPERATOR_WATCHES = [
  'pods',
  'namespaces',
  'ciliumnetworkpolicies',
  'ciliumclusterwidenetworkpolicies',
  'nodepolicystatuses',
] as const;

/** One kind of object is seen late: its watches are cut, and do not come back before the fault ends or its time is over. */
async function lateWatch(stage: Stage, random: Random): Promise<void> {
  const [userAgent, resource] = random.chance(0.7)
    ? ([AGENT, random.pick(AGENT_WATCHES)] as const)
    : ([OPERATOR, random.pick(OPERATOR_WATCHES)] as const);
  const { faults } = stage.cluster.api;
  stage.note(`${userAgent} cannot watch ${resource}`);
  const mend = [
    faults.fail(503, { verb: 'watch', resource, userAgent }),
    faults.fail(503, { verb: 'list', resource, userAgent }),
  ];
  stage.faults.add(`${resource} are seen late`, () => {
    for (const each of mend) each();
  });
  faults.dropWatches({ resource, userAgent });
}

async function dropWatches(stage: Stage, random: Random): Promise<void> {
  const userAgent = random.pick([AGENT, OPERATOR]);
  stage.note(`the watches of ${userAgent} are cut`);
  stage.cluster.api.faults.dropWatches({ userAgent });
}

async function expireWatches(stage: Stage): Promise<void> {
  stage.note('the API server forgets its history and cuts every watch of ours');
  stage.cluster.api.faults.expireWatches();
  for (const userAgent of [AGENT, OPERATOR]) stage.cluster.api.faults.dropWatches({ userAgent });
}

/** What is left of the state disk is written full. */
async function fillDisk(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  const file = join(stage.node(node).stateDir, 'filler');
  stage.note(`fill the state disk of node-${node}`);
  stage.faults.fill(node, file);
  for (let size = 1 << 20; size >= 1; size >>= 1)
    try {
      writeFileSync(file, Buffer.alloc(size), { flag: 'a' });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    }
}

const STATE = ['endpoints.json', 'endpoints.json', 'identities.json'] as const;

/** The agent ends, and finds a file gone, or half of it, when it starts again. */
const spoilState =
  (how: 'lost' | 'torn'): Action['play'] =>
  async (stage, random) => {
    const node = anyNode(stage, random);
    const name = random.pick(STATE);
    stage.note(`kill the agent of node-${node}, and its ${name} is ${how}`);
    await stage.faults.kill(node);
    stage.stateLost(node);
    const path = join(stage.node(node).stateDir, name);
    if (!existsSync(path)) return;
    if (how === 'lost') rmSync(path);
    else truncateSync(path, Math.floor(readFileSync(path).length / 2));
  };

async function removeSocket(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`remove the socket of the agent of node-${node}`);
  rmSync(stage.node(node).socket, { force: true });
}

async function removeLinks(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`remove the pinned links of node-${node}`);
  stage.removeLinks(node);
}

/** Kinds without which an agent concludes nothing. */
const NEEDED = ['resolvedpolicies', 'peersets', 'namespaces', 'ciliumidentities', 'pods', 'nodes'] as const;
/** Longer than an agent waits before it takes back what is not true any more (node-agent/derive/withdrawals.ts). */
const DEAF_MS = 7_000;

/** An agent dies, pods change, and its successor cannot read one kind; then more change. */
async function deafAgent(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  const resource = random.pick(NEEDED);
  stage.note(`kill the agent of node-${node}; its successor cannot list ${resource}`);
  await stage.faults.kill(node);
  const change = async (): Promise<void> => {
    const pods = stage.world.pods();
    if (pods.length > 0) await stage.relabel(random.pick(pods), podLabels(random));
  };
  await change();
  stage.faults.add(
    `${resource} cannot be listed`,
    stage.cluster.api.faults.fail(503, { verb: 'list', resource, userAgent: AGENT }),
  );
  stage.world.deaf(now());
  stage.faults.mend(`agent of ${stage.node(node).name} down`);
  await sleep(DEAF_MS);
  await change();
  await sleep(random.pick([0, 500, 1500]));
}

const MAPS = [
  'endpoint_array',
  'endpoints',
  'ipcache',
  'policy_classes',
  'policy_verdicts',
  'ct4',
  'settings',
] as const;

async function removeMapPin(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  const map = random.pick(MAPS);
  stage.note(`remove the pin of map ${map} of node-${node}`);
  stage.removeMapPin(node, map);
}

export const BREAKAGE: readonly Action[] = [
  action('operator-kill', 3, killOperator),
  action('operator-freeze', 4, freezeOperator),
  action('agent-kill', 4, killAgent),
  action('agent-freeze', 4, freezeAgent),
  action('agent-deaf', 2, deafAgent),
  action('api-fail', 4, failRequests),
  action('api-slow', 3, slowRequests),
  action('watch-late', 5, lateWatch),
  action('watch-drop', 2, dropWatches),
  action('watch-expire', 1, expireWatches),
  action('disk', 2, fillDisk),
  action('state-lost', 1, spoilState('lost')),
  action('state-torn', 1, spoilState('torn')),
  action('socket', 1, removeSocket),
  action('links', 1, removeLinks),
  action('map-pins', 1, removeMapPin),
];
