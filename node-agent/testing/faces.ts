/** An agent on the real kernel with all that shows what it does, and one endpoint: the pod of a server. */
import { join } from 'node:path';
import type { CiliumEndpoint, KubeClient } from '@weir/kube';
import { labelsKey, podIdentityLabels } from '@weir/labels';
import { eventually } from '../../test/eventually.ts';
import { ApiServer, createMetrics } from '../api/index.ts';
import type { EndpointHealth, EndpointModel, PolicyStatusModel, StatusResponse } from '../api/models.ts';
import { runCli } from '../cli/program.ts';
import { Attachments } from '../cni/attachments.ts';
import { vethName } from '../cni/names.ts';
import type { Network } from '../cni/types.ts';
import { createCore } from '../core/create-core.ts';
import type { Core } from '../core.ts';
import { type Lab, type LabPod, silent } from '../datapath/testing/lab.ts';
import { Flows } from '../flows/flows.ts';
import { CiliumEndpointWriter } from '../kubernetes/cilium-endpoints.ts';
import { Connection } from '../kubernetes/connection.ts';
import type { EndpointRow, PolicyRow } from '../tables.ts';
import { agentView } from './agent-view.ts';
import { call } from './request.ts';

const APPS = new Map([
  ['client', 300],
  ['server', 301],
  ['other', 302],
]);
export function labelsOf(app: string): Record<string, string> {
  const of = { namespace: 'default', namespaceLabels: {}, serviceAccount: '', cluster: 'default' };
  return { ...podIdentityLabels({ ...of, podLabels: { app } }) };
}

/** Of servers: from `peer`, at one port. */
export function policy(generation: number, peer: string, direction: 'ingress' | 'egress' = 'ingress'): PolicyRow {
  const rule = { subject: 'server', verdict: 'allow', peers: [{ peerSet: peer }], defaultDeny: true } as const;
  const ports = [{ protocol: 'TCP', from: 80, to: 80 + generation }] as const;
  return {
    uid: 'p',
    kind: 'CiliumNetworkPolicy',
    namespace: 'default',
    name: 'p',
    generation,
    rules: [{ ...rule, direction, ports, cookie: generation, path: `spec.${direction}[0]` }],
  };
}

/** An agent with all that shows what it does. */
export class Faces {
  readonly core: Core;
  readonly ceps: (CiliumEndpoint['status'] | undefined)[] = [];
  /** Peer sets come to the end of their list. */
  complete = (): void => undefined;
  readonly #server: LabPod;
  readonly flows: Flows;
  readonly #api: ApiServer;
  readonly #writer: CiliumEndpointWriter;
  readonly #socket: string;
  readonly #metrics: ReturnType<typeof createMetrics>;

  private constructor(lab: Lab, server: LabPod) {
    this.#server = server;
    this.core = createCore(lab.options({ kernel: { auditMs: 20 } }));
    const { core } = this;
    this.flows = new Flows({
      db: core.db,
      services: core.tables.services,
      naming: core.naming,
      map: () => core.map('events'),
      log: silent,
    });
    this.#socket = join(lab.state, 'weir.sock');
    this.#api = new ApiServer({
      socket: this.#socket,
      core,
      flows: this.flows,
      log: silent,
      version: '1',
      nodeName: 'lab',
      clusterName: 'default',
      kubernetes: false,
      agent: agentView(),
      detach: async () => false,
      interfaceIndex: async () => 1,
      podCidrs: () => [],
    });
    const client = {
      apply: async (_: unknown, object: CiliumEndpoint) => {
        this.ceps.push(object.status);
        return object;
      },
      delete: async () => void this.ceps.push(undefined),
    } as unknown as KubeClient;
    const connection = new Connection(core.db, silent);
    this.#writer = new CiliumEndpointWriter({ core, client, nodeName: 'lab', connection });
    this.#metrics = createMetrics({ core, version: '1' });
  }

  /** @param app whose pod the server is. `incomplete`: peer sets never come to the end of their list */
  static async start(lab: Lab, server: LabPod, { app = 'server', incomplete = false } = {}): Promise<Faces> {
    const faces = new Faces(lab, server);
    const { core } = faces;
    if (incomplete) {
      const done = core.db.initialiser(core.tables.peerSets, 'reflector');
      faces.complete = () => core.db.write([core.tables.peerSets], (txn) => done(txn));
    }
    faces.tell(app);
    await core.start();
    faces.flows.start();
    faces.#writer.start();
    await faces.#api.start();
    return faces;
  }

  async stop(): Promise<void> {
    await this.#api.stop();
    await this.#writer.stop();
    this.flows.stop();
    await this.core.stop();
  }

  tell(app = 'server'): void {
    const { db, tables } = this.core;
    db.write(Object.values(tables), (txn) => {
      txn.upsert(tables.namespaces, { name: 'default', labels: {} });
      for (const [name, id] of APPS) {
        const labels = labelsOf(name);
        txn.upsert(tables.identities, { id, labels, labelsKey: labelsKey(labels) });
        const selector = { requirements: [{ key: 'k8s:app', operator: 'In' as const, values: [name] }] };
        txn.upsert(tables.peerSets, { hash: name, selector, identities: [id], origin: 'cluster' });
      }
      if (txn.get(tables.policies, 'p') === undefined) txn.upsert(tables.policies, policy(1, 'client'));
      const pod = { namespace: 'default', name: 'server' };
      const addresses = [this.#server.address];
      txn.upsert(tables.localPods, {
        ...pod,
        uid: 'u-server',
        labels: { app },
        serviceAccount: '',
        namedPorts: [],
        addresses,
      });
      const identity = APPS.get(app) ?? 0;
      txn.upsert(tables.remoteEndpoints, {
        ...pod,
        addresses,
        identity,
        node: '192.0.2.1',
        namedPorts: [],
        podUid: 'u-server',
      });
    });
  }

  edit(row: PolicyRow): void {
    const { db, tables } = this.core;
    db.write([tables.policies], (txn) => txn.upsert(tables.policies, row));
  }

  endpoint(): EndpointRow {
    return {
      id: 2,
      ifindex: this.#server.ifindex,
      interfaceName: this.#server.interfaceName,
      addresses: [this.#server.address],
      pod: { namespace: 'default', name: 'server', uid: 'u-server' },
      createdAt: '2026-01-01T00:00:00Z',
    };
  }

  async get<T>(path: string): Promise<T> {
    return (await call(this.#socket, 'GET', path)).body as T;
  }

  async weir(...args: readonly string[]): Promise<{ readonly code: number; readonly text: string }> {
    let text = '';
    const out = {
      write: (more: string) => {
        text += more;
      },
    };
    const { signal } = new AbortController();
    const code = await runCli({ args: ['--socket', this.#socket, ...args], version: '1', out, err: out, signal });
    return { code, text };
  }

  /** What the faces say of the server's endpoint, short. */
  async all() {
    const { status } = await this.get<EndpointModel>('/endpoint/2');
    const { spec, realized } = status.policy;
    const told = await this.get<StatusResponse>('/healthz');
    const [policyStatus] = await this.get<readonly PolicyStatusModel[]>('/policy/status');
    const list = await this.weir('endpoint', 'list');
    const metrics = await this.#metrics.metrics();
    const metric = (name: string): string[] => metrics.split('\n').filter((line) => line.startsWith(name));
    return {
      state: status.state,
      log: status.log[0]?.message ?? '',
      code: status.log[0]?.code,
      identity: status.identity.id,
      health: status.health,
      healthz: await this.get<EndpointHealth>('/endpoint/2/healthz'),
      spec,
      realized,
      line: list.text.split('\n')[1] ?? '',
      ready: told.weir.endpoints,
      ok: told.cilium.state,
      revision: [told.weir.policyRevision, told.weir.realisedRevision],
      statusText: (await this.weir('status')).text,
      policyStatus,
      cep: this.ceps.at(-1),
      endpoints: metric('weir_endpoints{'),
      lag: metric('weir_agent_policy_revision_lag '),
      inUse:
        await this.get<readonly { readonly identity: { readonly id: number }; readonly refCount: number }[]>(
          '/identity/endpoints',
        ),
      check: await this.#check(),
    };
  }

  /** What CNI CHECK says of it; empty: nothing. */
  async #check(): Promise<string> {
    const attachment = { containerId: 'c', ifname: 'eth0' };
    const network = { checkPod: async () => [] } as unknown as Network;
    const attachments = new Attachments({
      core: this.core,
      network,
      log: silent,
      ending: new AbortController().signal,
    });
    const endpoints = attachments.endpoints();
    attachments.endpoints = () => endpoints.map((row) => ({ ...row, interfaceName: vethName(attachment) }));
    try {
      await attachments.check(attachment, '');
      return '';
    } catch (error) {
      return (error as Error).message;
    }
  }

  when(check: (all: Shown) => boolean) {
    return eventually(() => this.all(), check);
  }
}

export type Shown = Awaited<ReturnType<Faces['all']>>;
