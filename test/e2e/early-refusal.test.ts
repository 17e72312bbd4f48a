/** What `kubectl apply` says of a wrong policy on a cluster of `npm start`; test/real has the same for a real Kubernetes. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import type { Output } from '../cluster/run.ts';

const web = { endpointSelector: { matchLabels: { app: 'web' } } };
const cnp = (name: string, spec: object): object => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name, namespace: 'default' },
  spec,
});

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start({ nodes: 1, agents: false, webhooks: true, operators: 2 });
});
afterAll(() => cluster?.stop());

const apply = (object: object): Promise<Output> => cluster.tryKubectl(['apply', '-f', '-'], JSON.stringify(object));

it('is refused with path, value and fix, and nothing is stored', async () => {
  const { code, stderr } = await apply(cnp('bad', { ...web, ingress: [{ fromEndpoint: [{}] }] }));
  expect([code, stderr]).toEqual([
    1,
    expect.stringContaining(
      'admission webhook "policies.weir.dev" denied the request: the policy is not valid:\nspec.ingress[0].fromEndpoint: unknown field "fromEndpoint": did you mean fromEndpoints?',
    ),
  ]);
  expect(await cluster.kubectl(['get', 'cnp', '-o', 'name'])).toBe('');
});

it('is applied with a warning for what is not enforced', async () => {
  const rules = { http: [{ method: 'GET' }] };
  const { code, stderr } = await apply(
    cnp('http', { ...web, ingress: [{ toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], rules }] }] }),
  );
  expect([code, stderr]).toEqual([
    0,
    expect.stringMatching(/^Warning: not enforced: spec\.ingress\[0\]\.toPorts\[0\]\.rules/),
  ]);
});

it('an edit is refused too, and what is stored stays', async () => {
  expect(await apply(cnp('edited', { ...web, ingress: [{}] }))).toMatchObject({ code: 0, stderr: '' });
  expect(await apply(cnp('edited', { ...web, ingres: [{}] }))).toMatchObject({ code: 1 });
  expect(await cluster.kubectl(['get', 'cnp/edited', '-o', 'jsonpath={.spec.ingress}'])).toBe('[{}]');
});

it('is applied all the same where no operator runs; one that still runs is asked', async () => {
  const bad = (name: string) => apply(cnp(name, { ...web, ingress: [{ fromEndpoint: [{}] }] }));
  const [first, second] = cluster.operators;
  await first?.stop();
  expect(await bad('one-left')).toMatchObject({ code: 1 });
  await second?.stop();
  expect(await bad('none-left')).toMatchObject({ code: 0 });
});
