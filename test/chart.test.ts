import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { crdYaml } from '@weir/kube';
import { loadAll } from 'js-yaml';
import { type ApiServer, createApiServer } from './cluster/apiserver/index.ts';
import { attempt, ROOT, run } from './cluster/run.ts';

const CHART = join(ROOT, 'charts/weir');
const objects = (
  yaml: string,
): { readonly kind: string; readonly metadata: { readonly name: string }; readonly rules?: readonly Rule[] }[] =>
  loadAll(yaml).filter((each) => each !== null && each !== undefined) as never;
interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

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
    const files = Object.fromEntries(
      readdirSync(join(CHART, 'crds')).map((name) => [name, readFileSync(join(CHART, 'crds', name), 'utf8')]),
    );
    expect(files).toEqual(crdYaml());
  });

  it.each([
    ['defaults', []],
    [
      'everything set',
      [
        '--set',
        'apiServer.host=192.0.2.1,cni.install=false,operator.replicas=1,policyEnforcement=always,imagePullSecrets[0].name=pull',
      ],
    ],
  ])('the API server accepts everything that helm template gives: %s', async (_, flags) => {
    const { stdout } = await run('helm', ['template', 'weir', CHART, '-n', 'kube-system', '--include-crds', ...flags]);
    const applied = await run('kubectl', ['--server', url, 'apply', '--server-side', '-f', '-'], { stdin: stdout });
    expect(applied.stdout.trim().split('\n')).toHaveLength(objects(stdout).length);
    expect(objects(stdout).map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['CustomResourceDefinition', 'DaemonSet', 'Deployment', 'ClusterRole']),
    );
  });

  it('a value that makes no sense is refused by name', async () => {
    const { code, stderr } = await attempt('helm', ['template', 'weir', CHART, '--set', 'policyEnforcement=sometimes']);
    expect(code).not.toBe(0);
    expect(stderr).toContain('policyEnforcement');
  });

  it.each([
    ['operator', 'operator/main.ts', []],
    ['agent', 'node-agent/main.ts', ['--node-name', 'n', '--state-dir', '/run/weir-test-chart']],
  ])('the %s knows every flag that the chart gives it', async (name, program, more) => {
    const { stdout } = await run('helm', ['template', 'weir', CHART]);
    const workload = loadAll(stdout).find((each) => JSON.stringify(each)?.includes(`"name":"${name}","image"`)) as {
      readonly spec: {
        readonly template: { readonly spec: { readonly containers: readonly { readonly args: string[] }[] } };
      };
    };
    const args = workload.spec.template.spec.containers[0]?.args ?? [];
    expect(args.length).toBeGreaterThan(3);
    // Flags are judged first: what it complains of is the kubeconfig.
    const {
      code,
      stdout: out,
      stderr,
    } = await attempt(process.execPath, [join(ROOT, program), ...args, ...more, '--kubeconfig', '/nonexistent']);
    expect(code).toBe(1);
    expect(out + stderr).toContain('cannot read kubeconfig');
  });

  it('agents may write neither policies nor pods', async () => {
    const { stdout } = await run('helm', ['template', 'weir', CHART]);
    const agent = objects(stdout).find(
      ({ kind, metadata }) => kind === 'ClusterRole' && metadata.name === 'weir-agent',
    );
    const writes = (agent?.rules ?? [])
      .filter(({ verbs }) => verbs.some((verb) => !['get', 'list', 'watch'].includes(verb)))
      .flatMap(({ resources }) => resources);
    expect(new Set(writes)).toEqual(
      new Set(['ciliumendpoints', 'ciliumendpoints/status', 'nodepolicystatuses', 'nodepolicystatuses/status']),
    );
  });
});
