import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { FuzzCluster } from './cluster.ts';
import type { Hostile } from './hostile.ts';
import { differences } from './judge.ts';
import type { Author } from './kinds.ts';
import { type Entry, type Outcome, ofNode } from './outcome.ts';
import { GOING, type HonestPod, POLICIES, WITHHELD } from './story.ts';

/** Seconds that a difference may last: agents report once a second, and the machine may be busy. */
const PATIENCE = 60;

/** What comes of the honest objects alone, at each look. */
export interface Baseline {
  readonly begun: Outcome;
  readonly edited: Outcome;
  readonly restarted: Outcome;
  readonly ended: Outcome;
  /** Rows of the tables of those that run, by name. */
  readonly rows: ReadonlyMap<string, number>;
}

/** Plays the honest part alone. @throws when it does not come to what it must */
export async function baseline(): Promise<Baseline> {
  const cluster = await FuzzCluster.start();
  try {
    const begun = await steady(cluster);
    await cluster.edit();
    const edited = await steady(cluster);
    await cluster.restart();
    const restarted = await steady(cluster);
    await cluster.end();
    await cluster.settle();
    cluster.pass();
    // What nobody has is collected by a timer, of which rest says nothing.
    const ended = await steady(cluster, (outcome) => !isThere(outcome, GOING));
    return { begun, edited, restarted, ended, rows: cluster.rows() };
  } finally {
    await cluster.stop();
  }
}

/** Objects that are there from the first look on; and a crowd that comes in the moment in which others edit, in a cluster with tight limits. */
export interface Hostiles {
  readonly objects: readonly Hostile[];
  readonly crowd?: readonly Hostile[];
}

/**
 * Plays the honest part with the hostile objects beside it, which are there from the first look on, over an edit, a restart of the operator and of an
 * agent, and are gone at the end. `patience`: seconds that a difference may last. Returns what is wrong, in sentences: the first thing that was found.
 */
export async function play(
  author: Author,
  { objects, crowd }: Hostiles,
  alone: Promise<Baseline>,
  patience = PATIENCE,
): Promise<readonly string[]> {
  const cluster = await FuzzCluster.start(crowd !== undefined);
  const look = (base: Outcome, by: Author | 'nobody', rows?: Baseline['rows']): Promise<string[]> =>
    compared(cluster, { base, author: by, rows, patience });
  const settled = (base: Outcome): Promise<string[]> =>
    compared(cluster, { base, author: 'nobody', rows: undefined, patience: PATIENCE });
  try {
    const base = await alone;
    const first = await settled(base.begun);
    if (first.length > 0) return first.map((what) => `without hostile objects: ${what}`);
    const passing: string[] = [];
    cluster.onPlan = (node) => {
      if (passing.length === 0) passing.push(...moment(ofNode(node), base.begun, author));
    };
    for (const object of objects) await cluster.write(object);
    const beside = await look(base.begun, author);
    cluster.onPlan = () => undefined;
    if (beside.length + passing.length > 0) return [...beside, ...passing.map((what) => `for a moment: ${what}`)];

    if (crowd === undefined) await cluster.edit();
    const late = crowd === undefined ? [] : await cluster.editAmid(crowd);
    if (late.length > 0) return late;
    const edited = await look(base.edited, author);
    if (edited.length > 0) return edited.map((what) => `after edits of others: ${what}`);

    await cluster.restart();
    const restarted = await look(base.restarted, author);
    if (restarted.length > 0) return restarted.map((what) => `after a restart: ${what}`);

    await cluster.clear();
    await cluster.end();
    // Nobody has an identity any more, and only then does its time run out.
    await cluster.settle();
    cluster.pass();
    const ended = await look(base.ended, 'nobody', base.rows);
    return ended.map((what) => `after the hostile objects have gone: ${what}`);
  } finally {
    await cluster.stop();
  }
}

/** Waits until everything is as without the hostile objects, for as long as it may take. */
async function compared(
  cluster: FuzzCluster,
  {
    base,
    author,
    rows,
    patience,
  }: {
    readonly base: Outcome;
    readonly author: Author | 'nobody';
    readonly rows: Baseline['rows'] | undefined;
    readonly patience: number;
  },
): Promise<string[]> {
  const failing = await cluster.settle();
  if (failing !== undefined) return [failing, ...(await cluster.health())];
  const end = performance.now() + patience * 1000;
  for (;;) {
    const unwell = await cluster.health();
    if (unwell.length > 0) return unwell;
    const found = [...differences(base, await cluster.outcome(), author), ...leaks(rows, cluster.rows())];
    if (found.length === 0 || performance.now() > end) return found;
    await sleep(50);
  }
}

/** Nothing of others changes while they do nothing, not even until the next plan. */
function moment(now: readonly Entry[], base: Outcome, author: Author): string[] {
  const keys = new Set(now.map(({ key }) => key));
  const same = new Map([...base].filter(([key]) => keys.has(key)));
  return differences(same, new Map(now.map((entry) => [entry.key, entry])), author);
}

/**
 * Numbers of CIDRs: that of one which is also a pod CIDR, or the address of a node or pod, stays for as long as that is there, whatever policies
 * name it.
 */
const KEPT = / localNumbers$/;

/** Whether an honest policy has a row there goes by how fast things went: at most one each. */
const ONE_A_POLICY = / (?:desiredEvents|shownEvents|policiesWaitingForNodes)$/;

/** Tables that have more rows than without the hostile objects. */
function leaks(wanted: ReadonlyMap<string, number> | undefined, now: ReadonlyMap<string, number>): string[] {
  if (wanted === undefined) return [];
  return [...wanted].flatMap(([table, rows]) => {
    const is = now.get(table) ?? 0;
    const most = ONE_A_POLICY.test(table) ? Math.max(rows, POLICIES.length) : rows;
    return is > most && !KEPT.test(table) ? [`table ${table} has ${is} rows, without it ${rows}`] : [];
  });
}

function isThere(outcome: Outcome, { app }: HonestPod): boolean {
  return [...outcome.keys()].some((key) => key.startsWith(`identity k8s:app=${app},`));
}

/** Waits until all is enforced that is to be, nobody has anything to do, and `also` holds. */
async function steady(cluster: FuzzCluster, also: (outcome: Outcome) => boolean = () => true): Promise<Outcome> {
  for (const end = performance.now() + 60_000; ; ) {
    const failing = await cluster.settle();
    const unwell = failing === undefined ? await cluster.health() : [failing];
    const outcome = await cluster.outcome();
    const programmed = [...outcome.values()].filter(({ key, value }) => {
      return key.startsWith('Programmed of ') && (value.status === 'True') !== key.endsWith(WITHHELD);
    });
    if (unwell.length === 0 && programmed.length === POLICIES.length && also(outcome)) return outcome;
    if (unwell.length > 0 || performance.now() > end)
      throw new Error(
        `the honest part is not steady: ${inspect(unwell.length > 0 ? unwell : [...outcome.values()], { depth: 5 })}`,
      );
    await sleep(50);
  }
}
