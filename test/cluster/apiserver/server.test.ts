import { request } from 'node:http';
import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { createApiServer, ListenError, StatusError } from './index.ts';
import { at, type JsonObject, list, number, text } from './json.ts';
import {
  type Cluster,
  configMap,
  core,
  named,
  pod,
  startCluster,
  WIDGETS,
  widget,
  widgetDefinition,
} from './test-support.ts';

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster({ crds: [widgetDefinition()] });
});
afterAll(() => cluster.close());

/** The StatusError that a promise rejects with. */
async function refusal(promise: Promise<unknown>): Promise<StatusError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof StatusError)) throw new Error(`expected a StatusError, got ${String(error)}`);
  return error;
}

describe('a server with a secret', () => {
  it('answers who shows it, to an address of its own, and nobody else', async () => {
    const server = createApiServer();
    const { url, port } = await server.listen(0, '127.0.0.1', 'only-for-me');
    const status = (path: string, host = `127.0.0.1:${port}`): Promise<number | undefined> =>
      new Promise((resolve, reject) => {
        const options = { host: '127.0.0.1', port, path, headers: { host } };
        request(options, (response) => {
          response.resume();
          resolve(response.statusCode);
        })
          .on('error', reject)
          .end();
      });
    try {
      expect(url).toBe(`http://127.0.0.1:${port}/only-for-me`);
      expect(await status('/only-for-me/api')).toBe(200);
      expect(await status('/only-for-me/api', `localhost:${port}`)).toBe(200);
      for (const path of [
        '/api',
        '/',
        '/only-for-you/api',
        '/only-for-me2/api',
        '/only-for-m/api',
        '//only-for-me/api',
      ])
        expect([path, await status(path)]).toEqual([path, 401]);
      // A name that somebody points at this machine.
      expect(await status('/only-for-me/api', 'rebound.example')).toBe(401);
      const kubeconfig = new KubeConfig();
      kubeconfig.loadFromString(server.kubeconfig());
      const { items } = await kubeconfig.makeApiClient(CoreV1Api).listNamespace();
      expect(items.length).toBeGreaterThan(0);
    } finally {
      await server.stop();
    }
  });
});

describe('writes', () => {
  it('refuse a stale resourceVersion and take a fresh one', async () => {
    const { client } = cluster.server;
    const first = await client.create(core('configmaps'), configMap('stale', { a: '1' }));
    const second = await client.update(named(core('configmaps'), 'stale'), { ...first, data: { a: '2' } });
    const error = await refusal(client.update(named(core('configmaps'), 'stale'), { ...first, data: { a: '3' } }));
    expect([error.httpStatus, error.code]).toEqual([409, 'Conflict']);
    expect(Number(text(second, 'metadata', 'resourceVersion'))).toBeGreaterThan(
      Number(text(first, 'metadata', 'resourceVersion')),
    );
    expect((await refusal(client.create(core('configmaps'), configMap('stale')))).code).toBe('AlreadyExists');
    expect((await refusal(client.get(named(core('configmaps'), 'absent')))).code).toBe('NotFound');
  });

  it('that change nothing write nothing', async () => {
    const { client, stats } = cluster.server;
    const stored = await client.create(core('configmaps'), configMap('same', { a: '1' }));
    const before = stats.resourceVersion;
    await client.update(named(core('configmaps'), 'same'), stored);
    await client.patch(named(core('configmaps'), 'same'), 'merge', { data: { a: '1' } });
    expect(stats.resourceVersion).toBe(before);
    await client.patch(named(core('configmaps'), 'same'), 'apply', configMap('same', { a: '1' }), {
      fieldManager: 'x',
    });
    const applied = stats.resourceVersion;
    await client.patch(named(core('configmaps'), 'same'), 'apply', configMap('same', { a: '1' }), {
      fieldManager: 'x',
    });
    expect(stats.resourceVersion).toBe(applied);
  });

  it('bump the generation for the spec only, and keep status to its own endpoint', async () => {
    const { client } = cluster.server;
    const ref = named(WIDGETS, 'gen');
    await client.create(WIDGETS, { ...widget('gen'), status: { conditions: [{ type: 'Ignored', status: 'True' }] } });
    const labelled = await client.patch(ref, 'merge', { metadata: { labels: { a: 'b' } }, status: { conditions: [] } });
    expect([number(labelled, 'metadata', 'generation'), labelled.status]).toEqual([1, undefined]);
    const status = { conditions: [{ type: 'Ready', status: 'True' }] };
    const reported = await client.patch(ref, 'merge', { spec: { size: 9 }, status }, { subresource: 'status' });
    expect([number(reported, 'metadata', 'generation'), reported.status, at(reported, 'spec', 'size')]).toEqual([
      1,
      status,
      3,
    ]);
    const grown = await client.patch(ref, 'merge', { spec: { size: 4 } });
    expect([number(grown, 'metadata', 'generation'), grown.status]).toEqual([2, status]);
  });

  it('in a dry run answer as if done and store nothing', async () => {
    const { client, stats } = cluster.server;
    const before = stats.resourceVersion;
    const answer = await client.create(WIDGETS, widget('dry'), { dryRun: true });
    expect(at(answer, 'spec', 'color')).toBe('red');
    expect(stats.resourceVersion).toBe(before);
    expect((await refusal(client.get(named(WIDGETS, 'dry')))).code).toBe('NotFound');
  });

  it('warn about unknown fields over HTTP and drop them', async () => {
    const response = await fetch(`${cluster.url}/apis/example.com/v1/namespaces/default/widgets`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(widget('warned', { size: 1, extra: 1, free: { kept: true } })),
    });
    expect(response.status).toBe(201);
    expect(response.headers.get('warning')).toBe('299 - "unknown field \\"spec.extra\\""');
    expect(at((await response.json()) as JsonObject, 'spec')).toEqual({ size: 1, color: 'red', free: { kept: true } });
  });
});

describe('deletion', () => {
  it('of a pod on a node waits for the node, which ends it with grace 0', async () => {
    const { client } = cluster.server;
    await client.create(core('pods'), pod('graceful', { nodeName: 'n1' }));
    const marked = await client.delete(named(core('pods'), 'graceful'));
    expect(text(marked, 'metadata', 'deletionTimestamp')).not.toBe('');
    expect(number(marked, 'metadata', 'deletionGracePeriodSeconds')).toBe(30);
    expect((await client.delete(named(core('pods'), 'graceful'), { gracePeriodSeconds: 0 })).kind).toBe('Pod');
    expect((await refusal(client.get(named(core('pods'), 'graceful')))).code).toBe('NotFound');
  });

  it('waits for finalizers and ends when the last is removed', async () => {
    const { client } = cluster.server;
    const body = configMap('final');
    await client.create(core('configmaps'), { ...body, metadata: { name: 'final', finalizers: ['example.com/hold'] } });
    await client.delete(named(core('configmaps'), 'final'));
    expect(text(await client.get(named(core('configmaps'), 'final')), 'metadata', 'deletionTimestamp')).not.toBe('');
    await client.patch(named(core('configmaps'), 'final'), 'merge', { metadata: { finalizers: null } });
    expect((await refusal(client.get(named(core('configmaps'), 'final')))).code).toBe('NotFound');
  });

  it('takes dependents along, and honours preconditions', async () => {
    const { client } = cluster.server;
    const owner = await client.create(core('configmaps'), configMap('owner'));
    const uid = text(owner, 'metadata', 'uid');
    const ownerReferences = [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'owner', uid }];
    await client.create(core('configmaps'), { ...configMap('owned'), metadata: { name: 'owned', ownerReferences } });
    const ref = named(core('configmaps'), 'owner');
    expect((await refusal(client.delete(ref, { preconditions: { uid: 'other' } }))).code).toBe('Conflict');
    await client.delete(ref, { preconditions: { uid }, propagationPolicy: 'Foreground' });
    expect((await refusal(client.get(named(core('configmaps'), 'owned')))).code).toBe('NotFound');
    expect((await refusal(client.get(ref))).code).toBe('NotFound');
  });
});

describe('lists', () => {
  it('page over one snapshot while objects change', async () => {
    const { client } = cluster.server;
    await client.create({ group: '', version: 'v1', plural: 'namespaces' }, { metadata: { name: 'paged' } });
    const scope = core('secrets', 'paged');
    for (const name of ['a', 'b', 'c']) await client.create(scope, { metadata: { name } });
    const first = await client.list(scope, { limit: 2 });
    await client.delete(named(scope, 'c'));
    const second = await client.list(scope, { limit: 2, continue: text(first, 'metadata', 'continue') });
    const names = [...list(first, 'items'), ...list(second, 'items')].map((item) => text(item, 'metadata', 'name'));
    expect(names).toEqual(['a', 'b', 'c']);
    expect(text(second, 'metadata', 'resourceVersion')).toBe(text(first, 'metadata', 'resourceVersion'));
    cluster.server.faults.expireWatches();
    const late = await refusal(client.list(scope, { limit: 2, continue: text(first, 'metadata', 'continue') }));
    expect([late.httpStatus, late.code]).toEqual([410, 'Expired']);
  });
});

describe('clients and connections', () => {
  it('serve @kubernetes/client-node', async () => {
    const config = new KubeConfig();
    config.loadFromString(cluster.server.kubeconfig());
    const api = config.makeApiClient(CoreV1Api);
    await api.createNamespacedConfigMap({
      namespace: 'default',
      body: { metadata: { name: 'typed' }, data: { a: 'b' } },
    });
    const found = await api.readNamespacedConfigMap({ namespace: 'default', name: 'typed' });
    expect(found.data).toEqual({ a: 'b' });
    expect((await api.listNamespace()).items.map((item) => item.metadata?.name)).toContain('kube-system');
  });

  it('serve a socket accepted elsewhere', async () => {
    const listener = createServer((socket) => cluster.server.handleSocket(socket));
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
    const address = listener.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const response = await fetch(`http://127.0.0.1:${port}/version`, { headers: { connection: 'close' } });
    expect(at((await response.json()) as JsonObject, 'minor')).toBe('34');
    await new Promise((resolve) => listener.close(resolve));
  });

  it('name a taken port', async () => {
    const other = createApiServer();
    const port = Number(new URL(cluster.url).port);
    const error = await other.listen(port).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ListenError);
    expect(String(error)).toContain(`127.0.0.1:${port}`);
    await other.stop();
  });

  it('fail and delay as told, counting requests', async () => {
    const { client, faults, stats } = cluster.server;
    const filter = { verb: 'get', resource: 'configmaps' };
    faults.fail(503, filter, 1);
    expect((await refusal(client.get(named(core('configmaps'), 'typed')))).httpStatus).toBe(503);
    const before = stats.count(filter);
    const undo = faults.delay(1, filter);
    await client.get(named(core('configmaps'), 'typed'));
    undo();
    expect(stats.count(filter)).toBe(before + 1);
  });

  it('carry out a write and do not say so', async () => {
    const { client, faults } = cluster.server;
    const filter = { resource: 'configmaps', userAgent: 'lost' };
    const path = `${cluster.url}/api/v1/namespaces/default/configmaps`;
    const create = (name: string): Promise<Response> =>
      fetch(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'user-agent': 'lost' },
        body: JSON.stringify(configMap(name)),
      });
    const before = faults.counts['answer lost'];
    const mend = faults.loseAnswers(500, filter);
    expect((await create('lost-1')).status).toBe(500);
    expect((await fetch(`${path}/lost-1`, { headers: { 'user-agent': 'lost' } })).status).toBe(200);
    mend();
    const cut = faults.loseAnswers('cut', filter);
    await expect(create('lost-2')).rejects.toThrow();
    cut();
    expect(text(await client.get(named(core('configmaps'), 'lost-2')), 'metadata', 'name')).toBe('lost-2');
    expect((await create('lost-3')).status).toBe(201);
    expect(faults.counts['answer lost'] - before).toBe(2);
  });
});
