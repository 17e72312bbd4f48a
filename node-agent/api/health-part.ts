import { createKubeClient, ScrapeAccess } from '@weir/kube';
import { flag, type HostPort, hostPort, path } from '@weir/process/flags';
import { MetricsServer } from '@weir/process/metrics-server';
import { ConfigError } from '../config/errors.ts';
import { VERSION } from '../config/version.ts';
import { corePart } from '../core/part.ts';
import { definePart } from '../parts/contract.ts';
import { HealthServer } from './health-server.ts';
import { createMetrics } from './metrics.ts';
import { agentStatus } from './status-routes.ts';

/** How long a question about a scraper may take, in milliseconds. */
const REVIEW_MS = 5000;

/** Probes and metrics over TCP. */
export const healthPart = definePart({
  name: 'health',
  needs: { core: corePart },
  flags: {
    healthAddress: flag<HostPort | undefined>(
      '--health-address <host:port>',
      'serve /healthz, /readyz and /metrics at this address',
    ).argParser(hostPort),
    metricsAddress: flag<HostPort | undefined>(
      '--metrics-address <host:port>',
      'serve /metrics at this address instead of --health-address',
    ).argParser(hostPort),
    metricsCertPath: flag<string | undefined>(
      '--metrics-cert-path <dir>',
      'folder of tls.crt and tls.key, which are read again when they change: /metrics is served by TLS, to who may get it; with --metrics-address',
    ).argParser(path),
  },
  checkFlags: ({ kubernetes, metricsAddress, metricsCertPath }) => {
    if (metricsCertPath === undefined) return;
    if (metricsAddress === undefined)
      throw new ConfigError('--metrics-cert-path needs --metrics-address: give the address for metrics by TLS');
    if (!kubernetes)
      throw new ConfigError(
        '--metrics-cert-path and --no-kubernetes exclude each other: Kubernetes says who may get metrics',
      );
  },
  build: ({ core }, { config, command, agent, log }) => {
    // Who cleans up serves nothing, and need not reach the API server.
    if (command === 'cleanup') return undefined;
    const { kubeconfig, healthAddress, metricsAddress, metricsCertPath } = config;
    const registry = createMetrics({ core, version: VERSION });
    const ready = (): { ok: boolean; message: string } => {
      const { state, msg } = agentStatus({ core, agent });
      return { ok: state === 'Ok', message: msg };
    };
    const health = { core, ready, idle: () => agent.idle() };
    const apart = metricsAddress === undefined ? { metrics: registry } : {};
    const servers: { start(): Promise<void>; stop(): Promise<void> }[] = [];
    if (healthAddress !== undefined) servers.push(new HealthServer({ log, ...healthAddress, health, ...apart }));
    if (metricsAddress !== undefined && metricsCertPath === undefined)
      servers.push(new HealthServer({ log, ...metricsAddress, flag: '--metrics-address', metrics: registry }));
    if (metricsAddress !== undefined && metricsCertPath !== undefined) {
      const client = createKubeClient({ kubeconfig, userAgent: `weir-agent/${VERSION}` });
      const access = new ScrapeAccess({ client: client.within(REVIEW_MS) });
      const server = new MetricsServer({
        ...metricsAddress,
        certificates: metricsCertPath,
        registry: () => registry,
        refusal: (authorization) => access.refusal(authorization),
        log,
      });
      servers.push({
        start: () => server.start(),
        stop: async () => {
          await server.stop();
          client.close();
        },
      });
    }
    const started: (typeof servers)[number][] = [];
    return {
      start: async () => {
        agent.metrics(registry);
        for (const server of servers) {
          await server.start();
          started.push(server);
        }
      },
      stop: async () => {
        for (const server of started.splice(0).reverse()) await server.stop();
      },
    };
  },
});
