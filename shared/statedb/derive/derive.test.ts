/** Derived tables, by example: what is evaluated, and what is written. */
import { describe, expect, it, jest } from '@jest/globals';
import { createStateDB, UniqueIndexError } from '../index.ts';
import { derive } from './derive.ts';
import { type Place, type Pod, setUp, turn } from './test-kit.ts';

describe('derive', () => {
  it('runs by itself once after the commits of a turn, in one transaction', async () => {
    const { db, places, pod, node, result, evaluated } = setUp();
    node('n1', 'z1');
    pod('a', 'n1');
    pod('b', 'n1');
    using stream = db.changes(places);
    const fired = jest.fn();
    stream.watch().onFire(fired);
    expect(result()).toEqual([]);
    await turn();
    expect(result()).toEqual(['a:z1', 'b:z1']);
    expect(evaluated()).toEqual(['a', 'b']);
    expect(fired).toHaveBeenCalledTimes(1);
  });

  it('evaluates a unit anew exactly when its row or an answer that it read has changed', () => {
    const { db, pods, nodes, derivation, pod, node, result, evaluated } = setUp();
    node('n1', 'z1');
    node('n2', 'z2');
    pod('a', 'n1');
    pod('b', 'n2');
    pod('c', 'n3');
    derivation.flush();
    evaluated();
    node('n1', 'z3');
    derivation.flush();
    expect(evaluated()).toEqual(['a']);
    node('n3', 'z3');
    derivation.flush();
    expect(evaluated()).toEqual(['c']);
    pod('b', 'n1');
    derivation.flush();
    expect(evaluated()).toEqual(['b']);
    // n2 is read by nobody any more.
    node('n2', 'z9');
    node('n9', 'z9');
    derivation.flush();
    expect(evaluated()).toEqual([]);
    expect(() =>
      db.write([pods, nodes], (txn) => {
        txn.deleteAll(nodes);
        txn.delete(pods, 'a');
        throw new Error('aborted');
      }),
    ).toThrow('aborted');
    derivation.flush();
    expect(evaluated()).toEqual([]);
    db.write([nodes, pods], (txn) => {
      txn.delete(pods, 'a');
      txn.delete(nodes, 'n3');
    });
    derivation.flush();
    expect(evaluated()).toEqual(['c']);
    expect(result()).toEqual(['b:z3']);
  });

  it('does not write rows that are equal', () => {
    const { db, places, derivation, pod, node } = setUp({ equals: (a, b) => a.zone === b.zone });
    node('n1', 'z1');
    node('n2', 'z1');
    pod('a', 'n1');
    derivation.flush();
    using before = db.read();
    pod('a', 'n2');
    derivation.flush();
    using after = db.read();
    expect(after.revision(places)).toBe(before.revision(places));
    expect(after.get(places, 'a')).toBe(before.get(places, 'a'));
  });

  it('of two units with one output key the smallest driving key stands, and the next one after it', () => {
    const { db, pods, derivation, pod, result } = setUp({ fn: ({ name, node }) => [{ id: node, zone: name }] });
    for (const name of ['b', 'c', 'a']) pod(name, 'n1');
    derivation.flush();
    expect(result()).toEqual(['n1:a']);
    pod('a', 'n2');
    derivation.flush();
    expect(result()).toEqual(['n1:b', 'n2:a']);
    db.write([pods], (txn) => txn.delete(pods, 'b'));
    derivation.flush();
    expect(result()).toEqual(['n1:c', 'n2:a']);
    pod('0', 'n1');
    pod('c', 'n3');
    derivation.flush();
    expect(result()).toEqual(['n1:0', 'n2:a', 'n3:c']);
  });

  it('of one unit the first row of a key stands', () => {
    const { derivation, pod, result } = setUp({
      *fn({ name }) {
        yield { id: name, zone: 'first' };
        yield { id: name, zone: 'second' };
      },
    });
    pod('a', 'n1');
    derivation.flush();
    expect(result()).toEqual(['a:first']);
  });

  it('a unit that throws keeps its last good rows, is reported, and does not stop the others', () => {
    const { db, pods, nodes, derivation, pod, node, zone, fn, result, failures, evaluated } = setUp();
    const broken = new Error('zone x');
    fn.mockImplementation((row, read) => {
      const places = zone(row, read);
      if (places[0]?.zone === 'x') throw broken;
      return places;
    });
    node('n1', 'z1');
    node('n2', 'z2');
    pod('a', 'n1');
    pod('b', 'n2');
    derivation.flush();
    node('n1', 'x');
    node('n2', 'z3');
    pod('c', 'n1');
    derivation.flush();
    expect(result()).toEqual(['a:z1', 'b:z3']);
    expect(derivation.failing()).toEqual([
      { key: 'a', error: broken },
      { key: 'c', error: broken },
    ]);
    expect(failures.map(({ key }) => key).sort()).toEqual(['a', 'c']);
    evaluated();
    node('n2', 'z4');
    derivation.flush();
    expect(evaluated()).toEqual(['b']);
    node('n1', 'z5');
    db.write([pods], (txn) => txn.delete(pods, 'c'));
    derivation.flush();
    expect(derivation.failing()).toEqual([]);
    expect(result()).toEqual(['a:z5', 'b:z4']);
    node('n1', 'x');
    derivation.flush();
    db.write([pods, nodes], (txn) => txn.delete(pods, 'a'));
    derivation.flush();
    expect([result(), derivation.failing()]).toEqual([['b:z4'], []]);
  });

  it('rows swap what is unique between them', () => {
    const { db, pods, derivation, pod, node, result } = setUp();
    node('n1', 'only-1');
    node('n2', 'only-2');
    pod('a', 'n1');
    pod('b', 'n2');
    derivation.flush();
    db.write([pods], (txn) => {
      txn.upsert(pods, { name: 'a', node: 'n2' });
      txn.upsert(pods, { name: 'b', node: 'n1' });
    });
    derivation.flush();
    expect(result()).toEqual(['a:only-2', 'b:only-1']);
    expect(derivation.failing()).toEqual([]);
  });

  it('a row that the table refuses is reported once, and comes when it can; what was there stays', () => {
    const { db, pods, derivation, pod, node, result, failures } = setUp();
    node('n1', 'only-1');
    node('n2', 'z2');
    pod('a', 'n1');
    pod('b', 'n2');
    derivation.flush();
    pod('b', 'n1');
    pod('c', 'n1');
    derivation.flush();
    expect(result()).toEqual(['a:only-1', 'b:z2']);
    const refused = ['b', 'c'].map((key) => ({ key, error: expect.any(UniqueIndexError) }));
    expect(derivation.failing()).toEqual(refused);
    pod('d', 'n2');
    derivation.flush();
    expect(result()).toEqual(['a:only-1', 'b:z2', 'd:z2']);
    expect(failures).toEqual(refused);
    db.write([pods], (txn) => txn.delete(pods, 'a'));
    derivation.flush();
    expect(result()).toEqual(['b:only-1', 'd:z2']);
    expect(derivation.failing()).toEqual(refused.slice(1));
    db.write([pods], (txn) => txn.delete(pods, 'c'));
    derivation.flush();
    expect(derivation.failing()).toEqual([]);
  });

  it('by default a failure is a process warning', async () => {
    const warned = jest.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const db = createStateDB();
    const table = db.table<Pod>({ name: 'pods', key: (p) => p.name });
    const into = db.table<Place>({ name: 'places', key: (p) => p.id });
    const fn = (): never => {
      throw new Error('broken');
    };
    using derivation = derive(db, { name: 'd', into, inputs: [table], fn });
    db.write([table], (txn) => txn.upsert(table, { name: 'a', node: 'n' }));
    derivation.flush();
    expect(warned).toHaveBeenCalledWith('derivation "d", row "a": broken', { code: 'STATEDB_DERIVE' });
    warned.mockRestore();
  });

  it('what the callback for failures throws is thrown anew, apart from the run', () => {
    const { derivation, pod, result } = setUp({
      fn: ({ name }) => {
        if (name === 'a') throw new Error('in fn');
        return [{ id: name, zone: 'z' }];
      },
      onError: ({ error }) => {
        throw new Error('in the callback', { cause: error });
      },
    });
    pod('a', 'n1');
    pod('b', 'n1');
    const queued: (() => void)[] = [];
    const spy = jest.spyOn(globalThis, 'queueMicrotask').mockImplementation((callback) => queued.push(callback));
    derivation.flush();
    spy.mockRestore();
    expect(result()).toEqual(['b:z']);
    expect(queued).toHaveLength(1);
    expect(queued[0]).toThrow('in the callback');
  });
});
