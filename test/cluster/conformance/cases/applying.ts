/** Server-side apply. */
import type { Case, JsonObject, Session } from '../types.ts';
import { configMap, define, definition, pod, readyForPods, some, widget } from './objects.ts';

const as = (fieldManager: string, force = false): { query: Record<string, string> } => ({
  query: { fieldManager, ...(force ? { force: 'true' } : {}) },
});

const owners = some('metadata.managedFields', 'data', 'spec', 'metadata.labels');

const widgetDefinition = (api: Session): JsonObject =>
  definition(
    api,
    'Widget',
    {
      type: 'object',
      properties: {
        size: { type: 'integer' },
        color: { type: 'string', default: 'red' },
        tags: { type: 'array', 'x-kubernetes-list-type': 'set', items: { type: 'string' } },
        plain: { type: 'array', items: { type: 'string' } },
        ports: {
          type: 'array',
          'x-kubernetes-list-type': 'map',
          'x-kubernetes-list-map-keys': ['port', 'protocol'],
          items: {
            type: 'object',
            required: ['port'],
            properties: {
              port: { type: 'integer' },
              protocol: { type: 'string', default: 'TCP' },
              name: { type: 'string' },
            },
          },
        },
        whole: { type: 'object', 'x-kubernetes-map-type': 'atomic', additionalProperties: { type: 'string' } },
        map: { type: 'object', additionalProperties: { type: 'string' } },
      },
    },
    { subresources: { status: {} } },
  );

export const applying: readonly Case[] = [
  {
    name: 'apply of a config map',
    run: async (api) => {
      const one = api.at('v1', 'configmaps', 'a');
      await api.patch(one, 'apply', configMap('a', { a: '1', b: '2' }, { l: 'x' }), as('one'));
      await api.patch(one, 'apply', configMap('a', { a: '1', b: '2' }, { l: 'x' }), { ...as('one'), note: 'again' });
      await api.patch(one, 'apply', configMap('a', { a: '2', c: '3' }), as('two'));
      await api.patch(one, 'apply', configMap('a', { a: '2', b: '9', c: '3' }), {
        ...as('two'),
        note: 'two conflicts',
      });
      await api.patch(one, 'apply', configMap('a', { a: '1', c: '3' }), { ...as('two'), note: 'shared' });
      await api.patch(one, 'apply', configMap('a', { b: '2' }), {
        ...as('one'),
        note: 'gives up a shared field and a label',
      });
      await api.patch(one, 'apply', configMap('a', { b: '7' }), { ...as('two', true), note: 'takes over' });
      await api.patch(one, 'merge', { data: { b: '8', d: '4' } }, { query: { fieldManager: 'editor' } });
      await api.patch(one, 'apply', configMap('a', { b: '7' }), { ...as('two'), note: 'against an editor' });
      await api.patch(
        one,
        'apply',
        { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' } },
        { ...as('two', true), note: 'nothing left' },
      );
    },
  },
  {
    name: 'apply that is refused',
    run: async (api) => {
      const one = api.at('v1', 'configmaps', 'a');
      await api.patch(one, 'apply', configMap('a'), { note: 'no manager' });
      await api.patch(one, 'apply', configMap('b'), { ...as('one'), note: 'other name' });
      await api.patch(one, 'apply', { data: { a: '1' } }, { ...as('one'), note: 'no kind' });
      await api.patch(one, 'apply', { ...configMap('a'), kind: 'Secret' }, { ...as('one'), note: 'other kind' });
      await api.patch(
        one,
        'apply',
        { ...configMap('a'), metadata: { name: 'a', managedFields: [{ manager: 'x' }] } },
        { ...as('one'), note: 'managedFields' },
      );
      await api.patch(
        one,
        'apply',
        { ...configMap('a'), metadata: { name: 'a', resourceVersion: '1' } },
        { ...as('one'), note: 'resourceVersion of nothing' },
      );
      await api.patch(
        one,
        'apply',
        { ...configMap('a'), metadata: { name: 'a', uid: 'x' } },
        { ...as('one'), note: 'uid of nothing' },
      );
      await api.patch(
        one,
        'apply',
        { ...configMap('a'), nope: 1 },
        { query: { fieldManager: 'one', fieldValidation: 'Strict' } },
      );
      await api.patch(one, 'apply', { ...configMap('a'), data: { a: 1 } }, { ...as('one'), note: 'wrong type' });
      await api.patch(one, 'apply', configMap('a'), { ...as('x'.repeat(129)), note: 'long manager' });
      await api.call('PATCH', one, {
        raw: 'a: [',
        contentType: 'application/apply-patch+yaml',
        query: { fieldManager: 'one' },
        note: 'bad YAML',
      });
      await api.quiet('POST', api.at('v1', 'configmaps'), { body: configMap('a') });
      await api.patch(
        one,
        'apply',
        { ...configMap('a'), metadata: { name: 'a', resourceVersion: '1' } },
        { ...as('one'), note: 'stale' },
      );
      await api.patch(`${one}`, 'apply', configMap('a', { a: '5' }), { ...as('one'), note: 'created by POST' });
      await api.call('PATCH', one, {
        raw: 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {y: "1"}\n',
        contentType: 'application/apply-patch+yaml',
        query: { fieldManager: 'yaml', force: 'true', dryRun: 'All' },
        pick: owners,
      });
    },
  },
  {
    name: 'apply of custom objects',
    run: async (api) => {
      const apiVersion = await define(api, widgetDefinition(api));
      const one = api.at(apiVersion, 'widgets', 'w');
      await api.patch(
        one,
        'apply',
        widget(api, 'w', {
          size: 1,
          tags: ['a', 'b'],
          plain: ['x'],
          ports: [{ port: 80, name: 'web' }],
          whole: { k: '1' },
          map: { m: '1' },
        }),
        as('one'),
      );
      await api.patch(
        one,
        'apply',
        widget(api, 'w', { tags: ['b', 'c'], ports: [{ port: 443 }, { port: 80, protocol: 'UDP' }], map: { n: '2' } }),
        { ...as('two'), pick: owners },
      );
      await api.patch(
        one,
        'apply',
        widget(api, 'w', { plain: ['y'], whole: { j: '2' }, ports: [{ port: 80, name: 'http' }] }),
        { ...as('three'), note: 'conflicts' },
      );
      await api.patch(one, 'apply', widget(api, 'w', { size: 1, tags: ['a'], ports: [] }), {
        ...as('one'),
        note: 'less',
        pick: owners,
      });
      await api.patch(one, 'apply', widget(api, 'w', { ports: [{ port: 80 }, { port: 80 }] }), {
        ...as('four'),
        note: 'duplicate key',
      });
      await api.patch(one, 'apply', widget(api, 'w', { tags: ['a', 'a'] }), {
        ...as('four'),
        note: 'duplicate in set',
      });
      await api.patch(one, 'apply', widget(api, 'w', { size: 'x' }), { ...as('four'), note: 'wrong type' });
      await api.patch(one, 'apply', widget(api, 'w', { nope: 'x' }), { ...as('four'), note: 'unknown field' });
      await api.patch(
        one,
        'apply',
        { ...widget(api, 'w'), status: { by: 'main' } },
        { ...as('five'), pick: some('status', 'metadata.managedFields') },
      );
      await api.patch(
        `${one}/status`,
        'apply',
        { ...widget(api, 'w', { size: 99 }), status: { ready: true } },
        { ...as('six'), pick: some('status', 'spec.size', 'metadata.managedFields', 'metadata.generation') },
      );
      await api.patch(
        api.at(apiVersion, 'widgets', 'missing', 'status'),
        'apply',
        { ...widget(api, 'missing'), status: {} },
        as('six'),
      );
    },
  },
  {
    name: 'apply of a pod and a service',
    run: async (api) => {
      await readyForPods(api);
      await api.patch(api.at('v1', 'pods', 'p'), 'apply', pod('p'), {
        ...as('one'),
        pick: some('metadata.managedFields', 'spec.containers'),
      });
      const service = (ports: JsonObject[]): JsonObject => ({
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 's' },
        spec: { selector: { app: 'p' }, ports },
      });
      const one = api.at('v1', 'services', 's');
      await api.patch(
        one,
        'apply',
        service([
          { name: 'a', port: 80 },
          { name: 'b', port: 81 },
        ]),
        { ...as('one'), pick: some('metadata.managedFields', 'spec.ports') },
      );
      await api.patch(one, 'apply', service([{ name: 'b', port: 81, targetPort: 8081 }]), {
        ...as('one'),
        note: 'less',
        pick: some('metadata.managedFields', 'spec.ports'),
      });
      await api.patch(one, 'apply', service([{ name: 'b', port: 81, targetPort: 9 }]), {
        ...as('two'),
        note: 'conflict',
      });
    },
  },
  {
    name: 'managed fields of plain writes',
    run: async (api) => {
      const [all, one] = [api.at('v1', 'configmaps'), api.at('v1', 'configmaps', 'a')];
      await api.post(all, configMap('a', { a: '1' }, { k: 'v' }), {
        query: { fieldManager: 'creator' },
        pick: some('metadata.managedFields'),
      });
      await api.patch(
        one,
        'merge',
        { metadata: { annotations: { x: 'y' }, finalizers: ['example.com/f'] }, data: { a: null, b: '1' } },
        { query: { fieldManager: 'editor' }, pick: some('metadata.managedFields') },
      );
      await api.patch(
        one,
        'merge',
        { metadata: { managedFields: [{}] } },
        { note: 'forgets all', pick: some('metadata.managedFields') },
      );
      await api.patch(one, 'merge', { metadata: { finalizers: null } }, { pick: some('metadata.managedFields') });
      await api.post(
        all,
        {
          ...configMap('b'),
          metadata: {
            name: 'b',
            managedFields: [
              {
                manager: 'x',
                operation: 'Update',
                apiVersion: 'v1',
                fieldsType: 'FieldsV1',
                fieldsV1: { 'f:data': {} },
              },
            ],
          },
        },
        { pick: some('metadata.managedFields') },
      );
      await api.patch(
        one,
        'merge',
        { metadata: { managedFields: [{ manager: 'x', operation: 'Odd' }] } },
        { note: 'odd entry' },
      );
    },
  },
];
