import { ScrapeAccess } from '@weir/kube';
import { flag } from '@weir/process/flags';
import { MetricsServer } from '@weir/process/metrics-server';
import { ConfigError } from './errors.ts';
import { addressFlag, HealthServer, parseAddress } from './health.ts';
import { defineProcessPart } from './parts/contract.ts';

/** Milliseconds that a question about a scraper may take. */
const REVIEW_MS = 5_000;

/** Probes, and metrics. They outlive terms: a replica that stands by is ready for as long as it could lead. */
export const healthPart = defineProcessPart({
  name: 'health',
  flags: {
    healthAddress: flag<string>(
      '--health-address <host:port>',
      'where /healthz, /readyz and /metrics are served; empty: nowhere',
    )
      .default('127.0.0.1:9964')
      .argParser(addressFlag),
    metricsAddress: flag<string | undefined>(
      '--metrics-address <host:port>',
      'serve /metrics at this address by TLS, for authorized clients, instead of at --health-address; with --metrics-cert-path',
    ).argParser(addressFlag),
    metricsCertPath: flag<string | undefined>(
      '--metrics-cert-path <dir>',
      'folder of tls.crt and tls.key, which are read again when they change',
    ),
  },
  // Metrics meant to be secured are not served plain.
  checkFlags: ({ metricsAddress = '', metricsCertPath = '' }) => {
    if ((metricsAddress === '') !== (metricsCertPath === ''))
      throw new ConfigError('--metrics-address and --metrics-cert-path go together: give both, or neither');
  },
  build: (_given, { config, client, operator, log }) => {
    const { healthAddress, metricsAddress = '', metricsCertPath = '' } = config;
    const registry = () => operator.registry();
    const health =
      healthAddress === ''
        ? undefined
        : new HealthServer({
            address: healthAddress,
            ...(metricsAddress === '' ? { registry } : {}),
            unhealthy: () => operator.unhealthy(),
            unready: () => operator.unready(),
            onError: (error) => log.error({ err: error }, 'accepting a probe or scrape failed'),
          });
    const secured = (): MetricsServer => {
      const access = new ScrapeAccess({ client: client.within(REVIEW_MS) });
      return new MetricsServer({
        ...parseAddress(metricsAddress),
        certificates: metricsCertPath,
        registry,
        refusal: (authorization) => access.refusal(authorization),
        log,
      });
    };
    const metrics = metricsAddress === '' ? undefined : secured();
    let port: number | undefined;
    return {
      provides: {
        /** Of probes; undefined while nobody is listened to. */
        get port() {
          return port;
        },
        /** Of metrics by TLS; undefined while nobody is listened to. */
        get metricsPort() {
          return metrics?.port;
        },
      },
      start: async () => {
        port = await health?.start();
        await metrics?.start();
      },
      stop: async () => {
        await metrics?.stop();
        await health?.stop();
      },
    };
  },
});
