import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { namespaceRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod } from '../testing.ts';
import { SelectorIndex } from './selector-index.ts';
import { TestModel } from './testing/test-model.ts';
import { Desired, drain } from './testing/trace.ts';

/** Pods of as many label sets on two nodes, and policies that select some of them. */
class Cluster {
  readonly #model = new TestModel({ cluster: 'default', identityGraceMs: 0, now: () => 0 });
  readonly #desired = new Desired();
  #generation = 0;

  constructor() {
    this.#model.setNamespace(namespaceRow(namespace('a')));
    for (const name of ['n1', 'n2']) this.#model.setNode(nodeRow(node(name)));
    for (let n = 0; n < 20; n += 1) this.pod(n, `app${n}`);
  }

  pod(n: number, app: string): void {
    this.#model.setPod(podRow(pod(`a/p${n}`, { app }, { ip: `10.0.0.${n}`, node: n % 2 === 0 ? 'n1' : 'n2' })));
  }

  /** Selects what at least one of the selectors does. */
  policy(name: string, ...selectors: readonly object[]): void {
    this.#generation += 1;
    const object = {
      ...cnp(`a/${name}`, {}),
      spec: undefined,
      specs: selectors.map((endpointSelector) => ({ endpointSelector, ingress: [{}] })),
    };
    const metadata = { ...object.metadata, uid: name, generation: this.#generation };
    this.#model.setPolicy(policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
  }

  delete(name: string): void {
    this.#model.deletePolicy(`cnp/a/${name}`);
  }

  deletePod(n: number): void {
    this.#model.deletePod(`a/p${n}`);
  }

  /** Of each policy: selected pods, and their nodes. */
  get selected(): Record<string, string> {
    drain(this.#model, this.#desired);
    return Object.fromEntries(
      [...this.#desired.statuses.values()].map(({ name, status: { summary } }) => [
        name,
        `${summary.endpoints} on ${summary.nodes.split('/')[1]}`,
      ]),
    );
  }

  get counted(): Record<string, number> {
    const names = ['countedSubjects', 'subjectHosts'];
    return Object.fromEntries(
      this.#model.db.tables().flatMap(({ name, rows }) => (names.includes(name) ? [[name, rows]] : [])),
    );
  }
}

const app = (...values: readonly string[]): object => ({ matchExpressions: [{ key: 'app', operator: 'In', values }] });

afterEach(() => {
  jest.restoreAllMocks();
});

describe('the nodes that host what a policy selects', () => {
  it('are counted once, whichever policies select alike; a pod that comes or goes is counted alone', () => {
    const cluster = new Cluster();
    for (const name of ['p', 'q', 'r']) cluster.policy(name, {});
    expect(cluster.selected).toEqual({ p: '20 on 2', q: '20 on 2', r: '20 on 2' });
    expect(cluster.counted).toEqual({ countedSubjects: 1, subjectHosts: 2 });
    const walks = jest.spyOn(SelectorIndex.prototype, 'members');
    cluster.pod(21, 'app1');
    cluster.deletePod(0);
    cluster.policy('p', {});
    expect(cluster.selected).toEqual({ p: '20 on 2', q: '20 on 2', r: '20 on 2' });
    cluster.pod(23, 'app1');
    expect(cluster.selected).toEqual({ p: '21 on 2', q: '21 on 2', r: '21 on 2' });
    expect(walks).not.toHaveBeenCalled();
  });

  it('a pod that several selectors of one policy match counts once', () => {
    const cluster = new Cluster();
    cluster.policy('p', app('app1', 'app2'), app('app2', 'app3'));
    cluster.policy('q', app('app2', 'app3'));
    expect(cluster.selected).toEqual({ p: '3 on 2', q: '2 on 2' });
    cluster.pod(22, 'app2');
    cluster.pod(24, 'app2');
    expect(cluster.selected).toEqual({ p: '5 on 2', q: '4 on 2' });
    for (const n of [2, 22, 24]) cluster.deletePod(n);
    expect(cluster.selected).toEqual({ p: '2 on 1', q: '1 on 1' });
    // Relabelled, and of labels that nobody had.
    cluster.pod(3, 'other');
    cluster.pod(4, 'app1');
    expect(cluster.selected).toEqual({ p: '2 on 2', q: '0 on 0' });
  });

  it('are forgotten with the last policy of these subjects', () => {
    const cluster = new Cluster();
    cluster.policy('p', {});
    cluster.policy('q', {});
    cluster.policy('r', {}, app('app1'));
    expect(cluster.selected).toEqual({ p: '20 on 2', q: '20 on 2', r: '20 on 2' });
    expect(cluster.counted).toEqual({ countedSubjects: 2, subjectHosts: 4 });
    cluster.delete('p');
    cluster.policy('r', app('app1'));
    expect(cluster.selected).toMatchObject({ q: '20 on 2', r: '1 on 1' });
    expect(cluster.counted).toEqual({ countedSubjects: 2, subjectHosts: 3 });
    cluster.delete('q');
    cluster.delete('r');
    cluster.pod(25, 'app1');
    expect(cluster.selected).toEqual({});
    expect(cluster.counted).toEqual({ countedSubjects: 0, subjectHosts: 0 });
    cluster.policy('p', {});
    expect(cluster.selected).toEqual({ p: '21 on 2' });
  });
});
