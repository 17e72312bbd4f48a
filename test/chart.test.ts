import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { crds, crdYaml } from '@weir/kube';
import { CHART, find, objects, podSpec, type Rendered, render, template } from './chart/render.ts';
import { type ApiServer, createApiServer } from './cluster/apiserver/index.ts';
import { attempt, ROOT, run } from './cluster/run.ts';

const HOST_IP = '192.0.2.7';
/** Arguments as kubelet gives them: with the variables of the container put in. */
const expanded = (args: readonly string[]): string[] => args.map((arg) => arg.replaceAll('$(WEIR_HOST_IP)', HOST_IP));

describe('charts/weir', () => {
  let api: ApiServer;
  let url: string;
  beforeAll(async () => {
    api = createApiServer();
    ({ url } = await api.listen());
  });
  afterAll(() => api?.stop());

  it('helm lint finds nothing', async () => {
    const { stdout } = await run('helm', ['lint', '--strict', CHART]);
    expect(stdout).toContain('0 chart(s) failed');
  });

  it('has the CRDs of shared/kube (mend with: node scripts/crds.ts)', () => {
    const folder = join(CHART, 'files/crds');
    const files = Object.fromEntries(
      readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
    );
    expect(files).toEqual(crdYaml());
  });

  it('renders the CRDs as they are, to be kept at uninstall; or none', async () => {
    const byName = (list: readonly Rendered[]): Rendered[] =>
      list.toSorted((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
    const rendered = (await render()).filter(({ kind }) => kind === 'CustomResourceDefinition');
    const ours = {
      'app.kubernetes.io/part-of': 'weir',
      'app.kubernetes.io/managed-by': 'Helm',
      'helm.sh/chart': 'weir-0.1.0',
    };
    const expected = (crds() as Rendered[]).map(({ metadata, ...rest }) => ({
      ...rest,
      metadata: {
        ...metadata,
        annotations: { ...metadata.annotations, 'helm.sh/resource-policy': 'keep' },
        labels: { ...metadata.labels, ...ours },
      },
    }));
    expect(byName(rendered)).toEqual(byName(expected as Rendered[]));
    const without = await render(['--set', 'crds.install=false']);
    expect(without.filter(({ kind }) => kind === 'CustomResourceDefinition')).toEqual([]);
  });

  it.each([
    ['defaults', []],
    ['everything set', ['-f', join(ROOT, 'test/chart/everything.yaml'), '--set', 'uninstall.cleanup=true']],
  ])('the API server accepts everything that helm renders: %s', async (_, flags) => {
    const text = await template([...flags, '--set', 'crds.install=true', '--set', 'cni.install=true']);
    // A real API server takes the admission policy (test/real/admission.test.ts): this one evaluates none, and serves no such kind.
    const elsewhere = /^(monitoring\.coreos\.com|admissionregistration\.k8s\.io)\//;
    const all = objects(text).filter(({ apiVersion }) => !elsewhere.test(apiVersion));
    const crdsOf = all.filter(({ kind }) => kind === 'CustomResourceDefinition');
    const rest = all.filter(({ kind }) => kind !== 'CustomResourceDefinition');
    // A pod and a job cannot be changed once they are there.
    await attempt('kubectl', ['--server', url, '-n', 'kube-system', 'delete', 'pod/weir-test', 'job/weir-uninstall']);
    for (const items of [crdsOf, rest]) {
      const list = JSON.stringify({ apiVersion: 'v1', kind: 'List', items });
      const applied = await run('kubectl', ['--server', url, 'apply', '--server-side', '-f', '-'], { stdin: list });
      expect(applied.stdout.trim().split('\n')).toHaveLength(items.length);
    }
    expect(all.map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['CustomResourceDefinition', 'DaemonSet', 'Deployment', 'ClusterRole', 'Job', 'Pod']),
    );
  });

  const programs: readonly (readonly [string, string, string, readonly string[]])[] = [
    ['Deployment', 'weir-operator', 'operator/main.ts', []],
    ['DaemonSet', 'weir-agent', 'node-agent/main.ts', ['--node-name=n', '--state-dir=/run/weir-test-chart']],
    ['Job', 'weir-uninstall', 'operator/main.ts', []],
  ];
  const settings: readonly (readonly [string, readonly string[]])[] = [
    ['by default', []],
    ['with metrics', ['--set', 'metrics.expose=true']],
  ];
  it.each(programs.flatMap((program) => settings.map((setting) => [...program, ...setting] as const)))(
    'the program of %s %s (%s) knows every flag that the chart gives it',
    async (kind, name, program, more, _, flags) => {
      const args = expanded(podSpec(find(await render(flags), kind, name))?.containers[0]?.args ?? []);
      expect(args.length).toBeGreaterThan(3);
      // Flags are judged first: what it complains of is the kubeconfig.
      const given = [join(ROOT, program), ...args, ...more, '--kubeconfig', '/nonexistent'];
      const { code, stdout, stderr } = await attempt(process.execPath, given);
      expect(stdout + stderr).toContain('cannot read kubeconfig');
      expect(code).toBe(1);
    },
  );
});
