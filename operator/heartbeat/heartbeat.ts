import { type KubeClient, type Lease, resources } from '@weir/kube';
import { delay } from '@weir/process/delay';

/** Milliseconds between two beats: each is one event for every agent. */
const INTERVAL_MS = 5_000;
/** For how long a beat is good: three of them may be lost. */
const VALID_SECONDS = 20;
const FIELD_MANAGER = 'weir-operator';

export interface HeartbeatOptions {
  /** Writes only while this process leads. */
  readonly client: Pick<KubeClient, 'apply'>;
  readonly namespace: string;
  readonly name: string;
  /** Of this process. */
  readonly identity: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly onError: (error: unknown) => void;
  /** Milliseconds between two beats. Default 5000. */
  readonly intervalMs?: number;
}

/** Renews the operator's heartbeat (`@weir/kube`, heartbeat.ts) for as long as this process leads. */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  /** Resolves when the request under way has ended. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { intervalMs = INTERVAL_MS, onError } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await this.#beat();
      } catch (error) {
        if (!signal.aborted) onError(error);
      }
      await delay(intervalMs, signal);
    }
  }

  async #beat(): Promise<void> {
    const { client, namespace, name, identity, now } = this.#options;
    const lease: Lease = {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { namespace, name },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: VALID_SECONDS,
        // Kubernetes wants microseconds.
        renewTime: new Date(now()).toISOString().replace('Z', '000Z'),
      },
    };
    await client.apply(resources.Lease, lease, { fieldManager: FIELD_MANAGER, force: true });
  }
}
