import { textOf } from '../client.ts';
import type { Case, JsonObject, Session } from '../types.ts';
import { configMap, names, pod, readyForPods, some } from './objects.ts';

const marks = some(
  'metadata.finalizers',
  'metadata.deletionGracePeriodSeconds',
  'metadata.deletionTimestamp',
  'kind',
  'status',
  'details',
);

const made = async (api: Session, body: JsonObject): Promise<JsonObject> =>
  (await api.quiet('POST', api.at('v1', textOf(body.kind) === 'Pod' ? 'pods' : 'configmaps'), { body })).object;

const owned = (name: string, owner: JsonObject, block = false): JsonObject => ({
  ...configMap(name),
  metadata: {
    name,
    ownerReferences: [
      {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        name: (owner.metadata as JsonObject).name ?? '',
        uid: (owner.metadata as JsonObject).uid ?? '',
        ...(block ? { blockOwnerDeletion: true } : {}),
      },
    ],
  },
});

export const deleting: readonly Case[] = [
  {
    name: 'preconditions',
    run: async (api) => {
      const one = api.at('v1', 'configmaps', 'a');
      const { metadata } = await made(api, configMap('a'));
      const { uid, resourceVersion } = metadata as JsonObject;
      await api.delete(one, {
        body: { preconditions: { uid: '00000000-0000-0000-0000-000000000000' } },
        note: 'other uid',
      });
      await api.delete(one, { body: { preconditions: { resourceVersion: '1' } }, note: 'old revision' });
      await api.delete(one, {
        body: { kind: 'DeleteOptions', apiVersion: 'v1', preconditions: { uid, resourceVersion } },
        note: 'met',
      });
      await made(api, configMap('b'));
      await api.delete(api.at('v1', 'configmaps', 'b'), {
        body: { propagationPolicy: 'Sideways' },
        note: 'odd policy',
      });
      await api.delete(api.at('v1', 'configmaps', 'b'), {
        body: { orphanDependents: true, propagationPolicy: 'Orphan' },
        note: 'both',
      });
      await api.delete(api.at('v1', 'configmaps', 'b'), { body: { gracePeriodSeconds: -3 }, note: 'negative grace' });
      await api.delete(api.at('v1', 'configmaps', 'b'), {
        body: { kind: 'ConfigMap', apiVersion: 'v1' },
        note: 'odd kind',
      });
      await api.delete(api.at('v1', 'configmaps', 'c'), { query: { propagationPolicy: 'Background' } });
    },
  },
  {
    name: 'finalizers',
    run: async (api) => {
      const one = api.at('v1', 'configmaps', 'f');
      await made(api, { ...configMap('f'), metadata: { name: 'f', finalizers: ['example.com/a', 'example.com/b'] } });
      await api.delete(one);
      await api.delete(one, { note: 'again', pick: marks });
      await api.patch(
        one,
        'merge',
        { metadata: { finalizers: ['example.com/a', 'example.com/c'] } },
        { note: 'adds one' },
      );
      await api.patch(one, 'merge', { data: { late: 'x' } }, { pick: some('data') });
      await api.patch(one, 'merge', { metadata: { finalizers: ['example.com/b'] } }, { pick: marks });
      await api.patch(one, 'json', [{ op: 'remove', path: '/metadata/finalizers' }]);
      await api.get(one);
    },
  },
  {
    name: 'owners and dependents',
    run: async (api) => {
      const gone = (name: string): Promise<unknown> =>
        api.until(api.at('v1', 'configmaps', name), (reply) => reply.status === 404);
      const back = await made(api, configMap('back'));
      await made(api, owned('back-child', back));
      await api.delete(api.at('v1', 'configmaps', 'back'), { body: { propagationPolicy: 'Background' } });
      await gone('back-child');
      const fore = await made(api, configMap('fore'));
      await made(api, {
        ...owned('fore-child', fore, true),
        metadata: { ...(owned('fore-child', fore, true).metadata as JsonObject), finalizers: ['example.com/wait'] },
      });
      await api.delete(api.at('v1', 'configmaps', 'fore'), { body: { propagationPolicy: 'Foreground' }, pick: marks });
      await api.until(
        api.at('v1', 'configmaps', 'fore-child'),
        ({ object }) => (object.metadata as JsonObject).deletionTimestamp !== undefined,
      );
      await api.get(api.at('v1', 'configmaps', 'fore'), { pick: marks });
      await api.quiet('PATCH', api.at('v1', 'configmaps', 'fore-child'), {
        body: { metadata: { finalizers: null } },
        contentType: 'application/merge-patch+json',
      });
      await gone('fore');
      const orphan = await made(api, configMap('orphan'));
      await made(api, owned('orphan-child', orphan));
      await api.delete(api.at('v1', 'configmaps', 'orphan'), { body: { propagationPolicy: 'Orphan' }, pick: marks });
      await gone('orphan');
      await api.get(api.at('v1', 'configmaps', 'orphan-child'), {
        pick: some('metadata.ownerReferences', 'metadata.name'),
      });
      await api.delete(api.at('v1', 'configmaps', 'orphan-child'), {
        body: { propagationPolicy: 'Foreground' },
        note: 'without dependents',
        pick: marks,
      });
    },
  },
  {
    name: 'collections',
    run: async (api) => {
      const all = api.at('v1', 'configmaps');
      for (const name of ['a', 'b', 'c', 'd'])
        await made(api, configMap(name, {}, { half: name < 'c' ? 'first' : 'second', mine: 'yes' }));
      await api.delete(all, {
        query: { labelSelector: 'half=first', dryRun: 'All' },
        pick: (body) => some('kind', 'status')(body),
      });
      await api.delete(all, {
        query: { labelSelector: 'half=first' },
        pick: (body) => ({
          ...(some('kind', 'apiVersion')(body) as JsonObject),
          ...(names(body) as JsonObject),
          metadata: null,
        }),
      });
      await api.get(all, {
        query: { labelSelector: 'mine' },
        pick: (body) => some('items')({ items: (names(body) as JsonObject).items ?? null }),
      });
      await api.delete(all, {
        query: { fieldSelector: 'metadata.name=c' },
        pick: (body) => ({ ...(names(body) as JsonObject), metadata: null }),
      });
      await api.delete(all, { query: { labelSelector: '!!' } });
      await api.get(all, {
        query: { labelSelector: 'mine' },
        note: 'left',
        pick: (body) => (names(body) as JsonObject).items ?? null,
      });
    },
  },
  {
    name: 'pods and their grace',
    run: async (api) => {
      await readyForPods(api);
      const gone = (name: string): Promise<unknown> =>
        api.get(api.at('v1', 'pods', name), { note: 'after', pick: marks });
      await made(api, pod('unbound'));
      await api.delete(api.at('v1', 'pods', 'unbound'), {
        pick: (body) => some('kind', 'metadata.deletionGracePeriodSeconds')(body),
      });
      await gone('unbound');
      await made(api, pod('bound', { nodeName: 'no-such-node', terminationGracePeriodSeconds: 7 }));
      await api.delete(api.at('v1', 'pods', 'bound'), { pick: marks });
      await api.delete(api.at('v1', 'pods', 'bound'), {
        body: { gracePeriodSeconds: 20 },
        note: 'longer',
        pick: marks,
      });
      await api.delete(api.at('v1', 'pods', 'bound'), {
        body: { gracePeriodSeconds: 3 },
        note: 'shorter',
        pick: marks,
      });
      await api.delete(api.at('v1', 'pods', 'bound'), {
        body: { gracePeriodSeconds: 0 },
        note: 'now',
        pick: some('kind', 'status'),
      });
      await gone('bound');
      await made(api, pod('done', { nodeName: 'no-such-node' }));
      await api.quiet('PATCH', api.at('v1', 'pods', 'done', 'status'), {
        body: { status: { phase: 'Succeeded' } },
        contentType: 'application/merge-patch+json',
      });
      await api.delete(api.at('v1', 'pods', 'done'), { pick: some('kind', 'metadata.deletionGracePeriodSeconds') });
      await gone('done');
    },
  },
  {
    name: 'namespaces',
    run: async (api) => {
      const name = `ns-${api.run}`;
      const [all, one] = ['/api/v1/namespaces', `/api/v1/namespaces/${name}`];
      await api.post(all, { apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels: { team: 'x' } } });
      await api.post(all, { metadata: { name: 'Bad.Name' } });
      await api.post(all, { metadata: { name: 'a.b' } });
      await api.patch(
        one,
        'merge',
        { metadata: { labels: { 'kubernetes.io/metadata.name': 'other' } } },
        { note: 'its name label' },
      );
      await api.patch(
        one,
        'merge',
        { metadata: { labels: { 'kubernetes.io/metadata.name': null, team: 'y' } } },
        { note: 'its name label away', pick: some('metadata.labels') },
      );
      await api.quiet('POST', `${one}/configmaps`, {
        body: { metadata: { name: 'stays', finalizers: ['example.com/wait'] } },
      });
      await api.delete(one, {
        pick: some('kind', 'spec', 'status.phase', 'metadata.deletionTimestamp', 'metadata.deletionGracePeriodSeconds'),
      });
      await api.until(
        `${one}/configmaps/stays`,
        ({ object }) => (object.metadata as JsonObject).deletionTimestamp !== undefined,
      );
      await api.post(`${one}/configmaps`, configMap('late'));
      await api.get(one, { pick: some('spec', 'status.phase') });
      await api.quiet('PATCH', `${one}/configmaps/stays`, {
        body: { metadata: { finalizers: null } },
        contentType: 'application/merge-patch+json',
      });
      await api.until(one, (reply) => reply.status === 404);
      await api.get(one);
      await api.delete('/api/v1/namespaces/default');
      await api.delete('/api/v1/namespaces/kube-system');
    },
  },
];
