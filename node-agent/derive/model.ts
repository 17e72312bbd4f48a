/**
 * From input tables to what the kernel is to hold. Changes are pulled from the tables' streams and only what they touch is
 * derived again; a fresh model over the same tables computes the same (but for numbers given out, and what stays in force
 * while its successor is incomplete). `#listen` says where each input row goes, `plan` in which order it is computed from.
 */

import { LOCAL_ENDPOINT_BASE } from '@weir/identity';
import type { LabelMap } from '@weir/labels';
import {
  type Direction,
  type Entity,
  type Excess,
  entityHas,
  type PeerIdentity,
  type ResolvedRule,
  type SelectorHash,
} from '@weir/policy';
import { messageOf } from '@weir/process/errors';
import type { StateDB } from '@weir/statedb';
import type { AddressSource, Naming, PlanStep, Tables } from '../core.ts';
import type { EndpointStateRow, NodeRow, PolicyRow } from '../tables.ts';
import { AllDerivers, type DeriverOptions } from './derivers.ts';
import type { EndpointIdentity, Identities } from './identities.ts';
import { type Judging, NO_POLICIES } from './in-force.ts';
import { Inputs } from './inputs.ts';
import type { KernelState, Plan } from './plan.ts';
import { compute, type Marks, NOTHING_COMPUTED, noMarks, STEPS, type Step, stepsWith } from './plan-steps.ts';
import type { InUse, Missing, Policies } from './policies.ts';
import { DIRECTIONS } from './rows.ts';
import type { UnconnectedPod } from './unconnected-pods.ts';
import { Rows } from './working.ts';

export interface ModelOptions extends Omit<DeriverOptions, 'inputs'> {
  /** Called before each step of a plan, and after the last. */
  readonly onStep?: (step: Step | undefined) => void;
}

/** How soon a part's step that failed is tried again, in milliseconds. */
const RETRY_STEP_MS = 1000;

/** A step of a part whose last run failed. */
interface FailedStep {
  readonly name: string;
  readonly message: string;
  readonly retryAt: number;
}

/** Entities that an address inside the cluster belongs to, and none outside. */
const CLUSTER_ENTITIES = ['cluster', 'host', 'remote-node', 'kube-apiserver'] as const satisfies readonly Entity[];
const NOTHING: ReadonlyMap<SelectorHash, PolicyRow> = new Map();

function ownRows(db: StateDB): [atStart: Rows<'', Pick<KernelState, 'unread'>>, failedSteps: Rows<string, FailedStep>] {
  return [
    new Rows(db, { name: 'foundAtStart', key: () => '' }, () => ''),
    new Rows(db, { name: 'failedSteps', key: ({ name }) => name }, (name) => name),
  ];
}

export class Model {
  readonly policies: Policies;
  readonly identities: Identities;
  /** What port names mean for each peer. */
  readonly portNames: Naming['portNames'];
  readonly #options: ModelOptions;
  readonly #inputs: Inputs;
  readonly #derivers: AllDerivers;
  /** What was found at start, until the first plan with rules is computed. */
  readonly #atStart: Rows<'', Pick<KernelState, 'unread'>>;
  #steps: readonly Step[] = STEPS;
  readonly #failedSteps: Rows<string, FailedStep>;
  #marks: Marks = noMarks();
  /** The last plan has computed all that there was. */
  #whole = false;

  constructor(options: ModelOptions) {
    const { db, tables } = options;
    this.#options = options;
    this.#inputs = new Inputs(db);
    [this.#atStart, this.#failedSteps] = ownRows(db);
    this.#derivers = new AllDerivers({ ...options, inputs: this.#inputs });
    this.policies = this.#derivers.policies;
    this.identities = this.#derivers.identities;
    this.portNames = this.#derivers.portNames;
    this.#listen(tables);
  }

  /** Where each input row goes. */
  #listen(tables: Tables): void {
    const inputs = this.#inputs;
    inputs.on(tables.policies, ({ uid }) => this.policies.policyChanged(uid));
    // The next round reports it.
    inputs.on(tables.unreadPolicies, () => undefined);
    inputs.on(tables.proxyFaults, () => undefined);
    inputs.on(tables.peerSets, (row, deleted) => {
      if (this.policies.peerSetChanged(row, deleted)) this.#marks.hashes.add(row.hash);
      this.#derivers.peerSets.setChanged(row.hash);
    });
    inputs.on(tables.identities, ({ id }) => {
      if (id >= LOCAL_ENDPOINT_BASE) return;
      this.#derivers.peerSets.identityChanged(id);
      this.#marks.identities.add(id);
    });
    inputs.on(tables.remoteEndpoints, (row) => {
      this.#derivers.local.sliceChanged(row);
      this.#derivers.remote.endpointChanged(row);
    });
    inputs.on(tables.nodes, (row, deleted) => this.#onNode(row, deleted));
    inputs.on(tables.localPods, (row) => {
      this.#derivers.local.podChanged(row);
      this.#derivers.remote.endpointChanged(row);
    });
    inputs.on(tables.nameIdentities, ({ patterns }) => this.#derivers.slots.hostNamesChanged(patterns));
    inputs.on(tables.namespaces, (row) => this.#derivers.local.namespaceChanged(row));
    inputs.on(tables.apiserverAddresses, (row, deleted) => {
      this.#derivers.ipcache.setApiserver(deleted ? undefined : row, row.address);
    });
    inputs.on(tables.endpoints, (row, deleted) => {
      this.#derivers.local.endpointChanged(row);
      this.#derivers.remote.localEndpointChanged(row, deleted);
    });
  }

  #onNode(row: NodeRow, deleted: boolean): void {
    this.#derivers.ipcache.setNode(deleted ? undefined : row, row.name);
    this.#derivers.nodes.nodeChanged(row.name);
    if (row.name !== this.#options.core.nodeName) return;
    this.#marks.ownNode = true;
    if ((!deleted && row.kubeApiserver) !== this.#derivers.hostIsApiserver()) this.#marks.host = true;
  }

  /** What parts bring; before the first plan. @throws PartListError */
  extend({
    addresses,
    steps,
  }: {
    readonly addresses: readonly AddressSource[];
    readonly steps: readonly PlanStep[];
  }): void {
    const tell = this.#derivers.ipcache.addSources(addresses);
    for (const [place, { table }] of addresses.entries())
      this.#inputs.on(table, (row, deleted) => tell[place]?.(row, deleted));
    this.#steps = stepsWith(steps, (name, error) => {
      if (error === undefined) this.#failedSteps.delete(name);
      else this.#failedSteps.set({ name, message: messageOf(error), retryAt: this.#options.now() + RETRY_STEP_MS });
    });
  }

  /** Takes over what the kernel holds; before the first plan. */
  adopt(kernel: KernelState): void {
    const { unread = false } = kernel;
    this.#atStart.set({ unread });
    const { numbers } = this.#options;
    this.#derivers.slots.adopt(kernel.slots);
    for (const endpoint of kernel.endpoints) this.#derivers.shapes.adopt(endpoint);
    numbers.sawRevisions(kernel.endpoints.map(({ revision }) => revision));
    const addresses = [...kernel.ipcache];
    this.#derivers.addresses.adopt(addresses);
    for (const [prefix, identity] of addresses) numbers.adoptCidr(prefix, identity);
    for (const { identity } of kernel.endpoints) numbers.reserve(identity);
    for (const [, identity] of addresses) numbers.reserve(identity);
    for (const { classes } of kernel.slots.values())
      for (const direction of DIRECTIONS) for (const identity of classes[direction].keys()) numbers.reserve(identity);
  }

  /**
   * PeerSets without which nothing may be computed, each with a policy that names it: endpoints are enforced since before this
   * start, and their members are not known. What the kernel has stays until the sets are here.
   */
  awaited(): ReadonlyMap<SelectorHash, PolicyRow> {
    const atStart = this.#atStart.get('');
    if (atStart === undefined) return NOTHING;
    return atStart.unread || this.#derivers.shapes.kernelEnforces() ? new Map(this.policies.awaited()) : NOTHING;
  }

  /** The kernel has these revisions of endpoints that are else as they were found. */
  renewed(revisions: Iterable<readonly [id: number, revision: number]>): void {
    this.#derivers.shapes.renewed(revisions);
  }

  /** Steps of parts that failed in the last plan, and why. */
  failedSteps(): { readonly name: string; readonly message: string }[] {
    return Array.from(this.#failedSteps.values(), ({ name, message }) => ({ name, message }));
  }

  /**
   * Takes in at most `limit` changes of all tables together; whether more may be waiting. When it returns false, every table was
   * taken in up to the same moment.
   */
  pull(limit: number): boolean {
    return this.#inputs.pull(limit);
  }

  /** Calls back once, when a table has something to pull (at once when it has already). Returns what takes it back. */
  onPending(callback: () => void): () => void {
    return this.#inputs.onPending(callback);
  }

  /** Stops taking in changes and computing. Results can still be read. */
  dispose(): void {
    this.#inputs.dispose();
    this.#atStart.delete('');
  }

  /**
   * Computes what must change, by the steps of `plan-steps.ts`. Its rows count as current from then on. `rules`: every input is complete; else
   * those are that say who has which address.
   */
  async plan({ rules } = { rules: true }): Promise<Plan> {
    this.#derivers.pace.restart();
    const marks = this.#marks;
    const first = this.#atStart.has('');
    // The kernel has what the last plan said, or closes whom it concerns.
    if (this.#whole) this.#options.numbers.sweepListeners(() => this.#derivers.slots.listeners());
    const plan = await compute(
      { marks, policies: this.policies.pending, rules, first, ...NOTHING_COMPUTED },
      this.#derivers,
      this.#steps,
      this.#options.onStep,
    );
    const { hashes, host } = marks;
    this.#marks = rules ? noMarks() : { ...noMarks(), hashes, host };
    this.#derivers.endPlan();
    if (rules) this.#atStart.delete('');
    this.#whole = rules && !plan.again;
    return plan;
  }

  /** New revisions for endpoints whose decisions may differ. */
  bump(endpoints: Iterable<number>): EndpointStateRow[] {
    return this.#derivers.endpointStates.bump(endpoints);
  }

  /**
   * The kernel keeps CIDRs that the last plan lets go, with the identities that it has for them: rules that it could not replace name them. The
   * next plan lets them go again; until then slots count them among the identities.
   */
  keepAddresses(kept: Iterable<readonly [prefix: string, identity: number]>): void {
    this.#derivers.addresses.adopt(kept);
  }

  /** The kernel knows nobody at these addresses: the next plan has them again. */
  withholdAddresses(prefixes: Iterable<string>): void {
    for (const prefix of prefixes) this.#derivers.addresses.put(prefix, 0);
  }

  slotOutgrown(slot: number): void {
    this.#derivers.slots.outgrown(slot);
  }

  slotReleased(slot: number): void {
    this.#derivers.slots.release(slot);
  }

  /** The numbers of CIDRs that nothing names any more, and that the kernel has dropped, may be given out again. */
  forgetCidrs(prefixes: Iterable<string>): void {
    for (const prefix of prefixes)
      if (this.#derivers.ipcache.row(prefix) === undefined) this.#options.numbers.releaseCidr(prefix);
  }

  /** Whose an address is: `local 7`, `remote ns/pod`, `node name`, ... */
  ownerOf(prefix: string): string | undefined {
    return this.#derivers.ipcache.owner(prefix);
  }

  /** When there is something to compute though no input changes, by the given clock; undefined: not before an input changes. */
  dueAt(): number | undefined {
    const steps = this.#failedSteps.values().map(({ retryAt }) => retryAt);
    const due = Math.min(this.#derivers.local.dueAt() ?? Infinity, this.#derivers.slots.retryAt(), ...steps);
    return due === Infinity ? undefined : due;
  }

  ipcacheSize(): number {
    return this.#derivers.addresses.size;
  }

  /** Whether some address has the identity, once the current plan is in the kernel. */
  addressed(identity: number): boolean {
    return this.#derivers.addresses.has(identity);
  }

  /** See `AllDerivers`. */
  members(hash: SelectorHash): readonly number[] | undefined {
    return this.#derivers.members(hash);
  }

  /** Policies in force that name the identity as a peer: by a set of pods, or by an entity of the cluster. */
  *policiesWithPeer(peer: PeerIdentity): Generator<InUse> {
    const { policies } = this;
    for (const hash of this.#derivers.peerSets.setsOf(peer.id, this.localIdentity(peer.id)?.labels))
      yield* policies.inUseWithPeer(hash);
    for (const entity of CLUSTER_ENTITIES) if (entityHas(entity, peer)) yield* policies.inUseWithPeer(entity);
  }

  /** Labels of one of this node's own label sets, or of another node that has a number. */
  localIdentity(id: number): { readonly labels: LabelMap } | undefined {
    const labels = this.#derivers.nodes.labelsOf(id);
    return labels === undefined ? this.#derivers.local.localLabelsOf(id) : { labels };
  }

  /** This node's own identities: label sets of its endpoints, CIDRs, and nodes that rules tell apart. */
  *localIdentities(): Generator<{ readonly id: number; readonly labels: LabelMap }> {
    for (const [prefix, id] of this.#options.numbers.cidrs())
      yield { id, labels: { [`cidr:${prefix}`]: '', 'reserved:world': '' } };
    for (const { identity, labels } of this.#derivers.local.localLabels()) yield { id: identity, labels };
    yield* this.#derivers.nodes.all();
  }

  /** The prefix that a local CIDR identity stands for. */
  prefixOf(id: number): string | undefined {
    return this.#options.numbers.prefixOf(id);
  }

  info(endpoint: number): EndpointIdentity | undefined {
    return this.#derivers.local.infos.get(endpoint);
  }

  state(endpoint: number): EndpointStateRow | undefined {
    return this.#derivers.states.get(endpoint)?.state;
  }

  /** Ids of the local endpoints. */
  endpoints(): Iterable<number> {
    return Array.from(this.#derivers.local.infos.values(), ({ row }) => row.id);
  }

  states(): Iterable<EndpointStateRow> {
    return this.#derivers.states.values().map(({ state }) => state);
  }

  /** Why the endpoint's policy could not be compiled: it is closed. */
  failure(endpoint: number): Error | undefined {
    return this.#derivers.shapes.failure(endpoint);
  }

  /** The directions of the endpoint that are closed, as their rules need too many rows. */
  *excesses(endpoint: number): Generator<readonly [Direction, Excess]> {
    const compiled = this.#derivers.shapes.slotOf(endpoint)?.compiled;
    for (const direction of DIRECTIONS) {
      const excess = compiled?.[direction].excess;
      if (excess !== undefined) yield [direction, excess];
    }
  }

  /** Whether a policy that could not be compiled is due to be tried again. */
  get failing(): boolean {
    return this.#derivers.slots.retryAt() <= this.#options.now();
  }

  /** Policies of which some rule selects the endpoint: one object for all endpoints of one identity. */
  policiesOf(endpoint: number): Judging {
    const info = this.#derivers.local.infos.get(endpoint);
    const subject = info?.ready === true ? this.#derivers.inForce.subject(info.identity) : undefined;
    return subject === undefined ? NO_POLICIES : this.#derivers.inForce.policiesOf(subject);
  }

  /** Endpoints that have no identity, or not that of their labels, as of the last plan. */
  unidentified(): Iterable<EndpointIdentity> {
    return Iterator.from(this.#derivers.local.infos.values()).filter(
      ({ ready, unnumberedSince }) => !ready || unnumberedSince !== undefined,
    );
  }

  /** Pods of this node that have no interface of ours, each with the policies that select it, as of the last plan. */
  *unconnected(): Generator<
    readonly [UnconnectedPod, readonly { readonly uid: string; readonly generation: number }[]]
  > {
    for (const one of this.#derivers.unconnected.values())
      yield [one, [...new Set(Array.from(this.#derivers.inForce.groups(one.identity), ([{ row }]) => row))]];
  }

  missing(): Iterable<Missing> {
    return this.policies.missing();
  }

  /** Rules in force that select the endpoint. */
  *selecting(endpoint: number): Generator<readonly [InUse, ResolvedRule]> {
    const info = this.#derivers.local.infos.get(endpoint);
    if (info === undefined || !info.ready) return;
    for (const [inUse, { rules }] of this.#derivers.inForce.groups(info.identity))
      for (const rule of rules) yield [inUse, rule];
  }
}
