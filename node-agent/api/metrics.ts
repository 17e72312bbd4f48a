import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { Core } from '../core.ts';

/** Prometheus metrics of the agent, read from the core when scraped. */
export function createMetrics(core: Core): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const labelNames = ['reason', 'direction'] as const;
  new Counter({
    name: 'weir_datapath_packets_total',
    help: 'Packets judged, by reason (forwarded, or why dropped) and direction.',
    labelNames,
    registers: [registry],
    collect() {
      this.reset();
      for (const { reason, direction, packets } of core.metrics()) this.inc({ reason, direction }, Number(packets));
    },
  });
  new Counter({
    name: 'weir_datapath_bytes_total',
    help: 'Bytes judged, by reason and direction.',
    labelNames,
    registers: [registry],
    collect() {
      this.reset();
      for (const { reason, direction, bytes } of core.metrics()) this.inc({ reason, direction }, Number(bytes));
    },
  });
  new Gauge({
    name: 'weir_policy_revision',
    help: 'Revision of the policy input of this agent.',
    registers: [registry],
    collect() {
      this.set(core.policyRevision());
    },
  });
  new Gauge({
    name: 'weir_endpoints',
    help: 'Local endpoints by state.',
    labelNames: ['state'] as const,
    registers: [registry],
    collect() {
      this.reset();
      using snapshot = core.db.read();
      for (const state of snapshot.all(core.tables.endpointStates)) this.inc({ state: state.state });
    },
  });
  new Gauge({
    name: 'weir_policies',
    help: 'Policies known to this agent.',
    registers: [registry],
    collect() {
      using snapshot = core.db.read();
      this.set(snapshot.count(core.tables.policies));
    },
  });
  new Gauge({
    name: 'weir_bpf_map_entries',
    help: 'Entries of each BPF map.',
    labelNames: ['map'] as const,
    registers: [registry],
    collect() {
      for (const map of core.maps()) this.set({ map: map.name }, map.entries);
    },
  });
  return registry;
}
