/** What a namespace's many selectors cost the pods of others: neither a round, nor a look at each of them for each pod. */
import { describe, expect, it } from '@jest/globals';
import { namespaceRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';
import { SHARE_MS } from './time-share.ts';

const SELECTORS = 600;

class World {
  passes = 0;
  readonly #model: TestModel;
  #pods = 0;
  #passed = 0;

  constructor() {
    this.#model = new TestModel({
      cluster: 'default',
      identityGraceMs: 0,
      now: () => 0,
      stopwatch: () => (this.#passed += this.passes),
    });
    for (const name of ['evil', 'victim']) this.#model.setNamespace(namespaceRow(namespace(name)));
    this.#model.setNode(nodeRow(node('n1')));
  }

  pod(key: string, labels: Readonly<Record<string, string>>): void {
    this.#pods += 1;
    this.#model.setPod(podRow(pod(key, labels, { ip: `10.0.0.${this.#pods}`, node: 'n1', uid: key })));
  }

  deletePod(key: string): void {
    this.#model.deletePod(key);
  }

  policy(key: string, spec: object): void {
    const object = cnp(key, spec);
    this.#model.setPolicy(policyRow({ ...object, metadata: { ...object.metadata, uid: key } }, 'CiliumNetworkPolicy'));
  }

  /** Of the namespace evil, for pods of all namespaces. */
  manySelectors(): void {
    const fromEndpoints = Array.from({ length: SELECTORS }, (_, n) => ({
      matchLabels: { app: 'web' },
      matchExpressions: [
        { key: 'k8s:io.kubernetes.pod.namespace', operator: 'Exists' },
        { key: 'x', operator: 'NotIn', values: [String(n)] },
      ],
    }));
    this.policy('evil/p', { endpointSelector: {}, ingress: [{ fromEndpoints }] });
  }

  collect(): void {
    this.#model.collect();
  }

  get more(): boolean {
    return this.#model.more;
  }

  /** A round: how many lists changed in it. */
  round(): number {
    return this.#model.flush().peerSets.length;
  }

  /** Rounds until nothing is left to do: how many lists changed in each. */
  drain(): number[] {
    const changed = [this.round()];
    while (this.#model.more) changed.push(this.round());
    return changed;
  }

  rows(name: string): number {
    return this.#model.db.tables().find((table) => table.name === name)?.rows ?? 0;
  }

  /** Identities by how many lists have each. */
  get listed(): Map<number, number> {
    using snapshot = this.#model.db.read();
    const listed = new Map<number, number>();
    for (const { row } of snapshot.all(this.#model.tables.peerSets))
      for (const id of row.identities) listed.set(id, (listed.get(id) ?? 0) + 1);
    return listed;
  }

  /** By name, the identity that slices say a pod has. */
  identityOf(name: string): number | undefined {
    using snapshot = this.#model.db.read();
    for (const { row } of snapshot.all(this.#model.tables.slices))
      for (const one of row.endpoints) if (one.name === name) return one.identity;
    return undefined;
  }

  endpoints(key: string): number | undefined {
    using snapshot = this.#model.db.read();
    return snapshot.get(this.#model.tables.statuses, `cnp/${key}`)?.row.status.summary.endpoints;
  }
}

function worldOfManySelectors(): World {
  const world = new World();
  world.pod('victim/a', { app: 'web' });
  world.policy('victim/p', { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{}] });
  world.manySelectors();
  world.drain();
  return world;
}

describe('many selectors of one namespace that match pods of others', () => {
  it('take a new identity in after its pod has been shown, piece by piece', () => {
    const world = worldOfManySelectors();
    world.passes = SHARE_MS;
    world.pod('victim/new', { app: 'web', v: '1' });
    const [first = 0, ...rest] = world.drain();
    const identity = world.identityOf('new');
    expect(first).toBeLessThan(SELECTORS / 4);
    expect(Math.max(...rest)).toBeLessThan(SELECTORS / 4);
    // Those, and the one by which the victim's policy selects it.
    expect(world.listed.get(identity ?? 0)).toBe(SELECTORS + 1);
    expect(world.rows('queued-set-looks')).toBe(0);
  });

  it('delay neither its slice nor the count of pods that a policy selects', () => {
    const world = worldOfManySelectors();
    world.passes = SHARE_MS;
    world.pod('victim/new', { app: 'web', v: '1' });
    world.policy('victim/q', { endpointSelector: { matchLabels: { v: '1' } }, ingress: [{}] });
    world.round();
    expect(world.more).toBe(true);
    expect(world.identityOf('new')).toBeDefined();
    world.drain();
    expect(world.endpoints('victim/p')).toBe(2);
    expect(world.endpoints('victim/q')).toBe(1);
  });

  it('give up an identity that is forgotten piece by piece, too, whether or not it had joined them', () => {
    const world = worldOfManySelectors();
    world.pod('victim/old', { app: 'web', v: '1' });
    world.drain();
    const old = world.identityOf('old') ?? 0;
    expect(world.listed.get(old)).toBe(SELECTORS + 1);
    world.passes = SHARE_MS;
    world.deletePod('victim/old');
    // The last number that was given stays.
    world.pod('victim/next', { app: 'web', v: '2' });
    world.round();
    const next = world.identityOf('next') ?? 0;
    world.deletePod('victim/next');
    world.pod('victim/other', { v: '3' });
    world.round();
    world.collect();
    const changed = world.drain();
    expect(Math.max(...changed)).toBeLessThan(SELECTORS / 4);
    expect([old, next].map((id) => world.listed.get(id))).toEqual([undefined, undefined]);
  });

  it('are not asked for a pod whose labels are known: it is matched against the subjects of policies whose pods are counted', () => {
    const world = worldOfManySelectors();
    world.pod('victim/again', { app: 'web' });
    expect(world.drain()).toEqual([0]);
    expect(world.endpoints('victim/p')).toBe(2);
    // Of the policy of each namespace.
    expect(world.rows('counted-selectors')).toBe(2);
  });
});
