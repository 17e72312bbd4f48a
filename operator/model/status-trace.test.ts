import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { Cluster, INTERVAL, NODES, SPECS, select } from './testing/status-cluster.ts';

type Step = (cluster: Cluster) => void;

const onNode = fc.constantFrom(...NODES);
/** A step that a counterexample can show. */
const acting = <T>(arbitrary: fc.Arbitrary<T>, act: (cluster: Cluster, value: T) => void): fc.Arbitrary<Step> =>
  arbitrary.map((value) => {
    const taken: Step = (cluster) => act(cluster, value);
    const text = `${/c\.\w+/.exec(act.toString())?.[0]} ${JSON.stringify(value)}`;
    return Object.assign(taken, { [fc.toStringMethod]: () => text });
  });
const step: fc.Arbitrary<Step> = fc.oneof(
  acting(fc.tuple(fc.constantFrom(...SPECS, select('web')), fc.constantFrom(false, false, true)), (c, [spec, anew]) => {
    c.edit(spec, anew);
  }),
  acting(
    fc.record({ name: onNode, ready: fc.constantFrom('True', 'True', 'False', 'Unknown'), anew: fc.boolean() }),
    (c, { name, ready, anew }) => c.setNode(name, ready, anew),
  ),
  acting(onNode, (c, name) => c.deleteNode(name)),
  ...Array.from({ length: 2 }, () => acting(fc.constant(''), (c) => c.handOut())),
  ...Array.from({ length: 3 }, () => acting(fc.subarray(NODES), (c, names) => c.catchUp(names))),
  ...Array.from({ length: 2 }, () => acting(onNode, (c, name) => c.take(name))),
  ...Array.from({ length: 2 }, () =>
    acting(fc.tuple(onNode, fc.constantFrom(false, false, false, true)), (c, [name, failing]) =>
      c.report(name, failing),
    ),
  ),
  acting(
    fc.record({ n: fc.nat(4), on: onNode, app: fc.constantFrom('web', 'other'), terminating: fc.boolean() }),
    (c, { n, on, app, terminating }) => c.setPod(n, on, app, terminating),
  ),
  acting(fc.nat(4), (c, n) => c.deletePod(n)),
  acting(onNode, (c, name) => c.loseReport(name)),
  acting(fc.constant(''), (c) => c.foldAnew()),
  acting(fc.nat(100), (c, order) => c.failOver(order)),
);

/** Programmed is said to be True: each live node that hosts a selected pod has this generation, and none that was asked selects other pods by another. */
function checkProgrammed(cluster: Cluster): void {
  const { uid, generation, held, unasked } = cluster;
  expect(cluster.valid).toBe(true);
  expect([held?.uid, held?.generation]).toEqual([uid, generation]);
  for (const name of cluster.hosts()) {
    expect(Number(cluster.reported(name)?.policyVersion)).toBeGreaterThanOrEqual(Number(held?.version));
    expect(cluster.kernels.get(name)?.held).toBe(held);
  }
  for (const name of NODES) {
    const kernel = cluster.kernels.get(name);
    if (!cluster.live().includes(name) || cluster.reported(name) === undefined) unasked.add(name);
    if (unasked.has(name) || kernel?.enforces !== true) continue;
    expect([name, kernel.held?.uid, kernel.held?.app]).toEqual([name, uid, held?.app]);
  }
}

/** Both enforce the first generation, and n1 hosts the pod that it selects. */
function twoNodes(): Cluster {
  const cluster = new Cluster();
  for (const name of ['n1', 'n2']) cluster.setNode(name, 'True', false);
  cluster.setPod(1, 'n1', 'web', false);
  cluster.edit(select('web'));
  cluster.flush();
  cluster.catchUp(['n1', 'n2']);
  expect(cluster.settle()).toBe('True/Programmed/1');
  return cluster;
}

describe('status, whatever happens', () => {
  it('Programmed is True only when the nodes that must enforce this generation do, and never stays behind', () => {
    let programmed = 0;
    let unmatched = 0;
    fc.assert(
      fc.property(fc.array(fc.tuple(step, fc.nat(1_500)), { maxLength: 80, size: 'max' }), (trace) => {
        const cluster = twoNodes();
        cluster.setPod(2, 'n2', 'other', false);
        for (const [act, wait] of trace) {
          act(cluster);
          const before = cluster.shown.length;
          cluster.flush();
          for (const status of cluster.shown.slice(before)) {
            expect(status.observedGeneration).toBe(cluster.generation);
            expect(new Set(status.conditions.map((c) => c.observedGeneration))).toEqual(new Set([cluster.generation]));
            const found = status.conditions.find(({ type }) => type === 'Programmed');
            if (found?.status !== 'True') continue;
            if (found.reason === 'Programmed') programmed += 1;
            else unmatched += 1;
            checkProgrammed(cluster);
          }
          cluster.now += wait;
        }
        // In the end the status is what the cluster is.
        cluster.foldAnew();
        if (cluster.generation === 0) return;
        expect(cluster.status?.observedGeneration).toBe(cluster.generation);
        if (cluster.programmed.startsWith('True')) checkProgrammed(cluster);
        cluster.catchUp(NODES);
        cluster.settle();
        expect(cluster.programmed).toMatch(cluster.valid ? /^True/ : /^False.Invalid/);
        // A leader that reads the same changes nothing.
        const count = cluster.shown.length;
        for (let order = 0; order < 3; order += 1) {
          cluster.failOver(order);
          cluster.flush();
        }
        expect(cluster.shown).toHaveLength(count);
      }),
      { numRuns: runs(400) },
    );
    // So rare that a tenth of the runs may meet none.
    if (runs(400) === 400) expect(programmed).toBeGreaterThan(10);
    expect(unmatched).toBeGreaterThan(runs(10));
  });

  it('nodes that are down, joining, deleted, or that another one replaces', () => {
    const cluster = new Cluster();
    for (const name of ['n1', 'n2']) cluster.setNode(name, 'True', false);
    cluster.setPod(1, 'n1', 'web', false);
    cluster.setPod(2, 'n2', 'web', false);
    cluster.edit(SPECS[0] as object);
    expect(cluster.settle()).toBe('False/Progressing/1');
    cluster.handOut();
    cluster.speak('n1');
    expect(cluster.settle()).toBe('False/Progressing/1');
    expect(cluster.status?.conditions[2]?.message).toContain('n2 (has reported none)');
    // Down: not waited for, and named.
    cluster.setNode('n2', 'Unknown', false);
    expect(cluster.settle()).toBe('True/Programmed/1');
    expect(cluster.status?.summary.nodes).toBe('1/1');
    expect(cluster.status?.conditions[2]?.message).toContain('not waited for: n2');
    // Up again, with what it had before: nothing.
    cluster.setNode('n2', 'True', false);
    expect(cluster.settle()).toBe('False/Progressing/1');
    cluster.speak('n2');
    expect(cluster.settle()).toBe('True/Programmed/1');
    // Another machine of the same name has not reported, whatever the one before it did.
    cluster.setNode('n2', 'True', true);
    expect(cluster.settle()).toBe('False/Progressing/1');
    cluster.speak('n2');
    expect(cluster.settle()).toBe('True/Programmed/1');
    cluster.deleteNode('n2');
    expect(cluster.settle()).toBe('True/Programmed/1');
    expect(cluster.status?.summary).toMatchObject({ nodes: '1/1', endpoints: 2 });
    cluster.deletePod(1);
    cluster.deletePod(2);
    expect(cluster.settle()).toBe('True/NoMatchingEndpoints/1');
  });

  it('a policy that selects nobody waits until it has been handed out and each node that speaks has it', () => {
    const cluster = new Cluster();
    for (const name of NODES) cluster.setNode(name, 'True', false);
    cluster.edit(select('nobody'));
    expect(cluster.settle()).toBe('False/Progressing/1');
    // No agent has spoken: there is nobody to ask.
    cluster.handOut();
    expect(cluster.settle()).toBe('True/NoMatchingEndpoints/1');
    for (const name of ['n1', 'n2']) cluster.speak(name);
    cluster.edit(select('nobody'));
    cluster.flush();
    cluster.handOut();
    cluster.speak('n1');
    expect(cluster.settle()).toBe('False/Progressing/2');
    expect(cluster.status?.conditions[2]?.message).toBe(
      'The policy selects no running pod that has an identity. 1 node that may enforce an earlier generation has not caught up with generation 2 yet: n2.',
    );
    // Nobody hosts what it selects, and one is waited for.
    expect(cluster.status?.summary.nodes).toBe('0/1');
    cluster.speak('n2');
    expect(cluster.settle()).toBe('True/NoMatchingEndpoints/2');
  });

  it('a node without a report counts as programmed only once it has reported again', () => {
    const cluster = twoNodes();
    cluster.loseReport('n1');
    expect(cluster.settle()).toBe('False/Progressing/1');
    expect(cluster.status?.conditions[2]?.message).toContain('n1 (has reported none)');
    cluster.report('n1', false);
    expect(cluster.settle()).toBe('True/Programmed/1');
  });

  it('a node is waited for that reports an earlier generation while the status that asked nobody is held back', () => {
    const cluster = twoNodes();
    cluster.setPod(2, 'n2', 'other', false);
    cluster.edit(select('other'));
    cluster.flush();
    cluster.handOut();
    cluster.setNode('n2', 'Unknown', false);
    cluster.settle();
    cluster.failOver(0);
    cluster.flush();
    cluster.loseReport('n1');
    cluster.flush();
    cluster.report('n1', false);
    expect(cluster.settle()).toBe('False/Progressing/2');
    cluster.speak('n1');
    expect(cluster.settle()).toBe('True/NoMatchingEndpoints/2');
  });

  it('nodes of whose pods an edit selects none any more are waited for', () => {
    const cluster = twoNodes();
    cluster.setPod(2, 'n2', 'other', false);
    cluster.edit(select('other'));
    cluster.flush();
    cluster.catchUp(['n2']);
    expect(cluster.settle()).toBe('False/Progressing/2');
    expect(cluster.status?.conditions[2]?.message).toMatch(/not caught up with generation 2 yet: n1\./);
    expect(cluster.status?.summary.nodes).toBe('1/2');
    cluster.speak('n1');
    expect(cluster.settle()).toBe('True/Programmed/2');
  });

  it('they are waited for, too, when the policy is edited once more before they have read that', () => {
    const cluster = twoNodes();
    cluster.setPod(2, 'n2', 'other', false);
    for (let i = 0; i < 2; i += 1) {
      cluster.edit(select('other'));
      cluster.flush();
      cluster.catchUp(['n2']);
      expect(cluster.settle()).toBe(`False/Progressing/${2 + i}`);
    }
    cluster.speak('n1');
    expect(cluster.settle()).toBe('True/Programmed/3');
  });

  it('a new leader asks every node that has not caught up where the former one called only an earlier generation programmed', () => {
    const cluster = twoNodes();
    cluster.edit(select('web'));
    cluster.failOver(0);
    cluster.flush();
    cluster.catchUp(['n1']);
    expect(cluster.settle()).toBe('False/Progressing/2');
    expect(cluster.status?.conditions[2]?.message).toMatch(/not caught up with generation 2 yet: n2\./);
    cluster.speak('n2');
    expect(cluster.settle()).toBe('True/Programmed/2');
  });

  it('a node that has the policy before under this name is waited for, whatever it hosts', () => {
    const cluster = twoNodes();
    cluster.setPod(2, 'n2', 'other', false);
    cluster.edit(select('other'), true);
    cluster.flush();
    cluster.catchUp(['n2']);
    expect(cluster.settle()).toBe('False/Progressing/1');
    cluster.speak('n1');
    expect(cluster.settle()).toBe('True/Programmed/1');
  });

  it('a node whose last pod is going counts', () => {
    const cluster = new Cluster();
    cluster.setNode('n1', 'True', false);
    cluster.setPod(1, 'n1', 'web', false);
    cluster.edit(SPECS[0] as object);
    cluster.flush();
    cluster.handOut();
    cluster.speak('n1');
    cluster.now += INTERVAL;
    cluster.flush();
    expect(cluster.programmed).toBe('True/Programmed/1');
    cluster.setPod(1, 'n1', 'web', true);
    cluster.edit(SPECS[0] as object);
    cluster.now += INTERVAL;
    cluster.flush();
    expect(cluster.programmed).toBe('False/Progressing/2');
    cluster.handOut();
    cluster.speak('n1');
    cluster.now += INTERVAL;
    cluster.flush();
    expect(cluster.programmed).toBe('True/Programmed/2');
  });
});
