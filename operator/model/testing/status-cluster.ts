/** Test helper: what the API holds, a leader, nodes with their kernels, and what they have said of one policy. */
import { expect } from '@jest/globals';
import type { PolicyStatus } from '@weir/kube';
import { adoptedSlice, sliceObject } from '../../kubernetes/objects.ts';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from '../../kubernetes/rows.ts';
import { cnp, namespace, node, pod, report } from '../../testing.ts';
import type {
  Adopted,
  IdentityRow,
  NodeReportRow,
  PeerSetRow,
  PodRow,
  ResolvedRow,
  ResolvedVersionRow,
  SliceRow,
} from '../../types.ts';
import { TestModel } from './test-model.ts';

export const NODES = ['n1', 'n2', 'n3'];
const KEY = 'cnp/a/web';
export const INTERVAL = 1_000;
const INVALID = { endpointSelector: { matchLabels: { app: 'web' } }, nodeSelector: {}, ingress: [{}] };
export const select = (app: string): object => ({ endpointSelector: { matchLabels: { app } }, ingress: [{}] });
export const SPECS: readonly object[] = [select('web'), INVALID, select('other'), select('nobody')];

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
export class Cluster {
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
