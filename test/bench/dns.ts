/** Suite `dns`: what the DNS proxy adds to a pod's question, and what it takes of the node. The rules of routing of its rig stand for the datapath. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ToProxy } from '../../node-agent/dns/protocol.ts';
import { POD_ADDRESSES, RESOLVER_ADDRESSES, Rig } from '../../node-agent/dns/proxy/testing/rig.ts';
import { NODE_ENV, NODE_FLAGS } from '../../scripts/images/catalog.ts';
import { run } from '../cluster/run.ts';
import { type Figure, quantile } from './report.ts';
import type { Suite } from './suite.ts';

const [ENDPOINT, LISTENER, PORTS] = [7, 3, 30_000];
const RULES: readonly ToProxy[] = [
  { type: 'endpoint', endpoint: ENDPOINT, addresses: [POD_ADDRESSES[4]] },
  { type: 'listener', listener: LISTENER, names: ['*'] },
  { type: 'selector', selector: 1, pattern: '**.example.com' },
  { type: 'identity', identity: 0x0100_0001, selectors: [1] },
  { type: 'complete' },
];
/** Nothing redirects what is for the second one: the same way, without the proxy. */
const [PROXIED, DIRECT] = [53, 55];
const ROUNDS = 7;
const QUESTIONS = { 1: 1500, 64: 6000 } as const;
const NAMES = 100;
/** Of issue 42, in microseconds and questions a second. */
const GOALS = { p50: 100, p99: 1000, core: 20_000 };
const TICKS_A_SECOND = 100;

interface Asked {
  readonly count: number;
  readonly seconds: number;
  readonly lost: number;
  readonly early: number;
  readonly least: number;
  readonly p50: number;
  readonly p99: number;
}

interface Load {
  readonly inFlight: 1 | 64;
  readonly to?: number;
  /** Questions a second; none: as soon as there is room. */
  readonly rate?: number;
  /** Each socket asks again. */
  readonly kept?: boolean;
  /** The first of names that nobody has asked for. */
  readonly fresh?: number;
  readonly count?: number;
  /** `m`: ten addresses a name. */
  readonly prefix?: 'n' | 'm';
}

class World {
  readonly rig = new Rig('bench', { flags: NODE_FLAGS, env: NODE_ENV });
  readonly #folder = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  readonly #program = join(this.#folder, 'dns');
  #firstPort = 0;
  #resolver: ChildProcess | undefined;
  #agent: Socket | undefined;

  async start(...flags: readonly string[]): Promise<void> {
    await run('gcc', ['-O2', '-o', this.#program, join(import.meta.dirname, 'dns.c')]);
    this.#firstPort = this.rig.redirect(ENDPOINT, LISTENER);
    for (let port = 1; port < PORTS; port += 1) this.rig.redirect(ENDPOINT, LISTENER);
    const resolver = spawn(
      'nsenter',
      [
        `--net=/run/netns/${this.rig.netns('server')}`,
        this.#program,
        'serve',
        RESOLVER_ADDRESSES[4],
        `${PROXIED}`,
        `${DIRECT}`,
      ],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    this.#resolver = resolver;
    await once(createInterface({ input: resolver.stdout }), 'line');
    await this.rig.startProxy(...flags);
    const agent = connect(this.rig.socket);
    this.#agent = agent;
    agent.write(RULES.map((rule) => `${JSON.stringify(rule)}\n`).join(''));
    // All names are said, so the rules are heard soon.
    await new Promise<void>((resolve) => {
      agent.on('data', (data) => {
        if (data.includes('names-complete')) resolve();
      });
    });
    await sleep(200);
  }

  async ask({ inFlight, to = PROXIED, rate = 0, kept = false, fresh, count, prefix = 'n' }: Load): Promise<Asked> {
    const questions = count ?? QUESTIONS[inFlight];
    const names = fresh === undefined ? [0, NAMES] : [fresh, questions];
    const asked = await this.#run(
      'ask',
      POD_ADDRESSES[4],
      this.#firstPort,
      kept ? inFlight : PORTS,
      RESOLVER_ADDRESSES[4],
      to,
      questions,
      inFlight,
      rate,
      prefix,
      ...names,
    );
    if (asked.lost * 100 > asked.count) throw new Error(`${asked.lost} of ${questions} questions have no answer`);
    return asked;
  }

  async row(first: number, count: number): Promise<Asked> {
    return await this.#run(
      'row',
      POD_ADDRESSES[4],
      this.#firstPort,
      RESOLVER_ADDRESSES[4],
      count,
      first,
      join(this.rig.bpf, 'names'),
    );
  }

  /** Of the proxy, in seconds. */
  cpu(): number {
    const fields = readFileSync(`/proc/${this.rig.proxyPid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
  }

  /** Of the proxy, in MB: the least within so many seconds, in which it gives back what it does not need. */
  async memory(seconds: number): Promise<number> {
    let least = Number.POSITIVE_INFINITY;
    for (let look = 0; look < seconds; look += 1) {
      await sleep(1000);
      const status = readFileSync(`/proc/${this.rig.proxyPid}/status`, 'utf8');
      least = Math.min(least, Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1000);
    }
    return least;
  }

  async stop(): Promise<void> {
    this.#agent?.destroy();
    if (this.#resolver?.exitCode === null) {
      const ended = once(this.#resolver, 'exit');
      this.#resolver.kill();
      await ended;
    }
    await this.rig.endProxy('SIGTERM');
    await this.rig.stop();
    rmSync(this.#folder, { recursive: true });
  }

  async #run(...args: readonly (string | number)[]): Promise<Asked> {
    const { stdout } = await run('nsenter', [
      `--net=/run/netns/${this.rig.netns('pod')}`,
      this.#program,
      ...args.map(String),
    ]);
    return JSON.parse(stdout) as Asked;
  }
}

const LOADS: readonly (readonly [string, Load])[] = [
  ['one in flight', { inFlight: 1 }],
  ['500 a second', { inFlight: 64, rate: 500, count: 500 }],
  ['5,000 a second', { inFlight: 64, rate: 5000 }],
  ['64 in flight', { inFlight: 64 }],
  ['64 in flight, ports kept', { inFlight: 64, kept: true }],
];

/** `WEIR_DNS_CASES=64 in flight,memory` picks cases by how their names begin. */
const CASES: readonly (readonly [string, (world: World) => AsyncGenerator<Figure>])[] = [
  ...LOADS.map(([what, load]) => [what, (world: World) => beside(world, what, load)] as const),
  ['new names', fresh],
  ['rows', rows],
];

export const dns: Suite = async function* () {
  const picked = process.env.WEIR_DNS_CASES?.split(',') ?? [''];
  const isPicked = (what: string): boolean => picked.some((each) => what.startsWith(each));
  const cases = CASES.filter(([what]) => isPicked(what));
  if (cases.length > 0) {
    const world = new World();
    try {
      await world.start();
      for (const [, measure] of cases) yield* measure(world);
    } finally {
      await world.stop();
    }
  }
  if (isPicked('memory')) yield* memory();
};

/** Through the proxy and without it, in turn. */
async function* beside(world: World, what: string, load: Load): AsyncGenerator<Figure> {
  const isSaturated = load.inFlight > 1 && load.rate === undefined;
  await world.ask(load);
  const [direct, proxied]: [Asked[], Asked[]] = [[], []];
  let cpu = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    direct.push(await world.ask({ ...load, to: DIRECT }));
    const before = world.cpu();
    proxied.push(await world.ask(load));
    cpu += world.cpu() - before;
  }
  for (const share of ['p50', 'p99'] as const) {
    const peer = median(direct, (asked) => asked[share]);
    const value = median(proxied, (asked) => asked[share]) - peer;
    const figure: Figure = { case: `${what}: added, ${share}`, value, unit: 'us', peer };
    // With 64 in flight at once it is a matter of the rate: 64 at 20,000 a second take 3.2 ms each.
    yield isSaturated ? figure : { ...figure, goal: GOALS[share] };
  }
  if (load.rate !== undefined) return;
  const rate = ({ count, seconds }: Asked): number => count / seconds;
  yield {
    case: `${what}: questions`,
    value: median(proxied, rate),
    unit: '1/s',
    peer: median(direct, rate),
    kind: 'rate',
  };
  if (!isSaturated) return;
  const value = proxied.reduce((sum, { count }) => sum + count, 0) / cpu;
  yield { case: `${what}: questions of one core`, value, unit: '1/s', goal: GOALS.core, kind: 'rate' };
}

/** Each question is for a name that has no row yet. */
async function* fresh(world: World): AsyncGenerator<Figure> {
  const [added, rate]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round += 1) {
    const direct = await world.ask({ inFlight: 64, to: DIRECT, count: 1000 });
    const before = world.cpu();
    const proxied = await world.ask({ inFlight: 64, count: 1000, fresh: 10_000 + 1000 * round });
    added.push(proxied.p50 - direct.p50);
    rate.push(1000 / (world.cpu() - before));
  }
  yield { case: '64 in flight, new names: added, p50', value: quantile(added, 0.5), unit: 'us' };
  yield {
    case: '64 in flight, new names: questions of one core',
    value: quantile(rate, 0.5),
    unit: '1/s',
    kind: 'rate',
  };
}

async function* rows(world: World): AsyncGenerator<Figure> {
  const { early, least, p50, p99 } = await world.row(50_000, 2000);
  yield { case: 'answers before their row, of 2000', value: early, unit: 'answers' };
  yield { case: 'from the row to the answer, least', value: least, unit: 'us' };
  yield { case: 'from the row to the answer, p50', value: p50, unit: 'us' };
  yield { case: 'from the row to the answer, p99', value: p99, unit: 'us' };
}

async function* memory(): AsyncGenerator<Figure> {
  for (const [what, prefix, count, addresses] of [
    ['10,000 names of one address', 'n', 10_000, 1],
    ['10,000 names of ten addresses', 'm', 10_000, 10],
    ['100,000 names of one address', 'n', 100_000, 1],
  ] as const) {
    const world = new World();
    try {
      await world.start('--dns-max-addresses-per-endpoint', '1000000', '--dns-max-addresses', '1000000');
      const before = await world.memory(3);
      await world.ask({ inFlight: 64, fresh: 0, count, prefix });
      const rowCount = Object.keys(world.rig.rows()).length;
      if (rowCount < count * addresses * 0.99) throw new Error(`${rowCount} rows instead of ${count * addresses}`);
      yield { case: `memory with ${what}`, value: await world.memory(40), unit: 'MB', peer: before };
    } finally {
      await world.stop();
    }
  }
}

function median(all: readonly Asked[], figure: (asked: Asked) => number): number {
  return quantile(all.map(figure), 0.5);
}
