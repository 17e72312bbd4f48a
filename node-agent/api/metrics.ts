import { registerMetrics as registerProcessMetrics } from '@weir/process';
import { registerMetrics as registerReconcilerMetrics } from '@weir/reconciler/prometheus';
import { registerMetrics as registerStateMetrics } from '@weir/statedb/prometheus';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Core } from '../core.ts';
import { endpointStatuses } from './context.ts';
import type { Condition } from './types.ts';

export interface MetricsOptions {
  readonly core: Core;
  readonly version: string;
  readonly kubernetes?: () => Condition;
  readonly cniStatus?: () => Condition;
  readonly routing?: () => { readonly wanted: number; readonly failing: readonly unknown[] };
}

/** The agent's metrics, and where requests are counted. */
export interface AgentMetrics {
  readonly registry: Registry;
  readonly cniCall: (call: { readonly command: string; readonly ok: boolean; readonly seconds: number }) => void;
}

/** An ADD takes some 50 ms; what a runtime waits for at most is a minute and a half. */
const CNI_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 90];

/** Prometheus metrics of the agent, read from its parts when scraped. */
export function createMetrics(options: MetricsOptions): AgentMetrics {
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
    'Policies that an endpoint of this node lacks in the kernel.',
    () => new Set(core.realised().failures.map((failure) => failure.uid)).size,
  );
  gauge('weir_agent_healthy', '1 while all checks of the datapath hold.', () => (core.health().ok ? 1 : 0));
  new Counter({
    name: 'weir_agent_enforcement_repairs_total',
    help: 'What others took away of what is enforced and the agent put back, by part.',
    labelNames: ['part'] as const,
    registers,
    collect() {
      this.reset();
      for (const { part, count: times } of core.repairs()) this.inc({ part }, times);
    },
  });
  const comparisons = (
    name: string,
    help: string,
    value: (row: ReturnType<Core['comparisons']>[number]) => number,
  ): void => {
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
  comparisons(
    'weir_agent_comparison_timestamp_seconds',
    'When what maps hold was last compared completely with what was written into them, by part, as Unix time.',
    ({ at }) => Date.parse(at) / 1000,
  );
  comparisons(
    'weir_agent_comparison_duration_seconds',
    'How long the last complete comparison of what maps hold took, its rests included, by part.',
    ({ seconds }) => seconds,
  );
  const { kubernetes, cniStatus, routing } = options;
  if (kubernetes !== undefined)
    gauge('weir_agent_kubernetes_connected', '1 while the API server answers.', () => (kubernetes().ok ? 1 : 0));
  if (cniStatus !== undefined)
    gauge('weir_agent_cni_installed', '1 while the container runtime of this node uses Weir.', () =>
      cniStatus().ok ? 1 : 0,
    );
  if (routing !== undefined) {
    gauge('weir_agent_routes', "Routes to other nodes' pods that this node is to have.", () => routing().wanted);
    gauge(
      'weir_agent_route_errors',
      "Routes to other nodes' pods that cannot be made.",
      () => routing().failing.length,
    );
  }
  new Gauge({
    name: 'weir_agent_build_info',
    help: 'Always 1; the labels say what runs.',
    labelNames: ['version', 'node_version'],
    registers,
  }).set({ version: options.version, node_version: process.versions.node }, 1);
  const calls = new Histogram({
    name: 'weir_agent_cni_duration_seconds',
    help: 'Requests of the container runtime, by command and result.',
    labelNames: ['command', 'result'] as const,
    buckets: CNI_BUCKETS,
    registers,
  });
  return {
    registry,
    cniCall: ({ command, ok, seconds }) => calls.observe({ command, result: ok ? 'ok' : 'error' }, seconds),
  };
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
    help: 'Changes of what the kernel is to hold for an endpoint.',
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
  maps('weir_agent_bpf_map_capacity', 'Entries that each BPF map can hold.', (map) => map.maxEntries);
}

function count(core: Core, of: (snapshot: ReturnType<Core['db']['read']>) => number): number {
  using snapshot = core.db.read();
  return of(snapshot);
}
