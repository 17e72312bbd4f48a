import type { Case, Json, JsonObject } from '../types.ts';
import { configMap, define, definition, pod, readyForPods, some, widget, without } from './objects.ts';

const spec = some('spec.containers', 'metadata.labels', 'metadata.resourceVersion');

export const patching: readonly Case[] = [
  {
    name: 'json patch',
    run: async (api) => {
      const one = api.at('v1', 'configmaps', 'a');
      await api.quiet('POST', api.at('v1', 'configmaps'), { body: configMap('a', { a: '1', 'x/y~z': '2' }) });
      const tries: Json[] = [
        [
          { op: 'add', path: '/data/b', value: '2' },
          { op: 'test', path: '/data/a', value: '1' },
        ],
        [{ op: 'replace', path: '/data/x~1y~0z', value: '3' }],
        [{ op: 'move', from: '/data/b', path: '/data/c' }],
        [{ op: 'copy', from: '/data/c', path: '/data/d' }],
        [{ op: 'remove', path: '/data/d' }],
        [{ op: 'add', path: '/metadata/labels', value: { k: 'v' } }],
        [{ op: 'test', path: '/data/a', value: 'wrong' }],
        [{ op: 'remove', path: '/data/missing' }],
        [{ op: 'replace', path: '/data/missing', value: '1' }],
        [{ op: 'add', path: '/nope/deeper', value: 1 }],
        [{ op: 'frobnicate', path: '/data/a' }],
        [{ op: 'replace', path: '/metadata/name', value: 'b' }],
        [{ op: 'replace', path: '/metadata/resourceVersion', value: '1' }],
        [{ op: 'add', path: '/data/a', value: 5 }],
        { data: { a: '1' } },
        [],
      ];
      for (const [i, body] of tries.entries())
        await api.patch(one, 'json', body, {
          note: `${i} ${JSON.stringify(body)}`,
          pick: some('data', 'metadata.labels'),
        });
      await api.call('PATCH', one, { raw: '[{', contentType: 'application/json-patch+json', note: 'half' });
    },
  },
  {
    name: 'merge patch',
    run: async (api) => {
      const one = api.at('v1', 'configmaps', 'a');
      const { object } = await api.quiet('POST', api.at('v1', 'configmaps'), {
        body: configMap('a', { a: '1', b: '2' }),
      });
      const rv = (object.metadata as JsonObject).resourceVersion ?? '';
      await api.patch(one, 'merge', { data: { a: null, c: '3' } });
      await api.patch(one, 'merge', {}, { note: 'nothing' });
      await api.patch(one, 'merge', { metadata: { labels: { k: 'v' } }, data: null }, { note: 'null object' });
      await api.patch(one, 'merge', { metadata: { resourceVersion: rv }, data: { z: '1' } }, { note: 'stale' });
      await api.patch(one, 'merge', { metadata: { uid: 'x' } }, { note: 'uid' });
      await api.patch(one, 'merge', { kind: 'Secret' }, { note: 'kind' });
      await api.patch(one, 'merge', { metadata: { name: 'b' } }, { note: 'name' });
      await api.patch(one, 'merge', { metadata: { namespace: 'default' } }, { note: 'namespace' });
      await api.patch(one, 'merge', [], { note: 'a list' });
      await api.patch(one, 'merge', { nope: 1 }, { query: { fieldValidation: 'Strict' } });
      await api.patch(one, 'merge', { nope: 1 }, { query: { fieldValidation: 'Warn' }, pick: some('data') });
      await api.patch(api.at('v1', 'configmaps', 'missing'), 'merge', {});
      await api.patch(one, 'merge', { data: { a: '1' } }, { query: { force: 'true' } });
      await api.call('PATCH', one, { body: {}, contentType: 'application/json' });
      await api.call('PATCH', one, { raw: '', contentType: 'application/merge-patch+json', note: 'empty' });
    },
  },
  {
    name: 'strategic merge patch',
    run: async (api) => {
      await readyForPods(api);
      const one = api.at('apps/v1', 'replicasets', 'r');
      const containers = [
        {
          name: 'a',
          image: 'a:1',
          env: [
            { name: 'X', value: '1' },
            { name: 'Y', value: '2' },
          ],
          ports: [{ containerPort: 80, protocol: 'TCP' }],
        },
        { name: 'b', image: 'b:1' },
      ];
      await api.quiet('POST', api.at('apps/v1', 'replicasets'), {
        body: {
          metadata: { name: 'r' },
          spec: {
            replicas: 0,
            selector: { matchLabels: { app: 'r' } },
            template: { metadata: { labels: { app: 'r' } }, spec: { containers } },
          },
        },
      });
      const shape = some(
        'spec.template.spec.containers',
        'spec.template.spec.tolerations',
        'spec.template.metadata.labels',
      );
      const patch = (body: JsonObject, note: string): Promise<unknown> =>
        api.patch(one, 'strategic', { spec: { template: { spec: body } } }, { note, pick: shape });
      await patch({ containers: [{ name: 'b', image: 'b:2' }] }, 'by name');
      await patch(
        {
          containers: [
            {
              name: 'a',
              env: [
                { name: 'X', value: '9' },
                { name: 'Z', value: '3' },
              ],
            },
          ],
        },
        'nested',
      );
      await patch({ containers: [{ name: 'a', env: [{ name: 'Y', $patch: 'delete' }] }] }, 'delete item');
      await patch(
        {
          containers: [{ name: 'c', image: 'c:1' }],
          '$setElementOrder/containers': [{ name: 'c' }, { name: 'a' }, { name: 'b' }],
        },
        'order',
      );
      await patch({ tolerations: [{ key: 'k', operator: 'Exists' }] }, 'atomic list');
      await patch({ containers: [{ name: 'a', ports: [{ containerPort: 80, name: 'web' }] }] }, 'ports');
      await patch({ containers: [{ name: 'b', $patch: 'delete' }] }, 'delete container');
      await patch({ containers: [{ image: 'x' }] }, 'no key');
      await patch({ containers: [{ $patch: 'replace' }, { name: 'only', image: 'o:1' }] }, 'replace list');
      await patch({ tolerations: null }, 'null');
      await patch({ $patch: 'odd' }, 'unknown directive');
      await api.patch(
        one,
        'strategic',
        { metadata: { finalizers: ['example.com/a'] } },
        { pick: some('metadata.finalizers') },
      );
      await api.patch(
        one,
        'strategic',
        { metadata: { finalizers: ['example.com/b'] } },
        { pick: some('metadata.finalizers') },
      );
      await api.patch(
        one,
        'strategic',
        { metadata: { '$deleteFromPrimitiveList/finalizers': ['example.com/a', 'example.com/b'] } },
        { pick: some('metadata.finalizers') },
      );
    },
  },
  {
    name: 'patches of a pod',
    run: async (api) => {
      await readyForPods(api);
      const one = api.at('v1', 'pods', 'p');
      await api.quiet('POST', api.at('v1', 'pods'), { body: pod('p') });
      await api.patch(one, 'strategic', { metadata: { labels: { more: 'x' } } }, { pick: spec });
      await api.patch(
        one,
        'strategic',
        { spec: { containers: [{ name: 'main', image: 'example.com/app:2' }] } },
        { pick: spec },
      );
      await api.patch(one, 'strategic', { spec: { containers: [{ name: 'main', command: ['x'] }] } });
      await api.patch(one, 'merge', { spec: { nodeName: 'n' } });
      await api.patch(
        one,
        'merge',
        { status: { phase: 'Running' } },
        { note: 'status by the wrong door', pick: some('status.phase') },
      );
      await api.patch(
        `${one}/status`,
        'merge',
        { status: { phase: 'Running', podIP: '10.9.8.7', podIPs: [{ ip: '10.9.8.7' }] } },
        { pick: some('status.phase', 'status.podIP', 'metadata.generation') },
      );
      await api.patch(
        `${one}/status`,
        'strategic',
        { status: { conditions: [{ type: 'Ready', status: 'True' }] } },
        { pick: some('status.conditions') },
      );
      await api.patch(
        `${one}/status`,
        'merge',
        { metadata: { labels: { by: 'status' } }, spec: { nodeName: 'n' } },
        { pick: some('metadata.labels', 'spec.nodeName') },
      );
    },
  },
  {
    name: 'patches of custom objects',
    run: async (api) => {
      const apiVersion = await define(
        api,
        definition(api, 'Widget', {
          type: 'object',
          properties: { size: { type: 'integer' }, list: { type: 'array', items: { type: 'string' } } },
        }),
      );
      const one = api.at(apiVersion, 'widgets', 'w');
      await api.quiet('POST', api.at(apiVersion, 'widgets'), { body: widget(api, 'w', { size: 1, list: ['a', 'b'] }) });
      await api.patch(one, 'strategic', { spec: { size: 2 } });
      await api.patch(one, 'merge', { spec: { size: 2, list: ['c'] } });
      await api.patch(one, 'json', [{ op: 'add', path: '/spec/list/-', value: 'd' }]);
      await api.patch(one, 'merge', { spec: { size: 'big' } });
      await api.patch(one, 'merge', { spec: { nope: 1 } }, { query: { fieldValidation: 'Strict' } });
      await api.patch(one, 'merge', { spec: null }, { pick: without('metadata.managedFields') });
    },
  },
];
