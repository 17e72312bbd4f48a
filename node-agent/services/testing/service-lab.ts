/** A node whose pods reach one Service, for tests on the real kernel. */
import type { Hook } from '@weir/bpf';
import { createCore } from '../../core/create-core.ts';
import type { Core } from '../../core.ts';
import { Datapath } from '../../datapath/index.ts';
import { Lab, type LabPod, silent } from '../../datapath/testing/lab.ts';
import { SERVICE_MAPS } from '../maps.ts';
import { SOURCE } from '../programs.ts';
import { Services } from '../services.ts';
import type { ServiceObjectRow, ServicePort, SliceEndpoint } from '../types.ts';

/** The Service's address. */
export const SERVICE = '10.96.0.10';
/** Where pods answer, by TCP and UDP. */
export const POD_PORT = 7777;

export interface Told extends Partial<ServiceObjectRow> {
  /** Of the pods; default `POD_PORT`. */
  readonly targetPort?: number;
}

export class ServiceLab {
  readonly lab = new Lab();
  #core: Core | undefined;
  #datapath: Datapath | undefined;
  #services: Services | undefined;
  readonly #hooks: readonly Hook[];
  /** Of the pods whose sockets hooks see; to be set before the start. */
  cgroup: string | undefined;

  constructor(hooks: readonly Hook[]) {
    this.#hooks = hooks;
  }

  get core(): Core {
    return some(this.#core);
  }

  get services(): Services {
    return some(this.#services);
  }

  get datapath(): Datapath {
    return some(this.#datapath);
  }

  async start(): Promise<void> {
    const options = this.lab.options();
    const cgroupRoot = this.cgroup;
    this.#datapath = new Datapath({
      ...options,
      kernel: { ...options.kernel, maps: SERVICE_MAPS, ...(cgroupRoot === undefined ? {} : { cgroupRoot }) },
      objects: () => [{ ...SOURCE, hooks: this.#hooks }],
    });
    this.datapath.start();
    this.#core = createCore(options, this.datapath);
    this.#services = new Services({
      db: this.core.db,
      map: (name) => this.datapath.map(name),
      nodes: this.core.tables.nodes,
      nodeName: 'lab',
      nodeNetns: this.lab.netns,
      log: silent,
    });
    this.services.start();
    await this.core.start();
  }

  async stop(): Promise<void> {
    await this.#services?.stop();
    await this.#core?.stop();
    this.#datapath?.stop();
  }

  /** `ns/web` has these backends, and at `port` what `more` says. */
  async told(backends: readonly LabPod[], { targetPort = POD_PORT, ...more }: Told = {}): Promise<void> {
    const { objects, slices } = this.services.tables;
    const of = (port: number): ServicePort[] =>
      (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port }));
    const endpoints = backends.map(
      ({ address }): SliceEndpoint => ({ addresses: [address], ready: true, serving: true, terminating: false }),
    );
    this.core.db.write([objects, slices], (txn) => {
      const name = { namespace: 'ns', name: 'web' };
      txn.upsert(objects, {
        ...name,
        clusterAddresses: [SERVICE],
        ports: of(POD_PORT),
        publishNotReady: false,
        ...more,
      });
      txn.upsert(slices, { ...name, service: 'ns/web', endpoints, ports: of(targetPort) });
    });
    await this.services.settled();
  }

  /** `app=client` may send to pods of this app and to `more`, and nowhere else. */
  async allow(app: string, ...more: readonly object[]): Promise<void> {
    this.core.deleteRules([]);
    const { revision, problems } = this.core.importRules([
      {
        endpointSelector: { matchLabels: { app: 'client' } },
        egress: [{ toEndpoints: [{ matchLabels: { app } }] }, ...more],
        labels: [{ key: 'name', value: 'test', source: 'unspec' }],
      },
    ]);
    if (problems.length > 0) throw new Error(problems[0]?.message);
    await this.core.waitPolicyRevision(revision);
  }
}

function some<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('not started');
  return value;
}
