/**
 * A node's credentials make mirror pods in every namespace, and whoever makes pods may say that they are such: neither uses up the identities
 * of a namespace, nor those of static pods elsewhere.
 */
import { beforeEach, describe, expect, it } from '@jest/globals';
import type { Table } from '@weir/statedb';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { namespaceRow, nodeRow, podRow } from '../kubernetes/rows.ts';
import { namespace, node, pod } from '../testing.ts';
import type { KnownIdentity } from './known-identities.ts';
import type { PlacedPod } from './placed-pods.ts';
import { TestModel } from './testing/test-model.ts';
import { Desired, drain } from './testing/trace.ts';
import { SHARE_MS, type Stopwatch } from './time-share.ts';

const PAIR = 2;
const NODE = 6;
const NAMESPACE = 3;
const NODES = ['n1', 'n2'] as const;
const NAMESPACES = ['kube-system', 'third', 'victim'] as const;

let now: number;
let told: string[];
beforeEach(() => {
  now = 1_700_000_000_000;
  told = [];
});

const addresses = new Map<string, string>();
function addressOf(where: string): string {
  const known = addresses.get(where) ?? `10.0.${addresses.size >> 8}.${addresses.size & 255}`;
  addresses.set(where, known);
  return known;
}

class Cluster {
  readonly model: TestModel;
  readonly desired = new Desired();

  constructor(numbers = 1_000, perNamespace = NAMESPACE, stopwatch: Stopwatch = () => 0) {
    this.model = new TestModel({
      cluster: 'default',
      identityGraceMs: 1_800_000,
      identitiesPerNamespace: perNamespace,
      mirrorIdentitiesPerNodeAndNamespace: PAIR,
      mirrorIdentitiesPerNode: NODE,
      identityRange: { first: 256, last: 255 + numbers },
      now: () => now,
      stopwatch,
      onNoIdentity: (...[where, who, { message }]) => told.push(`${where}: ${who}: ${message}`),
    });
    for (const name of NAMESPACES) this.model.setNamespace(namespaceRow(namespace(name)));
    for (const name of NODES) this.model.setNode(nodeRow(node(name)));
  }

  start(): this {
    this.model.adoptionDone();
    return this;
  }

  /** An ordinary pod on n1. */
  pod(where: string, app: string): void {
    this.put(where, app);
    drain(this.model, this.desired);
  }

  mirror(where: string, app: string, on = 'n1'): void {
    this.put(where, app, on);
    drain(this.model, this.desired);
  }

  put(where: string, app: string, mirroredOn?: string): void {
    now += 1;
    const more = { ip: addressOf(where), node: mirroredOn ?? 'n1', mirror: mirroredOn !== undefined };
    this.model.setPod(podRow(pod(where, { app }, more)));
  }

  delete(where: string): void {
    now += 1;
    this.model.deletePod(where);
    drain(this.model, this.desired);
  }

  /** `namespace/pod app`, as slices say. */
  get shown(): string[] {
    const appOf = (id: number): string | undefined => this.desired.identities.get(String(id))?.labels['k8s:app'];
    return [...this.desired.slices.values()]
      .flatMap((slice) => slice.endpoints.map((e) => `${slice.namespace}/${e.name} ${appOf(e.identity)}`))
      .sort();
  }

  table<T>(name: string): T[] {
    using snapshot = this.model.db.read();
    return [...snapshot.all(this.model.db.tables().find((each) => each.name === name)?.table as Table<T>)];
  }

  restarted(): Cluster {
    const after = new Cluster();
    after.model.adopt(this.desired.adopted());
    for (const { row } of this.table<PlacedPod>('placed-pods')) after.model.setPod(row);
    after.start();
    drain(after.model, after.desired);
    return after;
  }
}

const namesOf = (shown: readonly string[], of: string): string[] =>
  shown.flatMap((said) => (said.startsWith(`${of}/`) ? [said.slice(of.length + 1)] : []));

describe('mirror pods of one node', () => {
  it('have few identities in a namespace, and its own pods have all of theirs', () => {
    const cluster = new Cluster().start();
    for (let n = 0; n < 20; n += 1) cluster.mirror(`victim/m${n}`, `evil${n}`);
    for (let n = 0; n < NAMESPACE; n += 1) cluster.pod(`victim/p${n}`, `web${n}`);
    expect(namesOf(cluster.shown, 'victim')).toEqual(['m0 evil0', 'm1 evil1', 'p0 web0', 'p1 web1', 'p2 web2']);
    expect(told).toEqual([
      'victim: victim/m2: all 2 identities that only mirror pods of node "n1" may have in namespace "victim" are in use: give static pods fewer distinct labels, or raise --mirror-identities-per-node-and-namespace (value operator.limits.mirrorIdentitiesPerNodeAndNamespace)',
    ]);
    // Another node's have their own, and what becomes free goes to who waits.
    cluster.mirror('victim/other', 'static', 'n2');
    expect(cluster.shown).toContain('victim/other static');
    cluster.delete('victim/m0');
    expect(namesOf(cluster.shown, 'victim')).toContain('m10 evil10');
  });

  it('are told of by themselves: an ordinary pod that waits is named, however many of them wait', () => {
    const cluster = new Cluster().start();
    for (let n = 0; n < 5; n += 1) cluster.mirror(`victim/m${n}`, `evil${n}`);
    for (let n = 0; n <= NAMESPACE; n += 1) cluster.pod(`victim/p${n}`, `web${n}`);
    expect(told.map((line) => line.split(':')[1])).toEqual([' victim/m2', ' victim/p3']);
  });

  it('have few identities in all namespaces together, but one each; those of another node have theirs', () => {
    const many = Array.from({ length: 20 }, (_, n) => `ns${n}`);
    const cluster = new Cluster();
    for (const name of many) cluster.model.setNamespace(namespaceRow(namespace(name)));
    cluster.start();
    for (const name of many) for (const n of [1, 2]) cluster.mirror(`${name}/m${n}`, `evil${n}`);
    const second = cluster.shown.filter((said) => said.includes('/m2'));
    // After three namespaces the six of the node are in use.
    expect(second).toHaveLength(3);
    expect(cluster.shown.filter((said) => said.includes('/m1'))).toHaveLength(20);
    expect(told.at(-1)).toMatch(/all 6 identities that only mirror pods of node "n1" may have are in use/);
    cluster.mirror('ns9/static', 'static', 'n2');
    expect(cluster.shown).toContain('ns9/static static');
  });

  it('that are relabelled without end give up their own, and none of the namespace', () => {
    const cluster = new Cluster().start();
    cluster.pod('victim/p', 'before');
    cluster.pod('victim/p', 'web');
    for (let n = 0; n < 50; n += 1) {
      cluster.mirror('victim/m', `evil${n}`);
      cluster.delete('victim/m');
    }
    const apps = [...cluster.desired.identities.values()].map(({ labels }) => labels['k8s:app'] ?? '').sort();
    expect(apps).toEqual(['before', 'evil48', 'evil49', 'web']);
  });
});

it('a namespace has no more identities by mirror pods of all nodes together than by its own', () => {
  const cluster = new Cluster().start();
  for (const name of ['n3', 'n4']) cluster.model.setNode(nodeRow(node(name)));
  for (const on of ['n1', 'n2', 'n3', 'n4']) cluster.mirror(`victim/m-${on}`, `evil-${on}`, on);
  expect(namesOf(cluster.shown, 'victim')).toHaveLength(NAMESPACE);
  expect(told.at(-1)).toMatch(/all 3 identities that only mirror pods may have in namespace "victim" are in use/);
  cluster.mirror('third/static', 'static', 'n4');
  expect(cluster.shown).toContain('third/static static');
});

describe('an identity that a mirror pod and an ordinary pod have', () => {
  it('is paid by the namespace, and by the node again when the ordinary pod goes', () => {
    const cluster = new Cluster().start();
    cluster.mirror('victim/m0', 'web0');
    cluster.mirror('victim/m1', 'web1');
    cluster.mirror('victim/m2', 'web2');
    expect(namesOf(cluster.shown, 'victim')).toEqual(['m0 web0', 'm1 web1']);
    // The node has room for one more then, which waits.
    cluster.pod('victim/p0', 'web0');
    expect(namesOf(cluster.shown, 'victim')).toEqual(['m0 web0', 'm1 web1', 'm2 web2', 'p0 web0']);
    // And when it goes there is no room for what the mirror pod keeps of it: that one waits, and the namespace pays for nothing.
    cluster.delete('victim/p0');
    expect(namesOf(cluster.shown, 'victim')).toEqual(['m1 web1', 'm2 web2']);
    for (let n = 0; n < NAMESPACE; n += 1) cluster.pod(`victim/q${n}`, `own${n}`);
    expect(namesOf(cluster.shown, 'victim')).toHaveLength(2 + NAMESPACE);
  });

  it('is not kept in use by mirror pods that copy the labels of others, rollout after rollout', () => {
    const cluster = new Cluster().start();
    for (let n = 0; n < 20; n += 1) {
      cluster.pod('victim/p', `web${n}`);
      cluster.mirror(`victim/m${n}`, `web${n}`);
      expect(cluster.shown).toContain(`victim/p web${n}`);
    }
    for (const name of ['q', 'r']) cluster.pod(`victim/${name}`, name);
    expect(cluster.shown).toEqual(expect.arrayContaining(['victim/p web19', 'victim/q q', 'victim/r r']));
  });

  it('is given to an ordinary pod also where its namespace has no room, which pays as soon as it has', () => {
    const cluster = new Cluster().start();
    for (let n = 0; n < NAMESPACE; n += 1) cluster.pod(`victim/p${n}`, `web${n}`);
    cluster.mirror('victim/m0', 'both');
    cluster.pod('victim/q', 'both');
    cluster.delete('victim/m0');
    expect(cluster.shown).toContain('victim/q both');
    cluster.mirror('victim/m1', 'one');
    cluster.mirror('victim/m2', 'two');
    expect(cluster.shown).not.toContain('victim/m2 two');
    cluster.delete('victim/p0');
    expect(cluster.shown).toEqual(expect.arrayContaining(['victim/q both', 'victim/m1 one', 'victim/m2 two']));
  });

  it('that comes to nodes one after another is paid by one that has a pod of it', () => {
    const cluster = new Cluster().start();
    cluster.mirror('victim/m1', 'same', 'n1');
    cluster.mirror('victim/m2', 'same', 'n2');
    cluster.delete('victim/m1');
    for (const n of [1, 2]) cluster.mirror(`victim/n1-${n}`, `one${n}`, 'n1');
    expect(namesOf(cluster.shown, 'victim')).toEqual(['m2 same', 'n1-1 one1', 'n1-2 one2']);
  });
});

it('after a restart each pays what it paid, and everybody keeps what they had', () => {
  const before = new Cluster().start();
  for (const n of [1, 2, 3]) before.mirror(`victim/m${n}`, `evil${n}`);
  for (const n of [1, 2]) before.pod(`victim/p${n}`, `web${n}`);
  before.mirror('victim/both', 'web1', 'n2');
  const after = before.restarted();
  expect(after.shown).toEqual(before.shown);
  after.pod('victim/p3', 'web3');
  expect(after.shown).toContain('victim/p3 web3');
  after.pod('victim/p4', 'web4');
  after.mirror('victim/m4', 'evil4');
  expect(namesOf(after.shown, 'victim')).toHaveLength(before.shown.length + 1);
});

/** What a trace does: a pod comes or is relabelled, or goes. */
const act = fc.record({
  ns: fc.constantFrom('third', 'victim'),
  name: fc.nat(7),
  app: fc.nat(5),
  on: fc.constantFrom(undefined, undefined, ...NODES),
  gone: fc.boolean(),
  /** Rounds after it. */
  rounds: fc.constantFrom('none', 'one', 'all'),
});

it('whatever the trace: accounts are as counted anew, none holds more than it may, each payer has a pod, and nobody waits in vain', () => {
  fc.assert(
    fc.property(fc.array(act, { maxLength: 60, size: 'max' }), fc.constantFrom(0, SHARE_MS), (trace, pieceMs) => {
      let passed = 0;
      const cluster = new Cluster(12, NAMESPACE, () => (passed += pieceMs)).start();
      for (const { ns, name, app, on, gone, rounds } of trace) {
        const where = `${ns}/p${name}`;
        if (gone) cluster.model.deletePod(where);
        else cluster.put(where, `a${app}`, on);
        if (rounds === 'one') cluster.desired.apply(cluster.model.flush());
        if (rounds === 'all') {
          drain(cluster.model, cluster.desired);
          check(cluster);
        }
      }
      drain(cluster.model, cluster.desired);
      check(cluster);
    }),
    { numRuns: runs(300) },
  );
});

function check(cluster: Cluster): void {
  const known = cluster.table<KnownIdentity>('known-identities');
  const pods = cluster.table<PlacedPod>('placed-pods');
  const counted = new Map<string, number>();
  const add = (account: string): void => void counted.set(account, (counted.get(account) ?? 0) + 1);
  for (const { row, unusedSince, payer, owed } of known) {
    const ns = row.labels['k8s:io.kubernetes.pod.namespace'] ?? '';
    const accounts =
      payer === undefined ? [`namespace ${ns}`] : [`pair ${ns} ${payer}`, `node ${payer}`, `mirrors ${ns}`];
    for (const account of accounts) add(account);
    const users = pods.filter(({ identity }) => identity === row.id);
    expect(users.length > 0).toBe(unusedSince === undefined);
    if (users.length === 0) continue;
    const isOrdinary = users.some(({ row: { mirrorOf } }) => mirrorOf === undefined);
    expect(owed).toBe(isOrdinary && payer !== undefined);
    if (!isOrdinary) expect(users.map(({ row: { mirrorOf } }) => mirrorOf)).toContain(payer);
  }
  const held = cluster.table<{ name: string; identities: number }>('identity-accounts');
  expect(new Map(held.map(({ name, identities }) => [name, identities]))).toEqual(counted);
  const limits = { namespace: NAMESPACE, pair: PAIR, node: NODE, mirrors: NAMESPACE };
  for (const [account, count] of counted)
    expect(count).toBeLessThanOrEqual(limits[account.split(' ')[0] as keyof typeof limits]);
  // Who waits does so for an account all of whose identities are in use, and for a label set that has none.
  const inUse = (account: string): number =>
    known.filter(({ row, unusedSince, payer }) => {
      const ns = row.labels['k8s:io.kubernetes.pod.namespace'] ?? '';
      const accounts =
        payer === undefined ? [`namespace ${ns}`] : [`pair ${ns} ${payer}`, `node ${payer}`, `mirrors ${ns}`];
      return unusedSince === undefined && [...accounts, 'range'].includes(account);
    }).length;
  for (const { waiting } of pods) {
    if (waiting === undefined) continue;
    const { account } = waiting.because;
    expect(inUse(account)).toBe({ ...limits, range: 12 }[account.split(' ')[0] as keyof typeof limits | 'range']);
  }
}
