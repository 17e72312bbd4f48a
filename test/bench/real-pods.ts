/**
 * From a pod's binding to its node until it is Ready, as a watch sees it: Weir and the plain bridge plugin by turns on one cluster. A
 * configuration that sorts before Weir's is the one that the container runtime takes.
 */
import { createKubeClient, createReflector, type Pod, resources } from '@weir/kube';
import type { RealCluster } from '../cluster/real/index.ts';
import { weirCluster } from '../real/weir.ts';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const ROUNDS = 4;
const PODS = 12;

class PodClock {
  readonly #bound = new Map<string, number>();
  readonly #ready = new Map<string, (ms: number) => void>();
  readonly #reflector;

  constructor(kubeconfig: string) {
    this.#reflector = createReflector<Pod>({
      client: createKubeClient({ kubeconfig, userAgent: 'weir-bench' }),
      resource: resources.Pod,
      sink: {
        replace: (pods) => {
          for (const pod of pods) this.#see(pod);
        },
        upsert: (pod) => this.#see(pod),
        delete: () => {},
      },
    });
    this.#reflector.start();
  }

  #see(pod: Pod): void {
    const { name } = pod.metadata;
    if (pod.spec?.nodeName !== undefined && !this.#bound.has(name)) this.#bound.set(name, performance.now());
    const { conditions } = (pod.status ?? {}) as { conditions?: readonly { type: string; status: string }[] };
    const ready = conditions?.some(({ type, status }) => type === 'Ready' && status === 'True');
    if (ready === true) this.#ready.get(name)?.(performance.now() - (this.#bound.get(name) ?? Number.NaN));
  }

  ready(name: string): Promise<number> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`pod ${name} is not Ready after 60 s`)), 60_000);
      this.#ready.set(name, (ms) => {
        clearTimeout(timer);
        resolve(ms);
      });
    });
  }

  stop(): Promise<void> {
    return this.#reflector.stop();
  }
}

const podObject = (name: string, node: string) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace: 'default', labels: { app: 'bench' } },
  spec: {
    nodeSelector: { 'kubernetes.io/hostname': node },
    terminationGracePeriodSeconds: 0,
    containers: [
      { name: 'main', image: 'localhost/busybox:1', imagePullPolicy: 'Never', command: ['sleep', '100000'] },
    ],
  },
});

async function round(cluster: RealCluster, clock: PodClock, label: string): Promise<number[]> {
  const samples: number[] = [];
  for (let pod = 0; pod < PODS; pod += 1) {
    const name = `${label}-${pod}`;
    const ready = clock.ready(name);
    await cluster.applyObjects([podObject(name, cluster.node((pod % 2) + 1).name)]);
    samples.push(await ready);
  }
  await cluster.kubectl(['delete', 'pod', '-l', 'app=bench', '--timeout=60s']);
  return samples;
}

export const podStart: Suite = async function* () {
  const cluster = await weirCluster({ install: false });
  try {
    const began = performance.now();
    await cluster.install();
    yield { case: 'helm install until all is Ready, 2 nodes', value: (performance.now() - began) / 1000, unit: 's' };
    const clock = new PodClock(cluster.kubeconfig);
    const samples = { weir: [] as number[], bridge: [] as number[] };
    try {
      await round(cluster, clock, 'warm-up');
      for (let turn = 0; turn < ROUNDS; turn += 1) {
        samples.weir.push(...(await round(cluster, clock, `weir-${turn}`)));
        await cluster.bridgeOn();
        samples.bridge.push(...(await round(cluster, clock, `bridge-${turn}`)));
        await cluster.bridgeOff();
      }
    } finally {
      await clock.stop();
    }
    const peer = quantile(samples.bridge, 0.5);
    yield {
      case: `pod start, schedule to Ready, p50 of ${ROUNDS * PODS} (peer: bridge plugin; goal: 1.1 times it)`,
      value: quantile(samples.weir, 0.5),
      unit: 'ms',
      peer,
      goal: 1.1 * peer,
    };
    yield {
      case: 'pod start, schedule to Ready, p90 (peer: bridge plugin)',
      value: quantile(samples.weir, 0.9),
      unit: 'ms',
      peer: quantile(samples.bridge, 0.9),
    };
  } finally {
    await cluster.stop();
  }
};
