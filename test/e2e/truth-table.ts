/**
 * Three namespaces of three pods, two ports, TCP and UDP: who reaches whom under a set of policies of all kinds, by the oracle and by
 * real packets of each family that the pods have. Runs on any cluster.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { podIdentityLabels } from '@weir/labels';
import { familyOf } from '@weir/net';
import { type OracleWorld, oracleConnection, type PolicyKind, parsePolicy, type Rule } from '@weir/policy';
import type { TestCluster } from '../cluster/types.ts';
import { NAMESPACES } from './truth-cases.ts';

const FLOWS = [
  ['tcp', 80],
  ['tcp', 81],
  ['udp', 80],
  ['udp', 81],
] as const;
const PROTOCOL_NUMBER = { tcp: 6, udp: 17 } as const;

type Team = keyof typeof NAMESPACES;
interface TruthPod {
  readonly namespace: Team;
  readonly name: string;
  readonly node: number;
  readonly portNames: Readonly<Record<'web' | 'alt', '80/tcp' | '81/tcp'>>;
}

/** Every namespace is on both nodes, and every pair of nodes and namespaces is met. */
const PODS: readonly TruthPod[] = (Object.keys(NAMESPACES) as Team[]).flatMap((namespace, index) =>
  ['a', 'b', 'c'].map((name, place) => ({
    namespace,
    name,
    node: ((index + place) % 2) + 1,
    portNames:
      namespace === 'x' && name === 'c'
        ? ({ web: '81/tcp', alt: '80/tcp' } as const)
        : ({ web: '80/tcp', alt: '81/tcp' } as const),
  })),
);
const nameOf = ({ namespace, name }: TruthPod): string => `${namespace}/${name}`;

interface PolicyManifest {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

export interface Truth {
  /**
   * Rows are sources, columns destinations; a cell is TCP 80, TCP 81, UDP 80, UDP 81: `+` reached by each family, `-` by none, `!` other than the
   * oracle says.
   */
  readonly table: string;
  readonly differences: readonly string[];
}

type Pair = readonly [source: string, destination: string];

interface Try {
  readonly pair: Pair;
  readonly expected: boolean;
  readonly seen: boolean;
  readonly deniedAt: string | undefined;
}

export class TruthTable {
  readonly #cluster: TestCluster;
  readonly #world: OracleWorld;
  #round = 0;

  private constructor(cluster: TestCluster, addresses: ReadonlyMap<string, readonly string[]>) {
    this.#cluster = cluster;
    this.#world = {
      endpoints: PODS.map((pod) => ({
        name: nameOf(pod),
        labels: podIdentityLabels({
          namespace: pod.namespace,
          namespaceLabels: { 'kubernetes.io/metadata.name': pod.namespace, ...NAMESPACES[pod.namespace] },
          podLabels: { pod: pod.name },
          serviceAccount: 'default',
          cluster: cluster.name,
        }),
        addresses: addresses.get(nameOf(pod)) ?? [],
        node: cluster.node(pod.node).name,
        namedPorts: Object.entries(pod.portNames).map(([name, port]) => ({
          name,
          port: Number.parseInt(port, 10),
          protocol: 'TCP',
        })),
      })),
      nodes: cluster.nodes.map((node) => ({ name: node.name, addresses: [node.address] })),
    };
  }

  /** Makes the namespaces and their pods. */
  static async set(cluster: TestCluster): Promise<TruthTable> {
    await cluster.applyObjects(
      Object.entries(NAMESPACES).map(([name, labels]) => ({
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name, labels: { 'kubernetes.io/metadata.name': name, ...labels } },
      })),
    );
    await cluster.createPods(PODS.map((pod) => ({ ...pod, labels: { pod: pod.name }, tcp: [80, 81], udp: [80, 81] })));
    const addresses = await Promise.all(
      PODS.map(async (pod) => [nameOf(pod), (await cluster.host(nameOf(pod))).addresses] as const),
    );
    return new TruthTable(cluster, new Map(addresses));
  }

  /** Takes its namespaces away, with their pods. */
  async clear(): Promise<void> {
    await this.#cluster.kubectl(['delete', 'namespace', ...Object.keys(NAMESPACES), '--timeout=90s']);
  }

  /** Applies the policies alone, tries every flow, and takes them away again. */
  async play(policies: readonly object[]): Promise<Truth> {
    this.#round += 1;
    const manifests = (policies as readonly PolicyManifest[]).map((policy, index) => ({
      ...policy,
      metadata: { ...policy.metadata, name: `truth-${this.#round}-${index}` },
    }));
    const rules = manifests.flatMap((manifest) => {
      const { rules: parsed, problems } = parsePolicy(manifest, manifest.kind as Exclude<PolicyKind, 'BareRules'>, {
        stack: 'dual',
      });
      // What asks for more than Weir does is applied, and closed.
      if (problems.some(({ code }) => code !== 'Warning' && code !== 'UnsupportedField'))
        throw new Error(`a policy of the truth table is not valid: ${JSON.stringify(problems)}`);
      return parsed;
    });
    if (manifests.length > 0) await this.#cluster.applyObjects(manifests);
    try {
      await this.#programmed(manifests);
      return await this.#tryAll(rules);
    } finally {
      for (const { kind, metadata } of manifests)
        await this.#cluster.kubectl(['delete', kind, metadata.name, ...inNamespace(metadata.namespace)]);
    }
  }

  /** NetworkPolicies have no status of their own: what became of each policy is in its ResolvedPolicy, or its own status. */
  async #programmed(manifests: readonly PolicyManifest[]): Promise<void> {
    for (const { kind, metadata } of manifests) {
      if (kind === 'NetworkPolicy') await this.#networkPolicyProgrammed(metadata.name);
      else
        await this.#cluster.kubectl([
          ...['wait', '--for=condition=Programmed', '--timeout=60s', `${kind}/${metadata.name}`],
          ...inNamespace(metadata.namespace),
        ]);
    }
  }

  async #networkPolicyProgrammed(name: string): Promise<void> {
    const end = Date.now() + 60_000;
    for (;;) {
      const { items } = JSON.parse(await this.#cluster.kubectl(['get', 'resolvedpolicies', '-o', 'json'])) as {
        readonly items: readonly {
          readonly spec: { readonly source: { readonly name: string; readonly generation: number } };
          readonly status?: {
            readonly conditions?: readonly {
              readonly type: string;
              readonly status: string;
              readonly observedGeneration: number;
            }[];
          };
        }[];
      };
      const resolved = items.find(({ spec }) => spec.source.name === name);
      const programmed = resolved?.status?.conditions?.find(({ type }) => type === 'Programmed');
      if (programmed?.status === 'True' && programmed.observedGeneration === resolved?.spec.source.generation) return;
      if (Date.now() > end)
        throw new Error(`NetworkPolicy ${name} is not programmed: ${JSON.stringify(resolved?.status ?? 'no status')}`);
      await sleep(50);
    }
  }

  async #tryAll(rules: readonly Rule[]): Promise<Truth> {
    const differences: string[] = [];
    const cell = async (from: TruthPod, to: TruthPod): Promise<string> => {
      if (from === to) return '    ';
      const marks = await Promise.all(
        FLOWS.map(async ([protocol, port]) => {
          const tries = await Promise.all(
            this.#pairs(from, to).map((pair) => this.#try(rules, { from, pair, protocol, port })),
          );
          for (const { pair, expected, seen, deniedAt } of tries)
            if (expected !== seen)
              differences.push(
                `${nameOf(from)} -> ${nameOf(to)} (${pair[1]}) ${protocol} ${port}: ${seen ? 'reached' : 'not reached'}, the oracle says ${expected ? 'allowed' : `denied at ${deniedAt}`}`,
              );
          const [first] = tries;
          const same = tries.every(({ seen, expected }) => seen === expected && seen === first?.seen);
          return same ? (first?.seen === true ? '+' : '-') : '!';
        }),
      );
      return marks.join('');
    };
    const rows = await Promise.all(PODS.map((from) => Promise.all(PODS.map((to) => cell(from, to)))));
    const head = ['   ', ...PODS.map((pod) => ` ${nameOf(pod)}`)].join(' ');
    const table = [head, ...PODS.map((pod, row) => [nameOf(pod), ...(rows[row] ?? [])].join(' '))].join('\n');
    return { table, differences };
  }

  /** Their addresses of each family that both have. */
  #pairs(from: TruthPod, to: TruthPod): readonly Pair[] {
    const addresses = (pod: TruthPod): readonly string[] =>
      this.#world.endpoints.find(({ name }) => name === nameOf(pod))?.addresses ?? [];
    return addresses(to).flatMap((at) => {
      const source = addresses(from).find((address) => familyOf(address) === familyOf(at));
      return source === undefined ? [] : [[source, at] as const];
    });
  }

  async #try(
    rules: readonly Rule[],
    { from, pair, protocol, port }: { from: TruthPod; pair: Pair; protocol: 'tcp' | 'udp'; port: number },
  ): Promise<Try> {
    const [source, to] = pair;
    const { verdict, deniedAt } = oracleConnection(this.#world, rules, {
      from: source,
      to,
      protocol: PROTOCOL_NUMBER[protocol],
      port,
    });
    const expected = verdict === 'allow';
    // Where an answer is expected a slow machine is given time; where a drop is expected silence is believed sooner.
    const seen = await this.#cluster.probe(nameOf(from), to, {
      protocol,
      port,
      timeoutMs: expected ? 60_000 : 400,
    });
    return { pair, expected, seen: seen === 'reached', deniedAt };
  }
}

function inNamespace(namespace: string | undefined): readonly string[] {
  return namespace === undefined ? [] : ['-n', namespace];
}
