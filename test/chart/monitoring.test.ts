/** Alerts and dashboard speak of metrics that the programs have, and Prometheus finds where they are served. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from '@jest/globals';
import type { FencingClient, KubeClient } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { pino } from 'pino';
import { Agent } from '../../node-agent/agent.ts';
import { createMetrics } from '../../node-agent/api/metrics.ts';
import { parseConfig } from '../../node-agent/config/config.ts';
import type { Core } from '../../node-agent/core.ts';
import { AGENT_PARTS } from '../../node-agent/part-list.ts';
import { quiet } from '../../node-agent/testing/fake-core.ts';
import { createOperator } from '../../operator/operator.ts';
import { find, podSpec, type Rendered, render } from './render.ts';

const ON = 'metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true';
const KINDS = ['ServiceMonitor', 'PrometheusRule'];

/** Metrics and their labels as the programs register them; nothing is collected. */
async function registered(): Promise<Map<string, readonly string[]>> {
  const folder = await mkdtemp(join(tmpdir(), 'weir-monitoring-'));
  const kubeconfig = join(folder, 'kubeconfig');
  await writeFile(kubeconfig, JSON.stringify(KUBECONFIG));
  const parsed = parseConfig(
    ['--kubeconfig', kubeconfig, '--cni-install', folder, '--cni-binary', folder],
    AGENT_PARTS,
  );
  if (!('config' in parsed)) throw new Error('printed');
  const agent = createMetrics({ core: { db: createStateDB({ countSnapshots: true }) } as Core, version: '0.0.0' });
  (await Agent.build({ ...parsed, command: 'run', log: quiet, parts: AGENT_PARTS })).view.metrics(agent);
  await rm(folder, { recursive: true });
  const operator = await createOperator({
    client: {} as KubeClient & FencingClient,
    logger: pino({ level: 'silent' }),
    config: { leaderElect: false },
  });
  const all = [...agent.getMetricsAsArray(), ...operator.registry.getMetricsAsArray()] as unknown as readonly {
    readonly name: string;
    readonly labelNames?: readonly string[];
  }[];
  return new Map(all.map(({ name, labelNames = [] }) => [name, labelNames]));
}

/** Of an API server that nobody asks. */
const KUBECONFIG = {
  clusters: [{ name: 'c', cluster: { server: 'http://127.0.0.1:1' } }],
  users: [{ name: 'u', user: {} }],
  contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
  'current-context': 'x',
};

describe('monitoring', () => {
  let rendered: readonly Rendered[];
  let expressions: readonly string[];
  beforeAll(async () => {
    rendered = await render(['--set', ON]);
    const rules = find(rendered, 'PrometheusRule', 'weir').spec as unknown as {
      readonly groups: readonly { readonly rules: readonly { readonly expr: string }[] }[];
    };
    const dashboard = JSON.parse(find(rendered, 'ConfigMap', 'weir-dashboard').data?.['weir.json'] ?? '') as {
      readonly panels: readonly { readonly targets: readonly { readonly expr: string }[] }[];
    };
    expressions = [
      ...rules.groups.flatMap((group) => group.rules.map(({ expr }) => expr)),
      ...dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
    ];
  });

  it('is off by default', async () => {
    const kinds = new Set((await render()).map(({ kind }) => kind));
    for (const kind of KINDS) expect(kinds).not.toContain(kind);
    expect((await render()).some(({ metadata }) => metadata.name.endsWith('-metrics'))).toBe(false);
    expect((await render()).some(({ metadata }) => metadata.name === 'weir-dashboard')).toBe(false);
  });

  it('every metric of alerts and dashboard is one that the programs have', async () => {
    const known = await registered();
    const used = new Set(expressions.flatMap((expr) => expr.match(/\b(?:weir|process|nodejs)_[a-z0-9_]+/g) ?? []));
    expect(used.size).toBeGreaterThan(10);
    // A histogram's own name, without the endings of its series.
    const base = (name: string): string => name.replace(/_(bucket|count|sum)$/, '');
    expect([...used].filter((name) => !known.has(name) && !known.has(base(name)))).toEqual([]);
  });

  it('every label that alerts and dashboard select or group by is one of the metric, or of Prometheus', async () => {
    const known = await registered();
    for (const expr of expressions) {
      const names = expr.match(/\b(?:weir|process|nodejs)_[a-z0-9_]+/g) ?? [];
      const own = names.flatMap((name) => known.get(name) ?? known.get(name.replace(/_bucket$/, '')) ?? []);
      const labels = [
        ...[...expr.matchAll(/\bby \(([a-z, ]+)\)/g)].flatMap(([, list = '']) => list.split(', ')),
        ...[...expr.matchAll(/[{,]([a-z]+)(?:=|!=|=~|!~)"/g)].map(([, label]) => label),
      ];
      for (const label of labels) expect([expr, ...own, 'node', 'job', 'le']).toContain(label);
    }
  });

  it.each([
    ['agent', 'DaemonSet'],
    ['operator', 'Deployment'],
  ])(
    'a ServiceMonitor selects the headless Service of the %s, and that the port where metrics are served',
    (name, kind) => {
      const service = find(rendered, 'Service', `weir-${name}-metrics`) as unknown as {
        readonly metadata: { readonly labels: Readonly<Record<string, string>> };
        readonly spec: {
          readonly clusterIP: string;
          readonly selector: Readonly<Record<string, string>>;
          readonly ports: readonly { readonly name: string; readonly port: number }[];
        };
      };
      const monitor = find(rendered, 'ServiceMonitor', `weir-${name}`).spec as unknown as {
        readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
        readonly endpoints: readonly { readonly port: string }[];
      };
      const workload = find(rendered, kind, `weir-${name}`);
      expect(service.metadata.labels).toMatchObject(monitor.selector.matchLabels);
      expect(monitor.endpoints.map(({ port }) => port)).toEqual(service.spec.ports.map((port) => port.name));
      expect(service.spec.clusterIP).toBe('None');
      expect(workload.metadata.labels).toMatchObject(service.spec.selector);
      const flag = podSpec(workload)?.containers[0]?.args?.find((arg) => arg.startsWith('--health-address='));
      expect(flag).toMatch(new RegExp(`:${service.spec.ports[0]?.port}$`));
    },
  );

  it('ServiceMonitors of secured metrics come with a token, by TLS, to the name that the certificate is for', async () => {
    const endpoints = async (more: string): Promise<unknown[]> => {
      const some = await render(['--set', `metrics.serviceMonitor.enabled=true,metrics.secure.enabled=true${more}`]);
      return ['weir-agent', 'weir-operator'].map(
        (name) => (find(some, 'ServiceMonitor', name).spec as unknown as { endpoints: [object] }).endpoints[0],
      );
    };
    const secured = { scheme: 'https', bearerTokenFile: '/var/run/secrets/kubernetes.io/serviceaccount/token' };
    const ca = { secret: { name: 'weir-metrics', key: 'ca.crt' } };
    expect(await endpoints('')).toMatchObject([
      { ...secured, tlsConfig: { serverName: 'weir-agent-metrics.kube-system.svc', ca } },
      { ...secured, tlsConfig: { serverName: 'weir-operator-metrics.kube-system.svc', ca } },
    ]);
    const own = { tlsConfig: { insecureSkipVerify: true } };
    const given = await endpoints(',metrics.secure.tlsConfig.insecureSkipVerify=true');
    expect(given).toEqual([expect.objectContaining(own), expect.objectContaining(own)]);
  });
});
