import { flag } from '@weir/process/flags';
import type { Certificate } from '@weir/process/tls-server';

import { failuresPart } from '../failures-part.ts';
import { addressFlag, parseAddress } from '../health.ts';
import { defineProcessPart } from '../parts/contract.ts';
import { OwnCertificate } from './own-certificate.ts';
import { WebhookServer } from './server.ts';

/** Of the Service by which the API server calls the webhooks, and of their configuration. */
const NAME = 'weir-webhooks';

/**
 * Serves the webhooks of all parts; where none brings one, nobody listens. Every replica answers, with a certificate that it makes by itself. Without
 * one the operator does its other work all the same.
 */
export const webhooksPart = defineProcessPart({
  name: 'webhooks',
  needs: { failures: failuresPart },
  flags: {
    webhookAddress: flag<string>('--webhook-address <host:port>', 'where the API server asks the webhooks, by TLS')
      .default(':9235')
      .argParser(addressFlag),
  },
  settings: {
    // Folder of tls.crt and tls.key, or who has them; undefined: made by this process.
    webhookCertificates: undefined as string | (() => Promise<Certificate>) | undefined,
  },
  build: ({ failures }, { config, client, operator, log }) => {
    const failed = (error: unknown, message: string, fields: object, kind: string, early = false): void =>
      failures.failed({ component: 'webhook', error, message, fields, kind, ...(early ? { early } : {}) });
    const own = (): OwnCertificate =>
      new OwnCertificate({
        client,
        configuration: NAME,
        dnsName: `${NAME}.${config.namespace}.svc`,
        now: config.now,
        onError: (error, early) =>
          failed(
            error,
            'the webhooks are not trusted by the API server yet: their certificate could not be written into their configuration',
            { configuration: NAME },
            'webhook certificate',
            early,
          ),
      });
    let certificate: OwnCertificate | undefined;
    let server: WebhookServer | undefined;
    return {
      provides: {
        /** Undefined while nobody is listened to. */
        get port() {
          return server?.port;
        },
      },
      start: async () => {
        if (operator.webhooks().length === 0) return;
        let certificates = config.webhookCertificates;
        if (certificates === undefined) {
          const made = own();
          await made.start();
          certificate = made;
          certificates = () => made.current();
        }
        server = new WebhookServer({
          ...parseAddress(config.webhookAddress),
          certificates,
          webhooks: () => operator.webhooks(),
          onError: (path, error) => failed(error, 'a review failed', { path }, `a review failed ${path}`),
          log,
        });
        await server.start();
      },
      stop: async () => {
        await server?.stop();
        await certificate?.stop();
      },
    };
  },
});
