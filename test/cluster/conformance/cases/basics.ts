/** Creating, reading, updating and refusing: the rules that all kinds share, on the plainest kinds. */
import type { Case } from '../types.ts';
import { configMap, names, some } from './objects.ts';

export const basics: readonly Case[] = [
  {
    name: 'a life of a config map',
    run: async (api) => {
      const [all, one] = [api.at('v1', 'configmaps'), api.at('v1', 'configmaps', 'a')];
      await api.get(one);
      const { object } = await api.post(all, configMap('a'));
      await api.get(one);
      await api.get(all, { query: { labelSelector: 'x=y' } });
      await api.post(all, configMap('a'));
      const changed = await api.put(one, { ...object, data: { a: '2' } });
      await api.put(one, { ...object, data: { a: '3' } }, { note: 'stale' });
      await api.put(one, configMap('a', { a: '4' }), { note: 'no resourceVersion' });
      await api.put(one, { ...changed.object, metadata: { name: 'a' }, data: { a: '4' } }, { note: 'nothing changes' });
      await api.delete(one);
      await api.delete(one);
      await api.put(one, configMap('a'), { note: 'gone' });
    },
  },
  {
    name: 'names and namespaces',
    run: async (api) => {
      const all = api.at('v1', 'configmaps');
      await api.post(all, { metadata: {} }, { note: 'no name' });
      await api.post(all, configMap('Not_A_Name'));
      await api.post(all, configMap('-x'));
      await api.post(
        all,
        { ...configMap('other'), metadata: { name: 'other', namespace: 'default' } },
        { note: 'other namespace' },
      );
      await api.post('/api/v1/namespaces/nowhere/configmaps', configMap('a'));
      await api.get('/api/v1/namespaces/nowhere/configmaps');
      await api.post(all, configMap('a'));
      await api.put(api.at('v1', 'configmaps', 'a'), configMap('b'), { note: 'other name' });
      await api.post('/api/v1/configmaps', configMap('a'), { note: 'no namespace in path' });
      const made = await api.quiet('POST', all, { body: { metadata: { generateName: 'gen-' } } });
      const name = String((made.object.metadata as { name: string }).name);
      api.alias(name, 'GENERATED');
      await api.get(api.at('v1', 'configmaps', name), { note: name.replace(/^gen-[a-z0-9]{5}$/, 'five characters') });
    },
  },
  {
    name: 'what only the server sets',
    run: async (api) => {
      const all = api.at('v1', 'configmaps');
      await api.post(
        all,
        { ...configMap('rv'), metadata: { name: 'rv', resourceVersion: '5' } },
        { note: 'resourceVersion' },
      );
      await api.post(all, {
        ...configMap('set'),
        metadata: {
          name: 'set',
          uid: 'mine',
          creationTimestamp: '2001-01-01T00:00:00Z',
          generation: 7,
          deletionTimestamp: '2001-01-01T00:00:00Z',
          selfLink: '/x',
        },
      });
      await api.put(
        api.at('v1', 'configmaps', 'set'),
        { ...configMap('set'), metadata: { name: 'set', uid: 'other' } },
        { note: 'other uid' },
      );
      await api.put(
        api.at('v1', 'configmaps', 'set'),
        { ...configMap('set'), metadata: { name: 'set', resourceVersion: 'abc' } },
        { note: 'odd resourceVersion' },
      );
    },
  },
  {
    name: 'metadata rules',
    run: async (api) => {
      const all = api.at('v1', 'configmaps');
      const labelled = (labels: Record<string, string>): object => ({ metadata: { name: 'm', labels } });
      for (const labels of [
        { 'bad key': 'x' },
        { k: 'bad value!' },
        { '/x': 'y' },
        { 'UPPER.example.com/x': 'y' },
        { k: 'x'.repeat(64) },
        { [`${'k'.repeat(64)}`]: 'v' },
        { '': 'v' },
      ])
        await api.post(all, labelled(labels), { note: JSON.stringify(labels) });
      await api.post(all, { metadata: { name: 'm', annotations: { 'bad key': 'x' } } }, { note: 'annotation' });
      await api.post(all, { metadata: { name: 'm', labels: { k: 1 } } }, { note: 'a number' });
      await api.post(all, { metadata: { name: 'm', finalizers: ['nodomain'] } }, { note: 'finalizer' });
      await api.post(
        all,
        { metadata: { name: 'm', ownerReferences: [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'x' }] } },
        { note: 'owner without uid' },
      );
      await api.post(
        all,
        { metadata: { name: 'm', ownerReferences: [{ apiVersion: '', kind: '', name: '', uid: '' }] } },
        { note: 'empty owner' },
      );
    },
  },
  {
    name: 'bodies that cannot be read',
    run: async (api) => {
      const all = api.at('v1', 'configmaps');
      await api.call('POST', all, { raw: '{"metadata":', note: 'half' });
      await api.call('POST', all, { raw: '[]', note: 'a list' });
      await api.call('POST', all, { raw: '', note: 'empty' });
      await api.call('POST', all, { raw: 'x', contentType: 'text/plain' });
      await api.post(all, { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' } }, { note: 'other kind' });
      await api.post(all, { apiVersion: 'v2', kind: 'ConfigMap', metadata: { name: 's' } }, { note: 'other version' });
      await api.post(all, { metadata: { name: 's' }, data: [] }, { note: 'wrong type' });
      await api.post(all, { metadata: { name: 's' }, data: { a: 1 } }, { note: 'wrong value type' });
      await api.post(
        api.at('v1', 'services'),
        { metadata: { name: 's' }, spec: { ports: [{ port: 'eighty' }] } },
        { note: 'text for a number' },
      );
      await api.call('POST', all, {
        raw: 'metadata:\n  name: from-yaml\ndata:\n  k: v\n',
        contentType: 'application/yaml',
        pick: some('metadata.name', 'data'),
      });
    },
  },
  {
    name: 'methods',
    run: async (api) => {
      const [all, one] = [api.at('v1', 'configmaps'), api.at('v1', 'configmaps', 'a')];
      await api.call('PUT', all, { body: configMap('a') });
      await api.patch(all, 'merge', {});
      await api.call('POST', one, { body: configMap('a') });
      await api.call('OPTIONS', all);
      await api.call('POST', '/version', { body: {} });
      await api.call('DELETE', '/api/v1/namespaces');
      await api.call('DELETE', '/api/v1/services', { note: 'all namespaces' });
      await api.get(one, { accept: 'text/html' });
      await api.get(one, { accept: 'application/yaml' });
    },
  },
  {
    name: 'field validation',
    run: async (api) => {
      const all = api.at('v1', 'configmaps');
      const body = { ...configMap('v'), nope: 1, metadata: { name: 'v', odd: true } };
      const duplicated = '{"metadata":{"name":"d"},"data":{"a":"1","a":"2"},"data":{"b":"1"}}';
      for (const fieldValidation of ['Strict', 'Warn', 'Ignore', '', 'Maybe']) {
        await api.post(all, body, { query: { fieldValidation, dryRun: 'All' }, pick: some('data') });
        await api.call('POST', all, {
          raw: duplicated,
          query: { fieldValidation, dryRun: 'All' },
          note: 'duplicate',
          pick: some('data'),
        });
      }
      await api.post(all, body, { query: { dryRun: 'All' }, note: 'default', pick: some('data') });
      const pod = { metadata: { name: 'p' }, spec: { containers: [{ name: 'c', image: 'i', imagee: 'x' }], more: {} } };
      await api.post(api.at('v1', 'pods'), pod, { query: { fieldValidation: 'Strict', dryRun: 'All' } });
    },
  },
  {
    name: 'dry run',
    run: async (api) => {
      const [all, one] = [api.at('v1', 'configmaps'), api.at('v1', 'configmaps', 'a')];
      const dry = { query: { dryRun: 'All' } };
      await api.post(all, configMap('a'), {
        ...dry,
        pick: (body) => some('metadata.name', 'metadata.resourceVersion', 'data')(body),
      });
      await api.get(one);
      await api.post(all, configMap('a'), { pick: some('metadata.name') });
      await api.patch(one, 'merge', { data: { b: '2' } }, { ...dry, pick: some('data') });
      await api.delete(one, { ...dry });
      await api.get(one, { pick: some('data') });
      await api.post(all, configMap('b'), { query: { dryRun: 'Some' } });
      await api.post(all, configMap('a'), { ...dry, note: 'taken' });
    },
  },
  {
    name: 'config maps and secrets',
    run: async (api) => {
      const [maps, secrets] = [api.at('v1', 'configmaps'), api.at('v1', 'secrets')];
      await api.post(maps, configMap('bad', { 'a b': 'x' }), { note: 'bad key' });
      await api.post(
        maps,
        { metadata: { name: 'both' }, data: { k: '1' }, binaryData: { k: 'MQ==' } },
        { note: 'key twice' },
      );
      await api.post(maps, { metadata: { name: 'binary' }, binaryData: { k: 'not base64!' } }, { note: 'bad base64' });
      await api.post(maps, { ...configMap('fixed'), immutable: true }, { pick: some('immutable') });
      await api.patch(api.at('v1', 'configmaps', 'fixed'), 'merge', { data: { a: '2' } });
      await api.patch(api.at('v1', 'configmaps', 'fixed'), 'merge', { immutable: false });
      await api.post(secrets, {
        metadata: { name: 's', labels: { owner: 'helm' } },
        type: 'helm.sh/release.v1',
        stringData: { release: 'x' },
      });
      await api.patch(api.at('v1', 'secrets', 's'), 'merge', { type: 'Opaque' });
      await api.patch(api.at('v1', 'secrets', 's'), 'merge', { stringData: { more: 'y' } });
      await api.get(secrets, { query: { labelSelector: 'owner=helm' }, pick: names });
      await api.get(secrets, { query: { fieldSelector: 'type=helm.sh/release.v1' }, pick: names });
      await api.post(secrets, { metadata: { name: 't' } });
      await api.post(secrets, { metadata: { name: 'u' }, data: { k: '%%' } }, { note: 'bad base64' });
      await api.post(secrets, { metadata: { name: 'w' }, type: 'kubernetes.io/tls' }, { note: 'tls without keys' });
    },
  },
  {
    name: 'leases',
    run: async (api) => {
      const [all, one] = [
        api.at('coordination.k8s.io/v1', 'leases'),
        api.at('coordination.k8s.io/v1', 'leases', 'leader'),
      ];
      const lease = (holder: string, spec: object = {}): object => ({
        apiVersion: 'coordination.k8s.io/v1',
        kind: 'Lease',
        metadata: { name: 'leader' },
        spec: {
          holderIdentity: holder,
          leaseDurationSeconds: 15,
          acquireTime: '2001-02-03T04:05:06.000007Z',
          renewTime: '2001-02-03T04:05:06.120000Z',
          leaseTransitions: 0,
          ...spec,
        },
      });
      const { object } = await api.post(all, lease('one'));
      await api.post(all, lease('two'), { note: 'second' });
      await api.put(one, { ...object, spec: { ...(object.spec as object), leaseTransitions: 1 } });
      await api.put(one, { ...object, spec: { ...(object.spec as object), holderIdentity: 'two' } }, { note: 'lost' });
      await api.put(one, lease('two', { leaseDurationSeconds: 0 }), { note: 'no duration' });
      await api.put(one, lease('two', { leaseTransitions: -1 }), { note: 'negative transitions' });
      await api.put(one, lease('two', { renewTime: 'soon' }), { note: 'bad time' });
      await api.put(one, { metadata: { name: 'leader' }, spec: {} }, { note: 'empty' });
    },
  },
];
