import { compareText } from '@weir/labels';
import fc from 'fast-check';
import { crowds } from './crowds.ts';
import { type Hostile, hostileObjects } from './hostile.ts';
import { AUTHORS, type Author } from './kinds.ts';
import { type Baseline, baseline, type Hostiles, play } from './play.ts';

/** Objects in one cluster, at most. */
const MOST = 120;
/** Seconds that a difference may last while a smaller case is looked for. */
const LESS_PATIENCE = 6;

export interface FuzzOptions {
  readonly seed: number;
  /** Objects to write, at least. */
  readonly count: number;
  /** Seconds to look for a smaller case once one was found. */
  readonly shrinkSeconds?: number;
  /** Default: played again. */
  readonly alone?: Promise<Baseline>;
  readonly log?: (line: string) => void;
  readonly signal?: AbortSignal;
}

export interface Finding {
  readonly author: Author;
  readonly seed: number;
  /** What is wrong, in sentences. */
  readonly what: readonly string[];
  /** The fewest objects that are known to bring it about, in their order. */
  readonly objects: readonly Hostile[];
}

export interface FuzzReport {
  readonly seed: number;
  readonly count: number;
  /** How many objects, by `author: kind`. */
  readonly made: Readonly<Record<string, number>>;
  readonly findings: readonly Finding[];
}

/** Clusters of each author in turn, every other time with crowds, until there were so many objects, or something was found. */
export async function fuzz({
  seed,
  count,
  shrinkSeconds = 120,
  alone = baseline(),
  log,
  signal,
}: FuzzOptions): Promise<FuzzReport> {
  const made = new Map<string, number>();
  const findings: Finding[] = [];
  let written = 0;
  for (let round = seed; written < count && findings.length === 0 && signal?.aborted !== true; round += 1) {
    const most = Math.min(MOST, Math.ceil((count - written) / AUTHORS.length));
    const cases = (round - seed) % 2 === 0 ? AUTHORS.map((author) => odd(author, round, most)) : crowded(round);
    for (const { author, objects } of cases) {
      written += objects.length;
      for (const { kind } of objects)
        made.set(`${author}: ${kind.name}`, (made.get(`${author}: ${kind.name}`) ?? 0) + 1);
    }
    // One waits while the other works.
    const found = await Promise.all(cases.map((each) => search(each, { seed: round, shrinkSeconds }, alone)));
    findings.push(...found.filter((finding) => finding !== undefined));
    log?.(`seed ${round}: ${written} of ${count} objects, ${findings.length} findings`);
  }
  return { seed, count: written, made: Object.fromEntries([...made].sort(([a], [b]) => compareText(a, b))), findings };
}

/** What one author writes in one cluster. */
interface Attempt {
  readonly author: Author;
  readonly objects: readonly Hostile[];
  readonly hostiles: (some: readonly Hostile[]) => Hostiles;
}

function odd(author: Author, seed: number, most: number): Attempt {
  const [objects = []] = fc.sample(hostileObjects(author, { min: most, max: most }), { seed, numRuns: 1 });
  return { author, objects, hostiles: (some) => ({ objects: some }) };
}

function crowded(seed: number): Attempt[] {
  return (['tenant', 'node'] as const).map((author) => ({
    author,
    objects: crowds(author, seed),
    hostiles: (crowd) => ({ objects: crowd.filter((_, at) => at % 4 === 0), crowd }),
  }));
}

/** One cluster; and smaller ones, where something is found. */
async function search(
  { author, objects, hostiles }: Attempt,
  { seed, shrinkSeconds }: { readonly seed: number; readonly shrinkSeconds: number },
  alone: Promise<Baseline>,
): Promise<Finding | undefined> {
  const what = await play(author, hostiles(objects), alone);
  if (what.length === 0) return undefined;
  const end = performance.now() + shrinkSeconds * 1000;
  const wrong = (some: readonly Hostile[]) => play(author, hostiles(some), alone, LESS_PATIENCE);
  return { author, seed, ...(await fewest({ what, objects }, end, wrong)) };
}

type Case = Pick<Finding, 'what' | 'objects'>;

/** Leaves out objects that are not needed, first many at once, for as long as there is time. */
async function fewest(
  found: Case,
  end: number,
  wrong: (objects: readonly Hostile[]) => Promise<readonly string[]>,
): Promise<Case> {
  let smallest = found;
  let size = Math.ceil(found.objects.length / 2);
  let at = 0;
  while (performance.now() < end && smallest.objects.length > 1) {
    const objects = smallest.objects.toSpliced(at, size);
    const what = objects.length === 0 ? [] : await wrong(objects);
    if (what.length > 0) smallest = { what, objects };
    else at += size;
    if (at < smallest.objects.length) continue;
    if (size === 1) break;
    at = 0;
    size = Math.ceil(size / 2);
  }
  return smallest;
}
