/**
 * Install, upgrade, rollback, uninstall and install again, as far as the API is concerned: what becomes of CRDs, and of the policies
 * that they hold. Nothing runs here, so hooks are left out.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type ApiServer, createApiServer } from '../cluster/apiserver/index.ts';
import { attempt, type Output, run } from '../cluster/run.ts';
import { CHART } from './render.ts';

// Each test runs helm several times.
const NODE_COLUMN = '      - name: Nodes\n';

describe('releases of the chart', () => {
  let api: ApiServer;
  let url: string;
  let folder: string;
  /** The chart with CRDs of an earlier time: without a column that they have now. */
  let older: string;
  beforeAll(async () => {
    api = createApiServer();
    ({ url } = await api.listen());
    folder = mkdtempSync(join(tmpdir(), 'weir-chart-'));
    older = join(folder, 'weir');
    cpSync(CHART, older, { recursive: true });
    const path = join(older, 'files/crds/ciliumnetworkpolicies.cilium.io.yaml');
    const text = readFileSync(path, 'utf8');
    expect(text).toContain(NODE_COLUMN);
    writeFileSync(path, text.replace(NODE_COLUMN, '      - name: Elder\n'));
  });
  afterAll(async () => {
    rmSync(folder, { recursive: true });
    await api?.stop();
  });

  const helm = (...args: readonly string[]): Promise<Output> =>
    attempt('helm', [...args, '-n', 'kube-system', '--kube-apiserver', url], { env: { HOME: folder } });
  const done = async (...args: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await helm(...args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.any(String) });
    return stdout;
  };
  const kubectl = async (...args: readonly string[]): Promise<string> =>
    (await run('kubectl', ['--server', url, ...args])).stdout;
  const columns = async (): Promise<string> =>
    await kubectl(
      ...['get', 'crd', 'ciliumnetworkpolicies.cilium.io', '-o'],
      'jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}',
    );
  const policies = (): Promise<string> => kubectl('get', 'ciliumnetworkpolicies', '-A', '-o', 'name');

  it('an upgrade upgrades the CRDs, a rollback takes them back', async () => {
    await done('install', 'weir', older);
    expect(await columns()).toContain('Elder');
    await done('upgrade', 'weir', CHART);
    expect(await columns()).not.toContain('Elder');
    expect(await columns()).toContain('Nodes');
    await done('rollback', 'weir', '1');
    expect(await columns()).toContain('Elder');
    await done('upgrade', 'weir', CHART);
  });

  it('an uninstall keeps CRDs and policies, and the same release can be installed again', async () => {
    const policy = {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNetworkPolicy',
      metadata: { name: 'kept', namespace: 'default' },
      spec: { endpointSelector: {}, ingress: [{}] },
    };
    await run('kubectl', ['--server', url, 'apply', '-f', '-'], { stdin: JSON.stringify(policy) });
    const said = await done('uninstall', 'weir', '--no-hooks');
    expect(said).toContain('[CustomResourceDefinition] ciliumnetworkpolicies.cilium.io');
    expect(await policies()).toContain('kept');
    expect(await kubectl('get', 'daemonsets,deployments,clusterroles', '-A', '-o', 'name')).not.toContain('weir');
    await done('install', 'weir', CHART);
    expect(await policies()).toContain('kept');
  });

  it('a release of another name or namespace refuses CRDs that are not its own, until it is told to take them', async () => {
    await done('uninstall', 'weir', '--no-hooks');
    const { code, stderr } = await helm('install', 'other', CHART);
    expect(code).not.toBe(0);
    expect(stderr).toContain('invalid ownership metadata');
    const elsewhere = ['-n', 'net', '--create-namespace', '--kube-apiserver', url];
    const moved = await attempt('helm', ['install', 'weir', CHART, ...elsewhere], { env: { HOME: folder } });
    expect(moved.stderr).toMatch(/invalid ownership metadata.*release-namespace/);
    await done('install', 'other', CHART, '--take-ownership');
    expect(await policies()).toContain('kept');
    await done('upgrade', 'other', CHART, '--set', 'crds.install=false');
    expect(await policies()).toContain('kept');
  });
});
