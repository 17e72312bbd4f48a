/**
 * What each of our programs tells of itself as a process: CPU, memory, collections of garbage, and its event loop. The names are those of
 * prom-client's default metrics, which dashboards know.
 */
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { collectDefaultMetrics, Gauge, type Registry } from 'prom-client';

/**
 * A timer of this step, in milliseconds, shows how late the event loop comes: a stretch of work without a break shows with at most this
 * much less than its length. It takes 0.2 % of a core from an idle program.
 */
const STEP_MS = 20;
const LAG = 'nodejs_eventloop_lag';
/** prom-client's own gauges of the lag have the step in them; its timer is to fire hardly ever. */
const NEVER_MS = 2 ** 31 - 1;

/** Registers the metrics of this process. Those of the event loop speak of the time since they were last read. */
export function registerMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
  for (const name of registry.getMetricsAsArray().map((metric) => metric.name))
    if (name.startsWith(LAG)) registry.removeSingleMetric(name);
  lagGauges(registry, new LagWatch());
  utilisationGauge(registry);
}

/** Delays of the event loop over one stretch of time, in seconds. */
interface Lag {
  readonly samples: number;
  readonly min: number;
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

/** Watches how late the event loop comes to timers: not at all while it is idle. No block is lost between two looks. */
class LagWatch {
  /** What Node records is the time between two of its timers, the step included. */
  readonly #delays = monitorEventLoopDelay({ resolution: STEP_MS });
  /** Longest delay, in milliseconds, before what Node records after the last look: its first timer it does not record. */
  #first = 0;
  #looking: Promise<Lag> | undefined;

  constructor() {
    this.#delays.enable();
    this.#watchFirst();
  }

  /** Delays since the last look. Who looks at once shares one look. */
  look(): Promise<Lag> {
    this.#looking ??= this.#look();
    return this.#looking;
  }

  async #look(): Promise<Lag> {
    // Timers that are due come first, and with them the record of a block that has only just ended.
    await sleep(1);
    const delays = this.#delays;
    const late = (ns: number): number => (delays.count === 0 ? 0 : Math.max(0, ns / 1e9 - STEP_MS / 1000));
    const lag = {
      samples: delays.count,
      min: late(delays.min),
      mean: late(delays.mean),
      p50: late(delays.percentile(50)),
      p90: late(delays.percentile(90)),
      p99: late(delays.percentile(99)),
      max: Math.max(late(delays.max), this.#first / 1000),
    };
    delays.reset();
    this.#looking = undefined;
    this.#watchFirst();
    return lag;
  }

  #watchFirst(): void {
    this.#first = 0;
    const look = (): void => {
      const due = performance.now() + STEP_MS;
      setTimeout(() => {
        this.#first = Math.max(this.#first, performance.now() - due);
        // On a busy machine several of these may come before the first of Node's.
        if (this.#delays.count === 0) look();
      }, STEP_MS).unref();
    };
    look();
  }
}

const HELP: Readonly<Record<keyof Lag, readonly [ending: string, help: string]>> = {
  samples: ['samples', 'Timers that the delays of the event loop since the last scrape were taken from.'],
  min: ['min_seconds', 'Shortest delay of the event loop since the last scrape.'],
  mean: ['mean_seconds', 'Mean delay of the event loop since the last scrape.'],
  p50: ['p50_seconds', 'Median delay of the event loop since the last scrape.'],
  p90: ['p90_seconds', '90th percentile of the delays of the event loop since the last scrape.'],
  p99: ['p99_seconds', '99th percentile of the delays of the event loop since the last scrape.'],
  max: ['max_seconds', 'Longest delay of the event loop since the last scrape.'],
};

function lagGauges(registry: Registry, watch: LagWatch): void {
  for (const key of Object.keys(HELP) as (keyof Lag)[]) {
    const [ending, help] = HELP[key];
    registry.registerMetric(
      new Gauge({
        name: `${LAG}_${ending}`,
        help,
        registers: [],
        async collect() {
          this.set((await watch.look())[key]);
        },
      }),
    );
  }
}

function utilisationGauge(registry: Registry): void {
  let before = performance.eventLoopUtilization();
  registry.registerMetric(
    new Gauge({
      name: 'nodejs_eventloop_utilization_ratio',
      help: 'Share of the time since the last scrape that the event loop did not wait: 0 to 1.',
      registers: [],
      collect() {
        const now = performance.eventLoopUtilization();
        this.set(performance.eventLoopUtilization(now, before).utilization);
        before = now;
      },
    }),
  );
}
