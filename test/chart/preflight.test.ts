/** What helm asks the cluster before it changes anything. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type ApiServer, createApiServer } from '../cluster/apiserver/index.ts';
import { attempt, type Output, run } from '../cluster/run.ts';
import { CHART } from './render.ts';

const workload = (kind: string, namespace: string, name: string, labels: object, annotations: object = {}): object => ({
  apiVersion: 'apps/v1',
  kind,
  metadata: { name, namespace, labels, annotations },
  spec: {
    selector: { matchLabels: { app: 'x' } },
    template: { metadata: { labels: { app: 'x' } }, spec: { containers: [{ name: 'x', image: 'x' }] } },
  },
});
/** Nobody in a namespace can make one. */
const CILIUM_NODES = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'ciliumnodes.cilium.io' },
  spec: {
    group: 'cilium.io',
    names: { kind: 'CiliumNode', plural: 'ciliumnodes', singular: 'ciliumnode' },
    scope: 'Cluster',
    versions: [{ name: 'v2', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
  },
};
const node = (name: string, labels: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name, labels },
});

describe('helm install asks the cluster', () => {
  let api: ApiServer;
  let url: string;
  beforeEach(async () => {
    api = createApiServer();
    ({ url } = await api.listen());
  });
  afterEach(() => api?.stop());

  const apply = async (...items: readonly object[]): Promise<void> => {
    const list = JSON.stringify({ apiVersion: 'v1', kind: 'List', items });
    await run('kubectl', ['--server', url, 'apply', '--server-side', '-f', '-'], { stdin: list });
  };
  const install = (...flags: readonly string[]): Promise<Output> =>
    attempt('helm', [
      ...['install', 'weir', CHART, '-n', 'kube-system', '--dry-run=server', '--kube-apiserver', url],
      ...flags,
    ]);

  it('nothing speaks against an empty cluster', async () => {
    expect(await install()).toMatchObject({ code: 0 });
  });

  it.each([
    ['DaemonSet', 'kube-system', 'cilium', { 'k8s-app': 'cilium' }],
    ['DaemonSet', 'networking', 'agent', { 'app.kubernetes.io/name': 'cilium-agent' }],
    ['Deployment', 'kube-system', 'cilium-operator', { 'io.cilium/app': 'operator' }],
    ['Deployment', 'other', 'op', { name: 'cilium-operator' }],
  ])('refuses where Cilium runs: %s %s/%s', async (kind, namespace, name, labels) => {
    await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    // Elsewhere a workload alone tells nothing.
    if (namespace !== 'kube-system') await apply(CILIUM_NODES);
    await apply(workload(kind, namespace, name, labels));
    const { code, stderr } = await install();
    expect(code).not.toBe(0);
    expect(stderr).toContain(`Cilium runs here (${kind} ${namespace}/${name})`);
    expect(await install('--set', 'preflight.enabled=false')).toMatchObject({ code: 0 });
  });

  it('a workload of a tenant that looks like Cilium, or like a second Weir, keeps nobody from installing', async () => {
    await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'tenant' } });
    await apply(
      workload('Deployment', 'tenant', 'cilium-operator', { name: 'cilium-operator', 'io.cilium/app': 'operator' }),
      workload('DaemonSet', 'tenant', 'cilium', { 'k8s-app': 'cilium', 'app.kubernetes.io/name': 'cilium-agent' }),
      workload('DaemonSet', 'tenant', 'weir-agent', { 'app.kubernetes.io/part-of': 'weir' }),
    );
    expect(await install()).toMatchObject({ code: 0 });
  });

  it('a workload without labels, or with others, is none of its business', async () => {
    await apply(workload('DaemonSet', 'kube-system', 'cilium-lookalike', { 'k8s-app': 'other' }));
    await apply(workload('Deployment', 'kube-system', 'plain', {}));
    expect(await install()).toMatchObject({ code: 0 });
  });

  it('refuses a second Weir, by whatever release and wherever', async () => {
    await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'weir-system' } });
    const annotations = { 'meta.helm.sh/release-name': 'first', 'meta.helm.sh/release-namespace': 'weir-system' };
    await apply({
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRole',
      metadata: { name: 'weir-agent', annotations },
      rules: [],
    });
    const { code, stderr } = await install();
    expect(code).not.toBe(0);
    expect(stderr).toContain(
      'Weir is installed already (ClusterRole weir-agent, release "first" in namespace "weir-system")',
    );
    const own = await attempt('helm', [
      ...['install', 'first', CHART, '-n', 'weir-system', '--dry-run=server', '--kube-apiserver', url],
    ]);
    expect(own.stderr).not.toContain('installed already');
  });

  it('refuses a namespace that admits no pods on the network of the host', async () => {
    const labels = { 'pod-security.kubernetes.io/enforce': 'restricted' };
    await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'strict', labels } });
    const { code, stderr } = await attempt('helm', [
      ...['install', 'weir', CHART, '-n', 'strict', '--dry-run=server', '--kube-apiserver', url],
    ]);
    expect(code).not.toBe(0);
    expect(stderr).toContain('Namespace strict only admits pods of level "restricted"');
  });

  it.each([
    [0, '', 2, false],
    [1, '', 1, true],
    [2, '', 2, false],
    [3, '', 2, false],
    [3, 'operator.replicas=5', 3, true],
    [3, 'operator.nodeSelector.role=main', 1, true],
  ])(
    'of %s nodes, with "%s", the operator has %s replicas; fewer than asked for: %s',
    async (nodes, setting, replicas, fewer) => {
      await apply(...Array.from({ length: nodes }, (_, at) => node(`n${at}`, at === 0 ? { role: 'main' } : {})), {
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name: 'filler' },
      });
      const { stdout } = await install('--no-hooks', '--set', 'crds.install=false', '--set', setting);
      expect(stdout).toContain(`\n  replicas: ${replicas}\n`);
      expect(/The operator has (\d+) of/.exec(stdout)?.[1]).toBe(fewer ? String(replicas) : undefined);
    },
  );
});
