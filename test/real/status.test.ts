/** What people read: status, columns, events, `weir policy status` (design section 7), on a real Kubernetes. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { RealCluster } from '../cluster/real/index.ts';
import { TOOL_PATH } from '../cluster/run.ts';
import { eventually } from '../eventually.ts';
import { weirCluster } from './weir.ts';

const cnp = (name: string, spec: object) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name, namespace: 'default' },
  spec,
});
const server = { matchLabels: { app: 'server' } };
const from = (app: string) => ({ endpointSelector: server, ingress: [{ fromEndpoints: [{ matchLabels: { app } }] }] });

describe('what is read about a policy on a real Kubernetes', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    // Policies that cannot be read are applied here.
    cluster = await weirCluster({ install: { policyWebhook: { enabled: false } } });
    await cluster.createPods([
      { name: 'server', labels: { app: 'server' }, node: 1, tcp: [80], portNames: { web: '80/tcp' } },
      { name: 'server-far', labels: { app: 'server' }, node: 2, tcp: [80] },
      { name: 'left', labels: { app: 'left' }, node: 1 },
      { name: 'right', labels: { app: 'right' }, node: 2 },
    ]);
  }, 240_000);
  afterAll(() => cluster?.stop());

  const json = async (...what: readonly string[]): Promise<Record<string, never>> =>
    JSON.parse(await cluster.kubectl(['get', ...what, '-o', 'json'])) as Record<string, never>;
  const conditionsOf = async (
    ...what: readonly string[]
  ): Promise<Partial<Record<'Valid' | 'ResolvedRefs' | 'Programmed' | 'Ready', string>>> => {
    const object = (await json(...what)) as unknown as {
      readonly status?: {
        readonly conditions?: readonly { readonly type: string; readonly status: string; readonly reason: string }[];
      };
    };
    return Object.fromEntries(
      (object.status?.conditions ?? []).map(({ type, status, reason }) => [type, `${status} ${reason}`]),
    );
  };

  it('kubectl wait answers for the generation that was applied: the very next packet is judged by it', async () => {
    for (let edit = 0; edit < 12; edit += 1) {
      const [in_, out] = edit % 2 === 0 ? ['left', 'right'] : ['right', 'left'];
      await cluster.applyObjects([cnp('turn', from(in_ as string))]);
      await cluster.programmed('cnp/turn');
      const [reached, dropped] = await Promise.all([
        cluster.probe(in_ as string, 'server', { timeoutMs: 3000 }),
        cluster.probe(out as string, 'server', { timeoutMs: 400 }),
      ]);
      expect({ edit, reached, dropped }).toEqual({ edit, reached: 'reached', dropped: 'dropped' });
    }
  });

  it('columns say it at a glance', async () => {
    const [head = '', row = ''] = (await cluster.kubectl(['get', 'cnp', 'turn'])).split('\n');
    for (const column of ['NAME', 'VALID', 'PROGRAMMED', 'NODES', 'ENDPOINTS', 'AGE'])
      expect(head.split(/\s+/)).toContain(column);
    expect(row).toMatch(/^turn\s.*\bTrue\b.*\b2\/2\b/);
  });

  it('an edit that cannot be read: where, what, and what stays enforced; an event says so too', async () => {
    await cluster.applyObjects([cnp('turn', { ...from('left'), endpointSelector: { matchLabel: { app: 'server' } } })]);
    const invalid = await eventually(
      () => conditionsOf('cnp', 'turn'),
      (all) => all.Valid === 'False InvalidSpec',
    );
    expect(invalid).toMatchObject({
      Valid: 'False InvalidSpec',
      Programmed: 'False Invalid',
      Ready: 'False InvalidSpec',
    });
    const described = await eventually(
      () => cluster.kubectl(['describe', 'cnp', 'turn']),
      (text) => /Warning\s+InvalidSpec/.test(text),
    );
    expect(described).toMatch(/Warning\s+InvalidSpec.*spec\.endpointSelector/);
    expect(described).toMatch(/generation \d+ stays enforced/);
    // The generation before is: right was the last one let in.
    expect(await cluster.probe('right', 'server', { timeoutMs: 3000 })).toBe('reached');
    expect(await cluster.probe('left', 'server', { timeoutMs: 400 })).toBe('dropped');
    await cluster.kubectl(['delete', 'cnp', 'turn']);
  });

  it('what is not enforced yet is named, and never widened', async () => {
    const http = [{ ports: [{ port: '80', protocol: 'TCP' }], rules: { http: [{ method: 'GET' }] } }];
    await cluster.applyObjects([
      cnp('seven', {
        endpointSelector: server,
        ingress: [{ fromEndpoints: [{ matchLabels: { app: 'left' } }], toPorts: http }],
      }),
    ]);
    await cluster.programmed('cnp/seven');
    expect(await conditionsOf('cnp', 'seven')).toMatchObject({
      Valid: 'False UnsupportedField',
      Ready: 'False UnsupportedField',
    });
    expect(await cluster.probe('left', 'server', { timeoutMs: 400 })).toBe('dropped');
    expect(await cluster.kubectl(['describe', 'cnp', 'seven'])).toContain('spec.ingress[0].toPorts[0].rules');
    await cluster.kubectl(['delete', 'cnp', 'seven']);
  });

  it('no pod selected; then one comes', async () => {
    await cluster.applyObjects([cnp('early', { endpointSelector: { matchLabels: { app: 'late' } }, ingress: [{}] })]);
    await cluster.programmed('cnp/early');
    expect(await conditionsOf('cnp', 'early')).toMatchObject({ Programmed: 'True NoMatchingEndpoints' });
    await cluster.createPods([{ name: 'late', labels: { app: 'late' }, node: 2, tcp: [80] }]);
    const counted = await eventually(
      () => conditionsOf('cnp', 'early'),
      (all) => all.Programmed === 'True Programmed',
    );
    expect(counted).toMatchObject({ Programmed: 'True Programmed', Ready: 'True Programmed' });
    expect(await cluster.probe('left', 'late', { timeoutMs: 400 })).toBe('dropped');
    await cluster.kubectl(['delete', 'cnp', 'early']);
    await cluster.deletePod('late');
  });

  it('a port name that nobody has is reported, and resolved when a pod brings it', async () => {
    await cluster.applyObjects([
      cnp('named', { endpointSelector: server, ingress: [{ toPorts: [{ ports: [{ port: 'metrics' }] }] }] }),
    ]);
    await cluster.programmed('cnp/named');
    expect(await conditionsOf('cnp', 'named')).toMatchObject({ ResolvedRefs: 'False PortNameNotFound' });
    await cluster.createPods([
      { name: 'server-named', labels: { app: 'server' }, node: 1, tcp: [9000], portNames: { metrics: '9000/tcp' } },
    ]);
    const found = await eventually(
      () => conditionsOf('cnp', 'named'),
      (all) => all.ResolvedRefs === 'True Resolved',
    );
    expect(found).toMatchObject({ ResolvedRefs: 'True Resolved' });
    expect(await cluster.probe('left', 'server-named', { port: 9000, timeoutMs: 3000 })).toBe('reached');
    await cluster.kubectl(['delete', 'cnp', 'named']);
    await cluster.deletePod('server-named');
  });

  it('clusterwide policies alike', async () => {
    await cluster.applyObjects([
      { ...cnp('wide', from('left')), kind: 'CiliumClusterwideNetworkPolicy', metadata: { name: 'wide' } },
    ]);
    await cluster.programmed('ccnp/wide');
    expect(await cluster.kubectl(['get', 'ccnp', 'wide'])).toMatch(/wide\s.*True.*2\/2/);
    await cluster.kubectl(['delete', 'ccnp', 'wide']);
  });

  it('a NetworkPolicy says it by events and by `weir policy status`', async () => {
    const policy = {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'plain', namespace: 'default' },
      spec: { podSelector: server, ingress: [{ from: [{ podSelector: { matchLabels: { app: 'left' } } }] }] },
    };
    await cluster.applyObjects([policy]);
    const described = await eventually(
      () =>
        cluster
          .kubectl(['describe', 'networkpolicy', 'plain'])
          .then(async (text) => text + (await cluster.kubectl(['get', 'events']))),
      (text) => /Normal\s+Programmed.*networkpolicy\/plain/.test(text),
    );
    expect(described).toMatch(/Normal\s+Programmed.*networkpolicy\/plain/);
    expect(await cluster.probe('left', 'server', { timeoutMs: 3000 })).toBe('reached');
    expect(await cluster.probe('right', 'server', { timeoutMs: 400 })).toBe('dropped');
    const { code, stdout } = await cluster.node(1).weir(['policy', 'status', 'NetworkPolicy/default/plain']);
    expect({ code, stdout }).toMatchObject({ code: 0, stdout: expect.stringMatching(/NetworkPolicy/) });
    expect(stdout).toContain('default/plain');
    await cluster.kubectl(['delete', 'networkpolicy', 'plain']);
  });

  it('identities, endpoints and slices are as kubectl shows them', async () => {
    const endpoints = await cluster.kubectl(['get', 'cep']);
    expect(endpoints.split('\n')[0]).toMatch(/NAME\s+ENDPOINT ID\s+IDENTITY ID/);
    expect(endpoints).toMatch(/^server\s+\d+\s+\d+\s.*ready\s+10\.244\./m);
    expect(await cluster.kubectl(['get', 'ciliumid'])).toMatch(/^\d+\s+default/m);
    expect(await cluster.kubectl(['get', 'ces', '-o', 'json'])).toContain('"server-far"');
  });

  it('writes a status at most once a second, and never when nothing changed', async () => {
    await cluster.applyObjects([cnp('quiet', { endpointSelector: {}, ingress: [{ fromEntities: ['all'] }] })]);
    await cluster.programmed('cnp/quiet');
    await sleep(1500);
    const versions: string[] = [];
    const watch = spawn(
      'kubectl',
      ['get', 'cnp', 'quiet', '--watch', '-o', 'jsonpath={.metadata.resourceVersion}{"\\n"}'],
      {
        env: { ...process.env, PATH: TOOL_PATH, KUBECONFIG: cluster.kubeconfig },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    createInterface({ input: watch.stdout }).on('line', (line) => versions.push(line));
    try {
      await eventually(
        () => Promise.resolve(versions.length),
        (count) => count > 0,
      );
      await sleep(4000);
      expect(versions).toHaveLength(1);
      const began = Date.now();
      for (let pod = 0; pod < 6; pod += 1)
        await cluster.createPods([{ name: `churn-${pod}`, labels: { app: 'churn' }, node: (pod % 2) + 1 }]);
      await cluster.kubectl(['delete', 'pod', '-l', 'app=churn', '--grace-period=0', '--force']);
      await sleep(1500);
      const seconds = Math.ceil((Date.now() - began) / 1000);
      expect(versions.length).toBeGreaterThan(1);
      expect(versions.length).toBeLessThanOrEqual(seconds + 2);
    } finally {
      watch.kill('SIGTERM');
    }
    await cluster.kubectl(['delete', 'cnp', 'quiet']);
  });
});
