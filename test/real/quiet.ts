/** What agents and operators have logged above info on a real Kubernetes, but for what is meant to call a person. */
import type { RealCluster } from '../cluster/real/index.ts';

/** pino's number of `info`. */
const INFO = 30;

/** What a person is to see to, and why it may come here although nobody has broken anything. */
const FOR_A_PERSON: readonly { readonly message: string; readonly why: string }[] = [
  {
    message: 'leadership lost: nothing is written until this replica leads again',
    why: 'the API server was silent for 3 s: it shares a busy machine with the whole cluster',
  },
  {
    message: 'leader election failed to reach the lease',
    why: 'the same, of who stands by: not before 3 s of silence (test/operator/log.test.ts)',
  },
];

interface WeirPod {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly nodeName?: string };
  readonly status: { readonly containerStatuses?: readonly { readonly name: string; readonly restartCount: number }[] };
}

/** Lines since each container of the agents and operators that are there was made, also from before it was restarted. */
export async function loudLines(cluster: RealCluster): Promise<string[]> {
  const selector = 'app.kubernetes.io/name in (weir-agent,weir-operator)';
  const list = await cluster.kubectl(['get', 'pods', '-n', 'kube-system', '-l', selector, '-o', 'json']);
  const { items } = JSON.parse(list) as { readonly items: readonly WeirPod[] };
  const nodes = new Set(cluster.nodes.map(({ name }) => name));
  // Pods of a node that left stay for a minute or two, and cannot be asked.
  const here = items.filter(({ spec }) => nodes.has(spec.nodeName ?? ''));
  if (here.length < nodes.size + 1) throw new Error(`${here.length} pods of Weir on ${nodes.size} nodes`);
  const loud: string[] = [];
  for (const { metadata, status } of here) {
    for (const { name, restartCount } of status.containerStatuses ?? []) {
      const logs = ['logs', '-n', 'kube-system', metadata.name, '-c', name];
      const texts = [await cluster.kubectl(logs)];
      if (restartCount > 0) texts.push(await cluster.kubectl([...logs, '--previous']));
      const lines = texts.flatMap((text) => text.split('\n')).filter((line) => line !== '');
      if (lines.length === 0) throw new Error(`${metadata.name} has logged nothing`);
      loud.push(...lines.filter((line) => isLoud(line)).map((line) => `${metadata.name}: ${line}`));
    }
  }
  return loud;
}

/** What is no line of pino's is an accident. */
function isLoud(line: string): boolean {
  if (!line.startsWith('{')) return true;
  const { level, msg } = JSON.parse(line) as { readonly level: number; readonly msg: string };
  return level > INFO && !FOR_A_PERSON.some(({ message }) => message === msg);
}
