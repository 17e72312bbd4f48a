import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createKubeClient, ScrapeAccess } from '@weir/kube';
import { MetricsServer } from '@weir/process/metrics-server';
import {
  type AgentMetrics,
  ApiServer,
  agentStatus,
  type Condition,
  claimSocketPath,
  createMetrics,
  HealthServer,
  type HealthServerOptions,
} from './api/index.ts';
import { buildCni, CniInstallation, CniService, PodNetwork } from './cni/index.ts';
import type { AgentConfig, HostPort } from './config/config.ts';
import { VERSION } from './config/version.ts';
import type { Core, CoreOptions, Logger } from './core.ts';
import { Kubernetes, type NodeProblem, type NodeProblems } from './kubernetes/index.ts';
import { nodeAddress, podCidrsOf } from './own-node.ts';
import { NodeRouting } from './routing/index.ts';
import { agentRemoval, Uninstall } from './uninstall/index.ts';

/** Requests of the runtime that still wait for the kernel this long after a stop began are given up, in milliseconds. */
const CNI_GRACE_MS = 2500;

/** How long a question about a scraper may take, in milliseconds. */
const REVIEW_MS = 5000;

export interface AgentOptions {
  readonly config: AgentConfig;
  readonly log: Logger;
  readonly createCore: (options: CoreOptions) => Core | Promise<Core>;
}

/** The parts that others of them ask. */
interface Parts {
  readonly core: Core;
  readonly network: PodNetwork;
  readonly cni: CniService;
  readonly routing: NodeRouting;
  readonly installation: CniInstallation | undefined;
  readonly kubernetes: Kubernetes | undefined;
  readonly uninstall: Uninstall | undefined;
  readonly metrics: AgentMetrics;
}

/** What the core is made of, from the flags. */
export function coreOptions(config: AgentConfig, log: Logger): CoreOptions {
  return {
    nodeName: config.nodeName,
    clusterName: config.clusterName,
    bpfRoot: config.bpfRoot,
    stateDir: config.stateDir,
    ...(config.datapathObject === undefined ? {} : { datapathObject: config.datapathObject }),
    policyMode: config.policyEnforcement,
    allowLocalhost: config.allowLocalhost,
    kubernetes: config.kubernetes,
    ...(config.ctEntries === undefined ? {} : { ctEntries: config.ctEntries }),
    log,
  };
}

/**
 * The assembled agent. Started in the order core, Kubernetes, API, CNI installation: nobody can ask before the kernel side runs, and no
 * runtime calls a plugin that has no agent. Stopped in the opposite order; what is in the kernel goes on enforcing.
 */
export class Agent {
  readonly #options: AgentOptions;
  /** Handles: what has been started, in order. */
  readonly #running: { readonly name: string; stop(): Promise<void> }[] = [];

  constructor(options: AgentOptions) {
    this.#options = options;
  }

  /** Rejects when a part does not start; those before it have been stopped again. */
  async start(): Promise<void> {
    try {
      await this.#start();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** Stops every part; the first failure is thrown after all have been tried. */
  async stop(): Promise<void> {
    const failures: unknown[] = [];
    for (const part of this.#running.splice(0).reverse()) {
      try {
        await part.stop();
      } catch (error) {
        this.#options.log.error({ part: part.name, err: error }, 'part did not stop cleanly');
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  async #start(): Promise<void> {
    const { config, log } = this.#options;
    // Before the core: a second agent must not touch the maps of the first.
    await claimSocketPath(config.socket);
    // Pins outlive agents, and no boot.
    const firstHere = !existsSync(join(config.bpfRoot, 'links'));
    const core = await this.#options.createCore(coreOptions(config, log));
    const parts = await this.#parts(core, firstHere);
    const { kubernetes, routing, cni, uninstall, installation } = parts;
    this.#running.push({ name: 'core', stop: () => core.stop() });
    await core.start();
    if (kubernetes !== undefined) {
      kubernetes.start();
      this.#running.push({ name: 'kubernetes', stop: () => kubernetes.stop() });
    }
    routing.start();
    this.#running.push({ name: 'routing', stop: () => routing.stop() });
    await cni.start();
    this.#running.push({ name: 'cni', stop: () => cni.stop() });
    const api = this.#api(parts);
    this.#running.push({ name: 'api', stop: () => api.stop() });
    await api.start();
    this.#running.push({ name: 'cni requests', stop: async () => cni.endWithin(CNI_GRACE_MS) });
    await this.#serveHealth(parts, () => api.listening());
    if (installation !== undefined) {
      await installation.start();
      this.#running.push({ name: 'cni installation', stop: () => installation.stop() });
    }
    // Last: what is taken away must have been put there.
    if (uninstall !== undefined) {
      kubernetes?.uninstallMarks.subscribe((mark) => uninstall.wanted(mark));
      this.#running.push({ name: 'uninstall', stop: () => uninstall.stop() });
    }
    log.info({ socket: config.socket, version: VERSION }, 'agent is running');
  }

  /** Before core.start(): Kubernetes registers the initialisers of the input tables. */
  async #parts(core: Core, firstHere: boolean): Promise<Parts> {
    const { config, log } = this.#options;
    const { db, tables } = core;
    const { nodeName } = config;
    const problems: NodeProblems = () => nodeProblems({ core, cni, installation, routing, uninstall });
    const kubernetes = config.kubernetes ? this.#kubernetes(core, problems) : undefined;
    const network = new PodNetwork({ procSys: config.procSys, nodeAddress: () => nodeAddress(core, nodeName) });
    const forward = (): Promise<boolean> => network.forward();
    const routing = new NodeRouting({ db, nodes: tables.nodes, nodeName, mode: config.routing, log, forward });
    const installation = await this.#installation();
    const metrics = createMetrics({
      core,
      version: VERSION,
      routing: () => routing.status(),
      ...(kubernetes === undefined ? {} : { kubernetes: () => kubernetes.status() }),
      ...(installation === undefined ? {} : { cniStatus: () => installation.status() }),
    });
    const cni = new CniService({
      core,
      network,
      log,
      podCidr: () => podCidrsOf(core, config).find((cidr) => !cidr.includes(':')),
      firstHere,
      onCall: (call) => metrics.cniCall(call),
    });
    const parts = { core, network, cni, routing, installation, kubernetes, metrics };
    const uninstall =
      kubernetes === undefined || config.daemonset === undefined ? undefined : this.#uninstall(parts, kubernetes);
    return { ...parts, uninstall };
  }

  #client(): ReturnType<typeof createKubeClient> {
    const { kubeconfig } = this.#options.config;
    return createKubeClient({ kubeconfig, userAgent: `weir-agent/${VERSION}` });
  }

  #kubernetes(core: Core, problems: NodeProblems): Kubernetes {
    const { config, log } = this.#options;
    const client = this.#client();
    const daemonSet = config.daemonset;
    return new Kubernetes({
      core,
      client,
      nodeName: config.nodeName,
      problems,
      log,
      ...(daemonSet === undefined ? {} : { daemonSet }),
    });
  }

  async #installation(): Promise<CniInstallation | undefined> {
    const { config, log } = this.#options;
    if (config.cniInstall === undefined) return undefined;
    const binary = config.cniBinary ?? (await buildCni());
    return new CniInstallation({
      binary,
      binDir: config.cniInstall,
      confDir: config.cniConfDir,
      socket: config.socket,
      log,
    });
  }

  #uninstall(parts: Omit<Parts, 'uninstall'>, kubernetes: Kubernetes): Uninstall {
    const { config, log } = this.#options;
    const steps = agentRemoval({ ...parts, config });
    return new Uninstall({ log, steps, markRemoved: (mark) => kubernetes.markRemoved(mark) });
  }

  #api(parts: Parts): ApiServer {
    const { config, log } = this.#options;
    const { core, cni, network, kubernetes } = parts;
    return new ApiServer({
      core,
      cni,
      log,
      podCidrs: () => podCidrsOf(core, config),
      socket: config.socket,
      version: VERSION,
      nodeName: config.nodeName,
      clusterName: config.clusterName,
      policyEnforcement: config.policyEnforcement,
      settings: {
        'allow-localhost': String(config.allowLocalhost),
        'bpf-root': config.bpfRoot,
        routing: config.routing,
        'state-dir': config.stateDir,
      },
      interfaceIndex: (name) => network.interfaceIndex(name),
      ...(kubernetes === undefined ? {} : { kubernetes: () => kubernetes.status() }),
      ...conditions(parts),
    });
  }

  async #serveHealth(parts: Parts, listening: () => Condition): Promise<void> {
    const { config, log } = this.#options;
    const { core, metrics, uninstall } = parts;
    const ready = (): { ok: boolean; message: string } => {
      const { state, msg } = agentStatus({ core, listening, ...conditions(parts) });
      return { ok: state === 'Ok', message: msg };
    };
    const health = { core, ready, idle: () => uninstall?.message };
    const { healthAddress, metricsAddress, metricsCertPath } = config;
    const { registry } = metrics;
    if (healthAddress !== undefined)
      await this.#serve({
        log,
        ...healthAddress,
        health,
        ...(metricsAddress === undefined ? { metrics: registry } : {}),
      });
    if (metricsAddress !== undefined && metricsCertPath !== undefined)
      await this.#serveSecured(metricsAddress, metricsCertPath, registry);
    else if (metricsAddress !== undefined)
      await this.#serve({ log, ...metricsAddress, flag: '--metrics-address', metrics: registry });
  }

  async #serveSecured(address: HostPort, certificates: string, registry: AgentMetrics['registry']): Promise<void> {
    const { log } = this.#options;
    const client = this.#client();
    const access = new ScrapeAccess({ client: client.within(REVIEW_MS) });
    const server = new MetricsServer({
      ...address,
      certificates,
      registry: () => registry,
      refusal: (authorization) => access.refusal(authorization),
      log,
    });
    await server.start();
    this.#running.push({
      name: 'metrics',
      stop: async () => {
        await server.stop();
        client.close();
      },
    });
  }

  async #serve(options: HealthServerOptions): Promise<void> {
    const server = new HealthServer(options);
    await server.start();
    this.#running.push({ name: 'health', stop: () => server.stop() });
  }
}

/** What the agent says of itself beside the core. */
function conditions({ cni, installation, routing, uninstall }: Parts) {
  return {
    addresses: () => cni.addresses(),
    resting: () => cni.resting(),
    routing: () => routing.status(),
    idle: () => uninstall?.message,
    ...(installation === undefined ? {} : { cniStatus: () => installation.status() }),
  };
}

/** What the Node's condition names: what keeps policies from being enforced here, then what keeps pods from others. */
function nodeProblems({
  core,
  cni,
  installation,
  routing,
  uninstall,
}: Omit<Parts, 'network' | 'kubernetes' | 'metrics'>): readonly NodeProblem[] {
  if (uninstall?.message !== undefined) return [];
  // An agent that starts has to wait for its inputs: a problem is what lasts.
  const held = core.held();
  const failing = core.health().checks.filter(({ name, ok }) => !ok && name !== 'inputs');
  return [
    ...(held === undefined ? [] : [{ reason: held.reason, message: held.message }]),
    ...failing.map(({ message }) => ({ reason: 'DatapathFailing', message })),
    ...named('AddressConflict', cni.addresses()),
    ...named('PluginNotInUse', installation?.status()),
    ...named('RoutesMissing', routing.status()),
  ];
}

function named(reason: string, state: Condition | undefined): readonly NodeProblem[] {
  return state === undefined || state.ok ? [] : [{ reason, message: state.message }];
}
