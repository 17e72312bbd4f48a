/** The command line, parsed and validated once. */
import { hostname } from 'node:os';
import { newId } from '@weir/process/id';
import { Command, InvalidArgumentError, Option } from 'commander';
import { parseAddress } from './health.ts';
import { DEFAULT_LIMITS, type Limits } from './limits.ts';
import { IDENTITIES } from './model/identity-book.ts';
import packageJson from './package.json' with { type: 'json' };

export const VERSION: string = packageJson.version;

interface CommonConfig {
  readonly kubeconfig: string | undefined;
  readonly requestTimeoutMs: number;
  readonly logLevel: string;
}

/** Run the operator. */
export interface OperatorConfig extends CommonConfig {
  readonly command: 'run';
  readonly clusterName: string;
  readonly healthAddress: string | undefined;
  /** Metrics by TLS at an address of their own; undefined: plain at `healthAddress`. */
  readonly metrics: { readonly address: string; readonly certificates: string } | undefined;
  readonly identityGcGraceMs: number;
  readonly identityGcIntervalMs: number;
  readonly limits: Limits;
  readonly leaderElect: boolean;
  readonly leaseNamespace: string;
  readonly leaseName: string;
  /** Unique for this process. */
  readonly identity: string;
}

/** Take Weir out of the cluster. */
export interface UninstallConfig extends CommonConfig {
  readonly command: 'uninstall';
  readonly namespace: string;
  readonly daemonSet: string;
  readonly deployment: string;
  readonly leaseName: string;
  readonly timeoutMs: number;
}

/** Flag, name and meaning of each limit. */
const LIMITS: readonly (readonly [flag: string, name: keyof Limits, what: string])[] = [
  [
    'identities-per-namespace',
    'identitiesPerNamespace',
    `identities of one namespace, of ${IDENTITIES} in the cluster`,
  ],
  [
    'mirror-identities-per-node-and-namespace',
    'mirrorIdentitiesPerNodeAndNamespace',
    'identities that only mirror pods of one node have in one namespace',
  ],
  [
    'mirror-identities-per-node',
    'mirrorIdentitiesPerNode',
    'identities that only mirror pods of one node have, in all namespaces',
  ],
  ['selectors-per-policy', 'selectorsPerPolicy', 'distinct selectors of one policy'],
  ['rules-per-policy', 'rulesPerPolicy', 'rules of one policy: elements of ingress, egress and denies'],
  ['bytes-per-policy', 'bytesPerPolicy', 'bytes of the rules of one policy once it is resolved'],
  ['selectors-per-namespace', 'selectorsPerNamespace', 'selectors of the policies of one namespace'],
  ['bytes-per-namespace', 'bytesPerNamespace', 'bytes of the resolved rules of the policies of one namespace'],
  ['cidrs-per-namespace', 'cidrsPerNamespace', 'CIDRs that the policies of one namespace name, exceptions too'],
  ['matches-per-policy', 'matchesPerPolicy', 'identities that the selectors of one policy match, summed'],
  [
    'matches-per-namespace',
    'matchesPerNamespace',
    'identities that the selectors of the policies of one namespace match, summed',
  ],
];

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

/** Throws InvalidArgumentError. */
function count(text: string): number {
  if (!/^[0-9]{1,9}$/.test(text)) throw new InvalidArgumentError('Write a whole number; 0: no limit.');
  return Number(text);
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

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Parses the arguments after the program's name. An unknown flag or a bad value ends the process with a message and
 * status 2; `--help` and `--version` end it with 0. `exit: false` throws commander's error instead.
 */
export function parseConfig(
  args: readonly string[],
  env: Environment,
  options: { readonly exit?: boolean } = {},
): OperatorConfig | UninstallConfig {
  let parsed: OperatorConfig | UninstallConfig | undefined;
  const done = (config: OperatorConfig | UninstallConfig): void => {
    parsed = config;
  };
  const [command, uninstall] = commands(env, done);
  for (const each of [command, uninstall]) {
    if (options.exit === false) each.exitOverride().configureOutput({ writeErr: () => {}, writeOut: () => {} });
    // commander has printed its own message; help and version are no errors.
    else each.exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : 2));
  }
  command.parse(args, { from: 'user' });
  if (parsed === undefined) throw new InvalidArgumentError('No command was given.');
  return parsed;
}

/** The operator's commands: `run`, which has no name, and `uninstall`. */
export function commands(
  env: Environment,
  done: (config: OperatorConfig | UninstallConfig) => void,
): readonly [run: Command, uninstall: Command] {
  const command = runCommand(env, done);
  const uninstall = command.command('uninstall');
  uninstallCommand(uninstall, env, done);
  return [command, uninstall];
}

function runCommand(env: Environment, done: (config: OperatorConfig) => void): Command {
  const command = new Command('weir-operator')
    .description(
      "The cluster's half of Weir: reads policies and pods, writes what nodes enforce and the policies' status.",
    )
    .version(VERSION)
    // A subcommand's flags are its own, also where they have the same name.
    .enablePositionalOptions()
    .addOption(
      new Option('--cluster-name <name>', 'name of this cluster, part of every identity')
        .default('default')
        .argParser(clusterName),
    )
    .addOption(
      new Option('--health-address <host:port>', 'where /healthz, /readyz and /metrics are served; empty: nowhere')
        .default('127.0.0.1:9964')
        .argParser(address),
    )
    .addOption(
      new Option(
        '--metrics-address <host:port>',
        'serve /metrics there by TLS, to who may get it, and no longer at --health-address; with --metrics-cert-path',
      ).argParser(address),
    )
    .option('--metrics-cert-path <dir>', 'folder of tls.crt and tls.key, which are read again when they change')
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
    .option('--leader-elect', 'write only while holding the lease', true)
    .option('--no-leader-elect', 'write at once; only where there is one replica')
    .option('--leader-namespace <namespace>', 'namespace of the lease (default: $POD_NAMESPACE, or kube-system)')
    .option('--leader-name <name>', 'name of the lease', 'weir-operator')
    .allowExcessArguments(false);
  for (const [flag, name, what] of LIMITS) {
    command.addOption(
      new Option(`--${flag} <count>`, `most ${what}; 0: no limit`).default(DEFAULT_LIMITS[name]).argParser(count),
    );
  }
  return withCommon(command).action((given: RunFlags) => {
    const metrics = metricsOf(given, command);
    done({
      command: 'run',
      ...commonOf(given),
      clusterName: given.clusterName,
      healthAddress: given.healthAddress === '' ? undefined : given.healthAddress,
      metrics,
      identityGcGraceMs: given.identityGcGrace,
      identityGcIntervalMs: given.identityGcInterval,
      limits: {
        identitiesPerNamespace: given.identitiesPerNamespace,
        mirrorIdentitiesPerNodeAndNamespace: given.mirrorIdentitiesPerNodeAndNamespace,
        mirrorIdentitiesPerNode: given.mirrorIdentitiesPerNode,
        selectorsPerPolicy: given.selectorsPerPolicy,
        rulesPerPolicy: given.rulesPerPolicy,
        bytesPerPolicy: given.bytesPerPolicy,
        selectorsPerNamespace: given.selectorsPerNamespace,
        bytesPerNamespace: given.bytesPerNamespace,
        cidrsPerNamespace: given.cidrsPerNamespace,
        matchesPerPolicy: given.matchesPerPolicy,
        matchesPerNamespace: given.matchesPerNamespace,
      },
      leaderElect: given.leaderElect,
      leaseNamespace: given.leaderNamespace ?? env['POD_NAMESPACE'] ?? 'kube-system',
      leaseName: given.leaderName,
      identity: `${env['POD_NAME'] ?? hostname()}-${newId()}`,
    });
  });
}

/** Ends the process where one of both is missing: metrics meant to be secured are not served plain. */
function metricsOf(given: RunFlags, command: Command): OperatorConfig['metrics'] {
  const { metricsAddress = '', metricsCertPath = '' } = given;
  if (metricsAddress === '' && metricsCertPath === '') return undefined;
  if (metricsAddress === '' || metricsCertPath === '')
    return command.error('--metrics-address and --metrics-cert-path go together: give both, or neither');
  return { address: metricsAddress, certificates: metricsCertPath };
}

function uninstallCommand(command: Command, env: Environment, done: (config: UninstallConfig) => void): void {
  command
    .description(
      'Takes Weir out of the cluster: stops the operator, has every agent clear its node, deletes what was derived. Policies and CRDs stay.',
    )
    .option('--namespace <namespace>', 'where Weir is installed (default: $POD_NAMESPACE, or kube-system)')
    .option('--daemonset <name>', 'DaemonSet of the agents', 'weir-agent')
    .option('--deployment <name>', 'Deployment of the operator', 'weir-operator')
    .option('--leader-name <name>', "name of the operator's lease", 'weir-operator')
    .addOption(
      new Option('--timeout <duration>', 'how long all of it may take').default(120_000, '2m').argParser(parseDuration),
    )
    .allowExcessArguments(false);
  withCommon(command).action((given: UninstallFlags) => {
    done({
      command: 'uninstall',
      ...commonOf(given),
      namespace: given.namespace ?? env['POD_NAMESPACE'] ?? 'kube-system',
      daemonSet: given.daemonset,
      deployment: given.deployment,
      leaseName: given.leaderName,
      timeoutMs: given.timeout,
    });
  });
}

interface CommonFlags {
  readonly kubeconfig?: string;
  readonly requestTimeout: number;
  readonly logLevel: string;
}

interface RunFlags extends CommonFlags, Limits {
  readonly clusterName: string;
  readonly healthAddress: string;
  readonly metricsAddress?: string;
  readonly metricsCertPath?: string;
  readonly identityGcGrace: number;
  readonly identityGcInterval: number;
  readonly leaderElect: boolean;
  readonly leaderNamespace?: string;
  readonly leaderName: string;
}

interface UninstallFlags extends CommonFlags {
  readonly namespace?: string;
  readonly daemonset: string;
  readonly deployment: string;
  readonly leaderName: string;
  readonly timeout: number;
}

function withCommon(command: Command): Command {
  return command
    .option('--kubeconfig <file>', "kubeconfig file (default: the pod's service account)")
    .addOption(
      new Option('--request-timeout <duration>', 'how long a request to the API server may take')
        .default(30_000, '30s')
        .argParser(parseDuration),
    )
    .addOption(
      new Option('--log-level <level>', 'least level that is logged')
        .choices(['trace', 'debug', 'info', 'warn', 'error', 'fatal'])
        .default('info'),
    );
}

function commonOf({ kubeconfig, requestTimeout, logLevel }: CommonFlags): CommonConfig {
  return { kubeconfig, requestTimeoutMs: requestTimeout, logLevel };
}
