/**
 * The kernel against the oracle: the same policies are applied to a running cluster and read by the oracle, and every pair of
 * hosts on every port is tried with a real packet of each family.
 */
import { podIdentityLabels } from '@weir/labels';
import { familyOf } from '@weir/net';
import { type OracleWorld, oracleConnection, parsePolicy, type Rule } from '@weir/policy';
import type { PolicyObject } from '@weir/policy/testing/worlds.ts';
import { Cluster, OUTSIDE, OUTSIDE6, type ProbeProtocol, type TestCluster } from '../cluster/index.ts';

/** Pods of the matrix: the labels of the policy language's test world, on two nodes. */
const PODS = [
  { namespace: 'a', name: 'web', labels: { app: 'web', tier: 'front' }, node: 1 },
  { namespace: 'a', name: 'api', labels: { app: 'api', tier: 'back' }, node: 1 },
  { namespace: 'a', name: 'db', labels: { app: 'db', tier: 'back' }, node: 2 },
  { namespace: 'b', name: 'web', labels: { app: 'web', tier: 'front' }, node: 2 },
  { namespace: 'b', name: 'cli', labels: { app: 'cli', host: 'x' }, node: 2 },
] as const;
const NAMESPACES = { a: { team: 'red' }, b: { team: 'blue' } } as const;
const PORTS: readonly (readonly [ProbeProtocol, number])[] = [
  ['tcp', 80],
  ['tcp', 81],
  ['tcp', 8080],
  ['udp', 53],
  ['udp', 80],
];
const PROTOCOL_NUMBER = { tcp: 6, http: 6, udp: 17 } as const;

/** One pair and port where the packet's fate is not the oracle's verdict. */
export interface Difference {
  readonly flow: string;
  readonly seen: string;
  readonly expected: string;
}

interface Flow {
  /** Name of a host, and its address of the family. */
  readonly from: string;
  readonly source: string;
  /** An address. */
  readonly to: string;
  readonly port: readonly [ProbeProtocol, number];
}

export class Matrix {
  readonly cluster: TestCluster;
  readonly #own: boolean;
  readonly #world: OracleWorld;
  #round = 0;

  private constructor(cluster: TestCluster, own: boolean, world: OracleWorld) {
    this.cluster = cluster;
    this.#own = own;
    this.#world = world;
  }

  /** @param given a cluster of two nodes or more, without the namespaces a and b; it stays. Default: an embedded one. */
  static async start(given?: TestCluster): Promise<Matrix> {
    const tcp = PORTS.filter(([protocol]) => protocol === 'tcp').map(([, port]) => port);
    const udp = PORTS.filter(([protocol]) => protocol === 'udp').map(([, port]) => port);
    const cluster = given ?? (await Cluster.start());
    try {
      const outside = await cluster.host('outside');
      await outside.process.serve('outside', tcp, udp);
      await cluster.applyObjects(
        Object.entries(NAMESPACES).map(([name, labels]) => ({
          apiVersion: 'v1',
          kind: 'Namespace',
          metadata: { name, labels },
        })),
      );
      await cluster.createPods(PODS.map((pod) => ({ ...pod, tcp, udp })));
      return new Matrix(cluster, given === undefined, await worldOf(cluster));
    } catch (error) {
      if (given === undefined) await cluster.stop();
      throw error;
    }
  }

  async close(): Promise<void> {
    if (this.#own) await this.cluster.stop();
    else await this.cluster.kubectl(['delete', 'namespace', ...Object.keys(NAMESPACES), '--timeout=90s']);
  }

  /** Applies the policies alone, waits until they are programmed, tries everything, and takes them away again. */
  async differences(policies: readonly PolicyObject[]): Promise<readonly Difference[]> {
    this.#round += 1;
    const named = policies.map(({ kind, object }, index) => {
      const metadata = { ...(object.metadata as object), name: `round-${this.#round}-${index}` };
      return {
        kind,
        object: { ...object, metadata } as Readonly<Record<string, unknown>> & {
          readonly metadata: { readonly name: string; readonly namespace?: string };
        },
      };
    });
    const rules = named.flatMap(({ kind, object }) => {
      const parsed = parsePolicy(object, kind, { stack: 'dual' });
      if (parsed.problems.some(({ code }) => code !== 'Warning'))
        throw new Error(`a policy of the matrix is not valid: ${JSON.stringify(parsed.problems)}`);
      return parsed.rules;
    });
    if (named.length > 0) await this.cluster.applyObjects(named.map(({ object }) => object));
    try {
      await Promise.all(
        named.map(({ kind, object }) =>
          this.cluster.kubectl([
            'wait',
            '--for=condition=Programmed',
            '--timeout=60s',
            `${kind.toLowerCase()}/${object.metadata.name}`,
            ...(object.metadata.namespace === undefined ? [] : ['-n', object.metadata.namespace]),
          ]),
        ),
      );
      return await this.#tryAll(rules);
    } finally {
      for (const { kind, object } of named)
        await this.cluster.kubectl([
          'delete',
          kind.toLowerCase(),
          object.metadata.name,
          ...(object.metadata.namespace === undefined ? [] : ['-n', object.metadata.namespace]),
        ]);
    }
  }

  async #tryAll(rules: readonly Rule[]): Promise<readonly Difference[]> {
    const pods = PODS.map((pod) => `${pod.namespace}/${pod.name}`);
    const hosts = [...pods, 'node-1', 'node-2', 'outside'];
    const addresses = new Map<string, readonly string[]>();
    for (const name of hosts) addresses.set(name, (await this.cluster.host(name)).addresses);
    const addressesOf = (name: string): readonly string[] => addresses.get(name) ?? [name];
    const flows = hosts.flatMap((from) =>
      [...pods, ...OUTSIDE, ...OUTSIDE6]
        .filter((to) => to !== from && (pods.includes(from) || pods.includes(to)))
        .flatMap((to) => addressesOf(to))
        .flatMap((to) => {
          const source = addressesOf(from).find((address) => familyOf(address) === familyOf(to));
          return source === undefined ? [] : PORTS.map((port) => ({ from, source, to, port }));
        }),
    );
    const found = await Promise.all(flows.map((flow) => this.#try(rules, flow)));
    return found.filter((difference) => difference !== undefined);
  }

  async #try(
    rules: readonly Rule[],
    { from, source, to, port: [protocol, port] }: Flow,
  ): Promise<Difference | undefined> {
    const { verdict, deniedAt } = oracleConnection(this.#world, rules, {
      from: source,
      to,
      protocol: PROTOCOL_NUMBER[protocol],
      port,
    });
    const seen = await this.cluster.probe(from, to, {
      protocol,
      port,
      timeoutMs: verdict === 'allow' ? 60_000 : 300,
    });
    if ((seen === 'reached') === (verdict === 'allow')) return undefined;
    return {
      flow: `${from} -> ${to}:${port}/${protocol}`,
      seen,
      expected: verdict === 'allow' ? 'reached' : `dropped at ${deniedAt}`,
    };
  }
}

/** The pods and nodes as the oracle sees them: with the labels and addresses that the cluster gave them. */
async function worldOf(cluster: TestCluster): Promise<OracleWorld> {
  const text = await cluster.kubectl(['get', 'namespaces', ...Object.keys(NAMESPACES), '-o', 'json']);
  const { items } = JSON.parse(text) as {
    readonly items: readonly {
      readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
    }[];
  };
  const labels = new Map(items.map(({ metadata }) => [metadata.name, metadata.labels ?? {}]));
  return {
    endpoints: await Promise.all(
      PODS.map(async (pod) => ({
        name: `${pod.namespace}/${pod.name}`,
        labels: podIdentityLabels({
          namespace: pod.namespace,
          namespaceLabels: labels.get(pod.namespace) ?? {},
          podLabels: pod.labels,
          serviceAccount: 'default',
          cluster: cluster.name,
        }),
        addresses: (await cluster.host(`${pod.namespace}/${pod.name}`)).addresses,
        node: `node-${pod.node}`,
      })),
    ),
    nodes: await Promise.all(
      cluster.nodes.map(async ({ name }) => ({ name, addresses: (await cluster.host(name)).addresses })),
    ),
  };
}
