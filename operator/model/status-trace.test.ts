import { describe, expect, it } from '@jest/globals';
import type { PolicyStatus } from '@weir/kube';
import fc from 'fast-check';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod, report } from '../testing.ts';
import type { Adopted, IdentityRow, PeerSetRow, PodRow, ResolvedRow, SliceRow } from '../types.ts';
import { TestModel } from './testing/test-model.ts';

const NODES = ['n1', 'n2', 'n3'];
const KEY = 'cnp/a/web';
const UID = 'u';
const INTERVAL = 1_000;
const SPECS: readonly object[] = [
  { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{}] },
  { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{ fromCIDR: ['nonsense'] }] },
];

/** What the API holds, a leader, and what nodes have said. */
class Cluster {
  now = 1_700_000_000_000;
  readonly shown: PolicyStatus[] = [];
  readonly nodes = new Map<string, { uid: string; ready: string }>();
  readonly pods = new Map<string, PodRow>();
  /** Newest generation that a node, as it is now, has ever reported, and its report. */
  readonly reached = new Map<string, number>();
  readonly reports = new Map<string, ReturnType<typeof nodeReportRow>>();
  generation = 0;
  valid = true;
  #policy: ReturnType<typeof policyRow> | undefined;
  #model: TestModel;
  #uids = 0;
  #status: PolicyStatus | undefined;
  readonly #identities = new Map<string, IdentityRow>();
  readonly #peerSets = new Map<string, PeerSetRow>();
  readonly #resolved = new Map<string, ResolvedRow>();
  readonly #slices = new Map<string, SliceRow>();

  constructor() {
    this.#model = this.#newModel();
    this.#model.setNamespace(namespaceRow(namespace('a')));
    this.#model.adoptionDone();
  }

  edit(spec: object): void {
    this.generation += 1;
    this.valid = spec === SPECS[0];
    const object = cnp('a/web', spec);
    this.#policy = policyRow(
      { ...object, metadata: { ...object.metadata, uid: UID, generation: this.generation } },
      'CiliumNetworkPolicy',
    );
    this.#model.setPolicy(this.#policy);
  }

  setNode(name: string, ready: string, anew: boolean): void {
    const before = this.nodes.get(name);
    // No uid comes twice, also not after a deletion.
    const uid = before === undefined || anew ? `${name}-${++this.#uids}` : before.uid;
    if (uid !== before?.uid) this.reached.delete(name);
    this.nodes.set(name, { uid, ready });
    const object = node(name, ready);
    this.#model.setNode(nodeRow({ ...object, metadata: { ...object.metadata, uid } }));
  }

  deleteNode(name: string): void {
    this.nodes.delete(name);
    this.reached.delete(name);
    this.#model.deleteNode(name);
  }

  report(name: string, behind: number, failing: boolean): void {
    const uid = this.nodes.get(name)?.uid;
    if (uid === undefined || this.generation === 0) return;
    const generation = Math.max(this.reached.get(name) ?? 0, this.generation - behind);
    const failures = failing ? [{ uid: UID, generation: this.generation, reason: 'Broken', message: 'm' }] : [];
    this.reached.set(name, generation);
    const object = report(name, { policies: { [UID]: { generation, endpoints: 1 } }, failures });
    const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name, uid }];
    const row = nodeReportRow({ ...object, metadata: { ...object.metadata, ownerReferences } });
    this.reports.set(name, row);
    this.#model.setReport(row);
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
        if (row === undefined || JSON.stringify(row.status) === JSON.stringify(this.#status)) continue;
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
      slices: [...this.#slices.values()].map(({ name, namespace: ns, endpoints }) => ({
        name,
        namespace: ns,
        pods: endpoints.map((endpoint) => endpoint.name),
      })),
      statuses: this.#status === undefined ? [] : [{ key: KEY, uid: UID, status: this.#status }],
    };
    this.#model.adopt(adopted);
    const inputs: (() => void)[] = [
      () => this.#model.setNamespace(namespaceRow(namespace('a'))),
      () => this.#policy !== undefined && this.#model.setPolicy(this.#policy),
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

  /** Live nodes that host a selected pod which stays. */
  hosts(): string[] {
    const on = [...this.pods.values()].filter((p) => !p.terminating && p.labels.app === 'web').map((p) => p.node);
    return NODES.filter((name) => on.includes(name) && this.nodes.get(name)?.ready === 'True');
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

type Step = (cluster: Cluster) => void;

const onNode = fc.constantFrom(...NODES);
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.constantFrom(...SPECS, SPECS[0] as object).map(
    (spec): Step =>
      (c) =>
        c.edit(spec),
  ),
  fc.record({ name: onNode, ready: fc.constantFrom('True', 'True', 'False', 'Unknown'), anew: fc.boolean() }).map(
    ({ name, ready, anew }): Step =>
      (c) =>
        c.setNode(name, ready, anew),
  ),
  onNode.map(
    (name): Step =>
      (c) =>
        c.deleteNode(name),
  ),
  ...Array.from({ length: 2 }, () =>
    fc.record({ name: onNode, behind: fc.constantFrom(0, 0, 1), failing: fc.constantFrom(false, false, true) }).map(
      ({ name, behind, failing }): Step =>
        (c) =>
          c.report(name, behind, failing),
    ),
  ),
  fc.record({ n: fc.nat(4), on: onNode, app: fc.constantFrom('web', 'other'), terminating: fc.boolean() }).map(
    ({ n, on, app, terminating }): Step =>
      (c) =>
        c.setPod(n, on, app, terminating),
  ),
  fc.nat(4).map(
    (n): Step =>
      (c) =>
        c.deletePod(n),
  ),
  fc.nat(100).map(
    (order): Step =>
      (c) =>
        c.failOver(order),
  ),
);

describe('status, whatever happens', () => {
  it('Programmed is True only when each live node with a selected pod has reported that generation, and never stays behind', () => {
    let programmed = 0;
    fc.assert(
      fc.property(fc.array(fc.tuple(step, fc.nat(1_500)), { maxLength: 60, size: 'max' }), (trace) => {
        const cluster = new Cluster();
        for (const [act, wait] of trace) {
          act(cluster);
          const before = cluster.shown.length;
          cluster.flush();
          for (const status of cluster.shown.slice(before)) {
            expect(status.observedGeneration).toBe(cluster.generation);
            expect(new Set(status.conditions.map((c) => c.observedGeneration))).toEqual(new Set([cluster.generation]));
            const found = status.conditions.find(({ type }) => type === 'Programmed');
            if (found?.status !== 'True') continue;
            programmed += 1;
            expect(cluster.valid).toBe(true);
            for (const host of cluster.hosts()) expect(cluster.reached.get(host)).toBe(cluster.generation);
          }
          cluster.now += wait;
        }
        // In the end the status is what the cluster is.
        cluster.now += INTERVAL;
        cluster.flush();
        if (cluster.generation === 0) return;
        const hosts = cluster.hosts();
        expect(cluster.status?.observedGeneration).toBe(cluster.generation);
        if (cluster.valid && hosts.some((host) => cluster.reached.get(host) !== cluster.generation)) {
          expect(cluster.programmed).toMatch(/^False/);
        }
        // A leader that reads the same changes nothing.
        const count = cluster.shown.length;
        for (let order = 0; order < 3; order += 1) {
          cluster.failOver(order);
          cluster.flush();
        }
        expect(cluster.shown).toHaveLength(count);
      }),
      { numRuns: 400 },
    );
    expect(programmed).toBeGreaterThan(100);
  });

  it('nodes that are down, joining, deleted, or that another one replaces', () => {
    const cluster = new Cluster();
    const settle = (): string => {
      cluster.now += INTERVAL;
      cluster.flush();
      return cluster.programmed;
    };
    for (const name of ['n1', 'n2']) cluster.setNode(name, 'True', false);
    cluster.setPod(1, 'n1', 'web', false);
    cluster.setPod(2, 'n2', 'web', false);
    cluster.edit(SPECS[0] as object);
    expect(settle()).toBe('False/Progressing/1');
    cluster.report('n1', 0, false);
    expect(settle()).toBe('False/Progressing/1');
    expect(cluster.status?.conditions[2]?.message).toContain('n2 (has reported none)');
    // Down: not waited for, and named.
    cluster.setNode('n2', 'Unknown', false);
    expect(settle()).toBe('True/Programmed/1');
    expect(cluster.status?.summary.nodes).toBe('1/1');
    expect(cluster.status?.conditions[2]?.message).toContain('not waited for: n2');
    // Up again, with what it had before: nothing.
    cluster.setNode('n2', 'True', false);
    expect(settle()).toBe('False/Progressing/1');
    cluster.report('n2', 0, false);
    expect(settle()).toBe('True/Programmed/1');
    // Another machine of the same name has not reported, whatever the one before it did.
    cluster.setNode('n2', 'True', true);
    expect(settle()).toBe('False/Progressing/1');
    cluster.report('n2', 0, false);
    expect(settle()).toBe('True/Programmed/1');
    cluster.deleteNode('n2');
    expect(settle()).toBe('True/Programmed/1');
    expect(cluster.status?.summary).toMatchObject({ nodes: '1/1', endpoints: 2 });
    cluster.deletePod(1);
    cluster.deletePod(2);
    expect(settle()).toBe('True/NoMatchingEndpoints/1');
  });

  it('a node whose last pod is going counts while it says that it has it', () => {
    const cluster = new Cluster();
    cluster.setNode('n1', 'True', false);
    cluster.setPod(1, 'n1', 'web', false);
    cluster.edit(SPECS[0] as object);
    cluster.report('n1', 0, false);
    cluster.flush();
    expect(cluster.programmed).toBe('True/Programmed/1');
    cluster.setPod(1, 'n1', 'web', true);
    cluster.edit(SPECS[0] as object);
    cluster.now += INTERVAL;
    cluster.flush();
    expect(cluster.programmed).toBe('False/Progressing/2');
    cluster.report('n1', 0, false);
    cluster.now += INTERVAL;
    cluster.flush();
    expect(cluster.programmed).toBe('True/Programmed/2');
  });
});
