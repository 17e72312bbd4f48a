import type { Reader } from '@weir/statedb';
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { DnsQuery, NameGone, Oddity } from './protocol.ts';
import type { FqdnTable } from './types.ts';

/** From half a millisecond to ten seconds. */
const SECONDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export class DnsMetrics {
  readonly #queries = new Counter({
    name: 'weir_agent_dns_queries_total',
    help: 'Questions of pods that the DNS proxy took, by what became of them.',
    labelNames: ['verdict', 'protocol'],
    registers: [],
  });
  readonly #seconds = new Histogram({
    name: 'weir_agent_dns_query_seconds',
    help: 'From a question to its answer, of those that were answered.',
    buckets: SECONDS,
    registers: [],
  });
  readonly #oddities = new Counter({
    name: 'weir_agent_dns_oddities_total',
    help: 'What came to the DNS proxy and is of no question that it judges, by kind.',
    labelNames: ['kind'],
    registers: [],
  });

  readonly #gone = new Counter({
    name: 'weir_agent_dns_addresses_gone_total',
    help: 'Addresses of names that went: expired, forgotten, or evicted for more than may be.',
    labelNames: ['why'],
    registers: [],
  });

  gone({ why }: NameGone): void {
    this.#gone.inc({ why });
  }

  query({ verdict, protocol, micros }: DnsQuery): void {
    this.#queries.inc({ verdict, protocol });
    if (verdict === 'answered') this.#seconds.observe(micros / 1e6);
  }

  oddity(kind: Oddity, count: number): void {
    this.#oddities.inc({ kind }, count);
  }

  register(registry: Registry, read: () => Disposable & Reader, names: FqdnTable): void {
    for (const metric of [this.#queries, this.#seconds, this.#oddities, this.#gone])
      registry.registerMetric(metric as Counter);
    new Gauge({
      name: 'weir_agent_dns_addresses',
      help: 'Addresses that names have for endpoints of this node.',
      registers: [registry],
      collect() {
        using snapshot = read();
        this.set(snapshot.count(names));
      },
    });
  }
}
