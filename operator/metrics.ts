/** Numbers about the operator, for Prometheus. */
import { registerMetrics as registerProcessMetrics } from '@weir/process';
import { Counter, Gauge, Registry } from 'prom-client';

export class Metrics {
  readonly registry = new Registry();
  readonly #writes: Counter;
  readonly #errors: Counter;

  constructor(gauges: Readonly<Record<string, { readonly help: string; readonly read: () => number }>> = {}) {
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
    this.#writes.inc({ verb, resource });
  }

  error(component: string): void {
    this.#errors.inc({ component });
  }
}
