/** What the API server and the way to it do to clients. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestFilter } from '../../cluster/apiserver/types.ts';
import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';
import { podLabels } from '../world/generate.ts';
import { type Action, action } from './action.ts';

export const AGENT = 'weir-agent';
const OPERATOR = 'weir-operator';

const WRITES: readonly RequestFilter[] = [
  { verb: 'apply', resource: 'resolvedpolicies', userAgent: OPERATOR },
  { verb: 'apply', resource: 'resolvedpolicies', userAgent: OPERATOR },
  { verb: 'apply', resource: 'peersets', userAgent: OPERATOR },
  { verb: 'apply', resource: 'ciliumidentities', userAgent: OPERATOR },
  { verb: 'apply', resource: 'ciliumendpointslices', userAgent: OPERATOR },
  { verb: 'apply', resource: 'nodepolicystatuses', userAgent: AGENT },
];

/** Requests that a fault concerns: of one program, or of one kind. */
function requests(random: Random, others: readonly RequestFilter[]): RequestFilter {
  const filter = random.pick([{ userAgent: AGENT }, { userAgent: OPERATOR }, ...WRITES, ...others]);
  return { userAgent: random.pick([AGENT, OPERATOR]), ...filter };
}

async function failRequests(stage: Stage, random: Random): Promise<void> {
  const status = random.pick([500, 503, 503, 429, 409]);
  const filter = requests(random, [{ verb: 'list' }]);
  stage.note(`the API server answers ${status} to ${JSON.stringify(filter)}`);
  stage.faults.add('API requests fail', stage.cluster.api.faults.fail(status, filter));
}

async function slowRequests(stage: Stage, random: Random): Promise<void> {
  const ms = random.pick([100, 400, 1500]);
  const filter = requests(random, [{ verb: 'list' }]);
  stage.note(`the API server takes ${ms} ms for ${JSON.stringify(filter)}`);
  stage.faults.add('API requests are slow', stage.cluster.api.faults.delay(ms, filter));
}

/** Writes are carried out, and whoever wrote is told otherwise, or nothing. */
async function loseAnswers(stage: Stage, random: Random): Promise<void> {
  const how = random.pick([500, 504, 409, 'cut', 'cut'] as const);
  const filter = requests(random, [{ resource: 'leases', userAgent: OPERATOR }, { verb: 'delete' }]);
  stage.note(`the API server carries out ${JSON.stringify(filter)}, and answers ${how}`);
  stage.faults.add('API answers are lost', stage.cluster.api.faults.loseAnswers(how, filter));
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

function oneWatch(random: Random): { readonly resource: string; readonly userAgent: string } {
  return random.chance(0.7)
    ? { userAgent: AGENT, resource: random.pick(AGENT_WATCHES) }
    : { userAgent: OPERATOR, resource: random.pick(OPERATOR_WATCHES) };
}

/** An address may belong to another pod after 30 s: a watch that is later than that knows the wrong one. */
const LATE_MS = 20_000;

function late(stage: Stage, name: string, mend: () => void): void {
  const timer = setTimeout(() => stage.faults.mend(name), LATE_MS).unref();
  stage.faults.add(name, () => {
    clearTimeout(timer);
    mend();
  });
}

/** One kind of object is seen late: its watches are cut, and do not come back before the fault ends. */
async function lateWatch(stage: Stage, random: Random): Promise<void> {
  const { resource, userAgent } = oneWatch(random);
  const { faults } = stage.cluster.api;
  stage.note(`${userAgent} cannot watch ${resource}`);
  const mend = [
    faults.fail(503, { verb: 'watch', resource, userAgent }),
    faults.fail(503, { verb: 'list', resource, userAgent }),
  ];
  late(stage, `${resource} are seen late`, () => {
    for (const each of mend) each();
  });
  faults.dropWatches({ resource, userAgent });
}

/** One kind of object is seen late: its watches are open, and say nothing. */
async function silentWatch(stage: Stage, random: Random): Promise<void> {
  const { resource, userAgent } = oneWatch(random);
  stage.note(`the watches of ${userAgent} for ${resource} are silent`);
  late(stage, `${resource} are silent`, stage.cluster.api.faults.holdWatches({ resource, userAgent }));
}

async function dropWatches(stage: Stage, random: Random): Promise<void> {
  const userAgent = random.pick([AGENT, OPERATOR]);
  stage.note(`the watches of ${userAgent} are cut`);
  stage.cluster.api.faults.dropWatches({ userAgent });
}

async function tearWatches(stage: Stage, random: Random): Promise<void> {
  const userAgent = random.pick([AGENT, OPERATOR]);
  stage.note(`the watches of ${userAgent} end in the middle of their next event`);
  stage.cluster.api.faults.tearWatches({ userAgent });
}

/** Whoever was cut off finds that what has changed meanwhile is forgotten: 410, and everything is listed again. */
async function expireWatches(stage: Stage, random: Random): Promise<void> {
  const { faults } = stage.cluster.api;
  stage.note('the watches are cut, things change, and the API server forgets its history');
  const mend = [AGENT, OPERATOR].map((userAgent) => faults.fail(503, { verb: 'watch', userAgent }));
  for (const userAgent of [AGENT, OPERATOR]) faults.dropWatches({ userAgent });
  const pods = stage.world.pods();
  if (pods.length > 0) await stage.relabel(random.pick(pods), podLabels(random));
  await sleep(random.pick([0, 300]));
  faults.expireWatches();
  for (const each of mend) each();
}

export const API: readonly Action[] = [
  action('api-fail', 4, failRequests, 'request failed'),
  action('api-slow', 3, slowRequests, 'request delayed'),
  action('api-lost', 4, loseAnswers, 'answer lost'),
  action('watch-late', 4, lateWatch, 'watch cut'),
  action('watch-silent', 3, silentWatch, 'event held'),
  action('watch-drop', 1, dropWatches, 'watch cut'),
  action('watch-tear', 2, tearWatches, 'watch torn'),
  action('watch-expire', 2, expireWatches, 'watch expired'),
];
