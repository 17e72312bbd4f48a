import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { resolvedName } from '../names.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import type { NodeReportRow, ReportedFailure } from '../types.ts';
import { NodeProgress } from './node-progress.ts';
import { TestModel } from './testing/test-model.ts';
import { SHARE_MS } from './time-share.ts';

const INTERVAL = 1_000;
/** Statuses that a round folds, and more than that. */
const [FIT, MANY] = [20, 45];
const uids = Array.from({ length: MANY }, (_, i) => `u${String(i).padStart(3, '0')}`);

/** Node n1 has a pod that each policy selects. */
class World {
  now = 1_700_000_000_000;
  readonly model: TestModel;
  readonly #uids: readonly string[];

  constructor(policies: readonly string[], statusIntervalMs: number) {
    this.#uids = policies;
    const now = (): number => this.now;
    let passed = 0;
    // Each status that is folded takes its part of the time.
    const stopwatch = (): number => (passed += SHARE_MS / FIT);
    this.model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now, statusIntervalMs, stopwatch });
    this.model.setNamespace(namespaceRow(namespace('a')));
    this.model.setNode(nodeRow(node('n1')));
    this.model.setPod(podRow(pod('a/p', { app: 'web' }, { ip: '10.0.0.1', node: 'n1' })));
    for (const uid of policies) this.edit(uid, 1);
    do this.model.flush();
    while (this.model.more);
  }

  edit(uid: string, generation: number): void {
    const object = cnp(`a/${uid}`, { endpointSelector: {}, ingress: [{}] });
    const metadata = { ...object.metadata, uid, generation };
    this.model.setPolicy(policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
  }

  report(
    generations: Readonly<Record<string, number>>,
    { node: of = 'n1', failures = [] }: { node?: string; failures?: readonly ReportedFailure[] } = {},
  ): NodeReportRow {
    const policies = Object.entries(generations).map(([uid, generation]) => [uid, { generation, endpoints: 1 }]);
    return nodeReportRow(report(of, { policies: Object.fromEntries(policies), failures: [...failures] }));
  }

  /** Policies that are programmed, as their desired status says. */
  programmed(): string[] {
    using snapshot = this.model.db.read();
    const shown = Array.from(snapshot.all(this.model.tables.statuses), ({ row }) => row);
    return this.#uids.filter((of) => shown.find(({ uid }) => uid === of)?.status.conditions[2]?.status === 'True');
  }
}

/** A pod of the policies on each of these nodes, which have reported generation 1 of policy `u`. */
function reporting(nodes: readonly string[], failures: readonly ReportedFailure[] = []): World {
  const world = new World(['u'], INTERVAL);
  const { model } = world;
  nodes.forEach((name, i) => {
    model.setNode(nodeRow(node(name)));
    model.setPod(podRow(pod(`a/${name}`, { app: 'web' }, { ip: `10.0.1.${i}`, node: name })));
    model.setReport(world.report({ u: 1 }, { node: name, failures }));
  });
  model.setReport(world.report({ u: 1 }));
  model.flush();
  // The first of these shows it; since the last, nothing is held back.
  for (let i = 0; i < 2; i += 1) {
    world.now += INTERVAL;
    model.flush();
  }
  return world;
}

describe('StatusBoard', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('folds a status that waits to be due once, whatever number of nodes report meanwhile', () => {
    const nodes = Array.from({ length: 20 }, (_, i) => `m${i}`);
    const world = reporting(nodes);
    const { model } = world;
    expect(world.programmed()).toEqual(['u']);
    world.edit('u', 2);
    model.flush();
    const folds = jest.spyOn(NodeProgress.prototype, 'of');
    for (const name of [...nodes, 'n1']) {
      model.setReport(world.report({ u: 2 }, { node: name }));
      world.now += 10;
      model.flush();
    }
    // Of the first report, to see that it says something new.
    expect(folds.mock.calls.length).toBe(1);
    expect(world.programmed()).toEqual([]);
    expect(model.dueInMs).toBe(INTERVAL - 210);
    world.now += INTERVAL - 210;
    model.flush();
    expect(folds.mock.calls.length).toBe(2);
    expect(world.programmed()).toEqual(['u']);
    expect(model.dueInMs).toBeUndefined();
  });

  it('does not fold a policy of which a node reports the same failure again', () => {
    const nodes = Array.from({ length: 20 }, (_, i) => `m${i}`);
    const failures = [{ uid: 'u', generation: 1, reason: 'MapFull', message: 'full' }];
    const world = reporting(nodes, failures);
    const folds = jest.spyOn(NodeProgress.prototype, 'of');
    for (const name of nodes) {
      world.model.setReport(world.report({ u: 1, other: 7 }, { node: name, failures }));
      world.model.flush();
    }
    expect(folds.mock.calls.length).toBe(0);
    const other = [{ uid: 'u', generation: 1, reason: 'MapFull', message: 'fuller' }];
    for (const next of [other, [...other, ...failures], []]) {
      folds.mockClear();
      world.now += INTERVAL;
      world.model.setReport(world.report({ u: 1 }, { node: 'm3', failures: next }));
      world.model.flush();
      expect(folds.mock.calls.length).toBe(1);
    }
  });

  it('looks, to fold a policy, at its own failures alone, whatever else the nodes report', () => {
    const [policies, nodes] = [uids.slice(0, 6), ['m0', 'm1', 'm2']];
    const world = new World(policies, 0);
    const { model } = world;
    const looked = new Set<string>();
    const failure = (of: string, uid: string, message: string): ReportedFailure => {
      const at = <T>(value: T): T => {
        looked.add(`${of} ${uid}`);
        return value;
      };
      return {
        reason: 'MapFull',
        message,
        get uid() {
          return at(uid);
        },
        get generation() {
          return at(1);
        },
      };
    };
    const said = (of: string, messageOfFirst: string): NodeReportRow => {
      const failures = [...policies, 'unknown', ...policies].map((uid) =>
        failure(of, uid, uid === policies[0] ? messageOfFirst : 'full'),
      );
      return world.report(Object.fromEntries(policies.map((uid) => [uid, 1])), { node: of, failures });
    };
    nodes.forEach((name, i) => {
      model.setNode(nodeRow(node(name)));
      model.setPod(podRow(pod(`a/${name}`, { app: 'web' }, { ip: `10.0.1.${i}`, node: name })));
      model.setReport(said(name, 'full'));
    });
    model.flush();
    const [first = '', second = ''] = policies;
    looked.clear();
    const name = resolvedName('CiliumNetworkPolicy', 'a', second);
    model.setResolvedVersion({ name, uid: second, generation: 1, version: '5' });
    model.flush();
    expect([...looked]).toEqual(nodes.map((of) => `${of} ${second}`));
    // Of the report itself all is compared; of the others only what is about the policy of which it says another thing.
    model.setReport(said('m0', 'fuller'));
    looked.clear();
    model.flush();
    expect([...looked].filter((each) => !each.startsWith('m0'))).toEqual([`m1 ${first}`, `m2 ${first}`]);
  });

  it('folds, of a report, the policies of which it says another thing', () => {
    const world = new World(['a', 'b', 'c'], 0);
    const { model } = world;
    const folds = jest.spyOn(NodeProgress.prototype, 'of');
    const folded = (failures: readonly ReportedFailure[], c = 1): readonly string[] => {
      folds.mockClear();
      model.setReport(world.report({ a: 1, b: 1, c }, { failures }));
      model.flush();
      return folds.mock.calls.map(([, { row }]) => row.uid).sort();
    };
    const of = (uid: string, message: string, generation = 1): ReportedFailure => ({
      ...{ uid, generation, message },
      reason: 'MapFull',
    });
    folded([of('a', 'x'), of('b', 'x')]);
    expect(folded([of('a', 'y'), of('b', 'x')])).toEqual(['a']);
    expect(folded([of('b', 'x'), of('unknown', 'x'), of('a', 'y')])).toEqual([]);
    expect(folded([of('b', 'x'), of('a', 'y'), of('b', 'x')])).toEqual(['b']);
    expect(folded([of('b', 'x'), of('a', 'y', 2), of('b', 'x')])).toEqual(['a']);
    expect(folded([of('b', 'x'), of('a', 'y', 2), of('b', 'x')], 2)).toEqual(['c']);
    expect(folded([of('c', 'x'), of('a', 'y', 2)], 2)).toEqual(['b', 'c']);
    expect(folded([], 2)).toEqual(['a', 'c']);
  });

  it('indexes a report anew when it is about other policies, not when it says another thing of them', () => {
    const world = new World(['a', 'b', 'c'], 0);
    const { model } = world;
    const failures = [{ uid: 'a', generation: 2, reason: 'MapFull', message: 'full' }];
    const writes = (generations: Readonly<Record<string, number>>, more: Partial<NodeReportRow> = {}): number => {
      const written = (): number =>
        model.db.tables().find(({ indexes }) => ['uid', 'policy'].every((each) => indexes.includes(each)))?.revision ??
        0;
      const before = written();
      model.setReport({ ...world.report(generations), ...more });
      model.flush();
      return written() - before;
    };
    expect(writes({ a: 1, b: 1 })).toBe(2);
    expect(writes({ a: 1, b: 2 })).toBe(0);
    const policyVersion = '7';
    expect(writes({ a: 1, b: 2 }, { policyVersion })).toBe(0);
    expect(writes({ a: 1, b: 2 }, { policyVersion, failures: { a: failures } })).toBe(0);
    expect(writes({ a: 1, b: 2, c: 1 }, { policyVersion })).toBe(1);
    expect(writes({ b: 2, c: 1 }, { policyVersion })).toBe(1);
    expect(writes({ b: 2, c: 1 }, { policyVersion, policyKeys: { b: 'cnp/a/b' } })).toBe(1);
  });

  it('waits for a node that has read on, and says of one policy that it does not have it, for that policy alone', () => {
    const world = new World([], 0);
    const { model } = world;
    for (const name of ['waiting', 'other']) {
      // Of these nobody hosts a pod.
      const object = cnp(`a/${name}`, { endpointSelector: { matchLabels: { app: 'none' } }, ingress: [{}] });
      const metadata = { ...object.metadata, uid: name, generation: 1 };
      model.setPolicy(policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
    }
    model.flush();
    model.handOut(10);
    const said = (version: string, generations: Readonly<Record<string, number>>): Record<string, unknown> => {
      model.setReport({ ...world.report(generations), policyVersion: version });
      model.flush();
      using snapshot = model.db.read();
      return Object.fromEntries(
        Array.from(snapshot.all(model.tables.statuses), ({ row }) => [row.uid, row.status.conditions[2]?.reason]),
      );
    };
    const [waits, done] = ['Progressing', 'NoMatchingEndpoints'];
    expect(said('9', {})).toEqual({ waiting: waits, other: waits });
    expect(said('10', { waiting: 0 })).toEqual({ waiting: waits, other: done });
    expect(said('10', {})).toEqual({ waiting: done, other: done });
  });

  it("does not wait for what a node was behind with once the report is another Node's, which has read on", () => {
    const world = new World([], 0);
    const { model } = world;
    const object = cnp('a/none', { endpointSelector: { matchLabels: { app: 'none' } }, ingress: [{}] });
    model.setPolicy(policyRow(object, 'CiliumNetworkPolicy'));
    model.flush();
    model.handOut(10);
    const said = (policyVersion: string, nodeUid: string | undefined): string | undefined => {
      model.setReport({ ...world.report({}), policyVersion, nodeUid });
      model.flush();
      using snapshot = model.db.read();
      const [status] = Array.from(snapshot.all(model.tables.statuses), ({ row }) => row.status);
      return status?.conditions[2]?.reason;
    };
    expect(said('9', undefined)).toBe('Progressing');
    expect(said('10', 'another')).toBe('NoMatchingEndpoints');
    // What is no number reaches none.
    expect(said('odd', undefined)).toBe('Progressing');
  });

  it('forgets the last words of a node once another machine has its name', () => {
    const { model } = reporting(['m0']);
    const counted = (): number | undefined => model.db.tables().find(({ name }) => name === 'counted-reports')?.rows;
    expect(counted()).toBe(2);
    model.deleteReport('m0');
    model.flush();
    expect(counted()).toBe(2);
    const object = node('m0');
    model.setNode(nodeRow({ ...object, metadata: { ...object.metadata, uid: 'another' } }));
    model.flush();
    expect(counted()).toBe(1);
  });

  it('folds, of a node that joins, changes or goes, only the policies that it concerns', () => {
    const world = new World([], INTERVAL);
    const { model } = world;
    const edit = (app: string, generation: number): void => {
      const object = cnp(`a/${app}`, { endpointSelector: { matchLabels: { app } }, ingress: [{}] });
      const metadata = { ...object.metadata, uid: app, generation };
      model.setPolicy(policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
      model.flush();
    };
    const addNode = (name: string, app: string): void => {
      model.setNode(nodeRow(node(name)));
      model.setPod(podRow(pod(`a/${name}`, { app }, { ip: `10.0.0.${name.slice(1)}`, node: name })));
    };
    const handOut = (app: string, generation: number, version: string): void => {
      const name = resolvedName('CiliumNetworkPolicy', 'a', app);
      model.setResolvedVersion({ name, uid: app, generation, version });
    };
    for (const app of ['web', 'db', 'none', 'odd']) edit(app, 1);
    addNode('n2', 'db');
    model.flush();
    // No node reaches a version that is no number.
    handOut('odd', 1, 'odd');
    model.handOut(10);
    const say = (name: string, version: string, generations: Readonly<Record<string, number>>): void =>
      model.setReport({ ...world.report(generations, { node: name }), policyVersion: version });
    say('n1', '10', { web: 1 });
    say('n2', '10', { db: 1 });
    const folds = jest.spyOn(NodeProgress.prototype, 'of');
    /** What is folded after a change, and what is said of these policies then. */
    const after = (change: () => void): Record<string, string | undefined> => {
      world.now += INTERVAL;
      model.flush();
      folds.mockClear();
      world.now += INTERVAL;
      change();
      model.flush();
      using snapshot = model.db.read();
      const statuses = Array.from(snapshot.all(model.tables.statuses), ({ row }) => row);
      return Object.fromEntries(
        folds.mock.calls.map(([, { row }]) => [
          row.uid,
          statuses.find(({ key }) => key === row.key)?.status.conditions[2]?.reason,
        ]),
      );
    };
    const ready = (name: string, is: string) => () => model.setNode(nodeRow(node(name, is)));
    const [waits, nobody] = ['Progressing', 'NoMatchingEndpoints'];
    // A node without pods concerns the policies that nobody hosts, while it lags behind.
    expect(after(ready('idle', 'True'))).toEqual({});
    expect(after(() => say('idle', '9', {}))).toEqual({ none: waits, odd: waits });
    expect(after(ready('idle', 'Unknown'))).toEqual({ none: nobody, odd: waits });
    expect(after(ready('idle', 'True'))).toEqual({ none: waits, odd: waits });
    expect(after(() => say('idle', '10', {}))).toEqual({ none: nobody });
    expect(after(ready('idle', 'Unknown'))).toEqual({ odd: waits });
    // Others concern those whose pods they host,
    expect(after(ready('n1', 'Unknown'))).toEqual({ web: nobody, odd: waits });
    expect(after(ready('n1', 'True'))).toEqual({ web: 'Programmed', odd: waits });
    expect(after(() => model.deleteNode('n2'))).toEqual({ db: nobody, odd: waits });
    // those that they report,
    model.deletePod('a/p');
    edit('web', 2);
    handOut('web', 2, '11');
    expect(after(ready('n1', 'Unknown'))).toEqual({ web: nobody, odd: nobody });
    // and those of which they may have something earlier: a pod of it went before they reported.
    addNode('n3', 'web');
    say('n3', '11', { web: 2 });
    addNode('n4', 'web');
    say('n4', '10', {});
    model.flush();
    model.deletePod('a/n4');
    expect(after(ready('n4', 'Unknown'))).toEqual({ web: 'Programmed', odd: waits });
    expect(after(ready('n4', 'True'))).toEqual({ web: waits, odd: waits });
  });

  it('takes marks in turn: policies that change all the time keep no other waiting', () => {
    const world = new World(uids, 0);
    const all = Object.fromEntries(uids.map((uid) => [uid, 1]));
    world.model.setReport(world.report(all));
    for (let round = 1; round <= 3; round += 1) {
      world.model.flush();
      // As many as a round folds, and the first by name.
      const restless = uids.slice(0, FIT).map((uid) => [uid, 1 + round]);
      world.model.setReport(world.report({ ...all, ...Object.fromEntries(restless) }));
    }
    expect(world.model.more).toBe(true);
    expect(world.programmed()).toEqual(uids);
  });

  it('folds the statuses of namespaces in turns: one whose policies are all woken delays none of another', () => {
    const world = new World(uids, 0);
    const { model } = world;
    const shown = (namespace: string): string[] => {
      using snapshot = model.db.read();
      const rows = Array.from(snapshot.all(model.tables.statuses), ({ row }) => row);
      return rows.filter((row) => row.namespace === namespace).map(({ uid }) => uid);
    };
    model.setReport(world.report(Object.fromEntries(uids.map((uid) => [uid, 1]))));
    model.flush();
    expect(world.programmed().length).toBeLessThan(MANY - FIT);
    const object = cnp('b/p', { endpointSelector: {}, ingress: [{}] });
    model.setPolicy(policyRow({ ...object, metadata: { ...object.metadata, uid: 'b' } }, 'CiliumNetworkPolicy'));
    model.flush();
    expect(shown('b')).toEqual(['b']);
    expect(world.programmed().length).toBeLessThan(MANY);
    // So it is with what goes.
    for (const uid of uids) model.deletePolicy(`cnp/a/${uid}`);
    model.flush();
    expect(shown('a').length).toBeGreaterThan(0);
    model.deletePolicy('cnp/b/p');
    model.flush();
    expect(shown('b')).toEqual([]);
    while (model.more) model.flush();
    const owners = (): number | undefined =>
      model.db.tables().find(({ name }) => name === 'statuses-to-fold-owners')?.rows;
    model.flush();
    expect(owners()).toBe(0);
  });

  it('a clock that was set back holds nothing back for long', () => {
    const world = new World(['u'], INTERVAL);
    world.now -= 3_600_000;
    world.model.setReport(world.report({ u: 1 }));
    world.model.flush();
    expect(world.programmed()).toEqual([]);
    expect(world.model.dueInMs).toBe(INTERVAL);
    world.now += INTERVAL;
    world.model.flush();
    expect(world.programmed()).toEqual(['u']);
    // The same with a change that waits already.
    world.model.setReport(world.report({}));
    world.model.flush();
    world.now -= 3_600_000;
    world.model.flush();
    world.now += INTERVAL;
    world.model.flush();
    expect(world.programmed()).toEqual([]);
    expect(world.model.dueInMs).toBeUndefined();
  });

  it('what a node reports counts from its own change on, so that a report that comes and goes leaves nothing', () => {
    const world = new World(['u'], 0);
    const { db, tables } = world.model;
    world.model.setReport(world.report({}));
    world.model.flush();
    // The input is ahead of the changes that were pulled when the policy is folded, and back again when they are.
    db.write([tables.reports], (txn) => txn.upsert(tables.reports, world.report({ u: 1 })));
    world.model.setNode(nodeRow(node('n2')));
    world.model.flush();
    world.model.setReport(world.report({}));
    world.model.flush();
    expect(world.programmed()).toEqual([]);
  });
});
