/** Validating webhooks: who is asked, with what, and what the answers do. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { selfSigned } from '../../../operator/webhooks/self-signed.ts';
import { createApiServer, type JsonObject, StatusError } from './index.ts';
import { at, list, object, text } from './json.ts';
import { named, WIDGETS, widget, widgetDefinition } from './test-support.ts';

const CONFIGURATIONS = {
  group: 'admissionregistration.k8s.io',
  version: 'v1',
  plural: 'validatingwebhookconfigurations',
};
const DAY = 86_400_000;

let certificate: { readonly cert: string; readonly key: string };
let server: Server;
let address: { readonly host: string; readonly port: number };
/** Requests of reviews. */
const asked: JsonObject[] = [];
let answer: (request: JsonObject) => Promise<JsonObject | undefined> | JsonObject | undefined = () => ({
  allowed: true,
});

beforeAll(async () => {
  certificate = await selfSigned('judge.system.svc', Date.now() - DAY, Date.now() + DAY);
});
beforeEach(async () => {
  asked.length = 0;
  answer = () => ({ allowed: true });
  server = createServer(certificate, (request, response) => {
    void (async () => {
      const review = (await json(request)) as JsonObject;
      const question = object(review, 'request');
      asked.push({ ...question, path: request.url ?? '' });
      const given = await answer(question);
      if (given === undefined) return;
      response.end(JSON.stringify({ ...review, request: null, response: { uid: question.uid, ...given } }));
    })();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  address = { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const RULE = {
  apiGroups: ['example.com'],
  apiVersions: ['v1'],
  resources: ['widgets'],
  operations: ['CREATE', 'UPDATE'],
};
function configuration(fields: object = {}): object {
  const service = { name: 'judge', namespace: 'system', path: '/look' };
  return {
    metadata: { name: 'judges' },
    webhooks: [
      {
        name: 'one.example.com',
        clientConfig: { service, caBundle: Buffer.from(certificate.cert).toString('base64') },
        admissionReviewVersions: ['v1'],
        sideEffects: 'None',
        timeoutSeconds: 30,
        rules: [RULE],
        ...fields,
      },
    ],
  };
}

async function world(fields: object = {}) {
  const made = createApiServer({
    crds: [widgetDefinition()],
    serviceAddress: ({ name, namespace, port }) =>
      name === 'judge' && namespace === 'system' && port === 443 ? address : undefined,
  });
  await made.client.create(CONFIGURATIONS, configuration(fields));
  return made;
}

async function refusal(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error === undefined) return 'none';
  if (!(error instanceof StatusError)) throw error;
  return `${error.httpStatus} ${error.code} ${error.message}`;
}

it('asks with what is to be stored, as it was and as it is to be, and by the name of the Service', async () => {
  const { client } = await world();
  await client.create(WIDGETS, widget('w'));
  await client.patch(named(WIDGETS, 'w'), 'merge', { spec: { size: 4 } }, { dryRun: true });
  const words = asked.map((each) => [each.operation, each.name, each.namespace, each.dryRun, each.path]);
  expect(words).toEqual([
    ['CREATE', 'w', 'default', false, '/look?timeout=30s'],
    ['UPDATE', 'w', 'default', true, '/look?timeout=30s'],
  ]);
  const [created, patched] = asked;
  expect([at(created, 'oldObject'), at(created, 'object', 'spec', 'color')]).toEqual([null, 'red']);
  expect([at(patched, 'oldObject', 'spec', 'size'), at(patched, 'object', 'spec', 'size')]).not.toContain(undefined);
  expect(at(patched, 'object', 'spec', 'size')).toBe(4);
  expect(object(patched, 'options').kind).toBe('PatchOptions');
  expect(at(patched, 'kind')).toEqual({ group: 'example.com', version: 'v1', kind: 'Widget' });
});

it('refuses what one of them refuses, and stores nothing', async () => {
  const { client } = await world();
  answer = () => ({ allowed: false, status: { code: 403, message: 'no widget on a Sunday' } });
  expect(await refusal(client.create(WIDGETS, widget('w')))).toBe(
    '403  admission webhook "one.example.com" denied the request: no widget on a Sunday',
  );
  expect(list(await client.list(WIDGETS), 'items')).toEqual([]);
  answer = () => ({ allowed: false });
  expect(await refusal(client.create(WIDGETS, widget('w')))).toBe(
    '400  admission webhook "one.example.com" denied the request without explanation',
  );
});

it('sends warnings as headers', async () => {
  const api = await world();
  const { url } = await api.listen();
  try {
    answer = () => ({ allowed: true, warnings: ['not "round"'] });
    const response = await fetch(`${url}/apis/example.com/v1/namespaces/default/widgets`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(widget('w')),
    });
    expect([response.status, response.headers.get('warning')]).toEqual([201, '299 - "not \\"round\\""']);
  } finally {
    await api.stop();
  }
});

it.each([
  ['another kind', { rules: [{ ...RULE, resources: ['gadgets'] }] }],
  ['another group', { rules: [{ ...RULE, apiGroups: [''] }] }],
  ['another version', { rules: [{ ...RULE, apiVersions: ['v2'] }] }],
  ['another operation', { rules: [{ ...RULE, operations: ['UPDATE'] }] }],
  ['another scope', { rules: [{ ...RULE, scope: 'Cluster' }] }],
  ['the status', { rules: [{ ...RULE, resources: ['widgets/status'] }] }],
])('does not ask those who want %s', async (_title, fields) => {
  const { client } = await world(fields);
  answer = () => ({ allowed: false });
  await client.create(WIDGETS, widget('w'));
  expect(asked).toEqual([]);
});

it('asks those who want everything, but for their own configurations', async () => {
  const { client } = await world({
    rules: [{ ...RULE, apiGroups: ['*'], apiVersions: ['*'], resources: ['*'] }],
  });
  answer = () => ({ allowed: false });
  expect(await refusal(client.create(WIDGETS, widget('w')))).toContain('denied the request');
  await client.patch(named(CONFIGURATIONS, 'judges'), 'merge', { webhooks: [] });
  await client.create(WIDGETS, widget('w'));
});

describe('one that cannot be asked', () => {
  const failures: readonly (readonly [string, () => object])[] = [
    ['it is nowhere', () => ({ clientConfig: { service: { name: 'none', namespace: 'system' } } })],
    ['it is not trusted', () => ({ clientConfig: { service: { name: 'judge', namespace: 'system' } } })],
    [
      'it has another name',
      () => ({
        clientConfig: { url: `https://127.0.0.1:${address.port}`, caBundle: btoa(certificate.cert) },
      }),
    ],
    ['it does not answer', () => ({ timeoutSeconds: 1 })],
  ];
  it.each(failures)('refuses the write with failurePolicy Fail, which is the default: %s', async (_title, fields) => {
    answer = () => undefined;
    const { client } = await world(fields());
    expect(await refusal(client.create(WIDGETS, widget('w')))).toMatch(
      /^500 InternalError Internal error occurred: failed calling webhook "one\.example\.com"/,
    );
  });

  it.each(failures)('does not with failurePolicy Ignore: %s', async (_title, fields) => {
    answer = () => undefined;
    const { client } = await world({ ...fields(), failurePolicy: 'Ignore' });
    expect(await refusal(client.create(WIDGETS, widget('w')))).toBe('none');
  });
});

it('reviews again what somebody else changed meanwhile', async () => {
  const { client } = await world();
  await client.create(WIDGETS, widget('w'));
  asked.length = 0;
  answer = async (request) => {
    if (asked.length === 1) await client.patch(named(WIDGETS, 'w'), 'merge', { metadata: { labels: { by: 'other' } } });
    return { allowed: true, warnings: [text(request, 'object', 'metadata', 'labels', 'by')] };
  };
  const stored = await client.patch(named(WIDGETS, 'w'), 'merge', { spec: { size: 5 } });
  expect([at(stored, 'spec', 'size'), at(stored, 'metadata', 'labels', 'by')]).toEqual([5, 'other']);
  const reviewed = asked.map((each) => [
    at(each, 'object', 'spec', 'size'),
    at(each, 'object', 'metadata', 'labels', 'by'),
  ]);
  expect(reviewed.at(-1)).toEqual([5, 'other']);
  expect(reviewed).toHaveLength(3);
});

it.each([
  ['neither address', { clientConfig: {} }, 'webhooks[0].clientConfig'],
  ['side effects', { sideEffects: 'Some' }, 'webhooks[0].sideEffects'],
  ['a long time', { timeoutSeconds: 31 }, 'webhooks[0].timeoutSeconds'],
  ['another version', { admissionReviewVersions: ['v1beta1'] }, 'webhooks[0].admissionReviewVersions'],
  ['what is not evaluated', { matchConditions: [{ name: 'a', expression: 'true' }] }, 'webhooks[0].matchConditions'],
  [
    'an operation that is not asked of',
    { rules: [{ ...RULE, operations: ['DELETE'] }] },
    'webhooks[0].rules[0].operations',
  ],
])('refuses a configuration with %s', async (_title, fields, path) => {
  const { client } = createApiServer();
  expect(await refusal(client.create(CONFIGURATIONS, configuration(fields)))).toContain(`422 Invalid`);
  expect(await refusal(client.create(CONFIGURATIONS, configuration(fields)))).toContain(`${path}: `);
});
