import { describe, expect, it } from '@jest/globals';
import { createStateDB, type Table, type WriteTxn } from '@weir/statedb';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { NO_LIMITS } from '../limits.ts';
import { createTables, type Desired, type Tables } from '../tables.ts';
import { cnp, knp, namespace, node, pod, report } from '../testing.ts';
import type { Adopted, PodRow, PolicyObjectKind, PolicyRow } from '../types.ts';
import { type Later, Model, type ModelOptions } from './model.ts';
import { SyncLoop } from './sync-loop.ts';
import { SHARE_MS, type Stopwatch } from './time-share.ts';

const [PODS, POLICIES] = [30, 20];
const NOTHING: Adopted = { identities: [], peerSets: [], resolved: [], slices: [], statuses: [] };

/** Notes what each round takes in. */
class WatchedModel extends Model {
  readonly rounds: string[][] = [];
  /** Thrown by the pod of this number, counted from the first that is taken in. */
  broken: { readonly at: number; readonly error: Error } | undefined;
  #pods = 0;

  override round(fn: (txn: WriteTxn) => void): Later {
    this.rounds.push([]);
    return super.round(fn);
  }

  override setPod(txn: WriteTxn, row: PodRow): void {
    this.rounds.at(-1)?.push('pod');
    this.#pods += 1;
    if (this.#pods === this.broken?.at) throw this.broken.error;
    super.setPod(txn, row);
  }

  override setPolicy(txn: WriteTxn, row: PolicyRow, again?: boolean): void {
    this.rounds.at(-1)?.push('policy');
    super.setPolicy(txn, row, again);
  }
}

/** A sync loop, and what the API holds. */
class World {
  readonly db = createStateDB({ freeze: true, findLeaks: false });
  readonly tables: Tables = createTables(this.db);
  readonly failed: Error[] = [];
  readonly model: WatchedModel;
  /** Kinds of policies that cannot be read. */
  readonly missing = new Set<PolicyObjectKind>();
  readonly #syncLoop: SyncLoop;

  constructor(stopwatch: Stopwatch, adopted: Adopted = NOTHING, limits: Partial<ModelOptions> = {}) {
    const { db, tables } = this;
    const now = (): number => 1_700_000_000_000;
    const options = { cluster: 'default', identityGraceMs: 1_000_000, now, stopwatch, ...limits };
    this.model = new WatchedModel({ ...options, db, tables });
    this.#syncLoop = new SyncLoop({
      db,
      tables,
      model: this.model,
      adopted: () => adopted,
      missingKinds: () => this.missing,
      collectIntervalMs: 1_000_000,
      onError: (error) => this.failed.push(error),
      stopwatch,
    });
  }

  /** Writes everything, in one transaction; policies under names that begin so. */
  put(generation: number, policy = 'u'): this {
    const { policies, namespaces, pods, nodes, reports } = this.tables;
    const uids = Array.from({ length: POLICIES }, (_, n) => `${policy}${n}`);
    this.db.write([policies, namespaces, pods, nodes, reports], (txn) => {
      txn.upsert(namespaces, namespaceRow(namespace('a')));
      for (const uid of uids) {
        const object = cnp(`a/${uid}`, { endpointSelector: { matchLabels: { app: uid } }, ingress: [{}] });
        const metadata = { ...object.metadata, uid, generation };
        txn.upsert(policies, policyRow({ ...object, metadata }, 'CiliumNetworkPolicy'));
      }
      for (let n = 0; n < PODS; n += 1) {
        const labels = { app: `u${n}`, generation: String(generation) };
        txn.upsert(pods, podRow(pod(`a/p${n}`, labels, { ip: `10.0.0.${n}`, node: `n${n % 2}` })));
      }
      for (const name of ['n0', 'n1']) {
        txn.upsert(nodes, nodeRow(node(name)));
        txn.upsert(reports, nodeReportRow(report(name, { policyVersion: String(generation) })));
      }
    });
    return this;
  }

  start(): void {
    this.#syncLoop.start();
  }

  calm(): Promise<void> {
    return this.#syncLoop.calm();
  }

  async stop(): Promise<void> {
    await this.#syncLoop.stop();
    expect(this.failed).toEqual([]);
  }

  /** For the next. */
  get adopted(): Adopted {
    using snapshot = this.db.read();
    const rows = <T>(table: Table<Desired<T>>): T[] => Array.from(snapshot.all(table), ({ row }) => row);
    const { identities, peerSets, resolved } = this.tables;
    return { ...NOTHING, identities: rows(identities), peerSets: rows(peerSets), resolved: rows(resolved) };
  }

  /** What is desired of pods and policies; numbers of identities depend on the order in which pods came. */
  get desired(): unknown {
    using snapshot = this.db.read();
    const rows = <T>(table: Table<Desired<T>>): T[] => Array.from(snapshot.all(table), ({ row }) => row);
    const { identities, resolved, slices, statuses } = this.tables;
    const labels = new Map(rows(identities).map((row) => [row.id, row.labels]));
    return {
      slices: rows(slices).map(({ endpoints }) => endpoints.map(({ name, identity }) => [name, labels.get(identity)])),
      resolved: rows(resolved).map(({ name, source }) => [name, source]),
      statuses: rows(statuses),
    };
  }
}

describe('a round of the sync loop', () => {
  it('breaks off when its time is over, other work gets its turn, and all is taken in at the end', async () => {
    const whole = new World(() => 0).put(1);
    whole.start();
    await whole.calm();
    let passed = 0;
    const world = new World(() => (passed += SHARE_MS / 5)).put(1);
    const { rounds } = world.model;
    let turns = 0;
    const others = (): void => {
      turns += 1;
      if (turns < 10_000 && !done) setImmediate(others);
    };
    let done = false;
    setImmediate(others);
    world.start();
    await world.calm();
    expect(world.desired).toEqual(whole.desired);
    for (const taken of rounds) expect(taken.length).toBeLessThanOrEqual(5);
    expect(rounds.length).toBeGreaterThan((PODS + POLICIES) / 5);
    expect(turns).toBeGreaterThan((PODS + POLICIES) / 5);
    // The same while it runs.
    rounds.length = 0;
    world.put(2);
    await world.calm();
    done = true;
    for (const taken of rounds) expect(taken.length).toBeLessThanOrEqual(5);
    expect(rounds.length).toBeGreaterThan((PODS + POLICIES) / 5);
    whole.put(2);
    await whole.calm();
    expect(world.desired).toEqual(whole.desired);
    await world.stop();
    await whole.stop();
  });

  it('takes one change in at least, pods and policies in turn, however long each change takes', async () => {
    let passed = 0;
    const world = new World(() => (passed += 1_000 * SHARE_MS));
    const { rounds } = world.model;
    world.start();
    await world.calm();
    world.put(1);
    await world.calm();
    const taken = rounds.flat();
    for (const round of rounds) expect(round.length).toBeLessThanOrEqual(1);
    const pods = taken.slice(0, 2 * POLICIES).filter((what) => what === 'pod').length;
    expect(Math.abs(pods - POLICIES)).toBeLessThanOrEqual(2);
    expect(taken.filter((what) => what === 'pod')).toHaveLength(PODS);
    await world.stop();
  });

  it('shows the first state at its end, in as many rounds as it takes; what changes meanwhile is taken in after that', async () => {
    const whole = new World(() => 0).put(1);
    whole.put(2);
    let passed = 0;
    const world = new World(() => (passed += SHARE_MS / 5)).put(1);
    const { identities, statuses } = world.tables;
    const parts = new Set<number>();
    const look = (): void => {
      using snapshot = world.db.read();
      const shown = snapshot.count(identities);
      if (shown > 0 && parts.size === 0) world.put(2);
      for (const table of Object.values(world.tables)) {
        if (table.name.startsWith('desired')) expect(snapshot.initialised(table)).toBe(snapshot.initialised(statuses));
      }
      if (snapshot.initialised(statuses)) return;
      if (shown > 0) parts.add(shown);
      setImmediate(look);
    };
    look();
    for (const each of [whole, world]) {
      each.start();
      await each.calm();
    }
    expect(parts.size).toBeGreaterThan(PODS / 5 - 1);
    expect(world.desired).toEqual(whole.desired);
    await world.stop();
    await whole.stop();
  });

  it('gives what the first state leaves over to those that waited for it, also when that state takes many rounds', async () => {
    const before = new World(() => 0).put(1);
    before.start();
    await before.calm();
    // All identities and policies of before are gone, but until everything has been taken in nobody knows it.
    const limits = { identitiesPerNamespace: PODS, policyLimits: { ...NO_LIMITS, policiesPerNamespace: POLICIES } };
    let passed = 0;
    const world = new World(() => (passed += SHARE_MS / 5), before.adopted, limits).put(2, 'v');
    const whole = new World(() => 0).put(2, 'v');
    for (const each of [whole, world]) {
      each.start();
      await each.calm();
    }
    expect(world.model.rounds.length).toBeGreaterThan((PODS + POLICIES) / 5);
    expect(world.desired).toEqual(whole.desired);
    for (const each of [before, whole, world]) await each.stop();
  });

  it('keeps what is enforced of a kind that cannot be read, with its peer sets, over as many rounds as it takes', async () => {
    const before = new World(() => 0).put(1);
    const spec = { podSelector: { matchLabels: { app: 'u0' } }, ingress: [{ from: [{ podSelector: {} }] }] };
    const object = knp('a/kept', spec);
    before.db.write([before.tables.policies], (txn) =>
      txn.upsert(
        before.tables.policies,
        policyRow({ ...object, metadata: { ...object.metadata, uid: 'kept', generation: 1 } }, 'NetworkPolicy'),
      ),
    );
    let passed = 0;
    before.start();
    await before.calm();
    const world = new World(() => (passed += 1_000 * SHARE_MS), before.adopted).put(1);
    world.missing.add('NetworkPolicy');
    world.start();
    await world.calm();
    const kept = world.adopted;
    // It can be read while changes wait: none of the kind is left.
    world.missing.clear();
    const { inputSources } = world.tables;
    const source = { name: 'knp', place: 0, synced: true, error: undefined, missing: undefined };
    world.put(2).db.write([inputSources], (txn) => txn.upsert(inputSources, source));
    await world.calm();
    expect(Array.from(world.adopted.resolved, ({ name }) => name)).not.toContain('knp-a.kept');
    const names = (of: Adopted): readonly string[][] => [
      Array.from(of.peerSets, ({ hash }) => hash),
      Array.from(of.resolved, ({ name }) => name),
    ];
    for (const each of [before, world]) await each.stop();
    expect(names(kept)).toEqual(names(before.adopted));
    expect(names(kept)[1]).toContain('knp-a.kept');
  });

  it('is taken whole or not at all', async () => {
    const world = new World(() => 0).put(1);
    const error = new Error('broken');
    world.model.broken = { at: PODS, error };
    world.start();
    await world.calm();
    expect(world.failed.splice(0)).toEqual([error]);
    expect(world.desired).toEqual({ slices: [], resolved: [], statuses: [] });
    for (const { name, rows } of world.db.tables()) if (name === 'placedPods') expect(rows).toBe(0);
    await world.stop();
  });
});
