/** The real kubectl and helm. Only what they print in every version is recorded. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Case, JsonObject } from '../types.ts';
import { configMap, items, some, template } from './objects.ts';

const deployment = (image: string, replicas = 0): JsonObject => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'web' },
  spec: {
    replicas,
    selector: { matchLabels: { app: 'web' } },
    template: { ...template({ app: 'web' }), spec: { containers: [{ name: 'main', image }] } },
  },
});

export const tools: readonly Case[] = [
  {
    name: 'kubectl apply, diff and edit',
    run: async (api) => {
      const map = configMap('m', { a: '1' }, { l: 'x' });
      await api.kubectl(['apply', '-f', '-'], { input: map });
      await api.kubectl(['apply', '-f', '-'], { input: map, note: 'again' });
      await api.kubectl(['diff', '-f', '-'], { input: map, note: 'no difference' });
      await api.kubectl(['apply', '-f', '-'], { input: configMap('m', { b: '2' }, { l: 'x' }), note: 'changed' });
      await api.get(api.at('v1', 'configmaps', 'm'));
      await api.kubectl(['label', 'cm/m', 'k=v']);
      await api.kubectl(['label', 'cm/m', 'k=w'], { fails: true });
      await api.kubectl(['annotate', 'cm/m', 'weir.dev/x=y']);
      await api.kubectl(['patch', 'cm/m', '--type=merge', '-p', '{"data":{"c":"3"}}']);
      await api.kubectl(['get', 'cm/m', '-o', 'jsonpath={.data}{.metadata.labels}']);
      await api.kubectl(['apply', '--server-side', '-f', '-'], {
        input: configMap('m', { b: '3' }),
        note: 'server side',
      });
      await api.kubectl(['apply', '--server-side', '--field-manager=other', '-f', '-'], {
        input: configMap('m', { b: '4' }),
        fails: true,
      });
      await api.kubectl(['apply', '-f', '-'], {
        input: { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'bad' }, nope: 1 },
        fails: true,
        note: 'unknown field',
      });
      await api.kubectl(['create', '-f', '-'], { input: map, fails: true, note: 'exists' });
      await api.kubectl(['get', 'cm/missing'], { fails: true });
      await api.kubectl(['delete', 'cm/m']);
      await api.kubectl(['delete', 'cm/m', '--ignore-not-found']);
    },
  },
  {
    name: 'kubectl get and describe',
    run: async (api) => {
      const policy = {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'NetworkPolicy',
        metadata: { name: 'np' },
        spec: {
          podSelector: { matchLabels: { a: 'b' } },
          ingress: [
            {
              from: [{ ipBlock: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] } }, { namespaceSelector: {} }],
              ports: [{ port: 80 }, { port: 'http', protocol: 'UDP' }],
            },
          ],
        },
      };
      await api.kubectl(['apply', '-f', '-'], { input: policy });
      await api.kubectl(['get', 'netpol']);
      await api.kubectl(['describe', 'netpol', 'np']);
      await api.kubectl(['apply', '-f', '-'], {
        input: {
          apiVersion: 'v1',
          kind: 'Service',
          metadata: { name: 's' },
          spec: { clusterIP: 'None', selector: { a: 'b' }, ports: [{ port: 80 }] },
        },
      });
      await api.kubectl(['get', 'svc', '-o', 'wide']);
      await api.kubectl(['get', 'svc', 's', '--show-labels']);
      await api.kubectl(['get', 'netpol,svc', '-o', 'name']);
      await api.kubectl(['get', 'nothing'], { fails: true });
      await api.kubectl(['get', 'pods'], { fails: true, note: 'none' });
      await api.kubectl(['explain', 'networkpolicy.spec.policyTypes'], { silent: true });
      await api.kubectl(['auth', 'can-i', 'create', 'pods']);
      await api.kubectl(['get', 'cm', '--field-selector', 'data.x=1'], { fails: true });
      await api.kubectl(['get', 'cm', '-l', 'a in (b'], { fails: true });
      await api.kubectl(['apply', '-f', '-'], {
        input: { ...policy, metadata: { name: 'bad' }, spec: { podSelector: {}, ingress: [{ ports: [{ port: 0 }] }] } },
        fails: true,
        note: 'refused',
      });
    },
  },
  {
    name: 'kubectl and workloads',
    run: async (api) => {
      await api.kubectl(['apply', '-f', '-'], { input: deployment('app:1') });
      await api.kubectl(['set', 'image', 'deployment/web', 'main=app:2']);
      await api.kubectl(['scale', 'deployment/web', '--replicas=0']);
      await api.kubectl([
        'get',
        'deployment/web',
        '-o',
        'jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image}',
      ]);
      await api.kubectl(['rollout', 'pause', 'deployment/web']);
      await api.kubectl(['delete', 'deployment/web', '--wait=false']);
      await api.kubectl(['run', 'p', '--image=app:1', '--dry-run=server', '-o', 'name'], { fails: true });
      await api.kubectl(['create', 'configmap', 'c', '--from-literal=a=1']);
      await api.kubectl(['wait', '--for=jsonpath={.data.a}=1', 'cm/c', '--timeout=5s']);
      await api.kubectl(['wait', '--for=delete', 'cm/never', '--timeout=5s']);
      await api.kubectl(['delete', 'cm', '--all', '--wait=false'], { silent: true });
      await api.kubectl(['api-resources', '--api-group=networking.k8s.io', '-o', 'name'], { silent: true });
    },
  },
  {
    name: 'helm',
    run: async (api) => {
      const chart = join(api.folder, 'chart');
      await mkdir(join(chart, 'templates'), { recursive: true });
      await writeFile(join(chart, 'Chart.yaml'), 'apiVersion: v2\nname: tiny\nversion: 0.1.0\n');
      await writeFile(join(chart, 'values.yaml'), 'word: one\n');
      await writeFile(
        join(chart, 'templates/map.yaml'),
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tiny}\ndata: {word: "{{ .Values.word }}"}\n',
      );
      await writeFile(
        join(chart, 'templates/policy.yaml'),
        'apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: tiny}\nspec: {podSelector: {}}\n',
      );
      const releases = (note: string): Promise<unknown> =>
        api.get(api.at('v1', 'secrets'), {
          query: { labelSelector: 'owner=helm' },
          note,
          pick: (body) =>
            items(body).map((item) =>
              some(
                'metadata.name',
                'type',
                'metadata.labels.status',
                'metadata.labels.version',
                'metadata.labels.name',
              )(item),
            ),
        });
      const map = (note: string): Promise<unknown> =>
        api.get(api.at('v1', 'configmaps', 'tiny'), {
          note,
          pick: some('data', 'metadata.labels', 'metadata.annotations'),
        });
      await api.helm(['install', 'r', chart, '--wait', '--timeout', '20s'], { silent: true });
      await map('installed');
      await releases('installed');
      await api.helm(['upgrade', 'r', chart, '--set', 'word=two'], { silent: true });
      await map('upgraded');
      await api.helm(['rollback', 'r', '1'], { silent: true });
      await map('rolled back');
      await releases('rolled back');
      await api.helm(['list', '-q']);
      await api.helm(['install', 'r', chart], { fails: true, silent: true, note: 'taken' });
      await api.helm(['uninstall', 'r'], { silent: true });
      await map('uninstalled');
      await releases('uninstalled');
    },
  },
];
