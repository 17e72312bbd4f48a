/** The command line, parsed and validated once. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { parseAddress } from './health.ts';

export interface OperatorConfig {
  readonly kubeconfig: string | undefined;
  readonly clusterName: string;
  readonly healthAddress: string | undefined;
  readonly identityGcGraceMs: number;
  readonly identityGcIntervalMs: number;
  readonly leaderElect: boolean;
  readonly leaseNamespace: string;
  readonly leaseName: string;
  /** Unique for this process. */
  readonly identity: string;
  readonly requestTimeoutMs: number;
  readonly logLevel: string;
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** `90s`, `30m`, `1h30m` in milliseconds. Throws InvalidArgumentError. */
export function parseDuration(text: string): number {
  const parts = [...text.matchAll(/([0-9]+)(ms|s|m|h)/g)];
  const total = parts.reduce((sum, [, amount, unit = '']) => sum + Number(amount) * (UNITS[unit] ?? Number.NaN), 0);
  if (parts.length === 0 || parts.map(([part]) => part).join('') !== text || !(total > 0) || total > 2 ** 31 - 1) {
    throw new InvalidArgumentError('Write a duration such as 90s, 30m or 1h30m (at most 24 days).');
  }
  return total;
}

function clusterName(text: string): string {
  if (!/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/.test(text)) {
    throw new InvalidArgumentError('Write at most 32 lower-case letters, digits and hyphens.');
  }
  return text;
}

function address(text: string): string {
  if (text === '') return text;
  try {
    parseAddress(text);
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
  return text;
}

/**
 * Parses the arguments after the program's name. An unknown flag or a bad value ends the process with a message and
 * status 1; `--help` ends it with 0. `exit: false` throws commander's error instead.
 */
export function parseConfig(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  options: { readonly exit?: boolean } = {},
): OperatorConfig {
  const command = new Command('weir-operator')
    .description(
      "The cluster's half of Weir: reads policies and pods, writes what nodes enforce and the policies' status.",
    )
    .option('--kubeconfig <file>', "kubeconfig file (default: the pod's service account)")
    .addOption(
      new Option('--cluster-name <name>', 'name of this cluster, part of every identity')
        .default('default')
        .argParser(clusterName),
    )
    .addOption(
      new Option('--health-address <host:port>', 'where /healthz, /readyz and /metrics are served; empty: nowhere')
        .default(':9964')
        .argParser(address),
    )
    .addOption(
      new Option('--identity-gc-grace <duration>', 'how long an unused identity is kept')
        .default(30 * 60_000, '30m')
        .argParser(parseDuration),
    )
    .addOption(
      new Option('--identity-gc-interval <duration>', 'how often unused identities are looked for')
        .default(15 * 60_000, '15m')
        .argParser(parseDuration),
    )
    .option('--leader-elect', 'write only while holding the lease (default)', true)
    .option('--no-leader-elect', 'write at once; only where there is one replica')
    .option('--leader-namespace <namespace>', 'namespace of the lease (default: $POD_NAMESPACE, or kube-system)')
    .option('--leader-name <name>', 'name of the lease', 'weir-operator')
    .addOption(
      new Option('--request-timeout <duration>', 'how long a request to the API server may take')
        .default(30_000, '30s')
        .argParser(parseDuration),
    )
    .addOption(
      new Option('--log-level <level>', 'least level that is logged')
        .choices(['trace', 'debug', 'info', 'warn', 'error', 'fatal'])
        .default('info'),
    )
    .allowExcessArguments(false);
  if (options.exit === false) command.exitOverride().configureOutput({ writeErr: () => {} });
  command.parse(args, { from: 'user' });
  const given = command.opts<{
    kubeconfig?: string;
    clusterName: string;
    healthAddress: string;
    identityGcGrace: number;
    identityGcInterval: number;
    leaderElect: boolean;
    leaderNamespace?: string;
    leaderName: string;
    requestTimeout: number;
    logLevel: string;
  }>();
  return {
    kubeconfig: given.kubeconfig,
    clusterName: given.clusterName,
    healthAddress: given.healthAddress === '' ? undefined : given.healthAddress,
    identityGcGraceMs: given.identityGcGrace,
    identityGcIntervalMs: given.identityGcInterval,
    leaderElect: given.leaderElect,
    leaseNamespace: given.leaderNamespace ?? env['POD_NAMESPACE'] ?? 'kube-system',
    leaseName: given.leaderName,
    identity: `${env['POD_NAME'] ?? hostname()}-${randomBytes(4).toString('hex')}`,
    requestTimeoutMs: given.requestTimeout,
    logLevel: given.logLevel,
  };
}
