/** The operator's webhooks, configured by the chart; the operators are processes of this machine. */
import { join } from 'node:path';
import { eventually } from '../eventually.ts';
import type { ApiServer, ServiceAddress } from './apiserver/index.ts';
import { freePort } from './free-port.ts';
import type { Kubectl } from './kubectl.ts';
import { ROOT, run } from './run.ts';

const NAME = 'weir-webhooks';
/** The operator's own, where nothing tells it another. */
const NAMESPACE = 'kube-system';
const CONFIGURATIONS = {
  group: 'admissionregistration.k8s.io',
  version: 'v1',
  plural: 'validatingwebhookconfigurations',
};

export class Webhooks {
  readonly #ports: readonly number[];

  private constructor(ports: readonly number[]) {
    this.#ports = ports;
  }

  static async of(operators: number): Promise<Webhooks> {
    const ports: number[] = [];
    while (ports.length < operators) {
      const port = await freePort();
      if (!ports.includes(port)) ports.push(port);
    }
    return new Webhooks(ports);
  }

  /** Arguments of an operator, by number from 1. */
  args(number: number): readonly string[] {
    return ['--policy-webhook', '--webhook-address', `127.0.0.1:${this.#ports[number - 1] ?? 0}`];
  }

  /** @param running numbers of the operators that run */
  address({ namespace, name }: Parameters<ServiceAddress>[0], running: readonly number[]): ReturnType<ServiceAddress> {
    const [port] = running.flatMap((number) => this.#ports[number - 1] ?? []);
    return namespace === NAMESPACE && name === NAME && port !== undefined ? { host: '127.0.0.1', port } : undefined;
  }

  /** Applies what the chart says of them, with time for a busy machine; returns when the API server trusts each operator. */
  async configure(kubectl: Kubectl, { client }: ApiServer): Promise<void> {
    const chart = join(ROOT, 'charts/weir');
    const template = ['template', 'weir', chart, '-n', NAMESPACE, '--show-only', 'templates/webhooks.yaml'];
    const { stdout } = await run('helm', template);
    await kubectl.apply(stdout.replaceAll(/timeoutSeconds: \d+/g, 'timeoutSeconds: 30'));
    const trusted = async (): Promise<number> => {
      const { webhooks } = await client.get({ ...CONFIGURATIONS, name: NAME });
      const [webhook] = webhooks as unknown as readonly { readonly clientConfig: { readonly caBundle?: string } }[];
      const bundle = Buffer.from(webhook?.clientConfig.caBundle ?? '', 'base64').toString();
      return bundle.split('BEGIN CERTIFICATE').length - 1;
    };
    await eventually(trusted, (count) => count >= this.#ports.length);
  }
}
