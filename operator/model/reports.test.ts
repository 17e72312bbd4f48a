import { describe, expect, it, jest } from '@jest/globals';
import type { Condition, NodePolicyStatus } from '@weir/kube';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import { MentionBook } from './mentions.ts';
import { TestModel } from './testing/test-model.ts';
import { SHARE_MS } from './time-share.ts';

const INTERVAL = 1_000;

/** Policy `u` selects the pod of n1. Of the other nodes each has a report. */
class World {
  now = 1_700_000_000_000;
  readonly model: TestModel;

  constructor({ statusIntervalMs = 0, stopwatch = (): number => 0 } = {}) {
    const now = (): number => this.now;
    this.model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now, statusIntervalMs, stopwatch });
    this.model.setNamespace(namespaceRow(namespace('a')));
    this.node('n1');
    this.model.setPod(podRow(pod('a/p', { app: 'web' }, { ip: '10.0.0.1', node: 'n1' })));
  }

  node(name: string): void {
    const object = node(name);
    this.model.setNode(nodeRow({ ...object, metadata: { ...object.metadata, uid: name } }));
  }

  edit(generation: number): void {
    const object = cnp('a/p', { endpointSelector: {}, ingress: [{}] });
    this.model.setPolicy(
      policyRow({ ...object, metadata: { ...object.metadata, uid: 'u', generation } }, 'CiliumNetworkPolicy'),
    );
  }

  say(name: string, policies: NodePolicyStatus['status']['policies'], { version = '200', owner = name } = {}): void {
    const object = report(name, { policies, policyVersion: version });
    const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name, uid: owner }];
    this.model.setReport(nodeReportRow({ ...object, metadata: { ...object.metadata, ownerReferences } }));
  }

  has(name: string, generation: number): void {
    this.say(name, { u: { policy: 'cnp/a/p', generation, endpoints: 1 } });
  }

  get programmed(): Condition | undefined {
    this.model.flush();
    return this.shown;
  }

  get shown(): Condition | undefined {
    using snapshot = this.model.db.read();
    const [shown] = snapshot.all(this.model.tables.statuses);
    return shown?.row.status.conditions.find(({ type }) => type === 'Programmed');
  }
}

describe('a report that names a policy which is not known yet', () => {
  it.each([
    ['an earlier generation', { u: { policy: 'cnp/a/p', generation: 1, endpoints: 1 } }, 'n2 (has 1)'],
    ['one that had its name before', { old: { policy: 'cnp/a/p', generation: 7, endpoints: 1 } }, 'n2 (still enforces'],
  ])('counts once it is: %s', (_, said, message) => {
    const world = new World();
    world.node('n2');
    world.say('n2', said);
    world.model.flush();
    world.edit(2);
    world.model.flush();
    world.model.handOut(100);
    world.has('n1', 2);
    expect(world.programmed?.message).toContain(message);
    world.say('n2', {});
    expect(world.programmed).toMatchObject({ status: 'True', observedGeneration: 2 });
  });
});

describe('the reports of a node', () => {
  function started(): World {
    const world = new World({ statusIntervalMs: INTERVAL });
    world.edit(1);
    world.model.flush();
    world.model.handOut(100);
    world.has('n1', 0);
    world.model.flush();
    world.now += 10 * INTERVAL;
    world.has('n1', 0);
    world.model.flush();
    return world;
  }

  it('are counted once an interval, the last of them', () => {
    const world = started();
    world.has('n1', 1);
    expect(world.programmed?.status).toBe('False');
    expect(world.model.dueInMs).toBe(INTERVAL);
    world.has('n1', 0);
    world.now += INTERVAL / 2;
    world.has('n1', 1);
    expect(world.programmed?.status).toBe('False');
    world.now += INTERVAL / 2;
    expect(world.programmed?.status).toBe('True');
    expect(world.model.dueInMs).toBeUndefined();
  });

  it.each([
    ['the Node goes', false],
    ['the Node and what it has reported since go', true],
  ])('count with their last words when they are deleted before, and are forgotten when %s', (_, again) => {
    const world = started();
    world.has('n1', 1);
    world.model.flush();
    world.model.deleteReport('n1');
    world.now += INTERVAL;
    expect(world.programmed?.status).toBe('True');
    world.model.deleteNode('n1');
    if (again) world.model.deleteReport('n1');
    for (let i = 0; i < 2; i += 1) {
      world.now += INTERVAL;
      world.model.flush();
    }
    for (const table of ['counted-reports', 'reports-to-count'])
      expect(world.model.db.tables().find(({ name }) => name === table)?.rows).toBe(0);
    expect(world.model.dueInMs).toBeUndefined();
  });

  it('are counted once an interval though somebody deletes each, and it is of no Node', () => {
    const world = started();
    const counts = jest.spyOn(MentionBook.prototype, 'count');
    for (let i = 0; i < 40; i += 1) {
      world.say('n1', { u: { policy: 'cnp/a/p', generation: i % 2, endpoints: 1 } }, { owner: 'none' });
      world.model.flush();
      world.model.deleteReport('n1');
      world.model.flush();
      world.now += INTERVAL / 10;
    }
    // What it said, and that this is gone.
    expect(counts.mock.calls.length).toBeLessThanOrEqual(2 * 5);
    counts.mockRestore();
  });
});

it('no status is shown at the start before all reports are counted', () => {
  let passed = 0;
  // One report, or one status, takes the whole share.
  const world = new World({ stopwatch: () => (passed += SHARE_MS) });
  world.edit(1);
  for (const name of ['n1', 'n2', 'n3']) {
    world.node(name);
    world.has(name, 1);
  }
  let rounds = 0;
  do {
    world.model.flush();
    rounds += 1;
    if (rounds < 3) expect(world.shown).toBeUndefined();
  } while (world.model.more);
  expect(world.shown?.status).toBe('True');
});

it('a failure that waits to be counted is a node’s last word, where its agent begins anew before', () => {
  const world = new World({ statusIntervalMs: INTERVAL });
  world.edit(1);
  world.model.flush();
  world.has('n1', 1);
  world.model.flush();
  world.now += INTERVAL / 2;
  const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'n1' }];
  const failures = [{ uid: 'u', generation: 1, reason: 'KernelRefused', message: 'full' }];
  const failing = report('n1', { policies: {}, failures, policyVersion: '201' });
  const begun = report('n1', { policies: {} });
  for (const object of [failing, begun]) {
    world.model.setReport(nodeReportRow({ ...object, metadata: { ...object.metadata, ownerReferences } }));
    world.model.flush();
  }
  world.now += 5 * INTERVAL;
  expect(world.programmed?.reason).toBe('NodeFailed');
});
