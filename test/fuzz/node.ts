/** A node's agent without a kernel: its sources, tables and model, with plans carried out in memory, and its reports. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RESERVED, RESERVED_ID } from '@weir/identity';
import type { FencingClient, KubeClient } from '@weir/kube';
import { formatLabels } from '@weir/labels';
import { canonicalPrefix } from '@weir/net';
import { type Direction, MOST_ROWS } from '@weir/policy';
import { inputTables, tableKey } from '../../node-agent/create-tables.ts';
import { rowsByClass } from '../../node-agent/derive/index.ts';
import { classAt } from '../../node-agent/derive/testing/class-at.ts';
import { World } from '../../node-agent/derive/testing/model-world.ts';
import { Kubernetes } from '../../node-agent/kubernetes/index.ts';
import type { EndpointStateRow, PolicyRow, SlotRow } from '../../node-agent/tables.ts';
import { FakeCore, quiet } from '../../node-agent/testing/fake-core.ts';
import { UninstallMark } from '../../node-agent/uninstall/mark.ts';
import { policyKey } from '../../operator/names.ts';

/** Milliseconds between looks for changed inputs. */
const LOOK_MS = 10;
const TCP = 6;
const WITHHELD = { reason: 'KernelRefused', message: 'full' };

/** A pod that CNI has connected on this node. */
export interface Connected {
  readonly id: number;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly ip: string;
}

/** Addresses and ports that verdicts are asked for. */
export interface Probes {
  readonly addresses: readonly string[];
  readonly ports: readonly number[];
}

export interface NodeOptions {
  readonly name: string;
  readonly client: KubeClient & FencingClient;
  /** Keys (`cnp/namespace/name`) of policies that this node never says it enforces. */
  readonly withheld: ReadonlySet<string>;
  /** Called after each plan. */
  readonly onPlan: (node: FuzzNode) => void;
  readonly onFailure: (what: string) => void;
}

export class FuzzNode {
  readonly name: string;
  readonly world: World;
  readonly pods: readonly Connected[] = [];
  readonly #options: NodeOptions;
  readonly #core: FakeCore;
  readonly #kubernetes: Kubernetes;
  readonly #mark: UninstallMark;
  readonly #loop: Promise<void>;
  #stopped = false;
  #now = 0;
  #seen = '';
  #plans = 0;

  constructor(options: NodeOptions, pods: readonly Connected[] = []) {
    const { name, client } = options;
    this.#options = options;
    this.name = name;
    this.world = new World({ nodeName: name });
    this.#core = new FakeCore(this.world.db, this.world.tables);
    const daemonSet = { namespace: 'kube-system', name: 'weir-agent' };
    this.#mark = new UninstallMark(this.#core.db, daemonSet);
    const sources = () => [this.#mark.source];
    this.#kubernetes = new Kubernetes({ core: this.#core, client, nodeName: name, sources, log: quiet });
    this.#mark.values.subscribe(() => options.onFailure(`${name}: the agent is told to remove itself`));
    for (const pod of pods) this.connect(pod);
    this.#kubernetes.start();
    this.#loop = this.#run();
  }

  connect(pod: Connected): void {
    (this.pods as Connected[]).push(pod);
    const { id, namespace, name, uid, ip } = pod;
    this.world.endpoint(id, { addresses: [ip], pod: { namespace, name, uid } });
  }

  disconnect(namespace: string, name: string): void {
    const at = this.pods.findIndex((pod) => pod.namespace === namespace && pod.name === name);
    const [gone] = (this.pods as Connected[]).splice(at, 1);
    if (gone !== undefined) this.world.dropEndpoint(gone.id);
  }

  /** Why the agent is not well; undefined: it is. */
  get unwell(): string | undefined {
    const { ok, message } = this.#kubernetes.status();
    return ok ? undefined : message;
  }

  /** Everything that it was told is in the plan that was carried out last. */
  get settled(): boolean {
    return this.#plans > 0 && this.#inputs() === this.#seen;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#loop;
    this.#mark.stop();
    await this.#kubernetes.stop();
  }

  /** What is enforced of a connected pod, for comparison: no numbers, but labels, names and verdicts. */
  enforced(pod: Connected, { addresses, ports }: Probes): Readonly<Record<string, unknown>> | undefined {
    const state = this.world.states.get(pod.id);
    if (state === undefined) return undefined;
    const { labels, enforced, state: is, reason } = state;
    const verdicts: Record<string, string> = {};
    for (const address of addresses)
      for (const direction of ['ingress', 'egress'] as const)
        verdicts[`${direction} ${address}`] = ports
          .map((port) => this.#verdict(state, direction, address, port))
          .join();
    return { labels: formatLabels(labels), enforced, is, reason, policies: this.#policiesOf(state), verdicts };
  }

  /** As whom the address is judged here. */
  peer(address: string): string {
    const number = this.#identityOf(address);
    // Which CIDRs there are depends on everybody's policies; what each comes to, on those of one pod: see the verdicts.
    if (number === RESERVED_ID.world || this.world.model.prefixOf(number) !== undefined) return 'outside';
    const reserved = RESERVED.get(number);
    if (reserved !== undefined) return Object.keys(reserved).join();
    using told = this.world.db.read();
    const labels = told.get(this.world.tables.identities, tableKey.identity(number))?.labels;
    return labels === undefined ? 'unknown' : formatLabels(labels).join();
  }

  /** Rows of each table, by its name. */
  rows(): ReadonlyMap<string, number> {
    return new Map(this.world.db.tables().map(({ name, rows }) => [name, rows]));
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      try {
        await this.#look();
      } catch (error) {
        this.#options.onFailure(
          `${this.name}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
        );
        return;
      }
      await sleep(LOOK_MS);
    }
  }

  async #look(): Promise<void> {
    const { world } = this;
    using told = world.db.read();
    if (!inputTables(world.tables).every((table) => told.initialised(table))) return;
    const inputs = this.#inputs();
    this.#pass();
    const due = world.model.dueAt();
    if (inputs === this.#seen && (due === undefined || due > this.#now)) return;
    // The kernel keeps what it has while something that a policy names has not come.
    while (world.model.pull(100));
    if (world.model.awaited().size > 0) return;
    for (let again = true; again; this.#pass()) {
      const plan = await world.plan();
      world.model.forgetCidrs(plan.ipcacheGone);
      for (const slot of plan.slots) this.#measure(slot);
      again = plan.again;
    }
    this.#seen = inputs;
    this.#plans += 1;
    this.#publish();
    this.#options.onPlan(this);
  }

  /** What a slot costs is its rows: whatever policies say, there is a budget of them. */
  #measure(slot: SlotRow): void {
    for (const direction of ['ingress', 'egress'] as const) {
      const rows = rowsByClass(slot, direction)
        .values()
        .reduce((sum, { length }) => sum + length, 0);
      if (rows > MOST_ROWS) this.#options.onFailure(`${this.name}: a slot has ${rows} rows of ${direction}`);
    }
  }

  #pass(): void {
    this.#now += LOOK_MS;
    this.world.pass(LOOK_MS);
  }

  #inputs(): string {
    using told = this.world.db.read();
    return inputTables(this.world.tables)
      .map((table) => told.revision(table))
      .join();
  }

  /** States as others of the agent read them, and the node's report. */
  #publish(): void {
    const { db, tables, states } = this.world;
    db.write([tables.endpointStates], (txn) => {
      txn.deleteAll(tables.endpointStates);
      for (const state of states.values()) txn.upsert(tables.endpointStates, state);
    });
    using told = db.read();
    const version = [...told.all(tables.policyVersions)].at(-1)?.version;
    const failures = [...told.all(tables.policies)].flatMap((row) =>
      this.#options.withheld.has(keyOf(row)) ? [{ ...WITHHELD, uid: row.uid, generation: row.generation }] : [],
    );
    this.#core.setRealised({ revision: 1, policyVersion: version, ownVersion: version, failures });
  }

  #policiesOf({ policies }: EndpointStateRow): string[] {
    using told = this.world.db.read();
    return Object.entries(policies)
      .map(([uid, generation]) => {
        const row = told.get(this.world.tables.policies, uid);
        return `${row === undefined ? uid : keyOf(row)}@${generation}`;
      })
      .sort();
  }

  #verdict({ slot, enforced }: EndpointStateRow, direction: Direction, address: string, port: number): string {
    if (!enforced[direction]) return 'allow';
    const row = this.world.slots.get(slot);
    if (row === undefined) return 'deny';
    const number = classAt(this.world.ipcache, row.classes[direction], `${address}/32`);
    const rows = rowsByClass(row, direction).get(number) ?? [];
    return rows.find(({ protocol, from, to }) => protocol === TCP && from <= port && port <= to)?.verdict ?? 'deny';
  }

  /** Of the longest prefix. */
  #identityOf(address: string): number {
    for (let bits = 32; bits >= 0; bits -= 1) {
      const row = this.world.ipcache.get(canonicalPrefix(`${address}/${bits}`));
      if (row !== undefined) return row.identity;
    }
    return 0;
  }
}

function keyOf({ kind, namespace, name }: PolicyRow): string {
  return kind === 'BareRules' ? name : policyKey(kind, namespace, name);
}
