import type { ServerResponse } from 'node:http';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { delay } from '@weir/process/delay';
import { ApiError } from './errors.ts';
import { type Answer, type FakeServer, fakeServer, type Seen, send } from './fake-server.ts';
import type { Namespace } from './kubernetes-objects.ts';
import { createReflector } from './reflector.ts';
import { resources } from './resources.ts';
import type { KubeClient, Reflector, ReflectorOptions, WatchEvent } from './types.ts';

const ns = (name: string, resourceVersion: string): Namespace => ({
  apiVersion: 'v1',
  kind: 'Namespace',
  metadata: { name, resourceVersion },
});
const event = (type: string, object: unknown): string => `${JSON.stringify({ type, object })}\n`;
const isWatch = (seen: Seen): boolean => seen.query.get('watch') === 'true';

/** A sink that keeps state and a log, and lets a test wait for a log line. */
class Recorder {
  readonly log: string[] = [];
  readonly state = new Map<string, string | undefined>();
  #waiters: { line: string; resolve: () => void }[] = [];
  fail: ((line: string) => boolean) | undefined;

  #note(line: string): void {
    if (this.fail?.(line) === true) {
      this.fail = undefined;
      throw new Error(`refused ${line}`);
    }
    this.log.push(line);
    for (const waiter of this.#waiters.filter((w) => w.line === line)) waiter.resolve();
  }
  replace = (items: readonly Namespace[]): void => {
    this.#note(`replace ${items.map((i) => i.metadata.name).join(',')}`);
    this.state.clear();
    for (const item of items) this.state.set(item.metadata.name, item.metadata.resourceVersion);
  };
  upsert = (item: Namespace): void => {
    this.#note(`upsert ${item.metadata.name}`);
    this.state.set(item.metadata.name, item.metadata.resourceVersion);
  };
  delete = (item: Namespace): void => {
    this.#note(`delete ${item.metadata.name}`);
    this.state.delete(item.metadata.name);
  };
  synced = (): void => this.#note('synced');

  seen(line: string, times = 1): Promise<void> {
    if (this.log.filter((l) => l === line).length >= times) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiters.push({
        line,
        resolve: () => {
          if (this.log.filter((l) => l === line).length >= times) resolve();
        },
      });
    });
  }
}

let server: FakeServer | undefined;
let reflector: Reflector | undefined;
afterEach(async () => {
  jest.useRealTimers();
  await reflector?.stop();
  await server?.stop();
  server = reflector = undefined;
});

async function run(answer: Answer, options: Partial<ReflectorOptions<Namespace>> = {}): Promise<Recorder> {
  server = await fakeServer(answer);
  const sink = new Recorder();
  reflector = createReflector({ client: server.client, resource: resources.Namespace, sink, ...options });
  reflector.start();
  return sink;
}

const listOf = (items: Namespace[], version: string): object => ({ metadata: { resourceVersion: version }, items });

describe('reflector', () => {
  it('lists pages, trims, replaces once, then follows changes and bookmarks', async () => {
    let stream: ServerResponse | undefined;
    const opened = Promise.withResolvers<void>();
    const sink = await run(
      (seen, response) => {
        if (isWatch(seen)) {
          stream = response;
          response.writeHead(200);
          response.flushHeaders();
          opened.resolve();
        } else if (seen.query.get('continue') === null) {
          send(response, 200, { metadata: { resourceVersion: '5', continue: 'c' }, items: [ns('a', '1')] });
        } else send(response, 200, listOf([ns('b', '2')], '5'));
      },
      { trim: (o) => ({ ...o, metadata: { ...o.metadata, name: o.metadata.name.toUpperCase() } }) },
    );
    await opened.promise;
    stream?.write(event('ADDED', ns('c', '6')) + event('DELETED', ns('a', '7')));
    stream?.write(event('BOOKMARK', { metadata: { resourceVersion: '90' } }) + event('MODIFIED', ns('b', '91')));
    await sink.seen('upsert B');
    expect(sink.log).toEqual(['replace A,B', 'synced', 'upsert C', 'delete A', 'upsert B']);
    expect(reflector?.synced).toBe(true);
    expect(server?.requests.find(isWatch)?.query.get('resourceVersion')).toBe('5');
    expect(server?.requests[0]?.query.get('limit')).toBe('500');
  });

  it('a recovery while it waits as long as the server asked is not missed: it goes on at the end of that wait', async () => {
    let lists = 0;
    const sink = await run(
      (seen, response) => {
        if (seen.path.endsWith('/other')) send(response, 200, ns('other', '1'));
        else if (isWatch(seen)) response.writeHead(200).flushHeaders();
        else if (++lists === 1) send(response, 503, { kind: 'Status', details: { retryAfterSeconds: 0.3 } });
        else send(response, 200, listOf([ns('a', '1')], '5'));
      },
      {
        backoff: { minMs: 10_000_000, maxMs: 10_000_000, random: () => 0 },
        onError: () => void server?.client.get(resources.Namespace, 'other'),
      },
    );
    await sink.seen('replace a');
  });

  it('an ended watch goes on from the last version, bookmarks included', async () => {
    const versions: (string | null)[] = [];
    const sink = await run((seen, response) => {
      if (!isWatch(seen)) {
        send(response, 200, listOf([], '5'));
        return;
      }
      versions.push(seen.query.get('resourceVersion'));
      response.writeHead(200);
      if (versions.length === 1) response.end(event('BOOKMARK', { metadata: { resourceVersion: '40' } }));
      else response.write(event('ADDED', ns('x', '41')));
    });
    await sink.seen('upsert x');
    expect(versions).toEqual(['5', '40']);
    expect(sink.log).toEqual(['replace ', 'synced', 'upsert x']);
  });

  it.each(['answer', 'event'])('410 as an %s lists again', async (form) => {
    let lists = 0;
    const sink = await run((seen, response) => {
      if (!isWatch(seen)) {
        lists += 1;
        send(response, 200, listOf(lists === 1 ? [ns('old', '1')] : [ns('new', '2')], String(lists)));
      } else if (lists > 1) response.writeHead(200).flushHeaders();
      else if (form === 'answer') send(response, 410, { kind: 'Status', reason: 'Gone' });
      else {
        response.writeHead(200);
        response.end(event('ERROR', { kind: 'Status', code: 410, reason: 'Expired' }));
      }
    });
    await sink.seen('replace new');
    expect([...sink.state.keys()]).toEqual(['new']);
    expect(sink.log.filter((l) => l === 'synced')).toHaveLength(1);
  });

  it('outlives 500s, resets and broken lines, and reports each', async () => {
    let n = 0;
    const reasons: string[] = [];
    const sink = await run(
      (seen, response) => {
        n += 1;
        if (n === 1) send(response, 500, { kind: 'Status', message: 'etcd' });
        else if (!isWatch(seen)) send(response, 200, listOf([ns('a', '1')], '5'));
        else if (n === 3) response.destroy();
        else {
          response.writeHead(200);
          if (n === 4) response.end('{broken\n');
          else response.write(event('ADDED', ns('b', '6')));
        }
      },
      { onError: (error) => reasons.push('reason' in error ? String(error.reason) : error.name) },
    );
    await sink.seen('upsert b');
    expect(reasons).toEqual(['Status500', 'Unreachable', 'BadAnswer']);
    expect(sink.log).toEqual(['replace a', 'synced', 'upsert b']);
  });

  it.each([
    ['20', 20],
    ['3600', 30],
  ])('waits as long as Retry-After says, at most 30 s: %s', async (header, seconds) => {
    const waits: number[] = [];
    const reported = Promise.withResolvers<void>();
    await run((_, response) => send(response, 503, { kind: 'Status' }, { 'retry-after': header }), {
      onError: (_error, context) => {
        waits.push(context.retryInMs);
        reported.resolve();
      },
    });
    await reported.promise;
    expect(waits[0]).toBe(seconds * 1000);
  });

  it('goes on at once when any request of the client gets through again', async () => {
    let down = true;
    const failed = Promise.withResolvers<number>();
    const sink = await run(
      (seen, response) => {
        if (down) send(response, 503, { kind: 'Status' });
        else if (isWatch(seen)) response.writeHead(200).flushHeaders();
        else if (seen.path.endsWith('/nodes/n1')) send(response, 200, ns('n1', '1'));
        else send(response, 200, listOf([ns('a', '1')], '5'));
      },
      {
        backoff: { minMs: 3_600_000, maxMs: 3_600_000, random: () => 0 },
        onError: (_error, { retryInMs }) => failed.resolve(retryInMs),
      },
    );
    expect(await failed.promise).toBeGreaterThan(3_000_000);
    down = false;
    await server?.client.get(resources.KubeNode, 'n1');
    await sink.seen('replace a');
  });

  it('a throwing sink is isolated and gets the complete state again', async () => {
    let watches = 0;
    const sink = await run((seen, response) => {
      if (!isWatch(seen)) {
        send(response, 200, listOf(watches === 0 ? [] : [ns('a', '6')], watches === 0 ? '5' : '6'));
        return;
      }
      watches += 1;
      response.writeHead(200);
      if (watches === 1) response.write(event('ADDED', ns('a', '6')));
      else response.flushHeaders();
    });
    sink.fail = (line) => line === 'upsert a';
    await sink.seen('replace a');
    expect(sink.state.get('a')).toBe('6');
  });

  it('a silent watch is renewed without a new list', async () => {
    let watches = 0;
    const renewed = Promise.withResolvers<void>();
    const sink = await run(
      (seen, response) => {
        if (!isWatch(seen)) {
          send(response, 200, listOf([], '5'));
          return;
        }
        watches += 1;
        response.writeHead(200).flushHeaders();
        if (watches === 2) renewed.resolve();
      },
      { idleTimeoutMs: 20 },
    );
    await renewed.promise;
    expect(sink.log).toEqual(['replace ', 'synced']);
  });

  it.each([200, 504])(
    'lists anew where the API server was put back to an earlier state: watch answers %s',
    async (status) => {
      let restored = false;
      const sink = await run(
        (seen, response) => {
          if (!isWatch(seen)) {
            const page = seen.query.get('limit') === '1' ? [] : [ns('a', restored ? '3' : '5')];
            send(response, 200, listOf(page, restored ? '3' : '5'));
            return;
          }
          restored = true;
          // kube-apiserver accepts a version of the future and is silent until it is reached; others refuse it.
          if (status === 200) response.writeHead(200).flushHeaders();
          else send(response, 504, { reason: 'Timeout', message: 'Too large resource version: 5, current: 3' });
        },
        // Who is refused need not wait for a silence.
        { ...(status === 200 ? { idleTimeoutMs: 20 } : {}), backoff: { minMs: 1, maxMs: 2 } },
      );
      await sink.seen('replace a', 2);
      expect(sink.state.get('a')).toBe('3');
    },
  );

  it('asks once whether the API server was put back, not before every watch from then on', async () => {
    const kinds: string[] = [];
    const third = Promise.withResolvers<void>();
    await run(
      (seen, response) => {
        const kind = isWatch(seen) ? 'watch' : seen.query.get('limit') === '1' ? 'ask' : 'list';
        kinds.push(kind);
        const watches = kinds.filter((each) => each === 'watch').length;
        if (kind !== 'watch') send(response, 200, listOf([], '5'));
        else if (watches === 1) send(response, 504, { reason: 'Timeout', message: 'Too large resource version' });
        else {
          response.writeHead(200);
          // The second ends like any other.
          if (watches === 2) response.end(event('ADDED', ns('a', '6')));
          else response.flushHeaders();
          if (watches === 3) third.resolve();
        }
      },
      { backoff: { minMs: 1, maxMs: 2 } },
    );
    await third.promise;
    expect(kinds).toEqual(['list', 'watch', 'ask', 'watch', 'watch']);
  });

  it('is stale from the first failure until a watch has been accepted, however slowly watches fail', async () => {
    jest.useFakeTimers();
    let accepting = false;
    const client: Pick<KubeClient, 'listPage' | 'watch'> = {
      listPage: async () => ({ items: [], resourceVersion: '5' }),
      async *watch(_, { accepted, signal }) {
        const refused = !accepting;
        if (!refused) accepted?.();
        await delay(30_000, signal);
        if (refused) throw new ApiError('watch: no answer', { status: 0, reason: 'Timeout' });
        yield { type: 'BOOKMARK', object: ns('', '6') } as WatchEvent<never>;
      },
    };
    const waits: number[] = [];
    reflector = createReflector({
      client: client as KubeClient,
      resource: resources.Namespace,
      sink: new Recorder(),
      backoff: { minMs: 200, maxMs: 5_000, random: () => 0 },
      onError: (_error, { retryInMs }) => waits.push(retryInMs),
    });
    reflector.start();
    await jest.advanceTimersByTimeAsync(30_000);
    const failed = reflector.staleSince;
    expect(failed).toBe(performance.now());
    for (let second = 0; second < 95; second += 1) {
      await jest.advanceTimersByTimeAsync(1_000);
      expect(reflector.staleSince).toBe(failed);
    }
    expect(waits).toEqual([200, 400, 800, 1600]);
    accepting = true;
    // The first that is accepted, and no event yet.
    await jest.advanceTimersByTimeAsync(40_000);
    expect(reflector.staleSince).toBeUndefined();
  });

  it('stop leaves nothing open', async () => {
    const opened = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<void>();
    await run((seen, response) => {
      if (!isWatch(seen)) {
        send(response, 200, listOf([], '5'));
        return;
      }
      response.on('close', () => closed.resolve());
      response.writeHead(200).flushHeaders();
      opened.resolve();
    });
    await opened.promise;
    await reflector?.stop();
    await closed.promise;
  });
});
