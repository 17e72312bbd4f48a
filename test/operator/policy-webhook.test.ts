/** The operator's own webhook: who trusts what its configuration holds is answered by it, whether it leads or not. */
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { json } from 'node:stream/consumers';
import { afterEach, expect, it } from '@jest/globals';
import type { Operator } from '../../operator/operator.ts';
import { webhookConfigurations } from '../../operator/webhooks/own-certificate.ts';
import { createWorld, eventually, type World } from './world.ts';

const NAME = 'weir-webhooks';
const NAMESPACE = 'weir-test';
const configuration = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'ValidatingWebhookConfiguration',
  metadata: { name: NAME },
  webhooks: [
    {
      name: 'policies.weir.dev',
      clientConfig: { service: { name: NAME, namespace: NAMESPACE, path: '/policies' } },
      sideEffects: 'None',
      admissionReviewVersions: ['v1'],
    },
  ],
};
let world: World | undefined;
afterEach(async () => {
  await world?.stop();
  world = undefined;
});

/** As an API server asks. */
async function ask({ webhookPort }: Operator, ca: string, object: object): Promise<unknown> {
  const sent = request({
    ...{ host: '127.0.0.1', port: webhookPort, servername: `${NAME}.${NAMESPACE}.svc`, ca, agent: false },
    ...{ path: '/policies?timeout=3s', method: 'POST' },
  });
  const kind = { group: 'cilium.io', version: 'v2', kind: 'CiliumNetworkPolicy' };
  const asked = { uid: 'u1', operation: 'CREATE', kind, object };
  sent.end(JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request: asked }));
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  return ((await json(answer)) as { readonly response: unknown }).response;
}

it('both replicas answer, each by a certificate of its own', async () => {
  world = await createWorld();
  const { client } = world;
  await client.create(webhookConfigurations, configuration);
  const config = { policyWebhook: true, webhookAddress: '127.0.0.1:0', namespace: NAMESPACE, leaderElect: true };
  const replicas = [await world.operator(config), await world.operator(config)];
  const bundle = await eventually(async () => {
    const { webhooks = [] } = await client.get(webhookConfigurations, NAME);
    const text = Buffer.from(webhooks[0]?.clientConfig.caBundle ?? '', 'base64').toString();
    expect(text.match(/BEGIN CERTIFICATE/g)).toHaveLength(2);
    return text;
  });
  const policy = (spec: object): object => ({ metadata: { name: 'p', namespace: 'n' }, spec });
  for (const replica of replicas) {
    expect(await ask(replica, bundle, policy({ endpointSelector: {}, ingress: [{}] }))).toEqual({
      uid: 'u1',
      allowed: true,
    });
    expect(await ask(replica, bundle, policy({ endpointSelector: {}, ingres: [{}] }))).toMatchObject({
      allowed: false,
      status: { message: expect.stringContaining('spec.ingres: unknown field "ingres": did you mean ingress?') },
    });
  }
  const [first = ''] = bundle.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const trusting = await Promise.allSettled(replicas.map((replica) => ask(replica, first, {})));
  expect(trusting.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
});

it('nobody listens unless it is asked for', async () => {
  world = await createWorld();
  expect((await world.operator()).webhookPort).toBeUndefined();
});
