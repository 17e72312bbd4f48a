/**
 * The chart as a careful administrator sets it: the seccomp profiles of charts/weir/files from files on the node, and metrics by TLS for who may
 * read them.
 */
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { makeCertificate } from '../../shared/process/testing/certificates.ts';
import type { RealCluster } from '../cluster/real/index.ts';
import { eventually } from '../eventually.ts';
import { profileOf } from '../seccomp/profiles.ts';
import { weirCluster } from './weir.ts';

const NAMESPACE = 'kube-system';
const PORTS = { agent: 9878, operator: 9234 } as const;
const COMPONENTS = ['agent', 'operator'] as const;
const profile = (component: (typeof COMPONENTS)[number]) => ({
  seccompProfile: { type: 'Localhost', localhostProfile: `weir/${component}.json` },
});

describe('a hardened Weir on a real Kubernetes', () => {
  let cluster: RealCluster;
  let folder = '';
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'weir-hardened-'));
    await makeCertificate(folder);
    cluster = await weirCluster({ nodes: 1, install: false });
    const profiles = cluster.node(1).file('/var/lib/kubelet/seccomp/weir');
    mkdirSync(profiles, { recursive: true });
    for (const component of COMPONENTS) copyFileSync(profileOf(component), join(profiles, `${component}.json`));
    const data = Object.fromEntries(
      ['tls.crt', 'tls.key'].map((name) => [name, readFileSync(join(folder, name)).toString('base64')]),
    );
    const metadata = { name: 'weir-metrics', namespace: NAMESPACE };
    await cluster.applyObjects([{ apiVersion: 'v1', kind: 'Secret', metadata, type: 'kubernetes.io/tls', data }]);
    await cluster.install({
      agent: profile('agent'),
      operator: profile('operator'),
      metrics: { secure: { enabled: true } },
    });
  }, 300_000);
  afterAll(async () => {
    await cluster?.stop();
    rmSync(folder, { recursive: true });
  });

  const inAgent = (...command: readonly string[]) =>
    cluster.tryKubectl(['-n', NAMESPACE, 'exec', 'daemonset/weir-agent', '-c', 'agent', '--', ...command]);

  it('runs under the profile: what root may elsewhere is refused', async () => {
    expect((await inAgent('nsenter', '--net=/proc/self/ns/net', 'ip', '-V')).code).toBe(0);
    expect(await inAgent('nsenter', '--ipc=/proc/self/ns/ipc', 'ip', '-V')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Operation not permitted'),
    });
  });

  it('connects pods and enforces policies', async () => {
    await cluster.helmTest();
  }, 240_000);

  it('has an audit line for each pod that it connected', async () => {
    const log = await cluster.kubectl(['-n', NAMESPACE, 'logs', 'daemonset/weir-agent', '-c', 'agent']);
    const lines = log.split('\n').filter((line) => line.includes('"audit":true'));
    const added = lines
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter((each) => each.command === 'ADD');
    expect(added.length).toBeGreaterThan(0);
    // The runtime is in another PID namespace than the agent.
    for (const line of added) expect(line).toMatchObject({ uid: 0, gid: 0, pid: 'unknown', route: '/v1/cni' });
  });

  it.each(COMPONENTS)('gives the metrics of the %s to who may read them, and to nobody else', async (component) => {
    await cluster.applyObjects([
      ...['reader', 'stranger'].map((name) => ({
        apiVersion: 'v1',
        kind: 'ServiceAccount',
        metadata: { name: `${component}-${name}`, namespace: 'default' },
      })),
      {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRoleBinding',
        metadata: { name: `${component}-reader` },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'weir-metrics-reader' },
        subjects: [{ kind: 'ServiceAccount', namespace: 'default', name: `${component}-reader` }],
      },
    ]);
    const token = (name: string): Promise<string> => cluster.kubectl(['create', 'token', `${component}-${name}`]);
    const host = cluster.node(1).address;
    const scrape = async (bearer: string): Promise<string> => {
      const script = `
        const ca = require('node:fs').readFileSync('/etc/weir/metrics/tls.crt');
        const target = { host: '${host}', port: ${PORTS[component]}, servername: 'localhost', ca, path: '/metrics' };
        const headers = { authorization: 'Bearer ${bearer}' };
        require('node:https').get({ ...target, headers }, (answer) => {
          let text = '';
          answer.on('data', (chunk) => { text += chunk; });
          answer.on('end', () => console.log(answer.statusCode, text));
        });`;
      const { stdout, stderr } = await inAgent('node', '-e', script);
      return `${stdout}${stderr}`;
    };
    expect(await scrape('nobody')).toMatch(/^401 /);
    expect(await scrape((await token('stranger')).trim())).toMatch(/^403 .*bind ClusterRole weir-metrics-reader/);
    const reader = (await token('reader')).trim();
    const given = await eventually(
      () => scrape(reader),
      (said) => said.startsWith('200'),
    );
    expect(given).toMatch(/^nodejs_eventloop_lag_max_seconds \d/m);
    const plain = `fetch('http://${host}:${PORTS[component]}/metrics').then(() => process.exit(0), () => process.exit(7))`;
    expect((await inAgent('node', '-e', plain)).code).toBe(7);
  });
});
