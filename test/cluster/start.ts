/** `npm start`: keeps a cluster up until ctrl-C, prints the KUBECONFIG and what to try. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Family, familyOf } from '@weir/net';
import { Cluster } from './index.ts';
import { TOOL_PATH } from './run.ts';

function number(flag: string, text: string, from: number, to: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < from || value > to)
    throw new Error(`--${flag} is "${text}": give a whole number from ${from} to ${to}`);
  return value;
}

/** The one that bootstrap installs need not be on the user's PATH. */
function kubectlPath(): string {
  return (
    TOOL_PATH.split(delimiter)
      .map((folder) => join(folder, 'kubectl'))
      .find((file) => existsSync(file)) ?? 'not found on this machine'
  );
}

/** Bad arguments: exit code 2. */
class UsageError extends Error {}

const FAMILIES: Readonly<Record<string, readonly Family[]>> = { '4': [4], '6': [6], '4,6': [4, 6] };

function options(): { readonly port: number; readonly nodes: number; readonly families: readonly Family[] } {
  try {
    const { values } = parseArgs({
      options: {
        port: { type: 'string', default: '0' },
        nodes: { type: 'string', default: '2' },
        families: { type: 'string', default: '4,6' },
      },
    });
    const families = Object.hasOwn(FAMILIES, values.families) ? FAMILIES[values.families] : undefined;
    if (families === undefined) throw new Error(`--families is "${values.families}": give 4, 6 or 4,6`);
    return { port: number('port', values.port, 0, 65_535), nodes: number('nodes', values.nodes, 1, 8), families };
  } catch (error) {
    throw new UsageError(
      `${error instanceof Error ? error.message : String(error)}\nusage: npm start -- [--port API_PORT] [--nodes COUNT] [--families 4|6|4,6]`,
    );
  }
}

async function main(): Promise<void> {
  const { port, nodes, families } = options();
  const cluster = await Cluster.start({
    nodes,
    families,
    webhooks: true,
    dnsProxies: true,
    ...(port === 0 ? {} : { apiPort: port }),
    // What of it ends, nothing starts again: the programs are the cluster's own.
    onLog: (line) =>
      console.error(line.includes(' has ended (') ? `${line}; ctrl-C and \`npm start\` make a new cluster` : line),
  });
  let stopping = false;
  const stop = async () => {
    if (stopping) return;
    stopping = true;
    console.log('\nstopping: pods, agents, namespaces, pins');
    await cluster.stop();
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      stop().catch((error: unknown) => {
        console.error(error);
        process.exitCode = 1;
      });
    });
  }
  await cluster.createPods([
    { name: 'app1', labels: { id: 'app1' }, node: 1, tcp: [80, 8080] },
    { name: 'app2', labels: { id: 'app2' }, node: 1, tcp: [80] },
    { name: 'app3', labels: { id: 'app3' }, node: nodes, tcp: [80] },
  ]);
  const app1 = cluster.sandbox('app1');
  const app3 = cluster.sandbox('app3');
  const [address = ''] = app1.addresses;
  const host = familyOf(address) === 6 ? `[${address}]` : address;
  console.log(`
A cluster of ${nodes} ${nodes === 1 ? 'node' : 'nodes'} runs on this machine. Three pods run: app1 and app2 on node-1, app3 on node-${nodes}.
There is no scheduler and no controller: a Deployment makes no pods, and a pod needs spec.nodeName:
  kubectl run my-pod --image any --overrides '{"spec":{"nodeName":"node-1"}}'
kubectl: ${kubectlPath()}

  export KUBECONFIG=${cluster.kubeconfig}
  kubectl get nodes,pods,cep -o wide
  kubectl apply -f test/story/example.yaml        # app1 accepts from id=app2 on TCP 80 only
  kubectl wait --for=condition=Programmed cnp/l3-rule && kubectl get cnp
  sed s/fromEndpoints/fromEndpoint/ test/story/example.yaml | kubectl apply -f -   # is refused: it says where, and what to write

Packets, from inside a pod's network namespace:

  nsenter --net=/var/run/netns/${app3.netns} node_modules/.bin/node -e 'fetch("http://${host}/").then(r => r.text()).then(console.log, console.error)'

The agent of node-1 (status, endpoint list, monitor, map list, ...):

  WEIR_SOCKET=${cluster.node(1).socket} bin/weir monitor

Logs: ${cluster.logDir}. Ctrl-C takes everything away.`);
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exit(error instanceof UsageError ? 2 : 1);
});
