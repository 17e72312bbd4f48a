/** Numbers about the operator, for Prometheus. */
import { registerMetrics as registerProcessMetrics } from '@weir/process';
import { Counter, Gauge, Registry } from 'prom-client';

/** What is counted for as long as the process lives. */
export class Totals {
  readonly registry = new Registry();
  readonly #writes: Counter;
  readonly #errors: Counter;

  constructor() {
    registerProcessMetrics(this.registry);
    this.#writes = new Counter({
      name: 'weir_operator_api_writes_total',
      help: 'Writes that the API server acknowledged.',
      labelNames: ['verb', 'resource'],
      registers: [this.registry],
    });
    this.#errors = new Counter({
      name: 'weir_operator_errors_total',
      help: 'Failed operations, by component. Each is retried.',
      labelNames: ['component'],
      registers: [this.registry],
    });
  }

  write(verb: string, resource: string): void {
    this.#writes.inc({ verb, resource });
  }

  error(component: string): void {
    this.#errors.inc({ component });
  }
}

/** The totals, and numbers about one assembly. */
export class Metrics {
  readonly registry: Registry;
  readonly #totals: Totals;

  constructor(
    totals: Totals,
    gauges: Readonly<Record<string, { readonly help: string; readonly read: () => number }>> = {},
  ) {
    this.#totals = totals;
    this.registry = Registry.merge([totals.registry]);
    for (const [name, { help, read }] of Object.entries(gauges)) {
      new Gauge({
        name: `weir_operator_${name}`,
        help,
        registers: [this.registry],
        collect() {
          this.set(read());
        },
      });
    }
  }

  write(verb: string, resource: string): void {
    this.#totals.write(verb, resource);
  }

  error(component: string): void {
    this.#totals.error(component);
  }
}
