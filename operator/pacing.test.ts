import { describe, expect, it } from '@jest/globals';
import type { NodePolicyStatus, PolicyStatus } from '@weir/kube';
import fc from 'fast-check';
import { Model } from './model.ts';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from './rows.ts';
import { cnp, namespace, node, pod, report } from './testing.ts';

const INTERVAL = 250;
const NODES = ['n1', 'n2', 'n3', 'n4'];

/** A policy that four nodes must enforce, and a clock. */
class World {
  readonly #model: Model;
  #now = 1_700_000_000_000;
  readonly shown: PolicyStatus[] = [];

  constructor(statusIntervalMs: number) {
    this.#model = new Model({
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
  }

  report(name: string, generation: number, failure?: string): void {
    const failures: NodePolicyStatus['status']['failures'] =
      failure === undefined ? [] : [{ uid: 'u', generation, reason: 'MapFull', message: failure }];
    this.#model.setReport(nodeReportRow(report(name, { policies: { u: { generation, endpoints: 1 } }, failures })));
  }

  flush(): void {
    for (const { row } of this.#model.flush().statuses) if (row !== undefined) this.shown.push(row.status);
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

  it('shows what says something new without that wait: the last node, a failure, an edit', () => {
    const world = new World(INTERVAL);
    world.wait(INTERVAL);
    for (const name of ['n1', 'n2', 'n3']) world.report(name, 1);
    world.flush();
    expect(world.nodes).toBe('3/4');
    world.wait(10);
    world.report('n4', 1);
    world.flush();
    expect(world.shown.at(-1)?.conditions.find(({ type }) => type === 'Programmed')?.status).toBe('True');
    world.wait(10);
    world.edit(2);
    world.flush();
    expect(world.shown.at(-1)?.observedGeneration).toBe(2);
    world.wait(10);
    world.report('n1', 2, 'no room');
    world.flush();
    expect(world.shown.at(-1)?.failures).toHaveLength(1);
    expect(world.dueInMs).toBeUndefined();
  });

  it('bounds what flaps', () => {
    const world = new World(INTERVAL);
    world.wait(INTERVAL);
    for (let i = 0; i < 1000; i++) {
      world.report('n1', 1, i % 2 === 0 ? 'no room' : undefined);
      world.flush();
      world.wait(1);
    }
    expect(world.shown.length).toBeLessThanOrEqual(1000 / 10 + 2);
  });

  it('ends where a model that holds nothing back ends', () => {
    const step = fc.record({
      node: fc.constantFrom(...NODES),
      generation: fc.constantFrom(1, 2),
      failure: fc.option(fc.constantFrom('a', 'b'), { nil: undefined }),
      edit: fc.boolean(),
      wait: fc.nat(300),
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
        paced.wait(paced.dueInMs ?? 0);
        paced.flush();
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
