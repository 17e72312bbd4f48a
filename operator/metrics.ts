/** Numbers about the operator, for Prometheus. */
import { registerMetrics as registerProcessMetrics } from '@weir/process';
import { Counter, Gauge, type Registry } from 'prom-client';

/** What is counted for as long as the process lives. */
export class Totals {
  readonly #writes = new Counter({
    name: 'weir_operator_api_writes_total',
    help: 'Writes that the API server acknowledged.',
    labelNames: ['verb', 'resource'],
    registers: [],
  });
  readonly #errors = new Counter({
    name: 'weir_operator_errors_total',
    help: 'Failed operations, by component. Each is retried.',
    labelNames: ['component'],
    registers: [],
  });

  register(registry: Registry): void {
    registerProcessMetrics(registry);
    registry.registerMetric(this.#writes);
    registry.registerMetric(this.#errors);
  }

  write(verb: string, resource: string): void {
    this.#writes.inc({ verb, resource });
  }

  error(component: string): void {
    this.#errors.inc({ component });
  }
}

/** Registers `weir_operator_…`, which is read when it is asked for. */
export function gauge(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name: `weir_operator_${name}`,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}
