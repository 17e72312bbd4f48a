import { registerMetrics as registerProcessMetrics } from '@weir/process';
import { registerMetrics as registerReconcilerMetrics } from '@weir/reconciler/prometheus';
import { registerMetrics as registerStateMetrics } from '@weir/statedb/prometheus';
import { Counter, Gauge, Registry } from 'prom-client';
import type { Core } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { endpointStatuses } from './context.ts';

export interface MetricsOptions {
  readonly core: Core;
  readonly version: string;
}

/** Prometheus metrics of the agent's core, read when scraped. Parts add theirs. */
export function createMetrics(options: MetricsOptions): Registry {
  const { core } = options;
  const registry = new Registry();
  const registers = [registry];
  registerProcessMetrics(registry);
  const gauge = (name: string, help: string, value: () => number): void => {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(value());
      },
    });
  };
  registerStateMetrics(core.db, registry, 'weir_agent_statedb');
  registerReconcilerMetrics(() => core.reconcilers(), registry, 'weir_agent_reconciler');
  packets(core, registers);
  endpointsAndMaps(core, registers);
  gauge('weir_policy_revision', 'Revision of the policy input of this agent.', () => core.policyRevision());
  gauge(
    'weir_agent_policy_revision_lag',
    'Revisions of the policy input that are not in the kernel yet, at some endpoint.',
    () => Math.max(0, core.policyRevision() - core.realised().acknowledged),
  );
  gauge('weir_policies', 'Policies known to this agent.', () =>
    count(core, (snapshot) => snapshot.count(core.tables.policies)),
  );
  gauge(
    'weir_agent_policy_failures',
    'Policies that the kernel lacks for at least one endpoint of this node.',
    () => new Set(core.realised().failures.map((failure) => failure.uid)).size,
  );
  gauge('weir_agent_healthy', '1 while all checks of the datapath hold.', () => (core.health().ok ? 1 : 0));
  new Counter({
    name: 'weir_agent_enforcement_repairs_total',
    help: 'How often the agent restored enforcement that others had removed, by part.',
    labelNames: ['part'] as const,
    registers,
    collect() {
      this.reset();
      for (const { part, count: times } of core.repairs()) this.inc({ part }, times);
    },
  });
  comparisons(core, registers);
  connections(core, registers);
  new Gauge({
    name: 'weir_agent_build_info',
    help: 'Always 1; the labels say what runs.',
    labelNames: ['version', 'node_version'],
    registers,
  }).set({ version: options.version, node_version: process.versions.node }, 1);
  return registry;
}

function comparisons(core: Core, registers: Registry[]): void {
  const gauge = (name: string, help: string, value: (row: ReturnType<Core['comparisons']>[number]) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ['part'] as const,
      registers,
      collect() {
        this.reset();
        for (const row of core.comparisons()) this.set({ part: row.part }, value(row));
      },
    });
  };
  gauge(
    'weir_agent_comparison_timestamp_seconds',
    'Unix time of the last complete comparison of map contents with what was written, by part.',
    ({ at }) => Date.parse(at) / 1000,
  );
  gauge(
    'weir_agent_comparison_duration_seconds',
    'How long the last complete comparison of map contents took, pauses included, by part.',
    ({ seconds }) => seconds,
  );
}

function connections(core: Core, registers: Registry[]): void {
  new Gauge({
    name: 'weir_agent_connections_spent',
    help: 'Always 1; the labels name an endpoint that has as many connections as it may.',
    labelNames: ['endpoint', 'namespace', 'pod'] as const,
    registers,
    collect() {
      this.reset();
      using snapshot = core.db.read();
      for (const id of core.spentShares().endpoints) {
        const row = snapshot.get(core.tables.endpoints, tableKey.endpoint(id));
        if (row === undefined) continue;
        this.set({ endpoint: `${id}`, namespace: row.pod?.namespace ?? '', pod: row.pod?.name ?? '' }, 1);
      }
    },
  });
  new Gauge({
    name: 'weir_agent_peers_spent',
    help: 'Addresses that have opened as many connections to endpoints as one may, 10 at most; weir status names them.',
    registers,
    collect() {
      this.set(core.spentShares().peers.length);
    },
  });
}

function packets(core: Core, registers: Registry[]): void {
  const counter = (name: string, help: string, value: (row: ReturnType<Core['metrics']>[number]) => bigint): void => {
    new Counter({
      name,
      help,
      labelNames: ['reason', 'direction'] as const,
      registers,
      collect() {
        this.reset();
        for (const row of core.metrics())
          this.inc({ reason: row.reason, direction: row.direction }, Number(value(row)));
      },
    });
  };
  counter(
    'weir_datapath_packets_total',
    'Packets judged, by reason (forwarded, or why dropped) and direction.',
    (row) => row.packets,
  );
  counter('weir_datapath_bytes_total', 'Bytes judged, by reason and direction.', (row) => row.bytes);
}

function endpointsAndMaps(core: Core, registers: Registry[]): void {
  new Gauge({
    name: 'weir_endpoints',
    help: 'Local endpoints by state: ready when the kernel acknowledged what is wanted.',
    labelNames: ['state'] as const,
    registers,
    collect() {
      this.reset();
      using snapshot = core.db.read();
      for (const { state } of endpointStatuses(core, snapshot)) this.inc({ state });
    },
  });
  new Counter({
    name: 'weir_agent_endpoint_regenerations_total',
    help: 'Changes of the wanted kernel state of endpoints.',
    registers,
    collect() {
      this.reset();
      this.inc(count(core, (snapshot) => snapshot.revision(core.tables.endpointStates)));
    },
  });
  const maps = (name: string, help: string, value: (map: ReturnType<Core['maps']>[number]) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ['map'] as const,
      registers,
      collect() {
        this.reset();
        for (const map of core.maps()) this.set({ map: map.name }, value(map));
      },
    });
  };
  maps('weir_bpf_map_entries', 'Entries of each BPF map.', (map) => map.entries);
  maps('weir_agent_bpf_map_capacity', 'Entries for which each BPF map has room.', (map) => map.maxEntries);
}

function count(core: Core, of: (snapshot: ReturnType<Core['db']['read']>) => number): number {
  using snapshot = core.db.read();
  return of(snapshot);
}
