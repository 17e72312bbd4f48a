/** A namespace has a share of the numbers: what it does takes none from others, and it pays for its own churn itself. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import type { Table } from '@weir/statedb';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { namespaceRow, nodeRow, podRow } from '../kubernetes/rows.ts';
import { namespace, node, pod } from '../testing.ts';
import type { KnownIdentity } from './known-identities.ts';
import { TestModel } from './testing/test-model.ts';
import { Desired, drain, Inputs, step } from './testing/trace.ts';

const HALF_AN_HOUR = 1_800_000;
let now: number;
let told: string[];
beforeEach(() => {
  now = 1_700_000_000_000;
  told = [];
});

/** A cluster with few numbers, and what its slices say: `namespace/pod app`. */
class Cluster {
  readonly model: TestModel;
  readonly desired = new Desired();

  constructor(numbers: number, identitiesPerNamespace: number, identityGraceMs = HALF_AN_HOUR) {
    this.model = new TestModel({
      cluster: 'default',
      identityGraceMs,
      identitiesPerNamespace,
      identityRange: { first: 256, last: 255 + numbers },
      now: () => now,
      onNoIdentity: (...[where, who, { message }]) => told.push(`${where}: ${who}: ${message}`),
    });
    for (const name of ['tenant', 'third', 'victim']) this.model.setNamespace(namespaceRow(namespace(name)));
    this.model.setNode(nodeRow(node('home')));
  }

  start(): this {
    this.model.adoptionDone();
    return this;
  }

  /** In a round of its own. */
  pod(where: string, app: string): void {
    this.set(where, app);
    drain(this.model, this.desired);
  }

  set(where: string, app: string): void {
    now += 1;
    this.model.setPod(podRow(pod(where, { app }, { node: 'home', ip: addressOf(where) })));
  }

  get events() {
    using snapshot = this.model.db.read();
    return [...snapshot.all(this.model.tables.events)];
  }

  /** Pods, each with the uid that its Event is about and how often it was told. */
  get told(): string[] {
    return this.events.map(({ row: { about, count } }) =>
      [about.key, about.uid, count].filter((part) => part !== '').join(' '),
    );
  }

  get shown(): string[] {
    drain(this.model, this.desired);
    const appOf = (id: number): string | undefined => this.desired.identities.get(String(id))?.labels['k8s:app'];
    return [...this.desired.slices.values()]
      .flatMap((slice) => slice.endpoints.map((e) => `${slice.namespace}/${e.name} ${appOf(e.identity)}`))
      .sort();
  }

  /** Takes numbers that no pod has out of what is desired. */
  dropUnused(): void {
    const { identities, peerSets } = this.desired;
    using snapshot = this.model.db.read();
    const known = this.model.db.tables().find(({ name }) => name === 'knownIdentities')?.table as Table<KnownIdentity>;
    for (const { row, unusedSince } of snapshot.all(known)) {
      if (unusedSince === undefined) continue;
      identities.delete(`${row.id}`);
      for (const [name, set] of peerSets)
        peerSets.set(name, { ...set, identities: set.identities.filter((id) => id !== row.id) });
    }
  }

  /** Numbers and the apps that they stand for. */
  get numbers(): string[] {
    drain(this.model, this.desired);
    return [...this.desired.identities.values()].map(({ id, labels }) => `${id} ${labels['k8s:app']}`).sort();
  }
}

const addresses = new Map<string, string>();
function addressOf(where: string): string {
  const known = addresses.get(where) ?? `10.0.${addresses.size >> 8}.${addresses.size & 255}`;
  addresses.set(where, known);
  return known;
}

describe('a pod that is relabelled without end', () => {
  it.each([
    ['in its quota', 2_000, 100],
    ['without a quota, in the whole range', 2_000, 0],
  ])('takes no number from others, %s', (_, numbers, quota) => {
    const cluster = new Cluster(numbers, quota).start();
    cluster.pod('victim/old', 'old');
    for (let label = 0; label < numbers * 2; label += 1) {
      cluster.set('tenant/p', `a${label}`);
      if (label % 100 === 0) drain(cluster.model, cluster.desired);
    }
    cluster.pod('victim/new', 'new');
    expect(cluster.shown).toEqual([`tenant/p a${numbers * 2 - 1}`, 'victim/new new', 'victim/old old']);
    expect(cluster.desired.identities.size).toBeLessThanOrEqual(quota === 0 ? numbers * 0.9 : quota + 2);
    expect(told).toEqual([]);
  });

  it('gives up its own numbers, longest unused first, and others keep theirs for when they come back', () => {
    const cluster = new Cluster(1_000, 3).start();
    cluster.pod('victim/p', 'before');
    cluster.pod('victim/p', 'after');
    for (const app of ['a', 'b', 'c', 'b', 'd', 'e']) cluster.pod('tenant/p', app);
    // The numbers are given in turn: one that was given up rests.
    expect(cluster.numbers).toEqual(['256 before', '257 after', '259 b', '261 d', '262 e']);
    cluster.pod('victim/p', 'before');
    expect(cluster.shown).toEqual(['tenant/p e', 'victim/p before']);
    expect(cluster.numbers).toContain('256 before');
  });

  it('gets along with a single number: its own of before', () => {
    const cluster = new Cluster(1_000, 1).start();
    for (const app of ['a', 'b', 'c']) {
      cluster.pod('tenant/p', app);
      expect(cluster.shown).toEqual([`tenant/p ${app}`]);
    }
    expect(cluster.numbers).toEqual(['258 c']);
    expect(told).toEqual([]);
  });
});

describe('a namespace all of whose numbers are in use', () => {
  it('has its pods wait, says so once, and gives each number that becomes free to the next of them at once', () => {
    const cluster = new Cluster(1_000, 2).start();
    for (const n of [1, 2, 3, 4]) cluster.pod(`tenant/p${n}`, `a${n}`);
    cluster.pod('tenant/p5', 'a3');
    cluster.pod('victim/p', 'web');
    expect(cluster.shown).toEqual(['tenant/p1 a1', 'tenant/p2 a2', 'victim/p web']);
    expect(told).toEqual([
      'tenant: tenant/p3: all 2 identities that namespace "tenant" may have are in use: give its pods fewer distinct label sets, or raise --identities-per-namespace (value operator.limits.identitiesPerNamespace)',
    ]);
    expect(
      cluster.events.map(({ row: { about, type, reason } }) => `${about.kind} ${about.key}: ${type} ${reason}`),
    ).toEqual(['p3', 'p4', 'p5'].map((name) => `Pod tenant/${name}: Warning NoIdentity`));
    // One that is relabelled leaves its number to who waits, all of whose label set have it then.
    cluster.model.deletePod('tenant/p1');
    expect(cluster.shown).toEqual(['tenant/p2 a2', 'tenant/p3 a3', 'tenant/p5 a3', 'victim/p web']);
    cluster.pod('tenant/p2', 'a4');
    expect(cluster.shown).toEqual(['tenant/p2 a4', 'tenant/p3 a3', 'tenant/p4 a4', 'tenant/p5 a3', 'victim/p web']);
    expect(told).toHaveLength(1);
  });

  it('says so once a minute at most, however often its pods begin to wait', () => {
    const cluster = new Cluster(1_000, 1).start();
    cluster.pod('tenant/p1', 'a1');
    for (let n = 0; n < 50; n += 1) {
      cluster.pod('tenant/p2', 'a2');
      cluster.model.deletePod('tenant/p2');
      cluster.model.collect();
      drain(cluster.model, cluster.desired);
    }
    expect(told).toHaveLength(1);
    now += 60_000;
    cluster.pod('tenant/p2', 'a2');
    expect(told).toHaveLength(2);
  });

  it('tells a pod that runs and is relabelled, too; a pod that waits for another reason; and one that is another pod', () => {
    const cluster = new Cluster(1_000, 2).start();
    for (const [name, app] of [
      ['p1', 'a1'],
      ['p2', 'a2'],
      ['p3', 'a2'],
      ['p4', 'a4'],
    ] as const)
      cluster.pod(`tenant/${name}`, app);
    cluster.pod('tenant/p3', 'a3');
    expect(cluster.told).toEqual(['tenant/p3 1', 'tenant/p4 1']);
    const many = Object.fromEntries(Array.from({ length: 129 }, (_, at) => [`l${at}`, '']));
    cluster.model.setPod(podRow(pod('tenant/p3', many, { node: 'home', ip: addressOf('tenant/p3') })));
    drain(cluster.model, cluster.desired);
    expect(cluster.told).toEqual(['tenant/p3 2', 'tenant/p4 1']);
    expect(cluster.events[0]?.row.message).toMatch(/131 labels, of at most 128/);
    cluster.model.deletePod('tenant/p4');
    cluster.model.setPod(podRow(pod('tenant/p4', { app: 'a4' }, { node: 'home', ip: '10.9.9.9', uid: 'other' })));
    drain(cluster.model, cluster.desired);
    expect(cluster.told).toEqual(['tenant/p3 2', 'tenant/p4 other 1']);
  });

  it('tells a hundred pods a minute, and the others when unused identities are collected; keeps nothing of who waits no more', () => {
    const cluster = new Cluster(1_000, 1).start();
    cluster.pod('tenant/p', 'a');
    for (let n = 0; n < 150; n += 1) cluster.set(`tenant/p${n}`, `a${n}`);
    drain(cluster.model, cluster.desired);
    cluster.pod('victim/p', 'a');
    cluster.pod('victim/q', 'b');
    const count = (namespace: string): number => cluster.told.filter((line) => line.startsWith(namespace)).length;
    const collect = (): number[] => {
      cluster.model.collect();
      drain(cluster.model, cluster.desired);
      return [count('tenant'), count('victim')];
    };
    expect([count('tenant'), count('victim')]).toEqual([100, 1]);
    expect(collect()).toEqual([100, 1]);
    now += 60_000;
    expect(collect()).toEqual([150, 1]);
    for (let n = 0; n < 150; n += 1) cluster.model.deletePod(`tenant/p${n}`);
    expect(collect()).toEqual([0, 1]);
  });

  it('tells a pod that still waits again before the API server has forgotten it', () => {
    const cluster = new Cluster(1_000, 1).start();
    cluster.pod('tenant/p', 'a');
    cluster.pod('tenant/q', 'b');
    const [first] = cluster.events.map(({ row }) => row.first);
    for (let minutes = 0; minutes < 65; minutes += 5) {
      now += 300_000;
      cluster.model.collect();
      drain(cluster.model, cluster.desired);
    }
    expect(cluster.events.map(({ row }) => [row.count, row.first === first, row.last > row.first])).toEqual([
      [3, true, true],
    ]);
  });

  it('takes none from others when nobody has more than it may and the whole range is in use: who waits then gets the next', () => {
    const cluster = new Cluster(4, 3).start();
    for (const n of [1, 2, 3]) cluster.pod(`tenant/p${n}`, `a${n}`);
    for (const n of [1, 2]) cluster.pod(`victim/p${n}`, `b${n}`);
    expect(cluster.shown).toEqual(['tenant/p1 a1', 'tenant/p2 a2', 'tenant/p3 a3', 'victim/p1 b1']);
    expect(told).toEqual([
      'victim: victim/p2: all 4 identities of the cluster are in use: give pods fewer distinct label sets',
    ]);
    cluster.model.deletePod('tenant/p2');
    expect(cluster.shown).toEqual(['tenant/p1 a1', 'tenant/p3 a3', 'victim/p1 b1', 'victim/p2 b2']);
  });
});

it('a pod that waits for its own namespace now holds up none that waits for the cluster', () => {
  const cluster = new Cluster(4, 2).start();
  for (const where of ['tenant/p1', 'victim/p1', 'third/p1', 'third/p2', 'tenant/p2', 'victim/p2'])
    cluster.pod(where, where.replace('/', '-'));
  expect(cluster.shown.map((said) => said.split(' ')[0])).toEqual(['tenant/p1', 'third/p1', 'third/p2', 'victim/p1']);
  // In one round: two numbers become free, and the tenant takes one of them for yet another pod.
  for (const where of ['third/p1', 'third/p2']) cluster.model.deletePod(where);
  cluster.pod('tenant/p3', 'new');
  expect(cluster.shown.map((said) => said.split(' ')[0])).toEqual(['tenant/p1', 'tenant/p3', 'victim/p1', 'victim/p2']);
});

describe('a pod with more labels than an identity may have', () => {
  const many = (count: number): Record<string, string> =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`l${at}`, '']));
  const long = Object.fromEntries(Array.from({ length: 126 }, (_, at) => [`l${at}`, 'x'.repeat(63)]));

  it.each([
    ['too many', many(129), '131 labels, of at most 128'],
    ['too long', long, /^\d+ characters of labels, of at most 8192$/],
  ])('%s: it waits, and is told why; with fewer it gets a number, and others have theirs', (_, labels, excess) => {
    const cluster = new Cluster(5, 0).start();
    cluster.pod('victim/a', 'a');
    const set = (own: Record<string, string>): void => {
      cluster.model.setPod(podRow(pod('tenant/large', own, { node: 'home', ip: addressOf('tenant/large') })));
      drain(cluster.model, cluster.desired);
    };
    set(labels);
    const [line = ''] = told;
    expect(line).toMatch(
      /^tenant: tenant\/large: the pod and its namespace have .*, with those of its cluster, namespace and service account: remove labels, or move them to annotations$/,
    );
    expect(line.replace(/^.*? have /, '').replace(/, with those of.*$/, '')).toEqual(
      typeof excess === 'string' ? excess : expect.stringMatching(excess),
    );
    expect(cluster.shown).toEqual(['victim/a a']);
    cluster.pod('tenant/b', 'b');
    set({ app: 'small' });
    expect(cluster.shown).toEqual(['tenant/b b', 'tenant/large small', 'victim/a a']);
  });

  it('costs nothing after a restart: an identity of so many labels is not taken over', () => {
    const cluster = new Cluster(5, 0);
    const labels = { 'k8s:io.kubernetes.pod.namespace': 'tenant', ...many(129) };
    cluster.model.adopt({ identities: [{ id: 256, labels }], peerSets: [], resolved: [], slices: [], statuses: [] });
    cluster.start();
    cluster.pod('victim/a', 'a');
    expect([...cluster.desired.identities.values()].map(({ labels: { 'k8s:app': app } }) => app)).toEqual(['a']);
  });
});

describe('after a restart', () => {
  it('no number is given up before every pod has been seen', () => {
    const before = new Cluster(1_000, 2).start();
    before.pod('tenant/p1', 'a1');
    before.pod('tenant/p2', 'a2');
    expect(before.numbers).toEqual(['256 a1', '257 a2']);
    const after = new Cluster(1_000, 2);
    after.model.adopt(before.desired.adopted());
    // A new pod comes first: the numbers of the others seem to be unused.
    after.set('tenant/p3', 'a3');
    after.model.take();
    after.set('tenant/p1', 'a1');
    after.set('tenant/p2', 'a2');
    expect(after.shown).toEqual(['tenant/p1 a1', 'tenant/p2 a2']);
    expect(after.numbers).toEqual(['256 a1', '257 a2']);
    expect(told).toHaveLength(1);
  });

  it('who had more than the quota keeps it, and a pod that goes leaves room for others as soon as there is any', () => {
    const before = new Cluster(1_000, 0).start();
    for (const n of [1, 2, 3]) before.pod(`tenant/p${n}`, `a${n}`);
    expect(before.numbers).toHaveLength(3);
    const after = new Cluster(1_000, 2);
    after.model.adopt(before.desired.adopted());
    for (const n of [1, 2, 3, 4]) after.set(`tenant/p${n}`, `a${n}`);
    expect(after.shown).toEqual(['tenant/p1 a1', 'tenant/p2 a2', 'tenant/p3 a3']);
    after.model.deletePod('tenant/p1');
    expect(after.shown).toEqual(['tenant/p2 a2', 'tenant/p3 a3']);
    after.model.deletePod('tenant/p2');
    expect(after.shown).toEqual(['tenant/p3 a3', 'tenant/p4 a4']);
  });
});

it('whatever the trace: quotas hold, no pod waits that could have a number, and a new model that adopts agrees', () => {
  const quota = 3;
  fc.assert(
    fc.property(fc.array(fc.tuple(step, fc.boolean()), { maxLength: 60, size: 'max' }), (trace) => {
      const cluster = new Cluster(5, quota, 0).start();
      const inputs = new Inputs();
      for (const [act, flush] of trace) {
        now += 1_500;
        act(cluster.model, inputs);
        if (!flush) continue;
        drain(cluster.model, cluster.desired);
        const held = new Map<string, Set<number>>();
        const used = new Set<number>();
        for (const { id, labels } of cluster.desired.identities.values()) {
          const name = labels['k8s:io.kubernetes.pod.namespace'] ?? '';
          held.set(name, (held.get(name) ?? new Set()).add(id));
        }
        for (const numbers of held.values()) expect(numbers.size).toBeLessThanOrEqual(quota);
        for (const { endpoints } of cluster.desired.slices.values())
          for (const { identity } of endpoints) {
            expect(cluster.desired.identities.has(String(identity))).toBe(true);
            used.add(identity);
          }
        expect(used.size).toBeLessThanOrEqual(5);
      }
      cluster.model.collect();
      drain(cluster.model, cluster.desired);

      const fresh = new Cluster(5, quota, 0);
      fresh.model.adopt(cluster.desired.adopted());
      inputs.load(fresh.model);
      fresh.model.adoptionDone();
      fresh.model.collect();
      drain(fresh.model, fresh.desired);
      // Which number was given last, and stays for that, cannot be told of those that were given in one round.
      for (const each of [cluster, fresh]) each.dropUnused();
      expect(fresh.desired.plain()).toEqual(cluster.desired.plain());
    }),
    { numRuns: runs(200) },
  );
});
