import { describe, expect, it } from '@jest/globals';
import type { PolicyStatus } from '@weir/kube';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { adoptedSlice, sliceObject } from '../kubernetes/objects.ts';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import type {
  Adopted,
  IdentityRow,
  NodeReportRow,
  PeerSetRow,
  PodRow,
  ResolvedRow,
  ResolvedVersionRow,
  SliceRow,
} from '../types.ts';
import { TestModel } from './testing/test-model.ts';

const NODES = ['n1', 'n2', 'n3'];
const KEY = 'cnp/a/web';
const INTERVAL = 1_000;
const INVALID = { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{ fromCIDR: ['nonsense'] }] };
const select = (app: string): object => ({ endpointSelector: { matchLabels: { app } }, ingress: [{}] });
const SPECS: readonly object[] = [select('web'), INVALID, select('other'), select('nobody')];

/** A version of the policy as nodes read it. */
interface Held extends ResolvedVersionRow {
  readonly app: string | undefined;
}

/** What a node's kernel has: of the policy, and of the API server's versions. */
interface Kernel {
  readonly held: Held | undefined;
  /** The version selects a pod of the node, as far as the node has looked. */
  readonly enforces: boolean;
}

/** What the API holds, a leader, nodes with their kernels, and what they have said. */
class Cluster {
  now = 1_700_000_000_000;
  readonly shown: PolicyStatus[] = [];
  readonly nodes = new Map<string, { uid: string; ready: string }>();
  readonly pods = new Map<string, PodRow>();
  readonly kernels = new Map<string, Kernel>();
  readonly reports = new Map<string, NodeReportRow>();
  /** Nodes that were down, or had no report, when the policy was called programmed: nobody asked them. */
  readonly unasked = new Set<string>();
  generation = 0;
  uid = 'u0';
  valid = true;
  held: Held | undefined;
  #spec = INVALID;
  #policy: ReturnType<typeof policyRow> | undefined;
  #model: TestModel;
  #uids = 0;
  #version = 100;
  #status: PolicyStatus | undefined;
  #shownUid = '';
  /** What each valid generation selects. */
  readonly #apps = new Map<string, string>();
  readonly #identities = new Map<string, IdentityRow>();
  readonly #peerSets = new Map<string, PeerSetRow>();
  readonly #resolved = new Map<string, ResolvedRow>();
  readonly #slices = new Map<string, SliceRow>();

  constructor() {
    this.#model = this.#newModel();
    this.#model.setNamespace(namespaceRow(namespace('a')));
    this.#model.adoptionDone();
  }

  /** `anew`: another policy of this name. */
  edit(spec: object, anew = false, uid = `u${++this.#uids}`): void {
    if (anew) {
      this.uid = uid;
      this.generation = 0;
    }
    this.generation += 1;
    this.valid = spec !== INVALID;
    this.#spec = spec as typeof INVALID;
    if (this.valid) this.#apps.set(`${this.uid}/${this.generation}`, this.#spec.endpointSelector.matchLabels.app);
    const object = cnp('a/web', spec);
    this.#policy = policyRow(
      { ...object, metadata: { ...object.metadata, uid: this.uid, generation: this.generation } },
      'CiliumNetworkPolicy',
    );
    this.#model.setPolicy(this.#policy);
  }

  /** The API server has taken what is desired. */
  handOut(): void {
    this.#version += 1;
    const [row] = this.#model.handOut(this.#version);
    if (row === undefined || (row.uid === this.held?.uid && row.generation === this.held.generation)) return;
    const app = this.#apps.get(`${row.uid}/${row.generation}`);
    this.held = { ...row, app };
  }

  setNode(name: string, ready: string, anew: boolean): void {
    const before = this.nodes.get(name);
    // No uid comes twice, also not after a deletion.
    const uid = before === undefined || anew ? `${name}-${++this.#uids}` : before.uid;
    if (uid !== before?.uid) this.#forget(name);
    this.nodes.set(name, { uid, ready });
    const object = node(name, ready);
    this.#model.setNode(nodeRow({ ...object, metadata: { ...object.metadata, uid } }));
  }

  deleteNode(name: string): void {
    this.nodes.delete(name);
    this.#forget(name);
    this.#model.deleteNode(name);
  }

  /** The machine is gone; the object that it left is another machine's. */
  #forget(name: string): void {
    this.kernels.delete(name);
  }

  /** The node reads what the API server holds, and its kernel has it. */
  take(name: string): void {
    if (!this.nodes.has(name)) return;
    const held = this.held;
    const enforces = [...this.pods.values()].some((p) => p.node === name && p.labels.app === held?.app);
    this.kernels.set(name, { held, enforces });
    this.unasked.delete(name);
  }

  report(name: string, failing: boolean): void {
    const uid = this.nodes.get(name)?.uid;
    const { held } = this.kernels.get(name) ?? {};
    if (uid === undefined || held === undefined) return;
    const failures = failing ? [{ uid: this.uid, generation: this.generation, reason: 'Broken', message: 'm' }] : [];
    const object = report(name, { failures, policyVersion: held.version });
    const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name, uid }];
    const row = nodeReportRow({ ...object, metadata: { ...object.metadata, ownerReferences } });
    this.reports.set(name, row);
    this.#model.setReport(row);
  }

  /** Somebody deletes the report, whatever the node enforces. */
  loseReport(name: string): void {
    if (this.reports.delete(name)) this.#model.deleteReport(name);
  }

  /** Takes and reports. */
  speak(name: string): void {
    this.take(name);
    this.report(name, false);
  }

  /** These nodes have all that is desired. */
  catchUp(names: readonly string[]): void {
    this.handOut();
    for (const name of names) this.speak(name);
  }

  setPod(n: number, on: string, app: string, terminating: boolean): void {
    const row = podRow(pod(`a/p${n}`, { app }, { ip: `10.0.0.${n}`, node: on, terminating }));
    this.pods.set(row.key, row);
    this.#model.setPod(row);
  }

  deletePod(n: number): void {
    this.pods.delete(`a/p${n}`);
    this.#model.deletePod(`a/p${n}`);
  }

  flush(): void {
    do {
      const edits = this.#model.flush();
      for (const [map, list] of [
        [this.#identities, edits.identities],
        [this.#peerSets, edits.peerSets],
        [this.#resolved, edits.resolved],
        [this.#slices, edits.slices],
      ] as readonly (readonly [Map<string, unknown>, readonly { key: string; row: unknown }[]])[]) {
        for (const { key, row } of list) {
          if (row === undefined) map.delete(key);
          else map.set(key, row);
        }
      }
      for (const { row } of edits.statuses) {
        if (row === undefined) continue;
        this.#shownUid = row.uid;
        if (JSON.stringify(row.status) === JSON.stringify(this.#status)) continue;
        this.#status = row.status;
        this.shown.push(row.status);
      }
    } while (this.#model.more);
  }

  /** The leader ends; the next one reads what the API holds, in one of many orders. */
  failOver(order: number): void {
    this.#model = this.#newModel();
    const adopted: Adopted = {
      identities: [...this.#identities.values()],
      peerSets: [...this.#peerSets.values()],
      resolved: [...this.#resolved.values()],
      slices: [...this.#slices.values()].map((row) => adoptedSlice(sliceObject(row))),
      statuses: this.#status === undefined ? [] : [{ key: KEY, uid: this.#shownUid, status: this.#status }],
    };
    this.#model.adopt(adopted);
    const inputs: (() => void)[] = [
      () => this.#model.setNamespace(namespaceRow(namespace('a'))),
      () => this.#policy !== undefined && this.#model.setPolicy(this.#policy),
      () => this.held !== undefined && this.#model.setResolvedVersion(rowOf(this.held)),
      ...[...this.nodes].map(([name, { uid, ready }]) => () => {
        const object = node(name, ready);
        this.#model.setNode(nodeRow({ ...object, metadata: { ...object.metadata, uid } }));
      }),
      ...[...this.reports.values()].map((row) => () => this.#model.setReport(row)),
      ...[...this.pods.values()].map((row) => () => this.#model.setPod(row)),
    ];
    for (let i = 0; inputs.length > 0; i += 1) inputs.splice((order * 7 + i) % inputs.length, 1)[0]?.();
    this.#model.adoptionDone();
  }

  /** Folded anew the status is the same: every change so far that concerned it had it folded. */
  foldAnew(): void {
    this.settle();
    const before = this.#status;
    this.#model.touchStatus(KEY);
    this.settle();
    expect(this.#status).toEqual(before);
  }

  live(): string[] {
    return NODES.filter((name) => this.nodes.get(name)?.ready === 'True');
  }

  /** Live nodes that host a pod which stays and which the newest generation selects. */
  hosts(): string[] {
    const { app } = this.#spec.endpointSelector.matchLabels as { app?: string };
    const on = [...this.pods.values()].filter((p) => !p.terminating && p.labels.app === app).map((p) => p.node);
    return this.live().filter((name) => on.includes(name));
  }

  /** What this very node has reported last, not one of its name before it. */
  reported(name: string): NodeReportRow | undefined {
    const row = this.reports.get(name);
    return row?.nodeUid === this.nodes.get(name)?.uid ? row : undefined;
  }

  /** Lets everything that is held back become due; how far the policy is then. */
  settle(): string {
    this.now += INTERVAL;
    this.flush();
    return this.programmed;
  }

  get programmed(): string {
    const found = this.#status?.conditions.find(({ type }) => type === 'Programmed');
    return `${found?.status}/${found?.reason}/${found?.observedGeneration}`;
  }

  get status(): PolicyStatus | undefined {
    return this.#status;
  }

  #newModel(): TestModel {
    return new TestModel({
      cluster: 'default',
      identityGraceMs: 1_000_000,
      now: () => this.now,
      statusIntervalMs: INTERVAL,
    });
  }
}

function rowOf({ name, uid, generation, version }: Held): ResolvedVersionRow {
  return { name, uid, generation, version };
}

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
