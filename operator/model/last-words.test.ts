import { describe, expect, it } from '@jest/globals';
import type { Condition } from '@weir/kube';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import type { NodeReportRow } from '../types.ts';
import { withLastWords } from './last-words.ts';
import type { CountedReport } from './status-tables.ts';
import { TestModel } from './testing/test-model.ts';

const KEY = 'cnp/a/web';

interface Said {
  /** The generation of the policy. */
  readonly has?: number;
  /** A generation that fails. */
  readonly failing?: number;
  /** How far the node is. */
  readonly version?: number;
  /** Another policy that the node has. */
  readonly other?: boolean;
}

/** One policy, `u`, and nodes that say what they have of it. */
class World {
  readonly model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });

  /** n1 and n2 have a pod of generation 1, which they enforce. `late`: when policies could be read, all else was complete. */
  constructor({ late = false } = {}) {
    this.model.setNamespace(namespaceRow(namespace('a')));
    for (const name of ['n1', 'n2']) {
      this.setNode(name);
      this.setPod(name);
    }
    if (late) {
      this.model.adoptionDone(['CiliumNetworkPolicy']);
      this.model.flush();
    }
    this.edit(1, 'web');
    this.handOut(101);
    if (late) this.model.kindKnown('CiliumNetworkPolicy');
    for (const name of ['n1', 'n2']) this.say(name, { has: 1, version: 101 });
  }

  edit(generation: number, app: string): void {
    const object = cnp('a/web', { endpointSelector: { matchLabels: { app } }, ingress: [{}] });
    const metadata = { ...object.metadata, uid: 'u', generation };
    this.model.setPolicy(policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
  }

  /** The API server takes what is desired. */
  handOut(version: number): void {
    this.model.flush();
    this.model.handOut(version);
  }

  setNode(name: string, ready = 'True', uid = name): void {
    const object = node(name, ready);
    this.model.setNode(nodeRow({ ...object, metadata: { ...object.metadata, uid } }));
  }

  setPod(on: string): void {
    const ip = `10.0.0.${on.slice(1)}`;
    this.model.setPod(podRow(pod(`a/${on}`, { app: 'web' }, { ip, node: on })));
  }

  say(name: string, { has, failing, version, other = false }: Said, uid = name): void {
    const policies = {
      ...(other ? { o: { policy: 'cnp/a/other', generation: 1, endpoints: 1 } } : {}),
      ...(has === undefined ? {} : { u: { policy: KEY, generation: has, endpoints: 1 } }),
    };
    const failures =
      failing === undefined ? [] : [{ uid: 'u', generation: failing, reason: 'KernelRefused', message: 'full' }];
    const object = report(name, {
      policies,
      failures,
      ...(version === undefined ? {} : { policyVersion: `${version}` }),
    });
    const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name, uid }];
    this.model.setReport(nodeReportRow({ ...object, metadata: { ...object.metadata, ownerReferences } }));
  }

  get programmed(): Condition | undefined {
    this.model.flush();
    using snapshot = this.model.db.read();
    const [shown] = snapshot.all(this.model.tables.statuses);
    return shown?.row.status.conditions.find(({ type }) => type === 'Programmed');
  }
}

describe('what a node said last', () => {
  /** Generation 2 selects no pod of n1, and n2 has it. */
  function edited(): World {
    const world = new World();
    expect(world.programmed).toMatchObject({ status: 'True', observedGeneration: 1 });
    world.model.deletePod('a/n1');
    world.edit(2, 'web');
    world.handOut(102);
    world.say('n2', { has: 2, version: 102 });
    expect(world.programmed).toMatchObject({ status: 'False', reason: 'Progressing' });
    return world;
  }

  it('holds of policies that an agent which begins anew does not name before it says how far it is', () => {
    const world = edited();
    world.say('n1', { other: true });
    expect(world.programmed).toMatchObject({ status: 'False', reason: 'Progressing' });
    // Nobody has deleted a report.
    expect(world.programmed?.message).toContain('n1 (has 1)');
    world.say('n1', { other: true, version: 102 });
    expect(world.programmed).toMatchObject({ status: 'True', reason: 'Programmed', observedGeneration: 2 });
  });

  it('gives way to what that agent does name', () => {
    const world = edited();
    world.say('n1', { has: 2 });
    expect(world.programmed).toMatchObject({ status: 'True', reason: 'Programmed', observedGeneration: 2 });
  });

  it('holds when neither it nor the report after it says how far the node is', () => {
    for (const other of [true, false]) {
      const world = edited();
      world.model.deleteReport('n1');
      world.setNode('n1', 'True', 'machine');
      // Another machine.
      expect(world.programmed).toMatchObject({ status: 'True', observedGeneration: 2 });
      world.say('n1', { has: 1 }, 'machine');
      expect(world.programmed).toMatchObject({ status: 'False', reason: 'Progressing' });
      world.model.deleteReport('n1');
      world.say('n1', { other }, 'machine');
      expect(world.programmed).toMatchObject({ status: 'False', reason: 'Progressing' });
      expect(world.programmed?.message).toContain('n1 (had 1 when its report was deleted)');
    }
  });

  it('is no more for each report that names other policies', () => {
    const words = (uids: readonly string[], policyVersion?: string): NodeReportRow =>
      nodeReportRow(
        report('n', {
          policies: Object.fromEntries(
            uids.map((uid) => [uid, { policy: `cnp/a/${uid}`, generation: 1, endpoints: 1 }]),
          ),
          failures: uids.map((uid) => ({ uid, generation: 1, reason: 'KernelRefused', message: 'full' })),
          ...(policyVersion === undefined ? {} : { policyVersion }),
        }),
      );
    let counted: CountedReport = { ...words(['u', 'v'], '1'), lost: true };
    for (let n = 0; n < 5; n += 1) {
      counted = withLastWords(words([`a${n}`, `b${n}`, 'v']), counted);
      const named = ['a', 'b'].map((name) => `${name}${n}`);
      for (const said of [counted.generations, counted.policyKeys, counted.failures])
        expect(Object.keys(said).sort()).toEqual([...named, 'u', 'v']);
      expect(Object.keys(counted.said ?? {}).sort()).toEqual([...named, 'v']);
    }
  });

  it('is what reports since have said of it, until one says how far the node is', () => {
    const world = edited();
    world.say('n1', { has: 2 });
    world.model.flush();
    world.say('n1', { other: true });
    expect(world.programmed).toMatchObject({ status: 'True', reason: 'Programmed', observedGeneration: 2 });
  });

  it('holds with what failed', () => {
    const world = new World();
    world.say('n1', { has: 1, failing: 1, version: 101 });
    expect(world.programmed).toMatchObject({ status: 'False', reason: 'NodeFailed' });
    world.model.deleteReport('n1');
    world.say('n1', {});
    expect(world.programmed).toMatchObject({ status: 'False', reason: 'NodeFailed' });
    // What the agent says of the policy itself counts alone.
    world.say('n1', { has: 1 });
    expect(world.programmed).toMatchObject({ status: 'True', observedGeneration: 1 });
  });
});

describe('a new leader', () => {
  it('asks a node that was down when it called a generation programmed, once that is back', () => {
    const world = new World();
    world.setNode('n3', 'Unknown');
    world.say('n3', { version: 100 });
    expect(world.programmed).toMatchObject({ status: 'True', observedGeneration: 1 });
    world.setNode('n3');
    expect(world.programmed).toMatchObject({ status: 'False', reason: 'Progressing' });
    expect(world.programmed?.message).toMatch(/not caught up with generation 1 yet: n3\./);
    world.say('n3', { version: 101 });
    expect(world.programmed).toMatchObject({ status: 'True', observedGeneration: 1 });
  });

  it('asks all nodes of a policy whose kind it could not read at first', () => {
    const world = new World({ late: true });
    world.setNode('n3');
    world.say('n3', { version: 100 });
    expect(world.programmed).toMatchObject({ status: 'False', reason: 'Progressing' });
    expect(world.programmed?.message).toMatch(/not caught up with generation 1 yet: n3\./);
    world.say('n3', { version: 101 });
    expect(world.programmed).toMatchObject({ status: 'True', observedGeneration: 1 });
  });
});
