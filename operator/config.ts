/** The command line, parsed and validated once. */
import { hostname } from 'node:os';
import { addFlags, checkFlags, clusterName, flag } from '@weir/process/flags';
import { newId } from '@weir/process/id';
import { Command, InvalidArgumentError, Option } from 'commander';
import { ConfigError } from './errors.ts';
import packageJson from './package.json' with { type: 'json' };
import type { AnyOperatorPart, BaseConfig } from './parts/contract.ts';

export const VERSION: string = packageJson.version;

interface CommonConfig {
  readonly kubeconfig: string | undefined;
  readonly requestTimeoutMs: number;
  readonly logLevel: string;
}

/** Run the operator; beside what every part may ask, the values of the parts' flags, each by its name. */
export interface RunConfig extends CommonConfig, Omit<BaseConfig, 'now'> {
  readonly command: 'run';
  readonly [flag: string]: unknown;
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

const BASE = {
  clusterName: flag<string>('--cluster-name <name>', 'name of this cluster, part of every identity')
    .default('default')
    .argParser(clusterName),
};

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

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Parses the arguments after the program's name, the flags of the parts included. An unknown flag or a bad value ends the process with a message
 * and status 2; `--help` and `--version` end it with 0. `exit: false` throws commander's error instead.
 */
export function parseConfig(
  args: readonly string[],
  env: Environment,
  parts: readonly AnyOperatorPart[],
  options: { readonly exit?: boolean } = {},
): RunConfig | UninstallConfig {
  let parsed: RunConfig | UninstallConfig | undefined;
  const done = (config: RunConfig | UninstallConfig): void => {
    parsed = config;
  };
  const [command, uninstall] = commands(env, parts, done);
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
  parts: readonly AnyOperatorPart[],
  done: (config: RunConfig | UninstallConfig) => void,
): readonly [run: Command, uninstall: Command] {
  const command = runCommand(env, parts, done);
  const uninstall = command.command('uninstall');
  uninstallCommand(uninstall, env, done);
  return [command, uninstall];
}

function runCommand(env: Environment, parts: readonly AnyOperatorPart[], done: (config: RunConfig) => void): Command {
  const command = new Command('weir-operator')
    .description(
      "The cluster's half of Weir: reads policies and pods, writes what nodes enforce and the policies' status.",
    )
    .version(VERSION)
    // A subcommand's flags are its own, also where they have the same name.
    .enablePositionalOptions()
    .allowExcessArguments(false);
  addFlags(command, [BASE, ...parts.map(({ flags = {} }) => flags)]);
  return withCommon(command).action((given: CommonFlags & { readonly clusterName: string }) => {
    try {
      checkFlags(parts, given);
    } catch (error) {
      if (error instanceof ConfigError) command.error(error.message);
      throw error;
    }
    const { kubeconfig: _k, requestTimeout: _r, logLevel: _l, ...flags } = given;
    done({
      command: 'run',
      ...flags,
      ...commonOf(given),
      namespace: namespaceOf(env),
      identity: `${env.POD_NAME ?? hostname()}-${newId()}`,
    });
  });
}

/** Where this pod runs. */
function namespaceOf(env: Environment): string {
  return env.POD_NAMESPACE ?? 'kube-system';
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
      new Option('--timeout <duration>', 'time limit of the whole uninstall')
        .default(120_000, '2m')
        .argParser(parseDuration),
    )
    .allowExcessArguments(false);
  withCommon(command).action((given: UninstallFlags) => {
    done({
      command: 'uninstall',
      ...commonOf(given),
      namespace: given.namespace ?? namespaceOf(env),
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
      new Option('--log-level <level>', 'lowest level that is logged')
        .choices(['trace', 'debug', 'info', 'warn', 'error', 'fatal'])
        .default('info'),
    );
}

function commonOf({ kubeconfig, requestTimeout, logLevel }: CommonFlags): CommonConfig {
  return { kubeconfig, requestTimeoutMs: requestTimeout, logLevel };
}
