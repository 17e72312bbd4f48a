/** Ordinary life of a cluster is no reason to wake a person: nothing is logged above info. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const ROUNDS = 2;
const NAMESPACES = 2;
/** pino's number of `info`. */
const INFO = 30;

/** Allows pods among each other, and a CIDR that is another one in each generation. */
function policies(namespace: string, generation: number): object[] {
  const metadata = { name: 'guard', namespace };
  return [
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNetworkPolicy',
      metadata,
      spec: {
        endpointSelector: { matchLabels: generation % 2 === 0 ? {} : { tier: 'a' } },
        ingress: [
          { fromEndpoints: [{}], toPorts: [{ ports: [{ port: String(80 + generation), protocol: 'TCP' }] }] },
          { fromCIDR: [`192.0.2.${generation}/32`] },
        ],
      },
    },
    {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata,
      spec: { podSelector: {}, ingress: [{ ports: [{ port: 80 + generation }] }] },
    },
  ];
}

describe('churn', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start();
  });
  afterAll(() => cluster?.stop());

  /** Lines of agents and operator above info. */
  function loud(): string[] {
    const files = ['operator', ...cluster.nodes.map(({ name }) => `agent-${name}`)];
    return files.flatMap((file) => {
      const lines = readFileSync(join(cluster.logDir, `${file}.log`), 'utf8')
        .split('\n')
        .filter((line) => line !== '');
      expect(lines.length).toBeGreaterThan(0);
      return lines.filter((line) => !line.startsWith('{') || (JSON.parse(line) as { level: number }).level > INFO);
    });
  }

  const kubectl = (...args: readonly string[]): Promise<string> => cluster.kubectl(args);

  /** A namespace with policies and pods, which change, and of which some go before it all goes. */
  async function life(namespace: string): Promise<void> {
    await kubectl('create', 'namespace', namespace);
    await cluster.applyObjects(policies(namespace, 0));
    const names = ['a', 'b', 'c', 'd'];
    const tier = (name: string): string => (name < 'c' ? 'a' : 'b');
    await cluster.createPods(
      names.map((name, index) => ({
        name,
        namespace,
        labels: { name, namespace, tier: tier(name) },
        node: 1 + (index % 2),
        tcp: [80],
      })),
    );
    await Promise.all([
      cluster.applyObjects(policies(namespace, 1)),
      kubectl('delete', 'pod', 'a', '-n', namespace, '--wait=false'),
      kubectl('label', 'pod', 'b', '-n', namespace, 'tier=c', '--overwrite'),
    ]);
    await Promise.all([
      cluster.applyObjects(policies(namespace, 2)),
      kubectl('delete', 'pod', 'c', '-n', namespace, '--force', '--grace-period=0', '--wait=false'),
    ]);
    // With pods and policies in it, which change until the end.
    await Promise.all([
      kubectl('delete', 'namespace', namespace, '--timeout=60s'),
      cluster.tryKubectl(['label', 'pod', '--all', '-n', namespace, 'tier=d', '--overwrite']),
    ]);
  }

  it('logs nothing above info while pods, policies and namespaces come and go', async () => {
    const spaces = Array.from({ length: NAMESPACES }, (_, number) => `space-${number}`);
    for (let round = 0; round < ROUNDS; round += 1) await Promise.all(spaces.map((space) => life(space)));
    const gone = await eventually(
      () => kubectl('get', 'cep,cnp,netpol', '-A', '-o', 'name'),
      (found) => found === '',
    );
    expect(gone).toBe('');
    expect(loud()).toEqual([]);
  });
});
