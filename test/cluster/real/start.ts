/** `npm run start:real`: keeps a real cluster up until ctrl-C, with Weir installed or as told; prints the KUBECONFIG and what to try. */
import { parseArgs } from 'node:util';
import { RealCluster, weirImages } from './index.ts';

const USAGE = `usage: npm run start:real -- [--nodes COUNT] [--port API_PORT] [--kube-proxy] [--network weir|bridge|none]
  --network weir    installs the chart of this checkout (default)
  --network bridge  the bridge plugin, without policies
  --network none    nodes stay NotReady until you install something`;

/** Bad arguments: exit code 2. */
class UsageError extends Error {}

function whole(flag: string, text: string, from: number, to: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < from || value > to)
    throw new Error(`--${flag} is "${text}": give a whole number from ${from} to ${to}`);
  return value;
}

function read() {
  try {
    const { values } = parseArgs({
      options: {
        nodes: { type: 'string', default: '2' },
        port: { type: 'string', default: '0' },
        'kube-proxy': { type: 'boolean', default: false },
        network: { type: 'string', default: 'weir' },
      },
    });
    if (!['weir', 'bridge', 'none'].includes(values.network))
      throw new Error(`--network is "${values.network}": give weir, bridge or none`);
    return {
      nodes: whole('nodes', values.nodes, 0, 8),
      port: whole('port', values.port, 0, 65_535),
      kubeProxy: values['kube-proxy'],
      network: values.network,
    };
  } catch (error) {
    throw new UsageError(`${error instanceof Error ? error.message : String(error)}\n${USAGE}`);
  }
}

async function main(): Promise<void> {
  const { nodes, port, kubeProxy, network } = read();
  const say = (line: string) => console.error(line);
  say('images of this checkout');
  const images = await weirImages();
  say(`control plane and ${nodes} node(s)`);
  // A signal stops the cluster and then this process.
  const cluster = await RealCluster.start({
    nodes,
    kubeProxy,
    images,
    ...(port === 0 ? {} : { apiPort: port }),
    onLog: say,
  });
  try {
    if (network === 'bridge') await cluster.bridgeOn();
    if (network === 'weir' && nodes > 0) {
      say('helm install weir charts/weir -n kube-system');
      await cluster.install();
    }
  } catch (error) {
    await cluster.stop();
    throw error;
  }
  const agent = nodes === 0 ? '' : `\n  WEIR_SOCKET=${cluster.node(1).socket} bin/weir status\n`;
  const inside = nodes === 0 ? '' : `\nInside node-1: nsenter -t ${cluster.node(1).pid} -m -u -i -n -p -C bash\n`;
  console.log(`
A Kubernetes of ${nodes} node(s) runs on this machine; images on its nodes: localhost/weir-pod:1, localhost/busybox:1, and Weir's.

  export KUBECONFIG=${cluster.kubeconfig}
  kubectl get nodes,pods -A -o wide
  kubectl run try --image=localhost/busybox:1 --image-pull-policy=Never -- sleep 1000000
${agent}${inside}
API server for a chart without kube-proxy: ${cluster.api.host}:${cluster.api.port}. Files and logs: ${cluster.folder}. Ctrl-C takes everything away.`);
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exit(error instanceof UsageError ? 2 : 1);
});
