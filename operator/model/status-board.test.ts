import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { MOST_REPORTED_FAILURES } from '@weir/kube';
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
    // Its version is its generation.
    const name = resolvedName('CiliumNetworkPolicy', 'a', uid);
    this.model.setResolvedVersion({ name, uid, generation, version: String(generation) });
  }

  report(
    version: number | undefined,
    { node: of = 'n1', failures = [] }: { node?: string; failures?: readonly ReportedFailure[] } = {},
  ): NodeReportRow {
    const said = version === undefined ? {} : { policyVersion: String(version) };
    return nodeReportRow(report(of, { ...said, failures }));
  }

  /** Policies that are programmed, as their desired status says. */
  programmed(): string[] {
    using snapshot = this.model.db.read();
    const shown = Array.from(snapshot.all(this.model.tables.statuses), ({ row }) => row);
    return this.#uids.filter((of) => shown.find(({ uid }) => uid === of)?.status.conditions[2]?.status === 'True');
  }
}

/** A pod of the policies on each of these nodes, which have reached generation 1 of policy `u`. */
function reporting(nodes: readonly string[], failures: readonly ReportedFailure[] = []): World {
  const world = new World(['u'], INTERVAL);
  const { model } = world;
  nodes.forEach((name, i) => {
    model.setNode(nodeRow(node(name)));
    model.setPod(podRow(pod(`a/${name}`, { app: 'web' }, { ip: `10.0.1.${i}`, node: name })));
    model.setReport(world.report(1, { node: name, failures }));
  });
  model.setReport(world.report(1));
  model.flush();
  // The first of these shows it; since the last, nothing is delayed.
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
      model.setReport(world.report(2, { node: name }));
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
      world.model.setReport(world.report(1, { node: name, failures }));
      world.model.flush();
    }
    expect(folds.mock.calls.length).toBe(0);
    const other = [{ uid: 'u', generation: 1, reason: 'MapFull', message: 'fuller' }];
    for (const next of [other, [...other, ...failures], []]) {
      folds.mockClear();
      world.now += INTERVAL;
      world.model.setReport(world.report(1, { node: 'm3', failures: next }));
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
        message,
        get reason() {
          return at('MapFull');
        },
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
      return world.report(1, { node: of, failures });
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

  it('goes by the version of a storage that was put back', () => {
    const world = new World(['u'], 0);
    const { model } = world;
    const name = resolvedName('CiliumNetworkPolicy', 'a', 'u');
    world.edit('u', 500);
    model.setReport(world.report(500));
    model.flush();
    expect(world.programmed()).toEqual(['u']);
    const versions = (version: string, reported: number): string[] => {
      model.setResolvedVersion({ name, uid: 'u', generation: 500, version });
      model.setReport(world.report(reported));
      model.flush();
      return world.programmed();
    };
    expect(versions('40', 41)).toEqual(['u']);
    // A later version of the same generation is nothing to wait for.
    expect(versions('50', 41)).toEqual(['u']);
    expect(versions('30', 29)).toEqual([]);
  });

  it('folds, of a report, the policies of which it says another thing', () => {
    const world = new World(['a', 'b', 'c'], 0);
    const { model } = world;
    const folds = jest.spyOn(NodeProgress.prototype, 'of');
    const folded = (failures: readonly ReportedFailure[], version = 1): readonly string[] => {
      folds.mockClear();
      model.setReport(world.report(version, { failures }));
      model.flush();
      return folds.mock.calls.map(([, { row }]) => row.uid).sort();
    };
    const of = (uid: string, message: string, generation = 1): ReportedFailure => ({
      ...{ uid, generation, message },
      reason: 'MapFull',
    });
    expect(folded([of('a', 'x'), of('b', 'x')])).toEqual(['a', 'b', 'c']);
    expect(folded([of('a', 'y'), of('b', 'x')])).toEqual(['a']);
    expect(folded([of('b', 'x'), of('unknown', 'x'), of('a', 'y')])).toEqual([]);
    expect(folded([of('b', 'x'), of('a', 'y'), of('b', 'x')])).toEqual(['b']);
    expect(folded([of('b', 'x'), of('a', 'y', 2), of('b', 'x')])).toEqual(['a']);
    world.edit('c', 3);
    model.flush();
    expect(folded([of('b', 'x'), of('a', 'y', 2), of('b', 'x')], 2)).toEqual([]);
    expect(folded([of('c', 'x'), of('a', 'y', 2)], 3)).toEqual(['b', 'c']);
    expect(folded([], 4)).toEqual(['a', 'c']);
    // A node that falls back may lack any.
    expect(folded([], 1)).toEqual(['a', 'b', 'c']);
  });

  it('calls no policy programmed on a node that cannot list all failures, but those that it lists failed', () => {
    const world = new World(['a', 'b'], 0);
    const { model } = world;
    const many = Array.from({ length: MOST_REPORTED_FAILURES + 1 }, (_, i) => ({
      uid: `z${i}`,
      generation: 1,
      reason: 'MapFull',
      message: '',
    }));
    const reasons = (...failures: readonly ReportedFailure[]): readonly (string | undefined)[] => {
      model.setReport(world.report(1, { failures }));
      model.flush();
      using snapshot = model.db.read();
      return Array.from(snapshot.all(model.tables.statuses), ({ row }) => row.status.conditions[2]?.reason);
    };
    expect(reasons(...many.slice(1))).toEqual(['Programmed', 'Programmed']);
    expect(reasons({ uid: 'a', generation: 1, reason: 'MapFull', message: '' }, ...many)).toEqual([
      'NodeFailed',
      'Progressing',
    ]);
    expect(reasons()).toEqual(['Programmed', 'Programmed']);
  });

  it('does not count the report of another Node of the name', () => {
    const world = new World(['u'], 0);
    const { model } = world;
    const object = node('n1');
    model.setNode(nodeRow({ ...object, metadata: { ...object.metadata, uid: 'own' } }));
    for (const [nodeUid, programmed] of [
      ['another', []],
      ['own', ['u']],
      [undefined, ['u']],
    ] as const) {
      model.setReport({ ...world.report(1), nodeUid });
      model.flush();
      expect(world.programmed()).toEqual(programmed);
    }
    model.deleteReport('n1');
    model.flush();
    expect(world.programmed()).toEqual([]);
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
    for (const app of ['web', 'db', 'none']) edit(app, 1);
    addNode('n2', 'db');
    model.flush();
    const say = (name: string, version: number): void => model.setReport(world.report(version, { node: name }));
    for (const name of ['n1', 'n2', 'idle']) say(name, 9);
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
    const [waits, nobody, done] = ['Progressing', 'NoMatchingEndpoints', 'Programmed'];
    expect(after(() => model.handOut(10))).toEqual({ web: waits, db: waits, none: waits });
    expect(after(() => say('n1', 10))).toEqual({ web: done, db: waits, none: waits });
    // Of these policies one waits for all nodes.
    expect(after(ready('idle', 'True'))).toEqual({ db: waits, none: waits });
    expect(after(() => say('n2', 10))).toEqual({ db: done, none: waits });
    expect(after(ready('idle', 'Unknown'))).toEqual({ none: nobody });
    // Once each had it nobody is asked again who hosts no selected pod.
    expect(after(ready('idle', 'True'))).toEqual({});
    expect(after(() => say('idle', 10))).toEqual({});
    expect(after(ready('n1', 'Unknown'))).toEqual({ web: nobody });
    expect(after(ready('n1', 'True'))).toEqual({ web: done });
    expect(after(() => model.deleteNode('n2'))).toEqual({ db: nobody });
    expect(after(() => addNode('n3', 'db'))).toEqual({ db: waits });
    expect(after(() => say('n3', 10))).toEqual({ db: done });
  });

  it('takes marks in turn: policies that change all the time keep no other waiting', () => {
    const world = new World(uids, 0);
    world.model.setReport(world.report(1));
    for (let round = 1; round <= 6; round += 1) {
      world.model.flush();
      // As many as a round folds, and the first by name.
      const failures = uids
        .slice(0, FIT)
        .map((uid) => ({ uid, generation: 1, reason: 'Restless', message: `${round}` }));
      world.model.setReport(world.report(1, { failures }));
    }
    expect(world.model.more).toBe(true);
    expect(world.programmed()).toEqual(expect.arrayContaining(uids.slice(FIT)));
  });

  it('a clock that was set back holds nothing back for long', () => {
    const world = new World(['u'], INTERVAL);
    world.now -= 3_600_000;
    world.model.setReport(world.report(1));
    world.model.flush();
    expect(world.programmed()).toEqual([]);
    expect(world.model.dueInMs).toBe(INTERVAL);
    world.now += INTERVAL;
    world.model.flush();
    expect(world.programmed()).toEqual(['u']);
    // The same with a change that waits already.
    world.model.setReport(world.report(undefined));
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
    world.model.setReport(world.report(undefined));
    world.model.flush();
    // The input is ahead of the changes that were pulled when the policy is folded, and back again when they are.
    db.write([tables.reports], (txn) => txn.upsert(tables.reports, world.report(1)));
    world.model.setNode(nodeRow(node('n2')));
    world.model.flush();
    world.model.setReport(world.report(undefined));
    world.model.flush();
    expect(world.programmed()).toEqual([]);
  });
});
