/**
 * 10,000 edits against an agent and an operator as the images run them: what they weigh before, in, and a minute after, and how long their
 * event loops stand still. Edits are of policies (ports, peers, CIDRs) and of pods' labels.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster } from '../cluster/index.ts';
import type { Program } from '../cluster/process.ts';
import { type Figure, quantile } from './report.ts';
import type { Suite } from './suite.ts';

/** `WEIR_SOAK_EDITS` makes a shorter run. */
const EDITS = Number(process.env.WEIR_SOAK_EDITS ?? 10_000);
const POLICIES = 5;
const PODS = 20;
const SETTLE_SECONDS = 20;
const REST_SECONDS = 60;
/** design.md, section 9. */
const BLOCK_GOAL_MS = 10;
const MB = 2 ** 20;

/** A line of soak-probe.mjs. */
interface Sample {
  readonly at: number;
  readonly rss: number;
  readonly heapTotal: number;
  readonly heapUsed: number;
  readonly external: number;
  readonly arrayBuffers: number;
  /** Seconds of CPU since its start. */
  readonly cpu: number;
  readonly collected: boolean;
  /** Milliseconds that the loop stood still, and of them those that its thread computed. */
  readonly blocks: readonly (readonly [number, number])[];
  /** Milliseconds of each pause of the collector. */
  readonly collections: readonly number[];
}

function policy(index: number, edit: number): object {
  const peer = (index + edit) % POLICIES;
  return {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name: `soak-${index}`, namespace: 'default' },
    spec: {
      endpointSelector: { matchLabels: { app: `app-${index}` } },
      ingress: [
        {
          fromEndpoints: [{ matchLabels: { app: `app-${peer}` } }],
          toPorts: [{ ports: [{ port: String(1000 + (edit % 50)), protocol: 'TCP' }] }],
        },
        { fromCIDR: [`198.18.${edit % 100}.0/24`] },
      ],
    },
  };
}

async function patch(cluster: Cluster, path: string, body: object): Promise<void> {
  const response = await fetch(`${cluster.apiUrl}${path}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/merge-patch+json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`PATCH ${path}: ${response.status} ${await response.text()}`);
  await response.body?.cancel();
}

async function edit(cluster: Cluster, number: number): Promise<void> {
  if (number % 20 === 19) {
    const pod = number % PODS;
    const labels = { app: `app-${pod % POLICIES}`, tier: `t${number % 7}` };
    await patch(cluster, `/api/v1/namespaces/default/pods/soak-${pod}`, { metadata: { labels } });
    return;
  }
  const index = number % POLICIES;
  await patch(
    cluster,
    `/apis/cilium.io/v2/namespaces/default/ciliumnetworkpolicies/soak-${index}`,
    policy(index, number),
  );
}

/** The lines that a program wrote from `from` on, milliseconds since 1970. */
function samples(folder: string, program: string, from: number): readonly Sample[] {
  return readFileSync(join(folder, `${program}.jsonl`), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Sample)
    .filter(({ at }) => at >= from);
}

/** What is retained: the first line after a collection of all garbage, in MB. */
async function retained(folder: string, program: string, { child }: Program): Promise<number> {
  const asked = Date.now();
  child.kill('SIGUSR2');
  for (;;) {
    await sleep(250);
    const found = samples(folder, program, asked).find(({ collected }) => collected);
    if (found !== undefined) return (found.heapUsed + found.external) / MB;
  }
}

function* figures(
  program: string,
  before: readonly Sample[],
  under: readonly Sample[],
  after: readonly Sample[],
): Generator<Figure> {
  const rss = (from: readonly Sample[]): number => (from.at(-1)?.rss ?? Number.NaN) / MB;
  const start = rss(before);
  yield { case: `${program}: memory before`, value: start, unit: 'MB' };
  yield { case: `${program}: memory at most`, value: Math.max(...under.map((each) => each.rss)) / MB, unit: 'MB' };
  yield { case: `${program}: memory at the end of the edits`, value: rss(under), unit: 'MB' };
  yield { case: `${program}: memory ${REST_SECONDS} s later`, value: rss(after), unit: 'MB', goal: 1.15 * start };
  for (const [name, of] of [
    ['heap used', 'heapUsed'],
    ['heap', 'heapTotal'],
    ['external', 'external'],
  ] as const)
    yield {
      case: `${program}: ${name} ${REST_SECONDS} s later`,
      value: (after.at(-1)?.[of] ?? Number.NaN) / MB,
      unit: 'MB',
    };
  const [first, last] = [under[0]?.cpu ?? Number.NaN, under.at(-1)?.cpu ?? Number.NaN];
  yield { case: `${program}: CPU an edit`, value: (1000 * (last - first)) / EDITS, unit: 'ms' };
  const blocks = under.flatMap((each) => each.blocks);
  const computed = blocks.map(([, cpu]) => cpu);
  yield { case: `${program}: longest block`, value: Math.max(0, ...blocks.map(([wall]) => wall)), unit: 'ms' };
  yield {
    case: `${program}: longest block, computing`,
    value: Math.max(0, ...computed),
    unit: 'ms',
    goal: BLOCK_GOAL_MS,
  };
  yield {
    case: `${program}: blocks computing longer than ${BLOCK_GOAL_MS} ms`,
    value: computed.filter((ms) => ms > BLOCK_GOAL_MS).length,
    unit: '',
  };
  const collections = under.flatMap((each) => each.collections);
  yield { case: `${program}: pause of the collector, p99`, value: quantile(collections, 0.99), unit: 'ms' };
  yield { case: `${program}: longest pause of the collector`, value: Math.max(0, ...collections), unit: 'ms' };
}

export const soak: Suite = async function* () {
  const folder = mkdtempSync(join(tmpdir(), 'weir-soak-'));
  process.env.WEIR_SOAK_FOLDER = folder;
  process.env.NODE_OPTIONS = `--import ${join(import.meta.dirname, 'soak-probe.mjs')}`;
  const cluster = await Cluster.start({ nodes: 1 });
  try {
    const programs = [
      ['agent', cluster.node(1).agent],
      ['operator', cluster.operator],
    ] as const;
    await cluster.createPods(
      Array.from({ length: PODS }, (_, index) => ({
        name: `soak-${index}`,
        labels: { app: `app-${index % POLICIES}` },
        node: 1,
      })),
    );
    await cluster.applyObjects(Array.from({ length: POLICIES }, (_, index) => policy(index, 0)));
    const all = Array.from({ length: POLICIES }, (_, index) => `cnp/soak-${index}`);
    await cluster.programmed(...all);
    await sleep(SETTLE_SECONDS * 1000);
    const began = Date.now();
    for (let number = 0; number < EDITS; number += 1) await edit(cluster, number);
    await cluster.programmed(...all);
    const ended = Date.now();
    yield { case: 'edits a second', value: (1000 * EDITS) / (ended - began), unit: '' };
    await sleep(REST_SECONDS * 1000);
    for (const [name, program] of programs) {
      const lines = samples(folder, name, 0);
      yield* figures(
        name,
        lines.filter(({ at }) => at < began),
        lines.filter(({ at }) => at >= began && at <= ended),
        lines.filter(({ at }) => at > ended),
      );
      yield { case: `${name}: retained`, value: await retained(folder, name, program), unit: 'MB' };
    }
  } finally {
    await cluster.stop();
    if (process.env.WEIR_SOAK_KEEP === undefined) rmSync(folder, { recursive: true });
    else console.error(`samples: ${folder}`);
  }
};
