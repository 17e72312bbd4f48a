import { createKubeClient } from '@weir/kube';
import { ApiServer, agentStatus, claimSocketPath, createMetrics, HealthServer } from './api/index.ts';
import { buildCni, CniService, installCni, PodNetwork } from './cni/index.ts';
import type { AgentConfig } from './config/config.ts';
import { VERSION } from './config/version.ts';
import type { Core, CoreOptions, Logger } from './core.ts';
import { Kubernetes } from './kubernetes/index.ts';

export interface AgentOptions {
  readonly config: AgentConfig;
  readonly log: Logger;
  readonly createCore: (options: CoreOptions) => Core | Promise<Core>;
}

/**
 * The assembled agent. Started in the order core, Kubernetes, API, CNI installation: nobody can ask before the kernel side runs, and no
 * runtime calls a plugin that has no agent. Stopped in the opposite order; what is in the kernel goes on enforcing.
 */
export class Agent {
  readonly #options: AgentOptions;
  /** What has been started, in order. */
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
    const core = await this.#options.createCore({
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
    });
    // Before core.start(): it registers the initialisers of the input tables.
    const kubernetes = config.kubernetes ? this.#kubernetes(core) : undefined;
    this.#running.push({ name: 'core', stop: () => core.stop() });
    await core.start();
    if (kubernetes !== undefined) {
      kubernetes.start();
      this.#running.push({ name: 'kubernetes', stop: () => kubernetes.stop() });
    }
    const network = new PodNetwork();
    const podCidrs = (): readonly string[] => podCidrsOf(core, config);
    const cni = new CniService({ core, network, log, podCidr: () => podCidrs().find((cidr) => !cidr.includes(':')) });
    await cni.start();
    this.#running.push({ name: 'cni', stop: () => cni.stop() });
    const api = new ApiServer({
      core,
      cni,
      log,
      podCidrs,
      socket: config.socket,
      version: VERSION,
      nodeName: config.nodeName,
      clusterName: config.clusterName,
      policyEnforcement: config.policyEnforcement,
      settings: {
        'allow-localhost': String(config.allowLocalhost),
        'bpf-root': config.bpfRoot,
        'state-dir': config.stateDir,
      },
      interfaceIndex: (name) => network.interfaceIndex(name),
      ...(kubernetes === undefined ? {} : { kubernetes: () => kubernetes.status() }),
    });
    this.#running.push({ name: 'api', stop: () => api.stop() });
    await api.start();
    await this.#serveHealth(core);
    await this.#installCni();
    log.info({ socket: config.socket, version: VERSION }, 'agent is running');
  }

  #kubernetes(core: Core): Kubernetes {
    const { config, log } = this.#options;
    const client = createKubeClient({ kubeconfig: config.kubeconfig, userAgent: `weir-agent/${VERSION}` });
    return new Kubernetes({ core, client, nodeName: config.nodeName, log });
  }

  async #serveHealth(core: Core): Promise<void> {
    const { config, log } = this.#options;
    if (config.healthAddress === undefined) return;
    const ready = (): { ok: boolean; message: string } => {
      const { state, msg } = agentStatus({ core });
      return { ok: state === 'Ok', message: msg };
    };
    const health = new HealthServer({ core, log, ready, metrics: createMetrics(core), ...config.healthAddress });
    await health.start();
    this.#running.push({ name: 'health', stop: () => health.stop() });
  }

  async #installCni(): Promise<void> {
    const { config, log } = this.#options;
    if (config.cniInstall === undefined) return;
    const binary = config.cniBinary ?? (await buildCni());
    await installCni({ binary, binDir: config.cniInstall, confDir: config.cniConfDir, socket: config.socket });
    log.info({ binDir: config.cniInstall, confDir: config.cniConfDir }, 'cni plugin installed');
  }
}

/** The flag, or what Kubernetes gave this node. */
function podCidrsOf(core: Core, config: AgentConfig): readonly string[] {
  if (config.podCidr !== undefined) return [config.podCidr];
  using snapshot = core.db.read();
  return [...snapshot.all(core.tables.nodes)].find((node) => node.name === config.nodeName)?.podCidrs ?? [];
}
