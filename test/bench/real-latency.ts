/**
 * From just before the write of a policy edit until the last node has it in its kernel, as each node says when that was. Every node hosts
 * a pod of every policy; edits come one after another, each after the nodes have reported the last.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  createKubeClient,
  createReflector,
  type KubeObject,
  type NodePolicyStatus,
  type Reflector,
  type ResolvedPolicyObject,
  type Resource,
  reachesVersion,
  resources,
} from '@weir/kube';
import { weirCluster } from '../real/weir.ts';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const POLICIES = 20;
const EDITS = 60;
const WARM_UP = 20;
/** A node reports at most once a second. */
const EVERY_MS = 1_100;

const policy = (index: number, edit: number) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: `edit-${index}`, namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { app: 'subject' } },
    ingress: [{ fromEndpoints: [{ matchLabels: { app: edit % 2 === 0 ? 'left' : 'right' } }], toPorts: ports(index) }],
  },
});
const ports = (index: number) => [{ ports: [{ port: String(1000 + index), protocol: 'TCP' }] }];

export const latency = async function* (nodes: number): ReturnType<Suite> {
  const cluster = await weirCluster({ nodes });
  const client = createKubeClient({ kubeconfig: cluster.kubeconfig, userAgent: 'weir-bench' });
  /** `uid/generation` -> the version that brought it. */
  const versions = new Map<string, string>();
  /** node -> the version that it has reported, and when. */
  const reports = new Map<string, { readonly version: string; readonly at: number }>();
  const watch = <T extends KubeObject>(resource: Resource<T>, see: (object: T) => void): Reflector =>
    createReflector<T>({
      client,
      resource,
      sink: { replace: (items) => items.forEach(see), upsert: see, delete: () => {} },
    });
  const reflectors = [
    watch<ResolvedPolicyObject>(resources.ResolvedPolicy, ({ metadata, spec: { source } }) => {
      const key = `${source.uid}/${source.generation}`;
      if (!versions.has(key)) versions.set(key, metadata.resourceVersion ?? '');
    }),
    watch<NodePolicyStatus>(resources.NodePolicyStatus, ({ metadata, status }) => {
      const { policyVersion: version } = status;
      if (version !== undefined && reports.get(metadata.name)?.version !== version)
        reports.set(metadata.name, { version, at: Date.now() });
    }),
  ];
  for (const reflector of reflectors) reflector.start();
  try {
    await cluster.createPods(
      Array.from({ length: nodes }, (_, index) => ({
        name: `subject-${index + 1}`,
        labels: { app: 'subject' },
        node: index + 1,
      })),
    );
    const samples: number[] = [];
    for (let edit = 0; edit < WARM_UP + EDITS; edit += 1) {
      const index = edit % POLICIES;
      const at = Date.now();
      const { metadata } = await client.apply(
        resources.CiliumNetworkPolicy,
        policy(index, Math.floor(edit / POLICIES)) as never,
        { fieldManager: 'weir-bench', force: true },
      );
      const reached = (): number => {
        const version = versions.get(`${metadata.uid}/${metadata.generation}`);
        const those = [...reports.values()].filter(
          (of) => version !== undefined && reachesVersion(of.version, version),
        );
        return those.length < nodes ? Infinity : Math.max(...those.map((of) => of.at));
      };
      while (reached() === Infinity) {
        if (Date.now() > at + 20_000)
          throw new Error(`edit ${edit} was not enforced on all of ${nodes} nodes within 20 s`);
        await sleep(5);
      }
      if (edit >= WARM_UP) samples.push(reached() - at);
      await sleep(EVERY_MS);
    }
    yield {
      case: `apply to reported by all of ${nodes} nodes, p50 of ${EDITS}`,
      value: quantile(samples, 0.5),
      unit: 'ms',
    };
    yield {
      case: `apply to reported by all of ${nodes} nodes, p99 of ${EDITS}`,
      value: quantile(samples, 0.99),
      unit: 'ms',
      goal: 100,
    };
  } finally {
    await Promise.all(reflectors.map((reflector) => reflector.stop()));
    await cluster.stop();
  }
};
