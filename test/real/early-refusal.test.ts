/** What `kubectl apply` says of a policy that is wrong, on a real Kubernetes: before it is stored, by the operator's webhook. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { RealCluster } from '../cluster/real/index.ts';
import { eventually } from '../eventually.ts';
import { weirCluster } from './weir.ts';

const web = { endpointSelector: { matchLabels: { app: 'web' } } };
const cnp = (name: string, spec: object, metadata: object = {}): object => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name, namespace: 'default', ...metadata },
  spec,
});
const misspelt = (name: string, metadata: object = {}) =>
  cnp(name, { ...web, ingress: [{ fromEndpoint: [{}] }] }, metadata);
const TOLD =
  'admission webhook "policies.weir.dev" denied the request: the policy is not valid:\nspec.ingress[0].fromEndpoint: unknown field "fromEndpoint": did you mean fromEndpoints?';

describe('a policy that is applied to a real Kubernetes', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await weirCluster();
    // Each replica has added its certificate.
    await eventually(
      async () => certificates(),
      (count) => count >= 2,
    );
    // On a busy machine an operator may take longer than the chart lets it: what it was not asked about is applied.
    const patch = { webhooks: [{ name: 'policies.weir.dev', timeoutSeconds: 30 }] };
    await cluster.kubectl(['patch', 'validatingwebhookconfiguration', 'weir-webhooks', '-p', JSON.stringify(patch)]);
  }, 240_000);
  afterAll(() => cluster?.stop());

  const apply = (object: object, ...more: readonly string[]) =>
    cluster.tryKubectl(['apply', '-f', '-', ...more], JSON.stringify(object));
  const bundle = (): Promise<string> =>
    cluster.kubectl([
      ...['get', 'validatingwebhookconfiguration', 'weir-webhooks'],
      ...['-o', 'jsonpath={.webhooks[0].clientConfig.caBundle}'],
    ]);
  async function certificates(): Promise<number> {
    return (
      Buffer.from(await bundle(), 'base64')
        .toString()
        .split('BEGIN CERTIFICATE').length - 1
    );
  }

  it('is refused with path, value and fix, whichever replica is asked, and nothing is stored', async () => {
    await eventually(
      () => apply(misspelt('first'), '--dry-run=server'),
      ({ code }) => code !== 0,
    );
    for (let time = 0; time < 12; time += 1) {
      const { code, stderr } = await apply(misspelt('bad'));
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(TOLD) });
    }
    expect(await cluster.kubectl(['get', 'cnp', '-o', 'name'])).toBe('');
  });

  it('is applied with a warning for what is not enforced', async () => {
    const rules = { http: [{ method: 'GET' }] };
    const http = cnp('http', { ...web, ingress: [{ toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], rules }] }] });
    const { code, stderr } = await apply(http);
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: expect.stringMatching(/^Warning: not enforced: spec\.ingress\[0\]\.toPorts\[0\]\.rules/),
    });
  });

  it('is told by its status where no operator runs, and its other fields can be written and it can be removed afterwards', async () => {
    const scale = (replicas: number) =>
      cluster.kubectl(['-n', 'kube-system', 'scale', 'deployment/weir-operator', `--replicas=${replicas}`]);
    await scale(0);
    await cluster.kubectl([
      ...['-n', 'kube-system', 'wait', '--for=delete', 'pod', '-l', 'app.kubernetes.io/name=weir-operator'],
    ]);
    expect(await apply(misspelt('early', { finalizers: ['example.com/kept'] }))).toMatchObject({ code: 0 });
    await scale(2);
    await cluster.kubectl(['wait', 'cnp/early', '--for=condition=Valid=False', '--timeout=60s']);
    await eventually(
      () => apply(misspelt('later'), '--dry-run=server'),
      ({ code }) => code !== 0,
    );
    expect(await cluster.tryKubectl(['label', 'cnp/early', 'a=b'])).toMatchObject({ code: 0 });
    const other = await apply(cnp('early', { ...web, ingress: [{ fromEndpoint: [] }] }));
    expect(other).toMatchObject({ code: 1, stderr: expect.stringContaining('did you mean fromEndpoints?') });
    await cluster.kubectl(['delete', 'cnp/early', '--wait=false']);
    const release = ['patch', 'cnp/early', '--type=merge', '-p', '{"metadata":{"finalizers":null}}'];
    expect(await cluster.tryKubectl(release)).toMatchObject({ code: 0 });
    expect(await cluster.kubectl(['get', 'cnp', '-o', 'name'])).not.toContain('early');
  });

  it('is asked about again soon when somebody empties the bundle', async () => {
    const patch = { webhooks: [{ name: 'policies.weir.dev', clientConfig: { caBundle: null } }] };
    await cluster.kubectl(['patch', 'validatingwebhookconfiguration', 'weir-webhooks', '-p', JSON.stringify(patch)]);
    await eventually(
      () => certificates(),
      (count) => count === 2,
    );
  });
});
