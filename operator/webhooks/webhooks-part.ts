import type { Certificate } from '@weir/process/tls-server';
import { failuresPart } from '../failures-part.ts';
import { parseAddress } from '../health.ts';
import { defineProcessPart } from '../parts/contract.ts';
import { WebhookServer } from './server.ts';

/** Serves the webhooks of all parts; where none brings one, nobody listens. Without a certificate the operator does its other work all the same. */
export const webhooksPart = defineProcessPart({
  name: 'webhooks',
  needs: { failures: failuresPart },
  settings: {
    webhookAddress: ':9443',
    // Folder of tls.crt and tls.key, or who has them.
    webhookCertificates: '/etc/weir/webhooks' as string | (() => Promise<Certificate>),
  },
  build: ({ failures }, { config, operator, log }) => {
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
        server = new WebhookServer({
          ...parseAddress(config.webhookAddress),
          certificates: config.webhookCertificates,
          webhooks: () => operator.webhooks(),
          onError: (path, error) =>
            failures.failed({
              component: 'webhook',
              error,
              message: 'a review failed',
              fields: { path },
              kind: `a review failed ${path}`,
            }),
          log,
        });
        await server.start();
      },
      stop: () => server?.stop(),
    };
  },
});
