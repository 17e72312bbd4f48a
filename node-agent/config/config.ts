import { hostname } from 'node:os';
import { isAbsolute } from 'node:path';
import { parsePrefix } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { ConfigError } from './errors.ts';
import { VERSION } from './version.ts';

export interface AgentConfig {
  readonly nodeName: string;
  readonly clusterName: string;
  readonly kubernetes: boolean;
  /** Absent: the pod's service account. */
  readonly kubeconfig?: string;
  readonly socket: string;
  readonly bpfRoot: string;
  readonly stateDir: string;
  /** Standalone, or instead of Node.spec.podCIDR. */
  readonly podCidr?: string;
  readonly policyEnforcement: 'default' | 'always' | 'never';
  readonly allowLocalhost: boolean;
  readonly ctEntries?: number;
  readonly datapathObject?: string;
  readonly healthAddress?: HostPort;
  /** Only /metrics is served there; absent: /metrics is at `healthAddress`. */
  readonly metricsAddress?: HostPort;
  /** Folder of tls.crt and tls.key: /metrics is served by TLS, to who may get it; absent: plain. */
  readonly metricsCertPath?: string;
  /** Who routes to other nodes' pods: the agent, or the network. */
  readonly routing: 'direct' | 'none';
  /** The DaemonSet that the agent is of; absent: nobody can ask it to uninstall. */
  readonly daemonset?: { readonly namespace: string; readonly name: string };
  /** Where the node's /proc/sys can be written: a container has its own read-only. */
  readonly procSys: string;
  /** The node's cgroup v2 hierarchy, where programs for sockets attach. */
  readonly cgroupRoot: string;
  /** `mount-bpffs`: the host's /proc. */
  readonly hostProc: string;
  readonly logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  readonly cniInstall?: string;
  readonly cniConfDir: string;
  readonly cniBinary?: string;
}

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

const NAME = /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/;
const CT_ENTRIES = { min: 1024, max: 16_777_216 };

const COMMANDS = ['run', 'cleanup', 'mount-bpffs'] as const;
export type AgentCommand = (typeof COMMANDS)[number];

/** What `main` is to do: a command with a configuration, or only print (help, version). */
export type Parsed = { readonly command: AgentCommand; readonly config: AgentConfig } | { readonly printed: string };

/**
 * Parses flags, and WEIR_* variables for flags that are absent (`--node-name` is WEIR_NODE_NAME). Throws `ConfigError`. Touches
 * nothing.
 */
export function parseConfig(args: readonly string[]): Parsed {
  let printed = '';
  let complaint = '';
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
    )
    .addOption(
      option('--node-name <name>', 'name of this node in Kubernetes')
        .default(hostname().toLowerCase(), 'host name')
        .argParser(name('--node-name')),
    )
    .addOption(
      option('--cluster-name <name>', 'name of the cluster').default('default').argParser(name('--cluster-name')),
    )
    .addOption(
      option(
        '--kubeconfig <file>',
        'how to reach the API server; the service account of the pod when absent',
      ).argParser(path),
    )
    .addOption(option('--no-kubernetes', 'run alone: policies and endpoints come over the socket only'))
    .addOption(option('--socket <path>', 'unix socket of the API').default('/var/run/weir/weir.sock').argParser(path))
    .addOption(
      option('--bpf-root <dir>', 'where maps, programs and links are pinned')
        .default('/sys/fs/bpf/weir')
        .argParser(path),
    )
    .addOption(
      option('--state-dir <dir>', 'endpoints and imported rules, kept over restarts')
        .default('/var/run/weir/state')
        .argParser(path),
    )
    .addOption(option('--pod-cidr <prefix>', 'addresses for pods; Node.spec.podCIDR when absent').argParser(podCidr))
    .addOption(
      option('--policy-enforcement <mode>', 'when endpoints are enforced')
        .choices(['default', 'always', 'never'])
        .default('default'),
    )
    .addOption(
      option('--allow-localhost <bool>', 'the node may always reach its pods unless denied explicitly')
        .default(true)
        .argParser(bool),
    )
    .addOption(option('--ct-entries <number>', 'size of the conntrack map').argParser(ctEntries))
    .addOption(option('--datapath-object <file>', 'compiled datapath; built from source when absent').argParser(path))
    .addOption(option('--health-address <host:port>', 'serve /healthz, /readyz and /metrics there').argParser(hostPort))
    .addOption(
      option('--metrics-address <host:port>', 'serve /metrics there, and no longer at --health-address').argParser(
        hostPort,
      ),
    )
    .addOption(
      option(
        '--metrics-cert-path <dir>',
        'folder of tls.crt and tls.key, which are read again when they change: /metrics is served by TLS, to who may get it; with --metrics-address',
      ).argParser(path),
    )
    .addOption(
      option('--routing <mode>', "direct: routes to other nodes' pods by their InternalIP; none: the network has them")
        .choices(['direct', 'none'])
        .default('direct'),
    )
    .addOption(
      option('--daemonset <namespace/name>', 'the DaemonSet it runs in: its uninstall mark is obeyed').argParser(
        daemonset,
      ),
    )
    .addOption(
      option('--proc-sys <dir>', "the node's /proc/sys, writable (only net/ipv4 is needed)")
        .default('/proc/sys')
        .argParser(path),
    )
    .addOption(
      option('--cgroup-root <dir>', "the node's cgroup v2 hierarchy, for programs on sockets (nothing uses it yet)")
        .default('/sys/fs/cgroup')
        .argParser(path),
    )
    .addOption(
      option('--host-proc <dir>', "mount-bpffs: the node's /proc; /proc when absent")
        .default('/host/proc')
        .argParser(path),
    )
    .addOption(
      option('--log-level <level>', 'least level that is logged')
        .choices(['debug', 'info', 'warn', 'error', 'silent'])
        .default('info'),
    )
    .addOption(option('--cni-install <dir>', 'install the CNI plugin into this folder').argParser(path))
    .addOption(
      option('--cni-conf-dir <dir>', 'where 10-weir.conflist is installed').default('/etc/cni/net.d').argParser(path),
    )
    .addOption(option('--cni-binary <file>', 'weir-cni to install; built from source when absent').argParser(path))
    .exitOverride()
    .configureOutput({
      writeOut: (text) => {
        printed += text;
      },
      writeErr: (text) => {
        complaint += text;
      },
    })
    .allowExcessArguments(false);
  try {
    command.parse([...args], { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { printed };
    throw new ConfigError(`${(complaint || error.message).trim().replace(/^error: /, '')} (--help lists the flags)`);
  }
  const config = command.opts<AgentConfig>();
  const [wanted = 'run'] = command.processedArgs as [AgentCommand | undefined];
  if (!config.kubernetes && config.kubeconfig !== undefined) {
    throw new ConfigError('--kubeconfig and --no-kubernetes exclude each other: leave one of them out');
  }
  if (config.daemonset !== undefined && !config.kubernetes) {
    throw new ConfigError('--daemonset and --no-kubernetes exclude each other: leave one of them out');
  }
  if (config.metricsCertPath !== undefined && config.metricsAddress === undefined) {
    throw new ConfigError('--metrics-cert-path needs --metrics-address: give the address for metrics by TLS');
  }
  if (config.metricsCertPath !== undefined && !config.kubernetes) {
    throw new ConfigError(
      '--metrics-cert-path and --no-kubernetes exclude each other: Kubernetes says who may get metrics',
    );
  }
  return { command: wanted, config };
}

function option(flags: string, description: string): Option {
  const flag = /^--([a-z-]+)/.exec(flags)?.[1] ?? '';
  return new Option(flags, description).env(`WEIR_${flag.toUpperCase().replaceAll('-', '_')}`);
}

function name(flag: string): (text: string) => string {
  return (text) => {
    if (!NAME.test(text))
      throw new InvalidArgumentError(
        `${flag} must be lower-case letters, digits, "-" and ".", as \`kubectl get nodes\` prints names.`,
      );
    return text;
  };
}

function path(text: string): string {
  if (!isAbsolute(text)) throw new InvalidArgumentError('It must be an absolute path.');
  return text;
}

function podCidr(text: string): string {
  try {
    // What an address without a length is told to be, a /32, is too small.
    const prefix = parsePrefix(text, { requireLength: text.includes('/') });
    if (text.includes('/') && prefix.family === 4 && prefix.bits <= 30) return text;
  } catch (error) {
    throw new InvalidArgumentError(`${messageOf(error)}.`);
  }
  throw new InvalidArgumentError(
    'It must be an IPv4 prefix with its length, of at least 4 addresses, such as 10.1.0.0/24.',
  );
}

function bool(text: string): boolean {
  if (text !== 'true' && text !== 'false') throw new InvalidArgumentError('It must be true or false.');
  return text === 'true';
}

function ctEntries(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < CT_ENTRIES.min || value > CT_ENTRIES.max) {
    throw new InvalidArgumentError(`It must be a whole number from ${CT_ENTRIES.min} to ${CT_ENTRIES.max}.`);
  }
  return value;
}

function daemonset(text: string): { readonly namespace: string; readonly name: string } {
  const [namespace = '', name = '', ...more] = text.split('/');
  if (!NAME.test(namespace) || !NAME.test(name) || more.length > 0)
    throw new InvalidArgumentError('It must be NAMESPACE/NAME, such as kube-system/weir-agent.');
  return { namespace, name };
}

function hostPort(text: string): HostPort {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]*)):(\d{1,5})$/i.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65535)
    throw new InvalidArgumentError('It must be HOST:PORT, such as 127.0.0.1:9879 or [::1]:9879.');
  return { host: match[1] ?? (match[2] || '0.0.0.0'), port };
}
