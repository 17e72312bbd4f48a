import { flag } from '@weir/process/flags';
import { limitsPart } from '../limits-part.ts';
import { defineProcessPart } from '../parts/contract.ts';
import { reviewPolicy } from './policy-review.ts';

/** Refuses invalid policies while they are applied. It lives as long as the process: replicas that do not lead answer, too. */
export const policyWebhookPart = defineProcessPart({
  name: 'policy-webhook',
  needs: { limits: limitsPart },
  flags: {
    policyWebhook: flag<boolean>(
      '--policy-webhook',
      'answer the API server what is wrong with a policy that is applied, at --webhook-address/policies',
    ).default(false),
  },
  build: ({ limits }, { config }) => ({
    webhooks: config.policyWebhook ? [{ path: '/policies', review: (request) => reviewPolicy(request, limits) }] : [],
  }),
});
