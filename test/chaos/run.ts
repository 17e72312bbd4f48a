/**
 * A run: rounds of breakage and changes under traffic, each of which ends with everything mended, settled, and a while of calm in which
 * every packet has one right fate.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Action } from './actions/action.ts';
import { BREAKAGE } from './actions/breakage.ts';
import { changes } from './actions/changes.ts';
import { now } from './clock.ts';
import { Deck } from './deck.ts';
import type { Account } from './ledger.ts';
import { Random } from './random.ts';
import { settle } from './settle.ts';
import { Stage } from './stage.ts';
import { NAMESPACES, namespaceLabels, podLabels, rule } from './world/generate.ts';
import type { PodModel } from './world/world.ts';

export interface ChaosOptions {
  readonly seed: number;
  /** How long rounds are begun; where each action has not come by then, as long as that takes. Start and end of the cluster come to it. */
  readonly minutes: number;
  /** Default 2. */
  readonly nodes?: number;
  /** Default 2, of which one leads. */
  readonly operators?: number;
  /** Pods at the beginning, and about as many later. Default 6. */
  readonly pods?: number;
  /** Names of actions to leave out. */
  readonly without?: readonly string[];
  /** Names of actions to play; default all. */
  readonly only?: readonly string[];
  /** Seconds in which a mended cluster must have settled. Default 90. */
  readonly patience?: number;
  readonly log?: (line: string) => void;
  /** Ends the run early; what was counted until then is returned. */
  readonly signal?: AbortSignal;
}

export interface ChaosReport extends Account {
  readonly seed: number;
  readonly minutes: number;
  readonly rounds: number;
  readonly kills: number;
  /** Actions that have not come, or have not brought about what they are played for. */
  readonly vain: readonly string[];
}

export class UnknownActionError extends Error {
  readonly code = 'UnknownAction';
  constructor(name: string, known: readonly string[]) {
    super(`no action "${name}"; there are: ${known.join(', ')}`);
    this.name = 'UnknownActionError';
  }
}

const PODS = 6;
const POLICIES = 4;
const CALM_MS = 1500;
/** After so many rounds an action that took no effect will not. */
const MOST_ROUNDS = 30;
/** Pods of each node that are gone before the first round. */
const GUESTS = 3;

function chosen(actions: readonly Action[], { only, without = [] }: ChaosOptions): readonly Action[] {
  return actions.filter(({ name }) => !without.includes(name) && (only === undefined || only.includes(name)));
}

export async function chaos(options: ChaosOptions): Promise<ChaosReport> {
  const {
    seed,
    minutes,
    nodes = 2,
    operators = 2,
    pods = PODS,
    patience = 90,
    log = () => undefined,
    signal,
  } = options;
  const known = [...BREAKAGE, ...changes(pods)].map(({ name }) => name);
  for (const name of [...(options.only ?? []), ...(options.without ?? [])])
    if (!known.includes(name)) throw new UnknownActionError(name, known);
  const random = new Random(seed);
  const decks = {
    breakage: new Deck(chosen(BREAKAGE, options), random),
    change: new Deck(chosen(changes(pods), options), random),
  };
  const stage = await Stage.start({
    nodes,
    operators,
    fewAddresses: pods / nodes <= 3,
    intervalMs: 250,
    stateDiskBytes: 1 << 20,
    log,
    ...(signal === undefined ? {} : { signal }),
  });
  let rounds = 0;
  try {
    await begin(stage, random, pods);
    if (!(await calm(stage, patience)))
      throw new Error(
        `the cluster did not settle before the first round: ${stage.ledger.account.unsettled.join('; ')}`,
      );
    const end = now() + minutes * 60_000;
    const due = (): number => decks.breakage.due.length + decks.change.due.length;
    while (now() < end || (due() > 0 && rounds < MOST_ROUNDS)) {
      rounds += 1;
      await round(stage, random, decks);
      log(`round ${rounds}: mend and settle`);
      stage.faults.heal();
      await calm(stage, patience);
      for (const deck of [decks.breakage, decks.change]) deck.review(stage.effects);
    }
    // What was sent last has the time to arrive.
    await sleep(3500);
  } catch (error) {
    if (signal?.aborted !== true) throw error;
  } finally {
    await stage.stop();
  }
  return {
    seed,
    minutes,
    rounds,
    kills: stage.faults.kills,
    ...stage.ledger.account,
    effects: stage.effects,
    vain: [...decks.breakage.due, ...decks.change.due].map(({ name }) => name),
  };
}

async function begin(stage: Stage, random: Random, pods: number): Promise<void> {
  for (const name of NAMESPACES) await stage.addNamespace(name, namespaceLabels(random));
  for (let count = 0; count < pods; count += 1)
    await stage.createPod({
      namespace: random.pick(NAMESPACES),
      node: (count % stage.cluster.nodes.length) + 1,
      labels: podLabels(random),
    });
  // More of each node go at once: their addresses rest, and come round soon.
  const guests: PodModel[] = [];
  for (let count = 0; count < GUESTS * stage.cluster.nodes.length; count += 1)
    guests.push(
      await stage.createPod({
        namespace: random.pick(NAMESPACES),
        node: (count % stage.cluster.nodes.length) + 1,
        labels: podLabels(random),
      }),
    );
  for (const guest of guests) {
    await stage.runs(guest, 60_000);
    await stage.deletePod(guest);
  }
  for (let count = 0; count < POLICIES; count += 1)
    await stage.createPolicy(random.chance(0.3) ? undefined : random.pick(NAMESPACES), rule(random));
}

interface Decks {
  readonly breakage: Deck;
  readonly change: Deck;
}

async function round(stage: Stage, random: Random, { breakage, change }: Decks): Promise<void> {
  const steps = [
    ...breakage.deal(random.pick([0, 1, 1, 2]), 4),
    ...change.deal(random.between(1, 4), 2),
    ...(random.chance(0.3) ? breakage.deal(1, 0) : []),
    ...(random.chance(0.3) ? change.deal(1, 0) : []),
  ];
  for (const played of steps) {
    stage.ledger.played(played.name);
    await played.play(stage, random);
    stage.check();
    await sleep(random.pick([0, 0, 50, 300, 1000]));
  }
  // Some of it is mended while the rest goes on.
  const hold = random.pick([300, 1000, 2500, 5000]);
  await sleep(hold / 2);
  const [first] = stage.faults.names;
  if (random.chance(0.5) && first !== undefined) {
    stage.note(`mended: ${first}`);
    stage.faults.mend(first);
  }
  await sleep(hold / 2);
  stage.check();
}

/** True when the cluster has settled. */
async function calm(stage: Stage, patience: number): Promise<boolean> {
  stage.note('everything is mended');
  const left = await settle(stage, patience);
  if (left.length > 0) {
    stage.ledger.unsettled(`not settled after ${patience} s: ${left.slice(0, 5).join('; ')}`);
    stage.note(`not settled: ${left.slice(0, 5).join('; ')}`);
    return false;
  }
  stage.note('calm');
  await sleep(CALM_MS);
  return true;
}
