import { hostname } from 'node:os';
import { checkFlags, clusterName, type Flagged, flag, parseArguments, path } from '@weir/process/flags';
import { Argument, Command, InvalidArgumentError } from 'commander';
import { ConfigError } from './errors.ts';
import { VERSION } from './version.ts';

/** What every part may ask; each part has its own flags beside. */
export interface BaseConfig {
  readonly nodeName: string;
  readonly clusterName: string;
  readonly kubernetes: boolean;
  /** Absent: the pod's service account. */
  readonly kubeconfig?: string | undefined;
  readonly socket: string;
  readonly bpfRoot: string;
  readonly stateDir: string;
  /** `mount-bpffs`: the host's /proc. */
  readonly hostProc: string;
  readonly logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent';
}

/** Names of Kubernetes' objects. */
const NAME = /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/;
const COMMANDS = ['run', 'cleanup', 'mount-bpffs'] as const;
export type AgentCommand = (typeof COMMANDS)[number];

/** What `main` is to do: a command with a configuration, or only print (help, version). */
export type Parsed<Config = BaseConfig> =
  | { readonly command: AgentCommand; readonly config: Config }
  | { readonly printed: string };

/** What the names of variables begin with. */
export const VARIABLES = 'WEIR';

/** Flags of no part. */
export const BASE_FLAGS = {
  nodeName: flag<string>('--node-name <name>', 'name of this node in Kubernetes')
    .default(hostname().toLowerCase(), 'host name')
    .argParser(name('--node-name')),
  clusterName: flag<string>('--cluster-name <name>', 'name of the cluster').default('default').argParser(clusterName),
  kubeconfig: flag<string | undefined>(
    '--kubeconfig <file>',
    'how to reach the API server; the service account of the pod when absent',
  ).argParser(path),
  kubernetes: flag<boolean>('--no-kubernetes', 'run alone: policies and endpoints come over the socket only'),
  socket: flag<string>('--socket <path>', 'unix socket of the API').default('/var/run/weir/weir.sock').argParser(path),
  bpfRoot: flag<string>('--bpf-root <dir>', 'where maps, programs and links are pinned')
    .default('/sys/fs/bpf/weir')
    .argParser(path),
  stateDir: flag<string>('--state-dir <dir>', 'endpoints and imported rules, kept over restarts')
    .default('/var/run/weir/state')
    .argParser(path),
  hostProc: flag<string>('--host-proc <dir>', "mount-bpffs: the node's /proc; /proc when absent")
    .default('/host/proc')
    .argParser(path),
  logLevel: flag<BaseConfig['logLevel']>('--log-level <level>', 'lowest level that is logged')
    .choices(['debug', 'info', 'warn', 'error', 'silent'])
    .default('info'),
};

/**
 * Parses flags, those of the parts included, and WEIR_* variables for flags that are absent (`--node-name` is WEIR_NODE_NAME). Throws
 * `ConfigError`. Touches nothing.
 */
export function parseConfig<Config extends BaseConfig = BaseConfig>(
  args: readonly string[],
  parts: readonly Flagged[],
): Parsed<Config> {
  const command = new Command('weir-agent')
    .description('Weir node agent: enforces CiliumNetworkPolicies on the pods of this node')
    .version(VERSION)
    .addArgument(
      new Argument(
        '[command]',
        'run: the agent; cleanup: remove what Weir left on this node; mount-bpffs: give the node a BPF filesystem',
      )
        .choices(COMMANDS)
        .default('run'),
    );
  const flags = [BASE_FLAGS, ...parts.map((part) => part.flags ?? {})];
  const unread = parseArguments(command, args, flags, VARIABLES);
  if (unread !== undefined) {
    if ('printed' in unread) return unread;
    throw new ConfigError(unread.complaint);
  }
  const config = command.opts<Config>();
  const [wanted = 'run'] = command.processedArgs as [AgentCommand | undefined];
  if (!config.kubernetes && config.kubeconfig !== undefined) {
    throw new ConfigError('--kubeconfig and --no-kubernetes exclude each other: leave one of them out');
  }
  checkFlags(parts, config);
  return { command: wanted, config };
}

function name(flagName: string): (text: string) => string {
  return (text) => {
    if (!NAME.test(text))
      throw new InvalidArgumentError(
        `${flagName} must be lower-case letters, digits, "-" and ".", as \`kubectl get nodes\` prints names.`,
      );
    return text;
  };
}
