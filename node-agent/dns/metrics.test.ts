import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { Registry } from 'prom-client';
import { KnownNames } from './known-names.ts';
import { DnsMetrics } from './metrics.ts';

it('counts addresses that went, by reason: what was evicted is said', async () => {
  const db = createStateDB();
  const registry = new Registry();
  const metrics = new DnsMetrics();
  metrics.register(registry, () => db.read(), new KnownNames(db).table);
  const gone = { type: 'name-gone', endpoint: 7, name: 'a.example', address: '192.0.2.1' } as const;
  for (const why of ['evicted', 'evicted', 'expired'] as const) metrics.gone({ ...gone, why });
  const text = await registry.metrics();
  expect(text).toContain('weir_agent_dns_addresses_gone_total{why="evicted"} 2');
  expect(text).toContain('weir_agent_dns_addresses_gone_total{why="expired"} 1');
});
