/** How reconcilers fare, as Prometheus metrics, read when scraped. Needs prom-client. */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { Reconciler, ReconcilerMetrics } from './types.ts';

const OPERATIONS = ['update', 'delete', 'prune'] as const;

/** What is read of a reconciler. */
export type Measured = Pick<Reconciler<unknown>, 'name' | 'metrics'>;

/**
 * Registers the metrics of the reconcilers that there are when they are scraped, each of its own name; the names of the
 * metrics begin with `prefix`.
 */
export function registerMetrics(
  reconcilers: () => readonly Measured[],
  registry: Registry,
  prefix = 'reconciler',
): void {
  const registers = [registry];
  const gauge = (name: string, help: string, value: (metrics: ReconcilerMetrics) => number): void => {
    new Gauge({
      name: `${prefix}_${name}`,
      help,
      labelNames: ['reconciler'] as const,
      registers,
      collect() {
        this.reset();
        for (const each of reconcilers()) this.set({ reconciler: each.name }, value(each.metrics()));
      },
    });
  };
  gauge('lag', 'Revisions of the table that the target has not been asked for yet.', ({ lag }) => lag);
  gauge('running', 'Operations that have not ended.', ({ running }) => running);
  gauge('failing', 'Rows that the target has refused and not acknowledged since.', ({ failing }) => failing);
  const counter = (
    name: string,
    help: string,
    value: (of: ReconcilerMetrics['update']) => readonly [string, number][],
  ) =>
    new Counter({
      name: `${prefix}_${name}`,
      help,
      labelNames: ['reconciler', 'operation', 'result'] as const,
      registers,
      collect() {
        this.reset();
        for (const each of reconcilers()) {
          const metrics = each.metrics();
          for (const operation of OPERATIONS) {
            for (const [result, count] of value(metrics[operation])) {
              this.inc({ reconciler: each.name, operation, result }, count);
            }
          }
        }
      },
    });
  counter('operations_total', 'Rows given to the target, by what came of it; for prune, calls.', ({ done, failed }) => [
    ['done', done],
    ['failed', failed],
  ]);
  counter('operation_seconds_total', 'Time that operations took, summed over calls.', ({ totalMs }) => [
    ['any', totalMs / 1000],
  ]);
}
