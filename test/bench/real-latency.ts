/**
 * From just before the write of a policy edit until the last node has it in its kernel, as each node says when that was. Every node hosts
 * a pod of every policy; edits come one after another, a policy is edited again only after its nodes have reported.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createKubeClient, createReflector, type NodePolicyStatus, resources } from '@weir/kube';
import { weirCluster } from '../real/weir.ts';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const POLICIES = 20;
const EDITS = 200;
const WARM_UP = 40;

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
  /** `uid/generation` -> node -> when. */
  const reports = new Map<string, Map<string, number>>();
  const see = (report: NodePolicyStatus): void => {
    for (const [uid, { generation, at }] of Object.entries(report.status?.policies ?? {})) {
      const key = `${uid}/${generation}`;
      const seen = reports.get(key) ?? new Map<string, number>();
      if (at !== undefined) seen.set(report.metadata.name, at);
      reports.set(key, seen);
    }
  };
  const reflector = createReflector<NodePolicyStatus>({
    client,
    resource: resources.NodePolicyStatus,
    sink: {
      replace: (items) => {
        for (const item of items) see(item);
      },
      upsert: see,
      delete: () => {},
    },
  });
  reflector.start();
  try {
    await cluster.createPods(
      Array.from({ length: nodes }, (_, index) => ({
        name: `subject-${index + 1}`,
        labels: { app: 'subject' },
        node: index + 1,
      })),
    );
    const samples: number[] = [];
    const pending = new Map<number, Promise<void>>();
    for (let edit = 0; edit < WARM_UP + EDITS; edit += 1) {
      const index = edit % POLICIES;
      await pending.get(index);
      const at = Date.now();
      const { metadata } = await client.apply(
        resources.CiliumNetworkPolicy,
        policy(index, Math.floor(edit / POLICIES)) as never,
        { fieldManager: 'weir-bench', force: true },
      );
      const key = `${metadata.uid}/${metadata.generation}`;
      pending.set(
        index,
        (async () => {
          const end = Date.now() + 20_000;
          while ((reports.get(key)?.size ?? 0) < nodes) {
            if (Date.now() > end) throw new Error(`edit ${edit} was not enforced on all of ${nodes} nodes within 20 s`);
            await sleep(20);
          }
          if (edit >= WARM_UP) samples.push(Math.max(0, Math.max(...(reports.get(key)?.values() ?? [])) - at));
        })(),
      );
      await sleep(80);
    }
    await Promise.all(pending.values());
    yield {
      case: `apply to enforced on all of ${nodes} nodes, p50 of ${EDITS}`,
      value: quantile(samples, 0.5),
      unit: 'ms',
    };
    yield {
      case: `apply to enforced on all of ${nodes} nodes, p99 of ${EDITS}`,
      value: quantile(samples, 0.99),
      unit: 'ms',
      goal: 100,
    };
  } finally {
    await reflector.stop();
    await cluster.stop();
  }
};
