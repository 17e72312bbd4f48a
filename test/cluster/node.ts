/** One node of the cluster: a network namespace with an agent in it. */
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { NODE_ENV, NODE_FLAGS } from '../../scripts/images/catalog.ts';
import { type AgentReply, callAgent } from './agent-api.ts';
import { netnsPath } from './fabric.ts';
import type { KubeletNode } from './kubelet.ts';
import { Program } from './process.ts';
import { attempt, type Output, ROOT, run, TOOL_PATH } from './run.ts';
import type { TestNode } from './types.ts';

export interface ClusterNodeOptions {
  readonly name: string;
  readonly netns: string;
  readonly addresses: readonly string[];
  readonly podCidrs: readonly string[];
  readonly folder: string;
  readonly bpfRoot: string;
  /** Folder of the cgroup that is this node's root. */
  readonly cgroup: string;
  readonly kubeconfig: string;
  readonly clusterName: string;
  readonly logDir: string;
  readonly agentArgs: readonly string[];
  /** The agent's bundle. */
  readonly program: string;
  /** The state folder is a disk of its own, of this size. */
  readonly stateDiskBytes?: number;
  /** Told when the agent ends by itself. */
  readonly onLog?: (line: string) => void;
}

export class ClusterNode implements KubeletNode, TestNode {
  readonly name: string;
  readonly netns: string;
  readonly address: string;
  readonly addresses: readonly string[];
  /** The first of `podCidrs`. */
  readonly podCidr: string;
  readonly podCidrs: readonly string[];
  readonly socket: string;
  readonly bpfRoot: string;
  readonly cgroup: string;
  readonly stateDir: string;
  readonly #options: ClusterNodeOptions;
  #agent: Program | undefined;
  #dnsProxy: Program | undefined;

  constructor(options: ClusterNodeOptions) {
    this.#options = options;
    this.name = options.name;
    this.netns = options.netns;
    this.addresses = options.addresses;
    this.address = options.addresses[0] ?? '';
    this.podCidrs = options.podCidrs;
    this.podCidr = options.podCidrs[0] ?? '';
    this.bpfRoot = options.bpfRoot;
    this.cgroup = options.cgroup;
    this.socket = join(options.folder, 'weir.sock');
    this.stateDir = join(options.folder, 'state');
    mkdirSync(options.folder, { recursive: true });
    mkdirSync(options.cgroup, { recursive: true });
  }

  get agent(): Program {
    if (this.#agent === undefined) throw new Error(`the agent of ${this.name} was never started`);
    return this.#agent;
  }

  /** Command line of this node's agent. */
  agentCommand(): readonly string[] {
    const o = this.#options;
    return [
      ...NODE_FLAGS,
      o.program,
      '--node-name',
      o.name,
      '--cluster-name',
      o.clusterName,
      '--kubeconfig',
      o.kubeconfig,
      '--socket',
      this.socket,
      '--bpf-root',
      o.bpfRoot,
      '--cgroup-root',
      o.cgroup,
      '--state-dir',
      this.stateDir,
      '--dns-proxy',
      join(o.folder, 'dns-proxy.sock'),
      '--dns-proxy-state',
      join(o.folder, 'dns-proxy'),
      '--operator-heartbeat',
      'default/weir-operator-heartbeat',
      ...o.agentArgs,
    ];
  }

  /** Starts the agent, and waits for nothing. */
  launchAgent(): Program {
    const logFile = join(this.#options.logDir, `agent-${this.name}.log`);
    this.#agent = new Program({
      name: `agent ${this.name}`,
      onEnd: (how) => this.#options.onLog?.(`the agent of ${this.name} has ended (${how}); its log: ${logFile}`),
      netns: netnsPath(this.netns),
      cgroup: this.cgroup,
      command: process.execPath,
      args: this.agentCommand(),
      logFile,
      env: { PATH: TOOL_PATH, ...NODE_ENV },
    });
    return this.#agent;
  }

  /** Starts the node's DNS proxy, and waits for nothing. */
  launchDnsProxy(): Program {
    const o = this.#options;
    const stateDir = join(o.folder, 'dns-proxy');
    mkdirSync(stateDir, { recursive: true });
    this.#dnsProxy = new Program({
      name: `DNS proxy ${this.name}`,
      netns: netnsPath(this.netns),
      cgroup: this.cgroup,
      command: process.execPath,
      args: [
        join(dirname(o.program), 'dns-proxy.mjs'),
        ...['--socket', join(o.folder, 'dns-proxy.sock')],
        ...['--bpf-root', o.bpfRoot],
        ...['--state-dir', stateDir],
      ],
      logFile: join(o.logDir, `dns-proxy-${this.name}.log`),
      env: { PATH: TOOL_PATH, ...NODE_ENV },
    });
    return this.#dnsProxy;
  }

  get dnsProxy(): Program {
    if (this.#dnsProxy === undefined) throw new Error(`the DNS proxy of ${this.name} was never started`);
    return this.#dnsProxy;
  }

  /** Starts the agent and waits until its API answers and its tables are complete. */
  async startAgent(timeoutMs = 120_000): Promise<void> {
    const agent = this.launchAgent();
    const end = Date.now() + timeoutMs;
    while (Date.now() < end) {
      if (!agent.running) throw new Error(`the agent of ${this.name} ended: ${agent.tail}`);
      if (await this.healthy()) return;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    throw new Error(`the agent of ${this.name} was not ready within ${timeoutMs} ms: ${agent.tail}`);
  }

  /** Whether GET /v1/healthz says that the agent works. */
  async healthy(): Promise<boolean> {
    const { status } = await this.call('GET', '/v1/healthz').catch(() => ({ status: 0 }));
    return status === 200;
  }

  stopAgent(): Promise<void> {
    return this.agent.stop();
  }

  /** Makes the state folder a disk of its own, when it is to be one. */
  async mountStateDisk(): Promise<void> {
    const { stateDiskBytes } = this.#options;
    if (stateDiskBytes === undefined) return;
    mkdirSync(this.stateDir, { recursive: true });
    await run('mount', ['-t', 'tmpfs', '-o', `size=${stateDiskBytes}`, 'tmpfs', this.stateDir]);
  }

  async stopAgentIfStarted(): Promise<void> {
    await this.#agent?.stop();
    await this.#dnsProxy?.stop();
  }

  /** Runs `weir` against this node's agent. */
  weir(args: readonly string[], stdin?: string): Promise<Output> {
    return attempt(join(ROOT, 'bin/weir'), args, {
      env: { WEIR_SOCKET: this.socket },
      ...(stdin === undefined ? {} : { stdin }),
    });
  }

  /** One request over the agent's unix socket. */
  call(method: string, path: string, body?: unknown): Promise<AgentReply> {
    return callAgent(this, method, path, body);
  }
}
