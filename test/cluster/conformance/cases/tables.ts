/** Tables and partial objects: what `kubectl get` asks for. */
import type { Case, Json, JsonObject, Session } from '../types.ts';
import { configMap, pod, readyForPods, some, template, without } from './objects.ts';

const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
/** Descriptions are documentation of the real server, not behaviour. */
const plain = (body: Json): Json => {
  const copy = structuredClone(body) as JsonObject;
  const columns = copy.columnDefinitions;
  if (Array.isArray(columns)) for (const column of columns) delete (column as JsonObject).description;
  return without('rows.*.object')(copy);
};

const make = (api: Session, apiVersion: string, plural: string, body: JsonObject): Promise<unknown> =>
  api.quiet('POST', api.at(apiVersion, plural), { body });

export const tables: readonly Case[] = [
  {
    name: 'tables of config maps',
    run: async (api) => {
      const [all, one] = [api.at('v1', 'configmaps'), api.at('v1', 'configmaps', 'a')];
      await make(api, 'v1', 'configmaps', configMap('a', {}, { x: 'y' }));
      const query = { labelSelector: 'x=y' };
      await api.get(all, { accept: TABLE, query, pick: (body) => without('columnDefinitions')(body) });
      await api.get(all, { accept: TABLE, query: { ...query, includeObject: 'None' }, pick: plain });
      await api.get(all, {
        accept: TABLE,
        query: { ...query, includeObject: 'Object' },
        pick: without('columnDefinitions'),
      });
      await api.get(all, { accept: TABLE, query: { ...query, includeObject: 'Odd' }, pick: plain });
      await api.get(one, { accept: TABLE, pick: plain });
      await api.get(all, { accept: 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io', query });
      await api.get(one, { accept: 'application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io' });
      await api.get(one, { accept: 'application/json;as=Nonsense;v=v1;g=meta.k8s.io' });
      await api.get(one, {
        accept: 'application/json;as=Table;v=v1beta9;g=meta.k8s.io,application/json',
        pick: some('kind'),
      });
      await api.get(api.at('v1', 'configmaps', 'missing'), { accept: TABLE });
      await api.watch(all, { accept: TABLE, query, events: 2, pick: plain }, () =>
        make(api, 'v1', 'configmaps', configMap('b', {}, { x: 'y' })),
      );
    },
  },
  {
    name: 'tables of the kinds in use',
    run: async (api) => {
      await readyForPods(api);
      const labels = { app: 'w' };
      await make(api, 'v1', 'pods', pod('plain'));
      await make(
        api,
        'v1',
        'pods',
        pod('runs', {
          nodeName: 'no-such-node',
          containers: [
            { name: 'main', image: 'a:1' },
            { name: 'side', image: 'b:1' },
          ],
        }),
      );
      await api.quiet('PATCH', api.at('v1', 'pods', 'runs', 'status'), {
        body: {
          status: {
            phase: 'Running',
            podIP: '192.0.2.9',
            podIPs: [{ ip: '192.0.2.9' }],
            conditions: [{ type: 'Ready', status: 'False' }],
            containerStatuses: [
              { name: 'main', ready: true, restartCount: 0, image: '', imageID: '', state: { running: {} } },
              {
                name: 'side',
                ready: false,
                restartCount: 2,
                image: '',
                imageID: '',
                state: { waiting: { reason: 'CrashLoopBackOff' } },
              },
            ],
          },
        },
        contentType: 'application/merge-patch+json',
      });
      await api.get(api.at('v1', 'pods'), { accept: TABLE, pick: plain });
      await make(api, 'v1', 'services', {
        metadata: { name: 's' },
        spec: {
          ports: [
            { name: 'a', port: 80 },
            { name: 'b', port: 53, protocol: 'UDP' },
          ],
        },
      });
      await api.get(api.at('v1', 'services'), { accept: TABLE, pick: plain });
      await make(api, 'networking.k8s.io/v1', 'networkpolicies', {
        metadata: { name: 'np' },
        spec: {
          podSelector: { matchLabels: labels, matchExpressions: [{ key: 'k', operator: 'In', values: ['a', 'b'] }] },
        },
      });
      await make(api, 'networking.k8s.io/v1', 'networkpolicies', {
        metadata: { name: 'all' },
        spec: { podSelector: {} },
      });
      await api.get(api.at('networking.k8s.io/v1', 'networkpolicies'), { accept: TABLE, pick: plain });
      await make(api, 'discovery.k8s.io/v1', 'endpointslices', {
        metadata: { name: 'es' },
        addressType: 'IPv4',
        endpoints: [
          { addresses: ['192.0.2.1'] },
          { addresses: ['192.0.2.2'] },
          { addresses: ['192.0.2.3'] },
          { addresses: ['192.0.2.4'] },
        ],
        ports: [{ port: 80 }],
      });
      await api.get(api.at('discovery.k8s.io/v1', 'endpointslices'), { accept: TABLE, pick: plain });
      await make(api, 'coordination.k8s.io/v1', 'leases', { metadata: { name: 'l' }, spec: { holderIdentity: 'me' } });
      await api.get(api.at('coordination.k8s.io/v1', 'leases'), { accept: TABLE, pick: plain });
      await make(api, 'v1', 'secrets', { metadata: { name: 'sec' }, stringData: { a: '1' } });
      await api.get(api.at('v1', 'secrets'), { accept: TABLE, pick: plain });
      await api.get(api.at('v1', 'serviceaccounts'), { accept: TABLE, pick: plain });
      await make(api, 'v1', 'events', {
        metadata: { name: 'ev' },
        involvedObject: { kind: 'Pod', name: 'p', namespace: api.ns },
        reason: 'R',
        message: 'm',
        type: 'Warning',
        source: { component: 'c' },
      });
      await api.get(api.at('v1', 'events'), { accept: TABLE, query: { fieldSelector: 'reason=R' }, pick: plain });
      await make(api, 'apps/v1', 'deployments', {
        metadata: { name: 'd' },
        spec: { replicas: 0, paused: true, selector: { matchLabels: labels }, template: template(labels) },
      });
      await api.get(api.at('apps/v1', 'deployments'), { accept: TABLE, pick: plain });
      await make(api, 'policy/v1', 'poddisruptionbudgets', {
        metadata: { name: 'b' },
        spec: { minAvailable: 1, selector: { matchLabels: { none: 'x' } } },
      });
      await api.get(api.at('policy/v1', 'poddisruptionbudgets'), { accept: TABLE, pick: plain });
      await make(api, 'rbac.authorization.k8s.io/v1', 'roles', { metadata: { name: 'r' }, rules: [] });
      await api.get(api.at('rbac.authorization.k8s.io/v1', 'roles'), {
        accept: TABLE,
        pick: (body) => JSON.parse(JSON.stringify(plain(body)).replaceAll(/20\d\d-[\d:TZ-]+/g, 'TIME')) as Json,
      });
    },
  },
];
