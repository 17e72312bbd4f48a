/**
 * The certificate of this process, which makes it and writes it into the configuration of its webhooks.
 *
 * Guarantees: a certificate is served from the first on, and replaced before its time is over; the next one is served only once the configuration has
 * it. What somebody takes out of the configuration is put back within a minute. The key is never written anywhere.
 */
import { ApiError, type KubeClient, type KubeObject, type Resource } from '@weir/kube';
import { delay } from '@weir/process/delay';
import type { Certificate } from '@weir/process/tls-server';
import { withCertificate } from './ca-bundle.ts';
import { selfSigned } from './self-signed.ts';

interface WebhookConfiguration extends KubeObject {
  readonly webhooks?: readonly { readonly clientConfig: { readonly service?: object; readonly caBundle?: string } }[];
}

export const webhookConfigurations: Resource<WebhookConfiguration> = {
  group: 'admissionregistration.k8s.io',
  version: 'v1',
  kind: 'ValidatingWebhookConfiguration',
  plural: 'validatingwebhookconfigurations',
  namespaced: false,
};

const DAY = 86_400_000;
/** How long one is valid, when the next is made, and how far the clocks of those who read it may be behind. */
const VALID_MS = 30 * DAY;
const RENEW_MS = 20 * DAY;
const BEHIND_MS = DAY;
/** Between two looks at the configuration; and after one that failed. */
const LOOK_MS = 60_000;
const AGAIN_MS = 5_000;
/** Looks that may fail at a start before somebody is told. */
const EARLY = 6;

export interface OwnCertificateOptions {
  readonly client: KubeClient;
  /** Of the configuration, whose webhooks are all ours. */
  readonly configuration: string;
  /** By which the API server calls. */
  readonly dnsName: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** `early`: nobody need know of it yet; helm makes the configuration after the operator's pods. */
  readonly onError: (error: unknown, early: boolean) => void;
  /** Milliseconds. */
  readonly lookMs?: number;
  readonly againMs?: number;
}

interface Made extends Certificate {
  readonly renewAt: number;
}

export class OwnCertificate {
  readonly #options: OwnCertificateOptions;
  readonly #stop = new AbortController();
  #served: Made | undefined;
  #looking: Promise<void> = Promise.resolve();

  constructor(options: OwnCertificateOptions) {
    this.#options = options;
  }

  /** The one that is to be served. To be asked once it has started. */
  current(): Promise<Certificate> {
    return this.#served === undefined
      ? Promise.reject(new Error('there is no certificate yet'))
      : Promise.resolve(this.#served);
  }

  async start(): Promise<void> {
    const first = await this.#make();
    this.#served = first;
    this.#looking = this.#watch(first);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#looking;
  }

  async #watch(first: Made): Promise<void> {
    const { onError, lookMs = LOOK_MS, againMs = AGAIN_MS } = this.#options;
    const { signal } = this.#stop;
    let served = first;
    let next: Made | undefined;
    let early = EARLY;
    while (!signal.aborted) {
      let wait = lookMs;
      try {
        if (this.#options.now() >= served.renewAt) next ??= await this.#make();
        await this.#publish(next ?? served);
        served = next ?? served;
        this.#served = served;
        next = undefined;
        early = 0;
      } catch (error) {
        wait = againMs;
        // Not where another replica was faster.
        if (!signal.aborted && !(error instanceof ApiError && error.status === 409)) onError(error, early > 0);
        early -= 1;
      }
      await delay(wait, signal, { ref: false });
    }
  }

  async #publish({ cert }: Certificate): Promise<void> {
    const { client, configuration, now } = this.#options;
    const { signal } = this.#stop;
    const found = await client.get(webhookConfigurations, configuration, undefined, signal);
    const webhooks = (found.webhooks ?? []).map((webhook) => {
      const { clientConfig } = webhook;
      return {
        ...webhook,
        clientConfig: { ...clientConfig, caBundle: withCertificate(clientConfig.caBundle, cert, now()) },
      };
    });
    const changed = webhooks.some(
      ({ clientConfig }, index) => clientConfig.caBundle !== found.webhooks?.[index]?.clientConfig.caBundle,
    );
    // With the resourceVersion that was read: what another replica adds meanwhile is not lost.
    if (changed) await client.replace(webhookConfigurations, { ...found, webhooks });
  }

  async #make(): Promise<Made> {
    const { dnsName, now } = this.#options;
    const from = now();
    const certificate = await selfSigned(dnsName, from - BEHIND_MS, from + VALID_MS);
    return { ...certificate, renewAt: from + RENEW_MS };
  }
}
