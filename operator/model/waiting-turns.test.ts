/** Pods that wait for a number are placed in pieces, in turns of their namespaces, however many have one at once. */
import { beforeEach, expect, it } from '@jest/globals';
import { namespaceRow, nodeRow, podRow } from '../kubernetes/rows.ts';
import { namespace, node, pod } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';
import { Desired } from './testing/trace.ts';
import { SHARE_MS } from './time-share.ts';

let now: number;
beforeEach(() => {
  now = 1_700_000_000_000;
});

/** Each piece of work takes as long as a share. */
class Cluster {
  readonly #desired = new Desired();
  readonly #apps = new Map<string, string>();
  readonly #model: TestModel;
  #passed = 0;
  #addresses = 0;

  constructor(identitiesPerNamespace: number, numbers = 1_000) {
    this.#model = new TestModel({
      cluster: 'default',
      identityGraceMs: 1_800_000,
      identitiesPerNamespace,
      mirrorIdentitiesPerNodeAndNamespace: 1,
      identityRange: { first: 256, last: 255 + numbers },
      now: () => now,
      stopwatch: () => (this.#passed += SHARE_MS),
    });
    for (const name of ['tenant', 'third', 'victim']) this.#model.setNamespace(namespaceRow(namespace(name)));
    this.#model.setNode(nodeRow(node('n1')));
    this.#model.adoptionDone();
    this.round();
  }

  /** Not taken in before the next round. */
  set(where: string, app: string, mirroredOn?: string): this {
    const ip = `10.0.${this.#addresses >> 8}.${this.#addresses & 255}`;
    this.#addresses += 1;
    this.#apps.set(where, app);
    const more = { ip, node: mirroredOn ?? 'n1', mirror: mirroredOn !== undefined };
    this.#model.setPod(podRow(pod(where, { app }, more)));
    return this;
  }

  many(namespaceName: string, count: number, appOf: (n: number) => string): this {
    for (let n = 0; n < count; n += 1) this.set(`${namespaceName}/w${String(n).padStart(2, '0')}`, appOf(n));
    return this;
  }

  delete(where: string): this {
    this.#model.deletePod(where);
    return this;
  }

  /** Pods that are in the slices since this round. */
  round(): string[] {
    const before = new Set(this.shown);
    now += 1;
    this.#desired.apply(this.#model.flush());
    return this.shown.filter((name) => !before.has(name));
  }

  /** The same for each round until nothing is left. */
  rounds(): string[][] {
    const rounds = [this.round()];
    while (this.#model.more) rounds.push(this.round());
    return rounds;
  }

  get shown(): string[] {
    return [...this.#desired.slices.values()]
      .flatMap((slice) => slice.endpoints.map(({ name }) => `${slice.namespace}/${name}`))
      .sort();
  }

  get told(): string[] {
    using snapshot = this.#model.db.read();
    return Array.from(snapshot.all(this.#model.tables.events), ({ row }) => row.about.key);
  }
}

it('pods of a label set that has a number now are placed one by one, in their order', () => {
  const cluster = new Cluster(1).set('tenant/first', 'a');
  cluster.rounds();
  cluster.many('tenant', 30, () => 'same');
  expect(cluster.rounds().flat()).toEqual([]);
  const rounds = cluster.delete('tenant/first').rounds();
  for (const placed of rounds) expect(placed.length).toBeLessThanOrEqual(1);
  expect(rounds.flat()).toEqual(Array.from({ length: 30 }, (_, n) => `tenant/w${String(n).padStart(2, '0')}`));
});

it('a namespace with many delays the pod of another by one of its own', () => {
  const cluster = new Cluster(1).set('tenant/first', 'a').set('victim/first', 'a');
  cluster.rounds();
  cluster.many('tenant', 30, () => 'same').set('victim/waits', 'b');
  cluster.rounds();
  cluster.delete('tenant/first').delete('victim/first').round();
  expect(cluster.round()).toEqual(['victim/waits']);
});

it('nor do thousands of one label set delay a pod that waits for the last number of the cluster, as they do', () => {
  const cluster = new Cluster(0, 4);
  for (const n of [1, 2, 3, 4]) cluster.set(`third/p${n}`, `a${n}`);
  cluster.rounds();
  cluster.many('tenant', 30, () => 'same').set('victim/waits', 'b');
  expect(cluster.rounds().flat()).toEqual([]);
  const rounds = cluster.delete('third/p1').delete('third/p2').rounds();
  expect(rounds.slice(0, 3).flat()).toContain('victim/waits');
  expect(rounds.flat()).toHaveLength(31);
});

it('nor do mirror pods that somebody makes in a namespace delay its own pods', () => {
  const cluster = new Cluster(1).set('victim/mirror', 'a', 'n1').set('victim/own', 'b');
  cluster.rounds();
  for (let n = 0; n < 30; n += 1) cluster.set(`victim/m${n}`, 'same', 'n1');
  cluster.set('victim/waits', 'c');
  expect(cluster.rounds().flat()).toEqual([]);
  const rounds = cluster.delete('victim/mirror').delete('victim/own').rounds();
  expect(rounds.slice(0, 3).flat()).toContain('victim/waits');
  expect(rounds.flat()).toHaveLength(31);
});

it('a pod that comes while others of its namespace are still to have what has become free is behind them, and not told of before', () => {
  const cluster = new Cluster(3);
  for (const n of [1, 2, 3]) cluster.set(`tenant/p${n}`, `a${n}`);
  cluster.rounds();
  cluster.many('tenant', 3, (n) => `b${n}`);
  cluster.rounds();
  const before = cluster.told;
  for (const n of [1, 2, 3]) cluster.delete(`tenant/p${n}`);
  expect(cluster.round()).toEqual(['tenant/w00']);
  expect(cluster.set('tenant/x', 'new').round()).toEqual(['tenant/w01']);
  expect(cluster.told).toEqual(before);
  expect(cluster.rounds().flat()).toEqual(['tenant/w02']);
  expect(cluster.delete('tenant/w00').rounds().flat()).toEqual(['tenant/x']);
});
