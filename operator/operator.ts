/**
 * The operator: one assembly after another, for as long as the process lives.
 *
 * Guarantees: loss of leadership ends no process. The assembly that led is taken down, and a new one stands by and competes for
 * the lease; it reads everything anew, because another may have led meanwhile. The health server stays, and calls it ready for as long as it reaches the lease.
 */
import { Outage, ScrapeAccess } from '@weir/kube';
import { MetricsServer } from '@weir/process/metrics-server';
import type { StateDB } from '@weir/statedb';
import { Assembly } from './assembly.ts';
import type { Operator, OperatorOptions } from './contract.ts';
import { HealthServer, parseAddress } from './health.ts';
import { type Metrics, Totals } from './metrics.ts';

export type { Operator, OperatorOptions } from './contract.ts';

/** Milliseconds that a question about a scraper may take. */
const REVIEW_MS = 5_000;

/** Nothing happens before start(). An operator that was stopped is not started again: make a new one. */
export function createOperator(options: OperatorOptions): Operator {
  return new Terms(options);
}

class Terms implements Operator {
  readonly #options: OperatorOptions;
  readonly #totals = new Totals();
  readonly #outage = new Outage();
  readonly #health: HealthServer | undefined;
  readonly #metricsServer: MetricsServer | undefined;
  #healthPort: number | undefined;
  #assembly: Assembly;
  #change: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(options: OperatorOptions) {
    this.#options = options;
    this.#assembly = this.#assemble(false);
    this.#health =
      options.healthAddress === undefined
        ? undefined
        : new HealthServer({
            address: options.healthAddress,
            ...(options.metrics === undefined ? { registry: () => this.metrics.registry } : {}),
            unhealthy: () => this.#assembly.unhealthy,
            unready: () => this.#assembly.unready,
            onError: (error) => options.logger.error({ err: error }, 'a probe or scrape could not be accepted'),
          });
    this.#metricsServer = options.metrics === undefined ? undefined : this.#secured(options.metrics);
  }

  #secured({ address, certificates }: NonNullable<OperatorOptions['metrics']>): MetricsServer {
    const access = new ScrapeAccess({ client: this.#options.client.within(REVIEW_MS) });
    return new MetricsServer({
      ...parseAddress(address),
      certificates,
      registry: () => this.metrics.registry,
      refusal: (authorization) => access.refusal(authorization),
      log: this.#options.logger,
    });
  }

  get db(): StateDB {
    return this.#assembly.db;
  }

  get metrics(): Metrics {
    return this.#assembly.metrics;
  }

  get leading(): boolean {
    return this.#assembly.leading;
  }

  get metricsPort(): number | undefined {
    return this.#metricsServer?.port;
  }

  get healthPort(): number | undefined {
    return this.#healthPort;
  }

  async start(): Promise<void> {
    this.#healthPort = await this.#health?.start();
    await this.#metricsServer?.start();
    await this.#assembly.start();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#change;
    await this.#assembly.stop();
    await this.#metricsServer?.stop();
    await this.#health?.stop();
  }

  ready(): Promise<void> {
    return this.#assembly.ready();
  }

  settled(signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    return this.#assembly.settled(signal);
  }

  #assemble(admitted: boolean): Assembly {
    return new Assembly({
      ...this.#options,
      totals: this.#totals,
      outage: this.#outage,
      admitted,
      onLost: () => {
        this.#change = this.#next().catch((error: unknown) => {
          this.#options.onFatal?.(error instanceof Error ? error : new Error(String(error)));
        });
      },
    });
  }

  async #next(): Promise<void> {
    await this.#assembly.stop();
    if (this.#stopped) return;
    this.#assembly = this.#assemble(true);
    await this.#assembly.start();
  }
}
