/** Test helper: an operator on the embedded API server. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  crds,
  createKubeClient,
  type FencingClient,
  type KubeClient,
  type KubeNode,
  type KubeObject,
  type Pod,
  type Resource,
  resources,
} from '@weir/kube';
import type { PartRow } from '@weir/process/parts';
import type { Table } from '@weir/statedb';
import { pino } from 'pino';
import { createOperator, type Operator, type OperatorOptions } from '../../operator/operator.ts';
import type { OperatorConfig } from '../../operator/part-list.ts';
import { type ApiServer, createApiServer } from '../cluster/apiserver/index.ts';

/** How an operator is configured, and who it is told to. */
export type WorldOptions = Partial<OperatorConfig> &
  Partial<Pick<OperatorOptions, 'client' | 'logger' | 'onFatal' | 'parts'>>;

export interface World {
  readonly api: ApiServer;
  readonly url: string;
  /** File that leads a client to the API server. */
  readonly kubeconfig: string;
  /** What users and nodes do: a client of its own. */
  readonly client: KubeClient;
  /** Starts an operator (another one, when called again). */
  operator(options?: WorldOptions): Promise<Operator>;
  /** Waits until the operator has nothing left to do and the API server has been still for a while. */
  settle(operator: Operator): Promise<void>;
  /** Writes of the operator since the last call: `apply peersets`. */
  writes(): string[];
  stop(): Promise<void>;
}

/** Worlds that have been stopped. */
let stopped = 0;

export async function createWorld(options: { readonly crds?: readonly object[] } = {}): Promise<World> {
  const api = createApiServer({ crds: options.crds ?? crds() });
  const { url } = await api.listen();
  const folder = await mkdtemp(join(tmpdir(), 'weir-operator-'));
  const kubeconfig = join(folder, 'config');
  await writeFile(kubeconfig, api.kubeconfig());
  const connect = (userAgent: string): KubeClient & FencingClient =>
    createKubeClient({ kubeconfig, userAgent, requestTimeoutMs: 60_000 });
  const client = connect('test');
  const clients: KubeClient[] = [client];
  const operators: Operator[] = [];
  return {
    api,
    url,
    kubeconfig,
    client,
    async operator({ client: given, logger, onFatal, parts, ...config } = {}) {
      const own = connect('weir-operator');
      clients.push(own);
      const operator = await createOperator({
        client: given ?? own,
        logger: logger ?? pino({ level: process.env.WEIR_TEST_LOG ?? 'silent' }),
        config: { leaderElect: false, healthAddress: '', statusIntervalMs: 0, ...config },
        ...(onFatal === undefined ? {} : { onFatal }),
        ...(parts === undefined ? {} : { parts }),
      });
      operators.push(operator);
      await operator.start();
      return operator;
    },
    async settle(operator) {
      await operator.ready();
      for (let calm = 0; calm < 3; ) {
        const before = api.stats.resourceVersion;
        await new Promise((resolve) => setTimeout(resolve, 40));
        const failing = await operator.settled();
        calm = failing.size === 0 && api.stats.resourceVersion === before ? calm + 1 : 0;
      }
    },
    writes() {
      const rows = api.stats
        .requests({ userAgent: 'weir-operator' })
        // A heartbeat follows from nothing.
        .filter(({ verb, resource }) => !['get', 'list', 'watch'].includes(verb) && resource !== 'leases')
        .flatMap(({ verb, resource, count }) => Array.from({ length: count }, () => `${verb} ${resource}`));
      api.stats.reset();
      return rows.sort();
    },
    async stop() {
      stopped += 1;
      for (const operator of operators) await operator.stop();
      for (const each of clients) each.close();
      await api.stop();
      await rm(folder, { recursive: true });
    },
  };
}

/** How far each part of the operator has come: its table `parts`. */
export function partsOf({ db }: Pick<Operator, 'db'>): readonly PartRow[] {
  const table = db.tables().find(({ name }) => name === 'parts')?.table as Table<PartRow>;
  using snapshot = db.read();
  return [...snapshot.prefix(table, '', 'order')];
}

/** Creates, then writes the status, as a scheduler and a kubelet would. */
export async function createWithStatus(client: KubeClient, object: Pod | KubeNode): Promise<void> {
  const resource = (object.kind === 'Pod' ? resources.Pod : resources.KubeNode) as Resource<KubeObject>;
  await client.create(resource, object);
  const { apiVersion, kind, metadata, status } = object;
  await client.apply(
    resource,
    { apiVersion, kind, metadata, ...(status === undefined ? {} : { status }) },
    {
      fieldManager: 'user',
      force: true,
      subresource: 'status',
    },
  );
}

/** Repeats `check` until it does not throw. The test's own timeout is the limit: what is left of it ends with its world. */
export async function eventually<T>(check: () => Promise<T>): Promise<T> {
  const world = stopped;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (stopped !== world) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
