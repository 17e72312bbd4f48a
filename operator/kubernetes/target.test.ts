import { describe, expect, it } from '@jest/globals';
import { type KubeClient, type KubeObject, type PeerSet, type Resource, resources } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { readable } from './shapes.ts';
import { ObjectTarget } from './target.ts';

const peerSet = (name: string, version: number, identities: readonly number[] = []): PeerSet => ({
  apiVersion: 'weir.dev/v1alpha1',
  kind: 'PeerSet',
  metadata: { name, resourceVersion: String(version), uid: name },
  spec: { hash: name, selector: { requirements: [] }, identities, slice: 0, slices: 1 },
});

/** A target of peer sets, and an API server that takes what it is given, as version `version`. */
function setUp() {
  const db = createStateDB({ freeze: true });
  const requests: string[] = [];
  const drifted: string[] = [];
  const notes = db.table<{ readonly key: string }>({ name: 'notes', key: ({ key }) => key });
  const server = { version: 10, during: (): void => {} };
  const answer = <T extends KubeObject>(verb: string, { plural }: Resource<T>, object: T): Promise<T> => {
    requests.push(`${verb} ${plural} ${object.metadata.name}`);
    server.during();
    return Promise.resolve({ ...object, metadata: { ...object.metadata, resourceVersion: String(server.version) } });
  };
  const client: Pick<KubeClient, 'apply' | 'replace' | 'delete'> = {
    apply: (resource, object) => answer('apply', resource, object),
    replace: (resource, object) => answer('replace', resource, object),
    delete: (resource, name) => {
      requests.push(`delete ${resource.plural} ${name}`);
      return Promise.resolve();
    },
  };
  const target = new ObjectTarget<PeerSet>({
    db,
    client,
    resource: resources.PeerSet,
    content: ({ spec }) => spec,
    readable: readable.peerSet,
    indexes: [{ name: 'identity', keys: ({ object }) => object.spec.identities.map(String) }],
    onDrift: (key) => {
      drifted.push(key);
      // Whoever is told may write, and sees what has changed.
      db.write([notes], (txn) => txn.upsert(notes, { key }));
    },
  });
  return { db, target, requests, drifted, server };
}

describe('ObjectTarget', () => {
  it('takes an object that another hand has made unreadable for absent: it is overwritten, or removed', async () => {
    const { target, requests, drifted, server } = setUp();
    const broken = (name: string, version: number): PeerSet => ({ ...peerSet(name, version), spec: null as never });
    target.replace([peerSet('a', 1, [256]), broken('b', 2)], '2');
    expect([target.objects().map(({ metadata }) => metadata.name), target.keys()]).toEqual([['a'], ['a', 'b']]);
    expect(drifted.splice(0)).toEqual(['a', 'b']);
    target.upsert(broken('a', 3));
    expect([target.get('a'), target.has('identity', '256'), drifted]).toEqual([undefined, false, ['a']]);
    await target.apply(peerSet('a', 4, [256]));
    expect([target.get('a')?.spec.identities, target.has('identity', '256')]).toEqual([[256], true]);
    server.version += 1;
    await target.remove('b');
    expect([target.keys(), requests]).toEqual([['a'], ['apply peersets a', 'delete peersets b']]);
  });

  it('replaces what others put beside our part, however deep the object that the server answers is nested', async () => {
    let replaced = '';
    const target = new ObjectTarget<PeerSet>({
      db: createStateDB({ freeze: true }),
      client: {
        apply: (_, object) => {
          let deep: unknown = 1;
          for (let at = 0; at < 20_000; at += 1) deep = [deep];
          return Promise.resolve({ ...object, deep, spec: { foreign: 1 } });
        },
        replace: (_, object) => {
          replaced = JSON.stringify(object);
          return Promise.resolve(object);
        },
        delete: () => Promise.resolve(),
      },
      resource: resources.PeerSet,
      content: ({ spec }) => spec,
      replacement: (answer, { spec }) => ({ ...answer, spec }),
    });
    expect(await target.apply(peerSet('a', 1))).toBe(true);
    expect(JSON.parse(replaced)).toMatchObject({ metadata: { name: 'a' }, spec: { hash: 'a' } });
  });

  it('a list replaces what is older than it, and tells what is not as it was', () => {
    const { target, drifted } = setUp();
    target.replace([peerSet('a', 1), peerSet('b', 2), peerSet('c', 9)], '3');
    drifted.length = 0;
    target.replace([peerSet('b', 4, [1])], '5');
    expect(target.keys()).toEqual(['b', 'c']);
    expect(drifted).toEqual(['a', 'b']);
    expect(target.has('identity', '1')).toBe(true);
    expect(target.has('identity', '2')).toBe(false);
  });

  it.each<readonly [string, (target: ObjectTarget<PeerSet>) => void]>([
    ['deleted', (target) => target.delete(peerSet('a', 11))],
    ['made and deleted', (target) => [target.upsert(peerSet('a', 10)), target.delete(peerSet('a', 11))]],
    ['gone from a list', (target) => target.replace([], '11')],
  ])(
    'an object that is %s before its write is answered is not there, and is to be written again',
    async (_, happen) => {
      const { target, server, drifted } = setUp();
      server.during = () => happen(target);
      await target.apply(peerSet('a', 0, [1]));
      expect([target.keys(), target.has('identity', '1')]).toEqual([[], false]);
      expect(drifted.at(-1)).toBe('a');
      // Of an older one it says nothing.
      server.during = () => target.delete(peerSet('a', 11));
      server.version = 12;
      await target.apply(peerSet('a', 0, [1]));
      expect(target.keys()).toEqual(['a']);
    },
  );

  it('the newer version wins, whichever comes first', () => {
    const { target, drifted } = setUp();
    target.upsert(peerSet('a', 5, [5]));
    target.upsert(peerSet('a', 4, [4]));
    target.delete(peerSet('a', 4));
    expect(target.get('a')?.spec.identities).toEqual([5]);
    expect(drifted).toEqual(['a']);
    target.delete(peerSet('a', 6));
    expect(target.get('a')).toBeUndefined();
    expect(drifted).toEqual(['a', 'a']);
  });

  it('writes what differs, and knows its own write again, before the answer and after it', async () => {
    const { target, requests, drifted, server } = setUp();
    server.during = () => target.upsert(peerSet('a', 10, [1]));
    expect(await target.apply(peerSet('a', 0, [1]))).toBe(true);
    expect(await target.apply(peerSet('a', 0, [1]))).toBe(false);
    target.upsert(peerSet('a', 11, [1]));
    expect(drifted).toEqual([]);
    expect(requests).toEqual(['apply peersets a']);
    // An answer that comes after a newer event.
    server.during = () => target.upsert(peerSet('a', 12, [3]));
    await target.apply(peerSet('a', 0, [2]));
    expect(target.get('a')?.spec.identities).toEqual([3]);
    expect(drifted).toEqual(['a']);
  });

  it('removes what is there, once', async () => {
    const { target, requests } = setUp();
    target.upsert(peerSet('a', 1));
    await target.remove('a');
    await target.remove('a');
    expect(requests).toEqual(['delete peersets a']);
    expect(target.objects()).toEqual([]);
  });
});
