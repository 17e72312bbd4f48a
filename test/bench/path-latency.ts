/**
 * From the API write of a policy edit to the first packet judged by it: a UDP flow from app2 to app1 at 1 ms, and 200 edits that by
 * turns exclude and admit app2. One node: API server, operator and agent share this machine's cores, and the path between them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster } from '../cluster/index.ts';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const EDITS = 200;
/** Edits before those that count: code that has not run yet, policy slots that have no maps yet. */
const WARM_UP = 20;

const body = (admit: string) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'edit', namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { id: 'app1' } },
    ingress: [{ fromEndpoints: [{ matchLabels: { id: admit } }] }],
  },
});

async function write(cluster: Cluster, admit: string): Promise<number> {
  const at = Date.now();
  const response = await fetch(`${cluster.apiUrl}/apis/cilium.io/v2/namespaces/default/ciliumnetworkpolicies/edit`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/merge-patch+json' },
    body: JSON.stringify(body(admit)),
  });
  if (!response.ok) throw new Error(`edit: ${response.status} ${await response.text()}`);
  return at;
}

export const latency: Suite = async function* () {
  const cluster = await Cluster.start({ nodes: 1 });
  try {
    await cluster.createPods([
      { name: 'app1', labels: { id: 'app1' }, node: 1, udp: [5353] },
      { name: 'app2', labels: { id: 'app2' }, node: 1 },
    ]);
    await cluster.apply(JSON.stringify(body('app2')));
    await cluster.programmed('cnp/edit');
    const stream = await (await cluster.host('app2')).process.stream(
      'udp',
      (await cluster.host('app1')).address,
      5353,
      1,
    );
    await sleep(300);
    const samples: number[] = [];
    for (let edit = 0; edit < WARM_UP + EDITS; edit += 1) {
      const open = edit % 2 === 1;
      const at = await write(cluster, open ? 'app2' : 'nobody');
      // Long enough for any honest answer; the pod notes when its answers stopped or came back.
      const end = Date.now() + 2000;
      for (;;) {
        await sleep(60);
        const { lastAt, backAt } = await stream.report();
        const changed = open ? backAt : lastAt;
        const settled = open ? changed > at : Date.now() - lastAt > 50;
        if (settled) {
          if (edit >= WARM_UP) samples.push(Math.max(0, changed - at));
          break;
        }
        if (Date.now() > end) throw new Error(`edit ${edit} was not enforced within 2 s`);
      }
    }
    await stream.close();
    yield { case: `apply to last packet judged again, p50 of ${EDITS}`, value: quantile(samples, 0.5), unit: 'ms' };
    yield {
      case: `apply to last packet judged again, p99 of ${EDITS}`,
      value: quantile(samples, 0.99),
      unit: 'ms',
      goal: 50,
    };
  } finally {
    await cluster.stop();
  }
};
