/** Definitions and the objects they define, ours among them. */
import { crds } from '@weir/kube';
import { isObject } from '../client.ts';
import type { Case, Json, JsonObject, Session } from '../types.ts';
import { CRDS, define, definition, established, items, nameOf, some, widget } from './objects.ts';

const settledStatus = (body: Json): Json => {
  const status = isObject(body) && isObject(body.status) ? body.status : {};
  const conditions = Array.isArray(status.conditions) ? status.conditions.filter(isObject) : [];
  return {
    spec: isObject(body) ? (body.spec ?? null) : null,
    status: {
      ...status,
      conditions: conditions.map(
        ({ type, status: is, reason, message }) => ({ type, status: is, reason, message }) as JsonObject,
      ),
    },
  };
};

const rules: JsonObject = {
  type: 'object',
  required: ['size'],
  properties: {
    size: { type: 'integer', minimum: 1, maximum: 10 },
    even: { type: 'number', multipleOf: 2, exclusiveMaximum: true, maximum: 100 },
    color: { type: 'string', enum: ['red', 'blue'], default: 'red' },
    word: { type: 'string', pattern: '^[a-z]+$', minLength: 2, maxLength: 5 },
    when: { type: 'string', format: 'date-time' },
    flag: { type: 'boolean' },
    target: { 'x-kubernetes-int-or-string': true },
    maybe: { type: 'string', nullable: true },
    tags: { type: 'array', 'x-kubernetes-list-type': 'set', items: { type: 'string' }, minItems: 1, maxItems: 2 },
    ports: {
      type: 'array',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['port'],
      items: {
        type: 'object',
        required: ['port'],
        properties: { port: { type: 'integer' }, protocol: { type: 'string', default: 'TCP' } },
      },
    },
    map: { type: 'object', additionalProperties: { type: 'integer' }, maxProperties: 2 },
    nested: { type: 'object', default: {}, properties: { deep: { type: 'string', default: 'x' } } },
    free: {
      type: 'object',
      'x-kubernetes-preserve-unknown-fields': true,
      properties: { known: { type: 'object', properties: { a: { type: 'string' } } } },
    },
    whole: {
      type: 'object',
      'x-kubernetes-embedded-resource': true,
      properties: { spec: { type: 'object', properties: { a: { type: 'string' } } } },
    },
    either: {
      type: 'object',
      properties: { a: { type: 'string' }, b: { type: 'string' } },
      oneOf: [{ required: ['a'] }, { required: ['b'] }],
    },
    any: {
      type: 'object',
      properties: { a: { type: 'string' }, b: { type: 'string' } },
      anyOf: [{ required: ['a'] }, { required: ['b'] }],
    },
    not: { type: 'object', properties: { a: { type: 'string' } }, not: { required: ['a'] } },
  },
};

const columns: Json[] = [
  { name: 'Size', type: 'integer', jsonPath: '.spec.size', description: 'How big.' },
  { name: 'Ready', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].status' },
  { name: 'Tags', type: 'string', jsonPath: '.spec.tags', priority: 1 },
  { name: 'When', type: 'date', jsonPath: '.spec.when' },
  { name: 'Flag', type: 'boolean', jsonPath: '.spec.flag' },
  { name: 'Every', type: 'string', jsonPath: '.spec.ports[*].port' },
  { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
];

export const custom: readonly Case[] = [
  {
    name: 'a life of a definition',
    run: async (api) => {
      const crd = definition(
        api,
        'Widget',
        { type: 'object', properties: { size: { type: 'integer' } } },
        { subresources: { status: {} }, additionalPrinterColumns: columns },
        { names: { plural: 'widgets', kind: 'Widget', shortNames: ['wd'] } },
      );
      const one = `${CRDS}/${nameOf(crd)}`;
      api.after(() => api.quiet('DELETE', one));
      await api.post(CRDS, crd, { pick: some('spec', 'metadata.generation', 'metadata.name') });
      await established(api, crd);
      await api.get(one, { pick: settledStatus });
      await api.post(CRDS, crd, { note: 'again' });
      const type = `${api.run}.example.com/v1`;
      await api.post(api.at(type, 'widgets'), widget(api, 'w', { size: 1 }));
      await api.get(api.at(type, 'widgets'));
      await api.patch(
        one,
        'json',
        [
          {
            op: 'add',
            path: '/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/more',
            value: { type: 'string' },
          },
        ],
        { pick: some('metadata.generation') },
      );
      for (let i = 0; i < 50; i++) {
        const kept = await api.quiet('PATCH', api.at(type, 'widgets', 'w'), {
          body: { spec: { more: 'x' } },
          contentType: 'application/merge-patch+json',
        });
        if ((kept.object.spec as JsonObject | undefined)?.more === 'x') break;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      await api.get(api.at(type, 'widgets', 'w'), { note: 'a new field', pick: some('spec') });
      await api.delete(one, { pick: some('kind', 'status', 'details') });
      await api.until(one, (reply) => reply.status === 404);
      await api.until(api.at(type, 'widgets', 'w'), (reply) => reply.status === 404);
      await api.get(one);
    },
  },
  {
    name: 'definitions that are refused',
    run: async (api) => {
      const good = definition(api, 'Gadget', { type: 'object' });
      const spec = good.spec as JsonObject;
      const version = (spec.versions as JsonObject[])[0] ?? {};
      const changed = (extra: JsonObject): JsonObject => ({ ...good, spec: { ...spec, ...extra } });
      const schema = (of: JsonObject): JsonObject =>
        changed({ versions: [{ ...version, schema: { openAPIV3Schema: of } }] });
      const bad: Record<string, JsonObject> = {
        'other name': { ...good, metadata: { name: 'gizmos.example.com' } },
        scope: changed({ scope: 'Galaxy' }),
        'no scope': changed({ scope: null }),
        'no versions': changed({ versions: [] }),
        'no storage': changed({ versions: [{ ...version, storage: false }] }),
        'two storages': changed({ versions: [version, { ...version, name: 'v2' }] }),
        'no schema': changed({ versions: [{ name: 'v1', served: true, storage: true }] }),
        'root type': schema({ type: 'string' }),
        'field without type': schema({ type: 'object', properties: { a: {} } }),
        'array without items': schema({ type: 'object', properties: { a: { type: 'array' } } }),
        'unknown type': schema({ type: 'object', properties: { a: { type: 'thing' } } }),
        'bad pattern': schema({ type: 'object', properties: { a: { type: 'string', pattern: '(' } } }),
        'map without keys': schema({
          type: 'object',
          properties: {
            a: {
              type: 'array',
              'x-kubernetes-list-type': 'map',
              items: { type: 'object', properties: { k: { type: 'string' } } },
            },
          },
        }),
        'default of another type': schema({ type: 'object', properties: { a: { type: 'string', default: 5 } } }),
        'closed and open': schema({
          type: 'object',
          properties: {
            a: { type: 'object', properties: { b: { type: 'string' } }, additionalProperties: { type: 'string' } },
          },
        }),
        'bad column': changed({
          versions: [{ ...version, additionalPrinterColumns: [{ name: 'X', type: 'odd', jsonPath: '.x' }] }],
        }),
        'group empty': changed({ group: '' }),
        'kind in lower case': changed({ names: { plural: 'gadgets', kind: 'bad_kind' } }),
      };
      for (const [note, body] of Object.entries(bad))
        await api.post(CRDS, body, { note, query: { dryRun: 'All' }, pick: some('kind') });
    },
  },
  {
    name: 'custom objects and their schema',
    run: async (api) => {
      const type = await define(
        api,
        definition(api, 'Widget', rules, { subresources: { status: {} }, additionalPrinterColumns: columns }),
      );
      const all = api.at(type, 'widgets');
      await api.post(
        all,
        widget(api, 'full', {
          size: 3,
          target: 80,
          maybe: null,
          tags: ['a'],
          ports: [{ port: 1 }],
          map: { a: 1 },
          free: { x: { y: [1] }, known: { a: 'x', b: 'y' } },
          whole: { apiVersion: 'v1', kind: 'Thing', metadata: { name: 'n' }, spec: { a: 'x', b: 'y' } },
          unknown: 1,
          color: null,
        }),
      );
      const bad: Record<string, JsonObject> = {
        missing: {},
        small: { size: 0 },
        large: { size: 11 },
        text: { size: '3' },
        fraction: { size: 1.5 },
        'odd number': { size: 1, even: 3 },
        'exclusive bound': { size: 1, even: 100 },
        enum: { size: 1, color: 'green' },
        pattern: { size: 1, word: 'ABC' },
        short: { size: 1, word: 'a' },
        long: { size: 1, word: 'abcdef' },
        time: { size: 1, when: 'soon' },
        'int or string': { size: 1, target: true },
        'null for a string': { size: 1, word: null },
        'no items': { size: 1, tags: [] },
        'many items': { size: 1, tags: ['a', 'b', 'c'] },
        'twice in a set': { size: 1, tags: ['a', 'a'] },
        'null in a list': { size: 1, tags: [null] },
        'key twice': { size: 1, ports: [{ port: 1 }, { port: 1 }] },
        'no key': { size: 1, ports: [{}] },
        'map value': { size: 1, map: { a: 'x' } },
        'many properties': { size: 1, map: { a: 1, b: 2, c: 3 } },
        'list for an object': { size: 1, map: [] },
        'object for a list': { size: 1, tags: {} },
        'embedded without kind': { size: 1, whole: { spec: {} } },
        'one of none': { size: 1, either: {} },
        'one of both': { size: 1, either: { a: 'x', b: 'y' } },
        'any of none': { size: 1, any: {} },
        not: { size: 1, not: { a: 'x' } },
      };
      for (const [note, spec] of Object.entries(bad))
        await api.post(all, widget(api, 'bad', spec), { note, query: { dryRun: 'All' }, pick: some('spec') });
      await api.post(all, widget(api, 'unknown', { size: 1, nope: 1, nested: { other: 1 } }), {
        query: { fieldValidation: 'Strict' },
      });
      await api.post(
        all,
        { ...widget(api, 'root', { size: 1 }), nope: 1, metadata: { name: 'root', odd: 1 } },
        { query: { fieldValidation: 'Strict' } },
      );
      await api.post(all, { metadata: { name: 'x' } }, { note: 'no kind' });
      await api.post(all, { ...widget(api, 'x'), kind: 'Gadget' }, { note: 'other kind' });
      await api.post(all, { ...widget(api, 'x'), spec: 'text' }, { note: 'spec of another type' });
      await api.post(
        all,
        { ...widget(api, 'x', { size: 1 }), metadata: { name: 'x', labels: { 'bad key': 'v' } } },
        { note: 'bad label' },
      );
      await api.post(all, { ...widget(api, 'x', { size: 1 }), metadata: { name: 'Bad_Name' } }, { note: 'bad name' });
    },
  },
  {
    name: 'status and generation',
    run: async (api) => {
      const type = await define(
        api,
        definition(
          api,
          'Widget',
          { type: 'object', properties: { size: { type: 'integer' } } },
          { subresources: { status: {} } },
        ),
      );
      const [all, one] = [api.at(type, 'widgets'), api.at(type, 'widgets', 'w')];
      const shape = some('metadata.generation', 'metadata.resourceVersion', 'spec', 'status', 'metadata.labels');
      const { object } = await api.post(
        all,
        { ...widget(api, 'w', { size: 1 }), status: { lost: true } },
        { pick: shape },
      );
      await api.put(one, { ...object, spec: { size: 2 }, status: { lost: true } }, { note: 'spec', pick: shape });
      await api.patch(one, 'merge', { metadata: { labels: { l: 'x' } } }, { pick: shape });
      await api.patch(
        `${one}/status`,
        'merge',
        { status: { ready: true }, spec: { size: 9 }, metadata: { labels: { l: 'y' }, annotations: { a: 'b' } } },
        { pick: (body) => some('metadata', 'spec', 'status')(body) },
      );
      await api.patch(one, 'merge', { status: { ready: false } }, { note: 'status by the main door', pick: shape });
      await api.put(`${one}/status`, widget(api, 'w'), { note: 'no revision' });
      const { object: now } = await api.get(`${one}/status`, { pick: shape });
      await api.put(`${one}/status`, { ...now, status: { ready: false } }, { pick: shape });
      await api.put(`${one}/status`, { ...now, status: { ready: true } }, { note: 'stale' });
      await api.put(one, widget(api, 'w', { size: 3 }), { note: 'no revision' });
      await api.delete(`${one}/status`);
      await api.delete(one);
    },
  },
  {
    name: 'without a status subresource',
    run: async (api) => {
      const type = await define(
        api,
        definition(api, 'Widget', { type: 'object', properties: { size: { type: 'integer' } } }),
      );
      const [all, one] = [api.at(type, 'widgets'), api.at(type, 'widgets', 'w')];
      const shape = some('metadata.generation', 'spec', 'status');
      await api.post(all, { ...widget(api, 'w', { size: 1 }), status: { kept: true } }, { pick: shape });
      await api.patch(one, 'merge', { status: { kept: false } }, { pick: shape });
      await api.get(`${one}/status`);
      await api.patch(`${one}/status`, 'merge', { status: {} });
    },
  },
  {
    name: 'two versions and selectable fields',
    run: async (api) => {
      const version = (name: string, storage: boolean): JsonObject => ({
        name,
        served: true,
        storage,
        selectableFields: [{ jsonPath: '.spec.color' }],
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: { spec: { type: 'object', properties: { color: { type: 'string' } } } },
          },
        },
      });
      const crd = definition(api, 'Widget', {}, {}, { versions: [version('v1', true), version('v1alpha1', false)] });
      const type = await define(api, crd);
      const group = `${api.run}.example.com`;
      await api.get(`/apis/${group}`);
      await api.quiet('POST', api.at(type, 'widgets'), { body: widget(api, 'red', { color: 'red' }) });
      await api.post(api.at(`${group}/v1alpha1`, 'widgets'), {
        ...widget(api, 'blue', { color: 'blue' }),
        apiVersion: `${group}/v1alpha1`,
      });
      await api.get(api.at(type, 'widgets', 'blue'), { pick: some('apiVersion', 'metadata.managedFields') });
      await api.get(api.at(`${group}/v1alpha1`, 'widgets'), {
        pick: (body) => items(body).map((item) => some('apiVersion', 'metadata.name')(item)),
      });
      for (const fieldSelector of ['spec.color=red', 'spec.color!=red', 'spec.size=1'])
        await api.get(api.at(type, 'widgets'), { query: { fieldSelector }, pick: (body) => items(body).map(nameOf) });
    },
  },
  {
    name: 'tables of custom objects',
    run: async (api) => {
      const type = await define(
        api,
        definition(api, 'Widget', rules, { subresources: { status: {} }, additionalPrinterColumns: columns }),
      );
      const all = api.at(type, 'widgets');
      await api.quiet('POST', all, {
        body: widget(api, 'a', {
          size: 3,
          flag: true,
          tags: ['x', 'y'],
          when: '2001-01-01T00:00:00Z',
          ports: [{ port: 1 }, { port: 2 }],
        }),
      });
      await api.quiet('POST', all, { body: widget(api, 'b', { size: 4 }) });
      await api.quiet('PATCH', `${all}/b/status`, {
        body: { status: { conditions: [{ type: 'Ready', status: 'True' }] } },
        contentType: 'application/merge-patch+json',
      });
      const cells = (body: Json): Json => ({
        ...(some('kind', 'apiVersion', 'columnDefinitions')(body) as JsonObject),
        rows: isObject(body) && Array.isArray(body.rows) ? body.rows.map((row) => some('cells')(row)) : null,
      });
      const accept = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
      const masked = (body: Json): Json =>
        JSON.parse(JSON.stringify(cells(body)).replaceAll(/"\d{1,2}y(\d+d)?"/g, '"YEARS"')) as Json;
      await api.get(all, { accept, pick: masked });
      await api.get(`${all}/b`, { accept, pick: masked });
      const plain = await define(api, definition(api, 'Gadget', { type: 'object' }));
      await api.quiet('POST', api.at(plain, 'gadgets'), {
        body: { apiVersion: plain, kind: 'Gadget', metadata: { name: 'g' } },
      });
      await api.get(api.at(plain, 'gadgets'), { accept, pick: masked });
    },
  },
  {
    name: 'policies of Cilium',
    run: async (api) => {
      await ours(api, 'ciliumnetworkpolicies.cilium.io');
      const type = 'cilium.io/v2';
      const all = api.at(type, 'ciliumnetworkpolicies');
      const cnp = (name: string, extra: JsonObject): JsonObject => ({
        apiVersion: type,
        kind: 'CiliumNetworkPolicy',
        metadata: { name },
        ...extra,
      });
      const spec: JsonObject = {
        endpointSelector: { matchLabels: { app: 'a' } },
        ingress: [
          { fromEndpoints: [{ matchLabels: { app: 'b' } }], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] },
        ],
      };
      await api.post(all, cnp('good', { spec }), {
        pick: some('spec', 'metadata.generation'),
      });
      await api.post(all, cnp('odd', { spec: { endpointSelector: {}, ingress: [{ unknown: true }] } }), {
        query: { fieldValidation: 'Strict' },
        pick: some('spec'),
      });
      await api.post(all, cnp('specs', { specs: [spec, spec] }), { pick: some('specs', 'metadata.generation') });
      await api.post(all, cnp('none', {}), { pick: some('spec') });
      await api.post(all, cnp('text', { spec: 'x' }));
      const one = `${all}/good`;
      const conditions: Json = [
        {
          type: 'Programmed',
          status: 'True',
          reason: 'Programmed',
          message: 'all',
          observedGeneration: 1,
          lastTransitionTime: '2001-01-01T00:00:00Z',
        },
      ];
      await api.patch(`${one}/status`, 'apply', cnp('good', { status: { conditions } }), {
        query: { fieldManager: 'weir-operator', force: 'true' },
        pick: some('status', 'metadata.generation'),
      });
      await api.patch(
        one,
        'merge',
        { spec: { ...spec, description: 'x' } },
        { pick: some('metadata.generation', 'status') },
      );
      await api.kubectl(['wait', '--for=condition=Programmed', 'cnp/good', '--timeout=1s'], {
        fails: true,
        note: 'of an older generation',
      });
      await api.kubectl(['get', 'cnp', 'good', '-o', 'jsonpath={.status.conditions[0].reason}']);
    },
  },
];

/** Makes sure that one of our definitions is there; what another put there stays. */
async function ours(api: Session, name: string): Promise<void> {
  const crd = (crds() as JsonObject[]).find((one) => nameOf(one) === name);
  if (crd === undefined) throw new Error(`shared/kube defines no ${name}`);
  const made = await api.quiet('POST', CRDS, { body: crd });
  if (made.status === 201) api.after(() => api.quiet('DELETE', `${CRDS}/${name}`));
  await established(api, crd);
}
