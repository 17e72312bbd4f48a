import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type JsonObject, text } from './json.ts';
import { type Cluster, configMap, core, named, startCluster } from './test-support.ts';

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster({ watchHistory: 20 });
});
afterAll(() => cluster.close());

interface Event {
  readonly type: string;
  readonly object: JsonObject;
}

interface Stream {
  readonly status: number;
  next(): Promise<Event | undefined>;
  take(count: number): Promise<string[]>;
  close(): Promise<void>;
}

async function watch(query: string, accept = 'application/json'): Promise<Stream> {
  const abort = new AbortController();
  const response = await fetch(`${cluster.url}/api/v1/namespaces/default/configmaps?watch=true&${query}`, {
    signal: abort.signal,
    headers: { accept },
  });
  const lines = lineReader(response);
  const next = async (): Promise<Event | undefined> => {
    const { value, done } = await lines.next();
    return done === true ? undefined : (JSON.parse(value) as Event);
  };
  return {
    status: response.status,
    next,
    take: async (count) => {
      const out: string[] = [];
      for (let i = 0; i < count; i++) {
        const event = await next();
        out.push(event === undefined ? 'END' : `${event.type} ${text(event.object, 'metadata', 'name')}`);
      }
      return out;
    },
    close: async () => {
      abort.abort();
      await lines.return(undefined).catch(() => undefined);
    },
  };
}

async function* lineReader(response: Response): AsyncGenerator<string, undefined> {
  let rest = '';
  for await (const chunk of (response.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())) {
    rest += chunk;
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  return undefined;
}

const maps = core('configmaps');

describe('a watch', () => {
  it('sends the current objects, then changes, and follows a selector', async () => {
    const { client } = cluster.server;
    await client.create(maps, configMap('one'));
    const all = await watch('');
    const labelled = await watch('labelSelector=on%3Dyes');
    expect(await all.take(1)).toEqual(['ADDED one']);
    await client.patch(named(maps, 'one'), 'merge', { metadata: { labels: { on: 'yes' } } });
    await client.patch(named(maps, 'one'), 'merge', { metadata: { labels: { on: 'no' } } });
    await client.delete(named(maps, 'one'));
    expect(await all.take(3)).toEqual(['MODIFIED one', 'MODIFIED one', 'DELETED one']);
    expect(await labelled.take(2)).toEqual(['ADDED one', 'DELETED one']);
    await Promise.all([all.close(), labelled.close()]);
  });

  it('resumes from a resourceVersion without loss or repetition', async () => {
    const { client, stats } = cluster.server;
    const from = stats.resourceVersion;
    await client.create(maps, configMap('r1'));
    await client.create(maps, configMap('r2'));
    const resumed = await watch(`resourceVersion=${from}`);
    await client.delete(named(maps, 'r1'));
    expect(await resumed.take(3)).toEqual(['ADDED r1', 'ADDED r2', 'DELETED r1']);
    await resumed.close();
  });

  it('marks the end of the initial events when asked to send them', async () => {
    const stream = await watch(
      'sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Dr2',
    );
    expect(await stream.take(1)).toEqual(['ADDED r2']);
    const end = await stream.next();
    expect([end?.type, end?.object.metadata]).toEqual([
      'BOOKMARK',
      expect.objectContaining({ annotations: { 'k8s.io/initial-events-end': 'true' } }),
    ]);
    await stream.close();
  });

  it('from a forgotten resourceVersion gets 410 Expired as an ERROR event', async () => {
    const { client, faults, stats } = cluster.server;
    const old = stats.resourceVersion;
    for (let i = 0; i < 40; i++) await client.patch(named(maps, 'r2'), 'merge', { data: { i: String(i) } });
    const late = await watch(`resourceVersion=${old}`);
    const event = await late.next();
    expect([late.status, event?.type, event?.object.code, event?.object.reason]).toEqual([
      200,
      'ERROR',
      410,
      'Expired',
    ]);
    expect(await late.next()).toBeUndefined();
    const fresh = stats.resourceVersion;
    faults.expireWatches();
    const cut = await watch(`resourceVersion=${fresh}`);
    expect((await cut.next())?.object.code).toBe(410);
  });

  it('ends after timeoutSeconds, and when it is dropped', async () => {
    const { faults, stats } = cluster.server;
    const timed = await watch(`resourceVersion=${stats.resourceVersion}&timeoutSeconds=1`);
    expect(await timed.next()).toBeUndefined();
    const dropped = await watch(`resourceVersion=${stats.resourceVersion}`);
    expect(faults.dropWatches({ resource: 'configmaps' })).toBe(1);
    await expect(dropped.next()).rejects.toThrow();
  });

  it('that is held says everything later, in order; one that is torn ends in the middle of an event', async () => {
    const { client, faults, stats } = cluster.server;
    const edit = (v: string): Promise<JsonObject> => client.patch(named(maps, 'r2'), 'merge', { data: { i: v } });
    const before = faults.counts;
    const stream = await watch(`resourceVersion=${stats.resourceVersion}`);
    const release = faults.holdWatches({ resource: 'configmaps' });
    for (const v of ['1', '2']) await edit(v);
    const first = stream.next();
    expect(faults.counts['event held'] - before['event held']).toBe(2);
    release();
    expect([await first, await stream.next()].map((event) => text(event?.object ?? {}, 'data', 'i'))).toEqual([
      '1',
      '2',
    ]);
    expect(faults.tearWatches({ resource: 'configmaps' })).toBe(1);
    await edit('3');
    await expect(stream.next()).rejects.toThrow();
    expect(faults.counts['watch torn'] - before['watch torn']).toBe(1);
  });

  it('of tables sends the columns once and the rows each time', async () => {
    const { client } = cluster.server;
    const stream = await watch(
      'fieldSelector=metadata.name%3Dr2',
      'application/json;as=Table;v=v1;g=meta.k8s.io,application/json',
    );
    const first = await stream.next();
    await client.patch(named(maps, 'r2'), 'merge', { data: { more: 'x' } });
    const second = await stream.next();
    expect([first?.object.kind, Array.isArray(first?.object.columnDefinitions)]).toEqual(['Table', true]);
    expect(second?.object.columnDefinitions).toBeNull();
    expect(JSON.stringify(second?.object.rows)).toContain('"cells":["r2",2');
    await stream.close();
  });
});
