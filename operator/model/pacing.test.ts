import { describe, expect, it } from '@jest/globals';
import type { NodePolicyStatus, PolicyStatus } from '@weir/kube';
import fc from 'fast-check';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { resolvedName } from '../names.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';

const INTERVAL = 1_000;
const NODES = ['n1', 'n2', 'n3', 'n4'];

/** A policy that four nodes must enforce, and a clock. */
class World {
  readonly #model: TestModel;
  #now = 1_700_000_000_000;
  readonly shown: PolicyStatus[] = [];
  readonly times: number[] = [];
  again = false;

  constructor(statusIntervalMs: number) {
    this.#model = new TestModel({
      cluster: 'default',
      identityGraceMs: 1_000_000,
      now: () => this.#now,
      statusIntervalMs,
    });
    this.#model.setNamespace(namespaceRow(namespace('a')));
    for (const name of NODES) this.#model.setNode(nodeRow(node(name)));
    NODES.forEach((name, i) => {
      this.#model.setPod(podRow(pod(`a/p${i}`, { app: 'web' }, { ip: `10.0.0.${i}`, node: name })));
    });
    this.edit(1);
    this.flush();
  }

  edit(generation: number): void {
    const object = cnp('a/web', { endpointSelector: {}, ingress: [{}] });
    this.#model.setPolicy(
      policyRow({ ...object, metadata: { ...object.metadata, uid: 'u', generation } }, 'CiliumNetworkPolicy'),
    );
    // Its version is its generation.
    const name = resolvedName('CiliumNetworkPolicy', 'a', 'web');
    this.#model.setResolvedVersion({ name, uid: 'u', generation, version: String(generation) });
  }

  report(name: string, generation: number, failure?: string): void {
    const failures: NodePolicyStatus['status']['failures'] =
      failure === undefined ? [] : [{ uid: 'u', generation, reason: 'MapFull', message: failure }];
    this.#model.setReport(
      nodeReportRow(report(name, { ...(generation === 0 ? {} : { policyVersion: String(generation) }), failures })),
    );
  }

  flush(): void {
    for (const { row, again } of this.#model.flush().statuses) {
      if (row === undefined) continue;
      this.shown.push(row.status);
      this.times.push(this.#now);
      this.again = again === true;
    }
  }

  written(): void {
    this.#model.statusWritten('cnp/a/web');
  }

  touch(): void {
    this.#model.touchStatus('cnp/a/web');
  }

  wait(ms: number): void {
    this.#now += ms;
  }

  get dueInMs(): number | undefined {
    return this.#model.dueInMs;
  }

  get nodes(): string | undefined {
    return this.shown.at(-1)?.summary.nodes;
  }
}

describe('status pacing', () => {
  it('shows the first change after a while at once, and counts that move on after the interval', () => {
    const world = new World(INTERVAL);
    world.wait(INTERVAL);
    world.report('n1', 1);
    world.flush();
    expect(world.nodes).toBe('1/4');
    world.wait(1);
    world.report('n2', 1);
    world.flush();
    expect(world.nodes).toBe('1/4');
    expect(world.dueInMs).toBe(INTERVAL - 1);
    world.wait(10);
    world.report('n3', 1);
    world.flush();
    world.wait(INTERVAL - 11);
    world.flush();
    expect(world.nodes).toBe('3/4');
    expect(world.dueInMs).toBeUndefined();
    expect(world.shown).toHaveLength(3);
  });

  it('shows an edit, a failure, the last node at once when nothing was shown for the interval, else after it', () => {
    const world = new World(INTERVAL);
    for (const [act, seen] of [
      [() => world.edit(2), (status: PolicyStatus) => expect(status.observedGeneration).toBe(2)],
      [() => world.report('n1', 2, 'no room'), (status: PolicyStatus) => expect(status.failures).toHaveLength(1)],
    ] as const) {
      world.wait(INTERVAL);
      const before = world.shown.length;
      act();
      world.flush();
      expect(world.shown).toHaveLength(before + 1);
      seen(world.shown.at(-1) as PolicyStatus);
    }
    world.wait(1);
    world.report('n1', 2);
    world.flush();
    expect(world.shown.at(-1)?.failures).toHaveLength(1);
    world.wait(world.dueInMs ?? 0);
    world.flush();
    expect(world.shown.at(-1)?.failures).toBeUndefined();
  });

  it('what comes and goes within the interval is not shown', () => {
    const world = new World(INTERVAL);
    const shown = world.shown.length;
    world.report('n1', 1, 'no room');
    world.flush();
    world.wait(10);
    world.report('n1', 0);
    world.flush();
    world.wait(INTERVAL);
    world.flush();
    expect(world.shown).toHaveLength(shown);
    expect(world.dueInMs).toBeUndefined();
  });

  it('a write that the API server took late counts, and so does one that puts a status right', () => {
    const world = new World(INTERVAL);
    const shown = world.shown.length;
    world.wait(900);
    world.written();
    world.wait(200);
    world.report('n1', 1);
    world.flush();
    expect(world.shown).toHaveLength(shown);
    expect(world.dueInMs).toBe(800);
    world.wait(800);
    world.flush();
    expect(world.shown).toHaveLength(shown + 1);
    // Another hand has changed it: put right when the interval is over, once.
    world.touch();
    world.flush();
    expect(world.shown).toHaveLength(shown + 1);
    world.wait(INTERVAL);
    world.flush();
    world.flush();
    expect(world.shown).toHaveLength(shown + 2);
    expect(world.again).toBe(true);
  });

  it('is never two in one interval, whatever happens', () => {
    const act = fc.record({
      node: fc.constantFrom(...NODES),
      failure: fc.option(fc.constantFrom('a', 'b'), { nil: undefined }),
      edit: fc.boolean(),
      touch: fc.boolean(),
      wait: fc.nat(400),
    });
    fc.assert(
      fc.property(fc.array(act, { maxLength: 60 }), (steps) => {
        const world = new World(INTERVAL);
        let generation = 1;
        for (const { node: name, failure, edit, touch, wait } of steps) {
          if (edit) generation += 1;
          if (edit) world.edit(generation);
          if (touch) world.touch();
          world.report(name, generation, failure);
          world.flush();
          world.wait(wait);
        }
        const gaps = world.times.slice(1).map((time, i) => time - (world.times[i] ?? 0));
        for (const gap of gaps) expect(gap).toBeGreaterThanOrEqual(INTERVAL);
      }),
    );
  });

  it('ends where a model that holds nothing back ends', () => {
    const step = fc.record({
      node: fc.constantFrom(...NODES),
      generation: fc.constantFrom(1, 2),
      failure: fc.option(fc.constantFrom('a', 'b'), { nil: undefined }),
      edit: fc.boolean(),
      wait: fc.nat(1_200),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const [paced, plain] = [new World(INTERVAL), new World(0)];
        let generation = 1;
        for (const { node: name, generation: reported, failure, edit, wait } of steps) {
          if (edit) generation += 1;
          for (const world of [paced, plain]) {
            if (edit) world.edit(generation);
            world.report(name, reported, failure);
            world.flush();
            world.wait(wait);
          }
        }
        while (paced.dueInMs !== undefined) {
          paced.wait(paced.dueInMs);
          paced.flush();
        }
        const bare = (status: PolicyStatus | undefined): unknown => ({
          ...status,
          conditions: status?.conditions.map(({ lastTransitionTime: _, ...rest }) => rest),
        });
        expect(bare(paced.shown.at(-1))).toEqual(bare(plain.shown.at(-1)));
        expect(paced.dueInMs).toBeUndefined();
      }),
    );
  });
});
