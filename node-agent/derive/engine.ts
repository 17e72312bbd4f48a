/**
 * From input tables to what the kernel is to hold. Changes are pulled from the tables' streams and only what they touch is
 * derived anew; a fresh engine over the same tables concludes the same (but for numbers given out, and what stays in force
 * while its successor is incomplete). `#listen` says where each input row goes, `plan` in which order it is concluded from.
 */

import { RESERVED } from '@weir/identity';
import { type LabelMap, matches } from '@weir/labels';
import type { PeerIdentity, ResolvedRule, SelectorHash } from '@weir/policy';
import type { StateDB } from '@weir/statedb';
import type { CoreOptions, Tables } from '../core.ts';
import type { EndpointStateRow, IdentityRow, NodeRow, PeerSetRow, PolicyRow } from '../tables.ts';
import { Addresses } from './addresses.ts';
import { EndpointShapes } from './endpoint-shapes.ts';
import { EndpointStates } from './endpoint-states.ts';
import { type EndpointIdentity, Identities } from './identities.ts';
import { InForce } from './in-force.ts';
import { Inputs } from './inputs.ts';
import { IpcacheDeriver } from './ipcache.ts';
import { LocalEndpoints } from './local-endpoints.ts';
import type { LocalNumbers } from './numbers.ts';
import { Pace } from './pace.ts';
import { PeerPortNames } from './peer-port-names.ts';
import type { KernelState, Plan } from './plan.ts';
import { type InUse, type Missing, Policies } from './policies.ts';
import { RemoteEndpoints } from './remote-endpoints.ts';
import { Slots } from './slots.ts';

export interface EngineOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly core: Pick<CoreOptions, 'nodeName' | 'clusterName' | 'policyMode' | 'allowLocalhost'>;
  readonly numbers: LocalNumbers;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Lets other work of the process run; called between steps of a few milliseconds. */
  readonly breathe: () => Promise<void>;
}

const NOTHING: ReadonlyMap<SelectorHash, PolicyRow> = new Map();
const NONE: ReadonlySet<number> = new Set();

export class Engine {
  readonly policies: Policies;
  readonly identities: Identities;
  readonly #options: EngineOptions;
  readonly #pace: Pace;
  readonly #inputs: Inputs;
  readonly #ipcache: IpcacheDeriver;
  readonly #addresses: Addresses;
  readonly #local: LocalEndpoints;
  readonly #remote: RemoteEndpoints;
  readonly #inForce: InForce;
  readonly #portNames: PeerPortNames;
  readonly #slots: Slots;
  readonly #shapes: EndpointShapes;
  readonly #states = new Map<number, EndpointStateRow>();
  readonly #endpointStates: EndpointStates;
  #hostApiserver = false;
  #adopting = false;
  #interrupted = false;
  #unread = false;

  // What has changed since the last plan.
  readonly #dirtyIdentities = new Set<number>();
  readonly #dirtyHashes = new Set<SelectorHash>();
  #cidrsChanged = false;

  constructor(options: EngineOptions) {
    const { core, numbers, now } = options;
    this.#options = options;
    const pace = new Pace(now, options.breathe);
    this.#pace = pace;
    const policies = new Policies(now);
    this.policies = policies;
    this.identities = new Identities((hash) => policies.present(hash));
    const ipcache = new IpcacheDeriver({ nodeName: core.nodeName, numbers });
    this.#ipcache = ipcache;
    this.#addresses = new Addresses(ipcache, pace);
    this.#portNames = new PeerPortNames(pace);
    this.#local = new LocalEndpoints({
      clusterName: core.clusterName,
      identities: this.identities,
      numbers,
      ipcache,
      portNames: this.#portNames,
      pace,
    });
    this.#remote = new RemoteEndpoints({ identities: this.identities, ipcache, portNames: this.#portNames, pace });
    const cidrsChanged = (): void => {
      this.#cidrsChanged = true;
    };
    this.#inForce = new InForce({ policies, ipcache, pace, cidrsChanged });
    this.#slots = new Slots({
      members: (hash) => this.members(hash),
      identities: () => this.#peerIdentities(),
      peerPorts: this.#portNames.peers,
      addressed: (identity) => this.#addresses.has(identity),
      now,
    });
    const { infos } = this.#local;
    const shared = { infos, states: this.#states, inForce: this.#inForce, pace };
    this.#shapes = new EndpointShapes({ ...shared, core, slots: this.#slots });
    this.#endpointStates = new EndpointStates({ ...shared, shapes: this.#shapes, policies, numbers });
    this.#inputs = new Inputs(options.db);
    this.#listen(options.tables);
  }

  /** Where each input row goes. */
  #listen(tables: Tables): void {
    const inputs = this.#inputs;
    inputs.on(tables.policies, (row, deleted) => this.policies.setPolicy(deleted ? undefined : row, row.uid));
    inputs.on(tables.peerSets, (row, deleted) => this.#onPeerSet(row, deleted));
    inputs.on(tables.identities, (row, deleted) => this.#onIdentity(row, deleted));
    inputs.on(tables.remoteEndpoints, (row, deleted) => this.#remote.set(row, deleted));
    inputs.on(tables.nodes, (row, deleted) => this.#onNode(row, deleted));
    inputs.on(tables.localPods, (row, deleted) => this.#local.setPod(row, deleted));
    inputs.on(tables.namespaces, (row, deleted) => this.#local.setNamespace(row, deleted));
    inputs.on(tables.apiserverAddresses, (row, deleted) => {
      this.#ipcache.setApiserver(deleted ? undefined : row, row.address);
      this.#cidrsChanged = true;
    });
    inputs.on(tables.endpoints, (row, deleted) => this.#local.setEndpoint(row, deleted));
  }

  #onPeerSet(row: PeerSetRow, deleted: boolean): void {
    this.policies.setPeerSet(deleted ? undefined : row, row.hash);
    for (const id of this.identities.naming(row.hash)) this.#dirtyIdentities.add(id);
    this.#dirtyHashes.add(row.hash);
  }

  #onIdentity(row: IdentityRow, deleted: boolean): void {
    if (row.id >= 0x03000000) return;
    this.identities.set(deleted ? undefined : row, row.id);
    this.#dirtyIdentities.add(row.id);
  }

  #onNode(row: NodeRow, deleted: boolean): void {
    this.#ipcache.setNode(deleted ? undefined : row, row.name);
    if (row.name !== this.#options.core.nodeName) return;
    const apiserver = !deleted && row.kubeApiserver;
    if (apiserver !== this.#hostApiserver) this.#cidrsChanged = true;
    this.#hostApiserver = apiserver;
  }

  /** Takes over what the kernel holds; before the first plan. */
  adopt(kernel: KernelState): void {
    this.#adopting = true;
    this.#interrupted = kernel.interrupted;
    this.#unread = kernel.unread === true;
    this.#slots.adopt(kernel.slots);
    for (const endpoint of kernel.endpoints) {
      this.#shapes.adopt(endpoint);
      this.#options.numbers.sawRevision(endpoint.revision);
    }
    for (const [prefix, identity] of kernel.ipcache) {
      this.#addresses.adopt(prefix, identity);
      this.#options.numbers.adoptCidr(prefix, identity);
    }
  }

  /**
   * PeerSets without which nothing may be concluded, each with a policy that names it: endpoints are enforced since before this
   * start, and what a policy said of them is not known. What the kernel holds stays until the sets are here.
   */
  awaited(): ReadonlyMap<SelectorHash, PolicyRow> {
    if (!this.#adopting) return NOTHING;
    const found = [...this.#shapes.kernel.values()];
    const enforced = this.#unread || found.some((one) => one.enforced.ingress || one.enforced.egress);
    return enforced ? new Map(this.policies.awaited()) : NOTHING;
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

  dispose(): void {
    this.#inputs.dispose();
  }

  /** Concludes what must change. Its rows count as current from then on. */
  async plan(): Promise<Plan> {
    this.#pace.restart();
    await this.#inForce.settle(this.#dirtyHashes);
    for (const hash of this.#dirtyHashes) this.#slots.peerSetChanged(hash);
    for (const id of this.#dirtyIdentities) {
      this.#remote.touchIdentity(id);
      if (this.#pace.due()) await this.#pace.breathe();
    }
    await this.#remote.settle();
    const localChanged = await this.#local.settle(this.#dirtyIdentities.size > 0);
    await this.#inForce.settleSubjects(this.#local.infos.values());
    this.#slots.portNamesChanged(await this.#portNames.settle());
    const use = await this.#shapes.settle();
    if (localChanged) this.#slots.allChanged();
    if (this.#cidrsChanged) this.#slots.identitiesChanged();
    const { slots, slotsGone, reframed } = await this.#shapes.compile(use);
    const tidy = !this.#ipcache.leaving().next().done;
    const again = tidy || reframed || this.#shapes.unsettled() || this.#portNamesLeave();
    const addresses = await this.#addresses.settle(reframed ? this.#portNames.hold() : NONE);
    const { endpoints, afterGone } = await this.#endpointStates.settle(addresses, this.#interrupted);
    const endpointsGone = this.#endpointStates.tidy();
    this.#dirtyHashes.clear();
    this.#dirtyIdentities.clear();
    this.#cidrsChanged = tidy;
    this.#adopting = false;
    this.#shapes.adopted();
    const { upserts: ipcache, deletes: ipcacheGone } = addresses;
    return { slots, ipcache, endpoints, ipcacheGone, afterGone, endpointsGone, slotsGone, again };
  }

  /** New revisions for endpoints whose decisions may differ. */
  bump(endpoints: Iterable<number>): EndpointStateRow[] {
    return this.#endpointStates.bump(endpoints);
  }

  slotReleased(slot: number): void {
    this.#slots.release(slot);
  }

  /** The numbers of CIDRs that nothing names any more, and that the kernel has dropped, may be given out again. */
  forgetCidrs(prefixes: Iterable<string>): void {
    for (const prefix of prefixes)
      if (this.#ipcache.row(prefix) === undefined) this.#options.numbers.releaseCidr(prefix);
  }

  /** Who an address is said to be: `local 7`, `remote ns/pod`, `node name`, ... */
  ownerOf(prefix: string): string | undefined {
    return this.#ipcache.owner(prefix);
  }

  ipcacheSize(): number {
    return this.#addresses.size;
  }

  /** Whether some address has the identity, once the current plan is in the kernel. */
  addressed(identity: number): boolean {
    return this.#addresses.has(identity);
  }

  /** Members of a PeerSet: of the cluster, and this node's own label sets that its selector matches. */
  members(hash: SelectorHash): number[] | undefined {
    const row = this.policies.view(hash);
    if (row === undefined) return undefined;
    const local: number[] = [];
    for (const [id, info] of this.#local.localLabels) if (matches(row.selector, info.labels)) local.push(id);
    return local.length === 0 ? [...row.identities] : [...row.identities, ...local.sort((a, b) => a - b)];
  }

  /** Labels of one of this node's own label sets. */
  localIdentity(id: number): { readonly labels: LabelMap } | undefined {
    return this.#local.localLabels.get(id);
  }

  /** The prefix that a local CIDR identity stands for. */
  prefixOf(id: number): string | undefined {
    return this.#options.numbers.prefixOf(id);
  }

  info(endpoint: number): EndpointIdentity | undefined {
    return this.#local.infos.get(endpoint);
  }

  state(endpoint: number): EndpointStateRow | undefined {
    return this.#states.get(endpoint);
  }

  /** Ids of the local endpoints. */
  endpoints(): Iterable<number> {
    return this.#local.infos.keys();
  }

  states(): Iterable<EndpointStateRow> {
    return this.#states.values();
  }

  /** Why the endpoint's policy could not be compiled; what the kernel holds for it is left as it is. */
  failure(endpoint: number): Error | undefined {
    return this.#shapes.failure(endpoint);
  }

  /** Whether some policy could not be compiled. */
  get failing(): boolean {
    return this.#shapes.failing;
  }

  /** Policies of which some rule selects the endpoint. */
  policiesOf(endpoint: number): { readonly uid: string; readonly generation: number }[] {
    return [...new Set([...this.selecting(endpoint)].map(([{ row }]) => row))];
  }

  missing(): Iterable<Missing> {
    return this.policies.missing();
  }

  /** Rules in force that select the endpoint. */
  *selecting(endpoint: number): Generator<readonly [InUse, ResolvedRule]> {
    const info = this.#local.infos.get(endpoint);
    if (info === undefined || !info.ready) return;
    for (const [inUse, rule] of this.#inForce.rules(info.identity)) yield [inUse, rule];
  }

  /** Whether rules are judged by port names of pods whose addresses this plan takes away. */
  #portNamesLeave(): boolean {
    for (const name of this.#portNames.leaving()) if (this.#slots.usesPortName(name)) return true;
    return false;
  }

  *#peerIdentities(): Generator<PeerIdentity> {
    for (const id of RESERVED.keys()) yield id === 1 && this.#hostApiserver ? { id, kubeApiserver: true } : { id };
    for (const { id, cidr, kubeApiserver } of this.#ipcache.cidrIdentities()) {
      yield kubeApiserver ? { id, cidr, kubeApiserver } : { id, cidr };
    }
  }
}
