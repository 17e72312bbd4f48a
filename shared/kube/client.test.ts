import { Agent } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { createKubeClient } from './client.ts';
import { ApiError, KubeConfigError } from './errors.ts';
import { type Answer, type FakeServer, fakeServer, send } from './fake-server.ts';
import type { Namespace } from './kubernetes-objects.ts';
import { resources } from './resources.ts';
import { NodeTransport } from './transport.ts';

let server: FakeServer | undefined;
afterEach(async () => {
  await server?.stop();
  server = undefined;
});

const start = async (answer: Answer, options?: { requestTimeoutMs?: number }): Promise<FakeServer> => {
  server = await fakeServer(answer, options);
  return server;
};

const namespace = (name: string): Namespace => ({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });

const failureOf = async (promise: Promise<unknown>): Promise<ApiError> => {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ApiError);
  return error as ApiError;
};

describe('createKubeClient', () => {
  it('names the file that it cannot read', () => {
    expect(() => createKubeClient({ kubeconfig: '/does/not/exist', userAgent: 'x' })).toThrow(KubeConfigError);
    expect(() => createKubeClient({ kubeconfig: '/does/not/exist', userAgent: 'x' })).toThrow('/does/not/exist');
  });
});

describe('requests', () => {
  it('carry credentials and user agent, and know where a kind is served', async () => {
    const { client, requests } = await start((_, response) => send(response, 200, namespace('a')));
    await client.get(resources.Namespace, 'a');
    await client.get(resources.CiliumNetworkPolicy, 'p/q', 'ns');
    expect(requests.map((r) => r.path)).toEqual([
      '/api/v1/namespaces/a',
      '/apis/cilium.io/v2/namespaces/ns/ciliumnetworkpolicies/p%2Fq',
    ]);
    expect(requests[0]?.headers.authorization).toBe('Bearer secret-token');
    expect(requests[0]?.headers['user-agent']).toBe('weir-test');
  });

  it('list follows continue tokens', async () => {
    const { client, requests } = await start((seen, response) =>
      seen.query.get('continue') === null
        ? send(response, 200, {
            metadata: { resourceVersion: '7', continue: 'more' },
            items: [{ metadata: { name: 'a' } }],
          })
        : send(response, 200, { metadata: { resourceVersion: '7' }, items: [{ metadata: { name: 'b' } }] }),
    );
    const list = await client.list(resources.Namespace, { labelSelector: 'x=y' });
    expect(list.items.map((i) => [i.kind, i.apiVersion, i.metadata.name])).toEqual([
      ['Namespace', 'v1', 'a'],
      ['Namespace', 'v1', 'b'],
    ]);
    expect(list.resourceVersion).toBe('7');
    expect(requests.map((r) => r.query.get('labelSelector'))).toEqual(['x=y', 'x=y']);
  });

  it('apply is a server-side apply with the manager, of the status when asked', async () => {
    const { client, requests } = await start((_, response) => send(response, 200, namespace('a')));
    await client.apply(resources.Namespace, namespace('a'), { fieldManager: 'm', force: true });
    await client.apply(resources.Namespace, namespace('a'), { fieldManager: 'm', subresource: 'status' });
    expect(requests[0]).toMatchObject({ method: 'PATCH', path: '/api/v1/namespaces/a', body: namespace('a') });
    expect(requests[0]?.headers['content-type']).toBe('application/apply-patch+yaml');
    expect(requests[0]?.query.get('force')).toBe('true');
    expect(requests[1]?.path).toBe('/api/v1/namespaces/a/status');
    expect(requests[1]?.query.get('force')).toBeNull();
  });

  it('delete sends its preconditions', async () => {
    const { client, requests } = await start((_, response) => send(response, 200, { kind: 'Status' }));
    await client.delete(resources.Namespace, 'a', undefined, { uid: 'u1' });
    expect(requests[0]?.body).toMatchObject({ preconditions: { uid: 'u1' } });
  });

  it('failures say status, reason, message and when to retry', async () => {
    const { client } = await start((_, response) =>
      send(response, 429, { kind: 'Status', reason: 'TooManyRequests', message: 'slow down' }, { 'retry-after': '3' }),
    );
    const error = await failureOf(client.get(resources.Namespace, 'a'));
    expect(error).toMatchObject({ status: 429, reason: 'TooManyRequests', retryAfterMs: 3000 });
    expect(error.message).toContain('slow down');
  });

  it.each([
    [404, 'notFound'],
    [409, 'conflict'],
    [410, 'gone'],
    [422, 'invalid'],
    [403, 'forbidden'],
  ] as const)('status %i is %s', async (status, predicate) => {
    const { client } = await start((_, response) => send(response, status, { kind: 'Status' }));
    const error = await failureOf(client.get(resources.Namespace, 'a'));
    expect(
      ['notFound', 'conflict', 'gone', 'invalid', 'forbidden'].filter((p) => error[p as typeof predicate]),
    ).toEqual([predicate]);
  });

  it('a server that does not answer is a Timeout', async () => {
    const { client } = await start(() => {}, { requestTimeoutMs: 30 });
    const error = await failureOf(client.get(resources.Namespace, 'a'));
    expect(error).toMatchObject({ status: 0, reason: 'Timeout', unreachable: true, unavailable: true });
  });

  it('an address that leads nowhere is given up long before the request, and named', async () => {
    class Nowhere extends Agent {
      override createConnection(): Duplex {
        return Object.defineProperty(new Socket(), 'connecting', { value: true });
      }
    }
    const access = {
      prepare: async () => ({ server: 'http://10.96.0.1', options: { agent: new Nowhere() }, proxied: true }),
    };
    jest.useFakeTimers();
    try {
      const transport = new NodeTransport(access, 'weir-test');
      const failing = failureOf(transport.json({ method: 'GET', path: '/api', timeoutMs: 600_000 }));
      await jest.advanceTimersByTimeAsync(60_000);
      expect(await failing).toMatchObject({
        reason: 'Unreachable',
        message: 'GET http://10.96.0.1/api: no connection within 5000 ms',
      });
    } finally {
      jest.useRealTimers();
    }
  });

  it('knows that the namespace to write into goes, or is gone', async () => {
    const terminating = { reason: 'NamespaceTerminating', field: 'metadata.namespace' };
    for (const [status, details, namespaceGone] of [
      [403, { causes: [terminating] }, true],
      [403, { causes: [{ reason: 'Other' }] }, false],
      [403, undefined, false],
      [404, { kind: 'namespaces', name: 'a' }, true],
      [404, { kind: 'ciliumendpoints', name: 'a' }, false],
    ] as const) {
      const fake = await start((_, response) => send(response, status, { kind: 'Status', details }));
      expect([
        status,
        details,
        (await failureOf(fake.client.create(resources.Namespace, namespace('a')))).namespaceGone,
      ]).toEqual([status, details, namespaceGone]);
      await fake.stop();
      server = undefined;
    }
  });

  it('an answer that is not an object of the API is an error, never an empty list', async () => {
    const { client } = await start((_, response) => send(response, 200, { hello: 'world' }));
    expect((await failureOf(client.list(resources.Namespace))).reason).toBe('BadAnswer');
    expect((await failureOf(client.get(resources.Namespace, 'a'))).reason).toBe('BadAnswer');
  });
});

describe('watch', () => {
  it('yields events, whatever the chunks, and throws on a status inside the stream', async () => {
    const line = `${JSON.stringify({ type: 'ADDED', object: namespace('ä') })}\n`;
    const gone = `${JSON.stringify({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired' } })}\n`;
    const bytes = Buffer.from(line + line + gone);
    const { client, requests } = await start((_, response) => {
      response.writeHead(200);
      for (const byte of bytes) response.write(Buffer.from([byte]));
      response.end();
    });
    const names: string[] = [];
    const run = async (): Promise<void> => {
      for await (const event of client.watch(resources.Namespace, { resourceVersion: '5' })) {
        names.push(event.object.metadata.name);
      }
    };
    expect((await failureOf(run())).gone).toBe(true);
    expect(names).toEqual(['ä', 'ä']);
    expect(requests[0]?.query.get('allowWatchBookmarks')).toBe('true');
    expect(requests[0]?.query.get('resourceVersion')).toBe('5');
  });

  it('names the address where the connection breaks off', async () => {
    const { client } = await start((_, response) => {
      response.writeHead(200).flushHeaders();
      response.socket?.destroy();
    });
    const run = async (): Promise<void> => {
      for await (const _ of client.watch(resources.Namespace, { resourceVersion: '5' }));
    };
    expect(await failureOf(run())).toMatchObject({
      reason: 'Unreachable',
      message: expect.stringMatching(
        /^watch http:\/\/127\.0\.0\.1:\d+\/api\/v1\/namespaces: the connection broke off: aborted$/,
      ),
    });
  });

  it.each([
    [200, ['accepted', 'ended']],
    [503, ['refused']],
  ])('says that the server has accepted it, and only then: %s', async (status, said) => {
    const { client } = await start((_, response) => send(response, status, ''));
    const log: string[] = [];
    const run = async (): Promise<void> => {
      const accepted = (): void => void log.push('accepted');
      for await (const _ of client.watch(resources.Namespace, { resourceVersion: '5', accepted }));
      log.push('ended');
    };
    await run().catch(() => log.push('refused'));
    expect(log).toEqual(said);
  });
});
