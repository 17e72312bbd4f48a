/** Lists, selectors, pages and watches. */
import { isObject, textOf } from '../client.ts';
import type { Case, Json, JsonObject, Session } from '../types.ts';
import { configMap, items, nameOf, names, pod, readyForPods, some } from './objects.ts';

async function fill(api: Session): Promise<string> {
  const all = api.at('v1', 'configmaps');
  // The namespace's own config map comes at its own time.
  await api.until(api.at('v1', 'serviceaccounts', 'default'), (reply) => reply.status === 200);
  const labels: Record<string, Record<string, string>> = {
    a: { app: 'x', tier: 'front', n: '1' },
    b: { app: 'y', tier: 'back', n: '5' },
    c: { app: 'x', 'example.com/role': 'db' },
    d: { app: '', n: 'text' },
    e: {},
  };
  let revision = '';
  for (const [name, own] of Object.entries(labels)) {
    const made = await api.quiet('POST', all, { body: configMap(name, {}, { set: 'yes', ...own }) });
    revision = textOf((made.object.metadata as JsonObject).resourceVersion);
  }
  return revision;
}

const found = (body: Json): Json => items(body).map(nameOf);
const rvOf = (object: JsonObject): string => textOf((object.metadata as JsonObject).resourceVersion);

export const listing: readonly Case[] = [
  {
    name: 'label selectors',
    run: async (api) => {
      await fill(api);
      const all = api.at('v1', 'configmaps');
      const good = [
        'app=x',
        'app==x',
        'app!=x,set',
        'app in (x,y)',
        'app notin (x),set',
        'app,set',
        '!app,set',
        'app=,set',
        'app in (),set',
        'app in (x,),set',
        'n>2',
        'n<2',
        'n>x',
        'app=x,tier=front',
        ' app = x ',
        'app in ( x , y )',
        'example.com/role=db',
        'set=yes,',
        ',set=yes',
        '!example.com/role,set',
        'app in(x)',
        'app=x,app=y',
        'n gt 2',
        'set!',
        'in in (in)',
        'in',
        'notin,set',
        'app notin (),set',
      ];
      for (const labelSelector of good) await api.get(all, { query: { labelSelector }, pick: found });
      const bad = [
        'app=x y',
        'app in x',
        '!!app',
        '=x',
        'app=!x',
        'app in (x',
        'bad key=1',
        'app=x,,tier',
        '-app=x',
        'app=-x',
        'a/b/c=1',
        'app===x',
        'app>',
        '()',
        'app in (x))',
        'UPPER.example.com/x=1',
        `app=${'x'.repeat(64)}`,
      ];
      for (const labelSelector of bad) await api.get(all, { query: { labelSelector }, pick: found });
    },
  },
  {
    name: 'field selectors',
    run: async (api) => {
      await fill(api);
      const all = api.at('v1', 'configmaps');
      for (const fieldSelector of [
        'metadata.name=a',
        'metadata.name==a',
        'metadata.name!=a,metadata.name!=kube-root-ca.crt',
        `metadata.namespace=${api.ns},metadata.name=b`,
        'metadata.name=',
        ' metadata.name=a ',
        'metadata.name=a,',
        'metadata.name',
        'data.a=1',
        'metadata.labels.app=x',
        'metadata.name>a',
        'metadata.name=a\\,b',
        'metadata.name=a=b',
      ])
        await api.get(all, { query: { fieldSelector }, pick: found });
      await readyForPods(api);
      await api.quiet('POST', api.at('v1', 'pods'), { body: pod('p') });
      for (const fieldSelector of [
        'status.phase=Pending',
        'status.phase!=Pending',
        'spec.nodeName=',
        'spec.nodeName!=',
        'spec.restartPolicy=Always',
        'spec.schedulerName=nobody',
        'spec.hostNetwork=false',
        'spec.serviceAccountName=default',
        'status.podIP=',
        'spec.image=x',
      ])
        await api.get(api.at('v1', 'pods'), { query: { fieldSelector }, pick: found });
    },
  },
  {
    name: 'pages',
    run: async (api) => {
      await fill(api);
      // Secrets: no controller makes any here.
      const all = api.at('v1', 'secrets');
      for (const name of ['a', 'b', 'c', 'd', 'e'])
        await api.quiet('POST', all, { body: { metadata: { name, labels: { set: 'yes' } } } });
      const page = async (query: Record<string, string>, note: string): Promise<string> => {
        const { object } = await api.get(all, { query, note, pick: names });
        const metadata = isObject(object.metadata) ? object.metadata : {};
        return textOf(metadata.continue ?? '');
      };
      const next = await page({ limit: '2' }, 'first');
      await api.quiet('DELETE', `${all}/c`);
      await api.quiet('POST', all, { body: { metadata: { name: 'cc', labels: { set: 'yes' } } } });
      const third = await page({ limit: '2', continue: next }, 'second, consistent with the first');
      await page({ limit: '9', continue: third }, 'rest');
      await page({ limit: '2', labelSelector: 'set=yes' }, 'selected');
      await page({ limit: '5' }, 'exactly all');
      await page({ limit: '2', continue: 'nonsense' }, 'bad token');
      await page({ limit: 'x' }, 'bad limit');
      await page({ limit: '0' }, 'no limit');
      await page({ limit: '2', continue: next, resourceVersion: '1' }, 'token and revision');
    },
  },
  {
    name: 'resource versions of lists',
    run: async (api) => {
      const old = await fill(api);
      const all = api.at('v1', 'configmaps');
      const list = (query: Record<string, string>): Promise<unknown> =>
        api.get(all, { query: { labelSelector: 'set=yes', ...query }, pick: (body) => found(body) });
      await api.quiet('POST', all, { body: configMap('later', {}, { set: 'yes' }) });
      await list({ resourceVersion: '0' });
      await list({ resourceVersion: old });
      await list({ resourceVersion: old, resourceVersionMatch: 'NotOlderThan' });
      await list({ resourceVersion: old, resourceVersionMatch: 'Exact' });
      await list({ resourceVersion: '0', resourceVersionMatch: 'Exact' });
      await list({ resourceVersionMatch: 'NotOlderThan' });
      await list({ resourceVersion: '0', resourceVersionMatch: 'Odd' });
      await list({ resourceVersion: 'x' });
      await list({ resourceVersion: '-' });
      await api.get(api.at('v1', 'configmaps', 'a'), { query: { resourceVersion: '0' }, pick: nameOf });
      await api.get(api.at('v1', 'configmaps', 'a'), { query: { resourceVersion: 'x' }, pick: nameOf });
    },
  },
  {
    name: 'a revision of the future',
    run: async (api) => {
      await api.get(api.at('v1', 'configmaps'), { query: { resourceVersion: '99999999' } });
    },
  },
  {
    name: 'watch',
    run: async (api) => {
      const [all, one] = [api.at('v1', 'configmaps'), api.at('v1', 'configmaps', 'w')];
      await fill(api);
      const { object } = await api.quiet('GET', all);
      const from = rvOf(object);
      const made = await api.quiet('POST', all, { body: configMap('w', {}, { app: 'w' }) });
      await api.quiet('PATCH', one, { body: { data: { b: '1' } }, contentType: 'application/merge-patch+json' });
      await api.watch(all, { query: { resourceVersion: from }, events: 3, note: 'history and live' }, () =>
        api.delete(one),
      );
      await api.watch(all, {
        query: { resourceVersion: rvOf(made.object) },
        events: 2,
        note: 'from a revision',
        pick: some('metadata.name', 'data'),
      });
      await api.watch(all, { query: { labelSelector: 'app=x' }, events: 2, note: 'current objects', pick: nameOf });
      await api.watch(all, {
        query: { resourceVersion: '0', fieldSelector: 'metadata.name=b' },
        events: 1,
        note: 'one name',
        pick: nameOf,
      });
    },
  },
  {
    name: 'watch with a selector',
    run: async (api) => {
      const [all, one] = [api.at('v1', 'configmaps'), api.at('v1', 'configmaps', 's')];
      const { object } = await api.quiet('GET', all);
      const patch = (labels: Json, type = 'application/merge-patch+json'): Promise<unknown> =>
        api.quiet('PATCH', one, { body: { metadata: { labels } }, contentType: type });
      await api.watch(
        all,
        {
          query: { resourceVersion: rvOf(object), labelSelector: 'in=yes' },
          events: 5,
          pick: some('metadata.name', 'metadata.labels'),
        },
        async () => {
          await api.quiet('POST', all, { body: configMap('s') });
          await patch({ in: 'yes' });
          await patch({ more: '1' });
          await patch({ in: null });
          await patch({ in: 'yes' });
          await api.quiet('DELETE', one);
        },
      );
    },
  },
  {
    name: 'watch with initial events',
    run: async (api) => {
      await fill(api);
      const all = api.at('v1', 'configmaps');
      const query = {
        labelSelector: 'set=yes',
        sendInitialEvents: 'true',
        resourceVersionMatch: 'NotOlderThan',
        allowWatchBookmarks: 'true',
      };
      await api.watch(all, { query, events: 7, pick: nameOf }, () =>
        api.quiet('POST', all, { body: configMap('z', {}, { set: 'yes' }) }),
      );
      await api.watch(all, { query: { ...query, resourceVersion: '0' }, events: 6, pick: nameOf });
      await api.watch(all, { query: { sendInitialEvents: 'true' }, events: 1 });
      await api.watch(all, { query: { sendInitialEvents: 'true', resourceVersionMatch: 'NotOlderThan' }, events: 1 });
      await api.watch(all, { query: { resourceVersionMatch: 'NotOlderThan' }, events: 1 });
      await api.watch(all, { query: { resourceVersion: 'x' }, events: 1 });
      await api.watch(all, { query: { labelSelector: '!!' }, events: 1 });
      await api.watch(all, { query: { fieldSelector: 'data.x=1' }, events: 1 });
    },
  },
];
