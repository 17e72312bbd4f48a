import { describe, expect, it } from '@jest/globals';
import { Registry } from 'prom-client';
import { createStateDB, query } from './index.ts';
import { registerMetrics } from './prometheus.ts';

describe('registerMetrics()', () => {
  it('shows tables, streams, markers, and a forgotten snapshot', async () => {
    const db = createStateDB({ countSnapshots: true });
    const pods = db.table<{ name: string }>({ name: 'pods', key: ({ name }) => name });
    const registry = new Registry();
    registerMetrics(db, registry, 'test');
    const value = async (name: string): Promise<readonly (readonly [object, number])[]> =>
      ((await registry.getSingleMetric(name)?.get())?.values ?? []).map((each) => [each.labels, each.value]);

    db.initialiser(pods, 'list');
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a' }));
    using slow = db.changes(pods, { name: 'engine' });
    using fast = db.changes(pods, { name: 'engine' });
    fast.next();
    const forgotten = db.read();
    forgotten.watch(query.get(pods, 'a')).watch.onFire(() => {});
    db.write([pods], (txn) => txn.delete(pods, 'a'));

    expect(await value('test_open_snapshots')).toEqual([[{}, 1]]);
    expect(await value('test_watches_fired_total')).toEqual([[{}, 1]]);
    expect(await value('test_rows')).toEqual([[{ table: 'pods' }, 0]]);
    expect(await value('test_revision')).toEqual([[{ table: 'pods' }, 2]]);
    expect(await value('test_pending_initialisers')).toEqual([[{ table: 'pods' }, 1]]);
    expect(await value('test_delete_markers')).toEqual([[{ table: 'pods' }, 1]]);
    // Of two streams with one name the slower.
    expect(await value('test_stream_lag')).toEqual([[{ table: 'pods', stream: 'engine' }, 2]]);
    slow.next();
    forgotten[Symbol.dispose]();
    expect(await value('test_open_snapshots')).toEqual([[{}, 0]]);
  });

  it('has no number of snapshots where they are not counted', () => {
    const registry = new Registry();
    const db = createStateDB();
    registerMetrics(db, registry, 'test');
    using _open = db.read();
    expect(db.stats().snapshots).toBeUndefined();
    expect(registry.getSingleMetric('test_open_snapshots')).toBeUndefined();
  });
});
