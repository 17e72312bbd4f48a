/**
 * From input tables to what the kernel is to hold. Changes are pulled from the tables' streams and only what they touch is
 * derived anew; a fresh engine over the same tables concludes the same (but for numbers given out, and what stays in force
 * while its successor is incomplete).
 */

import { RESERVED } from '@weir/identity';
import { type LabelMap, matches } from '@weir/labels';
import type { PeerIdentity, ResolvedRule, SelectorHash } from '@weir/policy';
import { type ChangeStream, keys, type StateDB, type Table } from '@weir/statedb';
import type { CoreOptions, Tables } from '../core.ts';
import type {
  EndpointRow,
  EndpointStateRow,
  IpcacheRow,
  LocalPodRow,
  NamespaceRow,
  NodeRow,
  PeerSetRow,
  SlotRow,
} from '../tables.ts';
import { distinguishes } from './classes.ts';
import { type EndpointContext, type EndpointIdentity, endpointIdentity, Identities } from './identities.ts';
import { IpcacheDeriver } from './ipcache.ts';
import { includesSorted, Multi } from './multi.ts';
import type { LocalNumbers } from './numbers.ts';
import { cidrsOf, type InUse, type Missing, Policies } from './policies.ts';
import { PrefixIdentities } from './prefixes.ts';
import { DENY_ALL, type KernelSlot, type Shape, Slots, shapeOf } from './slots.ts';

/** What was found in the kernel at start. */
export interface KernelState {
  readonly endpoints: readonly KernelEndpoint[];
  readonly slots: ReadonlyMap<number, KernelSlot>;
  readonly ipcache: Iterable<readonly [prefix: string, identity: number]>;
  /** A round was under way: endpoints' revisions may not tell of everything that has changed. */
  readonly interrupted: boolean;
}
export interface KernelEndpoint {
  readonly id: number;
  readonly ifindex: number;
  readonly ipv4: string;
  readonly slot: number;
  readonly revision: number;
  readonly enforced: EndpointStateRow['enforced'];
}

/** Changes to the derived tables, in the order in which they may reach the kernel. */
export interface Plan {
  readonly slots: readonly SlotRow[];
  readonly ipcache: readonly IpcacheRow[];
  readonly endpoints: readonly EndpointStateRow[];
  readonly ipcacheGone: readonly string[];
  /** Endpoints whose decisions may differ once `ipcacheGone` is gone. */
  readonly afterGone: readonly number[];
  readonly endpointsGone: readonly number[];
  readonly slotsGone: readonly number[];
  /** Another plan has something to tidy up. */
  readonly again: boolean;
}

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

interface Subject {
  /** Indexes of the rules that select it, by policy uid. */
  readonly rules: Map<string, readonly number[]>;
  readonly info: EndpointIdentity;
}

const OPEN = { ingress: false, egress: false } as const;

export class Engine {
  readonly policies: Policies;
  readonly identities: Identities;
  readonly #options: EngineOptions;
  readonly #streams: (readonly [ChangeStream<never>, (change: never) => void])[] = [];
  readonly #ipcache: IpcacheDeriver;
  readonly #slots: Slots;
  readonly #context: EndpointContext;
  readonly #pods = new Map<string, LocalPodRow>();
  readonly #namespaces = new Map<string, NamespaceRow>();
  readonly #endpointRows = new Map<number, EndpointRow>();
  readonly #infos = new Map<number, EndpointIdentity>();
  readonly #states = new Map<number, EndpointStateRow>();
  readonly #epochs = new Map<number, { readonly slot: number; readonly epoch: number }>();
  /** Shape that each endpoint has, and the one that it should have: they differ only while the latter cannot be compiled. */
  readonly #shapes = new Map<number, string | undefined>();
  readonly #wanted = new Map<number, string | undefined>();
  /** Endpoints that the kernel enforced before this start and that have no state yet. */
  readonly #found = new Set<number>();
  readonly #subjects = new Map<number, Subject>();
  readonly #localLabels = new Map<number, EndpointIdentity>();
  readonly #ruleCidrs = new Map<string, number>();
  readonly #rows = new Map<string, IpcacheRow>();
  readonly #current = new PrefixIdentities();
  readonly #addresses = new Map<number, number>();
  #hostApiserver = false;

  // What has changed since the last plan.
  readonly #dirtyEndpoints = new Set<number>();
  readonly #dirtyIdentities = new Set<number>();
  readonly #dirtyHashes = new Set<SelectorHash>();
  readonly #podsChanged = new Set<string>();
  readonly #namespacesChanged = new Set<string>();
  readonly #labelsChanged = new Set<string>();
  #cidrsChanged = false;
  /** Shapes that could not be compiled: their endpoints keep what they have. */
  readonly #failures = new Map<string, Error>();
  readonly #kernelEndpoints = new Map<number, KernelEndpoint>();
  #adopting = false;
  #interrupted = false;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.policies = new Policies(options.now);
    this.identities = new Identities((hash) => this.policies.present(hash));
    this.#ipcache = new IpcacheDeriver({
      nodeName: options.core.nodeName,
      numbers: options.numbers,
      settled: (id) => this.identities.settled(id),
    });
    this.#slots = new Slots({
      members: (hash) => this.members(hash),
      identities: () => this.#peerIdentities(),
      addressed: (identity) => (this.#addresses.get(identity) ?? 0) > 0,
      now: options.now,
    });
    this.#context = {
      clusterName: options.core.clusterName,
      identities: this.identities,
      numbers: options.numbers,
      pod: (key) => this.#pods.get(key),
      namespace: (name) => this.#namespaces.get(name),
    };
    this.#listen();
  }

  /** Takes over what the kernel holds; before the first plan. */
  adopt(kernel: KernelState): void {
    this.#adopting = true;
    this.#interrupted = kernel.interrupted;
    this.#slots.adopt(kernel.slots);
    for (const endpoint of kernel.endpoints) {
      this.#kernelEndpoints.set(endpoint.id, endpoint);
      this.#found.add(endpoint.id);
      this.#options.numbers.sawRevision(endpoint.revision);
    }
    for (const [prefix, identity] of kernel.ipcache) {
      this.#current.set(prefix, identity);
      this.#count(identity, 1);
      this.#ipcache.dirty.add(prefix);
      this.#options.numbers.adoptCidr(prefix, identity);
    }
  }

  /**
   * PeerSets without which nothing may be concluded: endpoints are enforced since before this start, and what a policy said
   * of them is not known. What the kernel holds stays until the sets are here.
   */
  awaited(): SelectorHash[] {
    if (!this.#adopting) return [];
    const enforced = [...this.#kernelEndpoints.values()].some((one) => one.enforced.ingress || one.enforced.egress);
    return enforced ? [...new Set(this.policies.awaited())].sort() : [];
  }

  /** Takes in at most `limit` changes of each table; whether more are waiting. */
  pull(limit: number): boolean {
    let full = false;
    for (const [stream, take] of this.#streams) {
      const changes = stream.next(limit);
      for (const change of changes) take(change as never);
      if (changes.length >= limit) full = true;
    }
    return full;
  }

  /** Calls back once, when a table has something to pull (at once when it has already). Returns what takes it back. */
  onPending(callback: () => void): () => void {
    let armed = true;
    const once = (): void => {
      if (!armed) return;
      armed = false;
      for (const off of offs) off();
      callback();
    };
    const offs: (() => void)[] = [];
    for (const [stream] of this.#streams) {
      const watch = stream.watch();
      if (watch.fired) {
        queueMicrotask(once);
        break;
      }
      offs.push(watch.onFire(once));
    }
    return () => {
      armed = false;
      for (const off of offs) off();
    };
  }

  /** Who an address is said to be: `local 7`, `remote ns/pod`, `node name`, ... */
  ownerOf(prefix: string): string | undefined {
    return this.#ipcache.owner(prefix);
  }

  ipcacheSize(): number {
    return this.#current.size;
  }

  /** The numbers of CIDRs that nothing names any more, and that the kernel has dropped, may be given out again. */
  forgetCidrs(prefixes: Iterable<string>): void {
    for (const prefix of prefixes)
      if (this.#ipcache.row(prefix) === undefined) this.#options.numbers.releaseCidr(prefix);
  }

  dispose(): void {
    for (const [stream] of this.#streams) stream[Symbol.dispose]();
  }

  /** Members of a PeerSet: of the cluster, and this node's own label sets that its selector matches. */
  members(hash: SelectorHash): number[] | undefined {
    const row = this.policies.view(hash);
    if (row === undefined) return undefined;
    const local: number[] = [];
    for (const [id, info] of this.#localLabels) if (matches(row.selector, info.labels)) local.push(id);
    return local.length === 0 ? [...row.identities] : [...row.identities, ...local.sort((a, b) => a - b)];
  }

  /** Labels of one of this node's own label sets. */
  localIdentity(id: number): { readonly labels: LabelMap } | undefined {
    return this.#localLabels.get(id);
  }

  /** The prefix that a local CIDR identity stands for. */
  prefixOf(id: number): string | undefined {
    return this.#options.numbers.prefixOf(id);
  }

  info(endpoint: number): EndpointIdentity | undefined {
    return this.#infos.get(endpoint);
  }

  state(endpoint: number): EndpointStateRow | undefined {
    return this.#states.get(endpoint);
  }

  /** Ids of the local endpoints. */
  endpoints(): Iterable<number> {
    return this.#infos.keys();
  }

  states(): Iterable<EndpointStateRow> {
    return this.#states.values();
  }

  /** Why the endpoint's policy could not be compiled; what the kernel holds for it is left as it is. */
  failure(endpoint: number): Error | undefined {
    const shape = this.#wanted.get(endpoint);
    return shape === undefined ? undefined : this.#failures.get(shape);
  }

  /** Whether some policy could not be compiled. */
  get failing(): boolean {
    return this.#failures.size > 0;
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
    const info = this.#infos.get(endpoint);
    if (info === undefined || !info.ready) return;
    for (const [uid, indexes] of this.#subjects.get(info.identity)?.rules ?? []) {
      const inUse = this.policies.inUse(uid);
      for (const index of indexes) {
        const rule = inUse?.row.rules[index];
        if (inUse && rule) yield [inUse, rule];
      }
    }
  }

  /** Whether some address has the identity, once the current plan is in the kernel. */
  addressed(identity: number): boolean {
    return (this.#addresses.get(identity) ?? 0) > 0;
  }

  slotReleased(slot: number): void {
    this.#slots.release(slot);
  }

  /** New revisions for endpoints whose decisions may differ. */
  bump(endpoints: Iterable<number>): EndpointStateRow[] {
    const out: EndpointStateRow[] = [];
    for (const id of endpoints) {
      const state = this.#states.get(id);
      if (state === undefined) continue;
      const next = { ...state, revision: this.#options.numbers.revision() };
      this.#states.set(id, next);
      out.push(next);
    }
    return out;
  }

  /** Concludes what must change. Its rows count as current from then on. */
  async plan(): Promise<Plan> {
    const { breathe } = this.#options;
    await this.#settlePolicies();
    for (const id of this.#dirtyIdentities) this.#ipcache.touchIdentity(id);
    const localChanged = this.#settleEndpoints();
    await this.#settleSubjects();
    const { users, departing } = this.#settleShapes(localChanged);
    const leaving = this.#leavers(users);
    const slots: SlotRow[] = [];
    const slotsGone: number[] = [];
    for (const key of this.#slots.dirtyShapes()) {
      await breathe();
      const candidates = new Set<number>();
      for (const id of users.get(key) ?? []) {
        const kernel = this.#kernelEndpoints.get(id);
        if (kernel && kernel.slot !== 0 && !this.#leftAtStart(kernel.slot, key)) candidates.add(kernel.slot);
      }
      try {
        const how = departing.includes(key) ? 'all' : leaving.has(key) ? 'some' : 'none';
        const { rows, left } = this.#slots.refresh(key, candidates, how);
        this.#failures.delete(key);
        slots.push(...rows);
        if (left !== undefined) slotsGone.push(left);
      } catch (error) {
        this.#failures.set(key, error instanceof Error ? error : new Error(String(error)));
      }
    }
    for (const key of departing) {
      const slot = this.#slots.drop(key);
      if (slot !== undefined) slotsGone.push(slot);
      this.#failures.delete(key);
    }
    const tidy = !this.#ipcache.leaving().next().done;
    // Closed for want of a policy that has compiled now; or to be closed, as it has just failed to.
    const again =
      tidy ||
      [...this.#infos.keys()].some(
        (id) =>
          (this.failure(id) === undefined) !== (this.#shapes.get(id) === this.#wanted.get(id)) && !this.#holds(id),
      );
    const { upserts, deletes, moved, movedByDelete } = await this.#settleIpcache();
    const endpoints: EndpointStateRow[] = [];
    const afterGone: number[] = [];
    for (const [id, info] of this.#infos) {
      const state = this.#settleState(id, info, moved);
      if (state) endpoints.push(state);
      const row = this.#slotOf(id);
      if (row && movedByDelete.some(([a, b]) => distinguishes(row, a, b))) afterGone.push(id);
    }
    const endpointsGone: number[] = [];
    for (const id of this.#states.keys()) {
      if (this.#infos.has(id)) continue;
      endpointsGone.push(id);
      this.#states.delete(id);
      this.#epochs.delete(id);
      this.#shapes.delete(id);
      this.#wanted.delete(id);
      this.#found.delete(id);
    }
    this.#dirtyHashes.clear();
    this.#dirtyIdentities.clear();
    this.#cidrsChanged = tidy;
    this.#adopting = false;
    this.#kernelEndpoints.clear();
    return { slots, ipcache: upserts, endpoints, ipcacheGone: deletes, afterGone, endpointsGone, slotsGone, again };
  }

  #listen(): void {
    const { tables } = this.#options;
    this.#on(tables.policies, (row, deleted) => this.policies.setPolicy(deleted ? undefined : row, row.uid));
    this.#on(tables.peerSets, (row, deleted) => this.#onPeerSet(row, deleted));
    this.#on(tables.identities, (row, deleted) => {
      if (row.id >= 0x03000000) return;
      const before = this.identities.set(deleted ? undefined : row, row.id);
      this.#dirtyIdentities.add(row.id);
      this.#labelsChanged.add(row.labelsKey);
      if (before) this.#labelsChanged.add(before.labelsKey);
    });
    this.#on(tables.remoteEndpoints, (row, deleted) =>
      this.#ipcache.setRemote(deleted ? undefined : row, `${row.namespace}/${row.name}`),
    );
    this.#on(tables.nodes, (row, deleted) => this.#onNode(row, deleted));
    this.#on(tables.localPods, (row, deleted) => {
      const key = `${row.namespace}/${row.name}`;
      if (deleted) this.#pods.delete(key);
      else this.#pods.set(key, row);
      this.#podsChanged.add(key);
    });
    this.#on(tables.namespaces, (row, deleted) => {
      if (deleted) this.#namespaces.delete(row.name);
      else this.#namespaces.set(row.name, row);
      this.#namespacesChanged.add(row.name);
    });
    this.#on(tables.apiserverAddresses, (row, deleted) => {
      this.#ipcache.setApiserver(deleted ? undefined : row, row.address);
      this.#cidrsChanged = true;
    });
    this.#on(tables.endpoints, (row, deleted) => {
      if (deleted) this.#endpointRows.delete(row.id);
      else this.#endpointRows.set(row.id, row);
      this.#dirtyEndpoints.add(row.id);
    });
  }

  #on<T>(table: Table<T>, take: (row: T, deleted: boolean) => void): void {
    const stream = this.#options.db.changes(table);
    const handler = (change: { readonly row: T; readonly deleted: boolean }): void => take(change.row, change.deleted);
    this.#streams.push([stream as ChangeStream<never>, handler as (change: never) => void]);
  }

  #onPeerSet(row: PeerSetRow, deleted: boolean): void {
    this.policies.setPeerSet(deleted ? undefined : row, row.hash);
    for (const id of this.identities.naming(row.hash)) this.#dirtyIdentities.add(id);
    this.#dirtyHashes.add(row.hash);
  }

  #onNode(row: NodeRow, deleted: boolean): void {
    this.#ipcache.setNode(deleted ? undefined : row, row.name);
    if (row.name !== this.#options.core.nodeName) return;
    const apiserver = !deleted && row.kubeApiserver;
    if (apiserver !== this.#hostApiserver) this.#cidrsChanged = true;
    this.#hostApiserver = apiserver;
  }

  *#peerIdentities(): Generator<PeerIdentity> {
    for (const id of RESERVED.keys()) yield id === 1 && this.#hostApiserver ? { id, kubeApiserver: true } : { id };
    for (const { id, cidr, kubeApiserver } of this.#ipcache.cidrIdentities()) {
      yield kubeApiserver ? { id, cidr, kubeApiserver } : { id, cidr };
    }
  }

  async #settlePolicies(): Promise<void> {
    let step = 0;
    for (const [uid, before, after] of this.policies.settle()) {
      step += 1;
      if (step % 32 === 0) await this.#options.breathe();
      for (const rule of before?.row.rules ?? []) this.#countCidrs(rule, -1);
      for (const rule of after?.row.rules ?? []) this.#countCidrs(rule, 1);
      for (const subject of this.#subjects.values()) this.#select(subject, uid);
    }
    for (const [cidr, count] of this.#ruleCidrs) {
      if (count > 0) continue;
      this.#ruleCidrs.delete(cidr);
      this.#ipcache.setRuleCidr(cidr, false);
    }
    for (const hash of this.#dirtyHashes) {
      for (const uid of this.policies.inUseNaming(hash)) {
        for (const subject of this.#subjects.values()) this.#select(subject, uid);
      }
      this.#slots.peerSetChanged(hash);
    }
  }

  #countCidrs(rule: ResolvedRule, by: number): void {
    for (const cidr of cidrsOf(rule)) {
      const count = (this.#ruleCidrs.get(cidr) ?? 0) + by;
      if (count === by && by > 0) {
        this.#ipcache.setRuleCidr(cidr, true);
      }
      this.#ruleCidrs.set(cidr, count);
      this.#cidrsChanged = true;
    }
  }

  /** Settles endpoint identities; whether the set of this node's own label sets changed. */
  #settleEndpoints(): boolean {
    const waitingFor = new Multi<string, number>();
    for (const [id, row] of this.#endpointRows) {
      if (row.pod) waitingFor.add(`${row.pod.namespace}/${row.pod.name}`, id);
      if (row.pod && this.#namespacesChanged.has(row.pod.namespace)) this.#dirtyEndpoints.add(id);
    }
    for (const key of this.#podsChanged) for (const id of waitingFor.get(key)) this.#dirtyEndpoints.add(id);
    if (this.#labelsChanged.size > 0 || this.#dirtyIdentities.size > 0) {
      for (const id of this.#endpointRows.keys()) this.#dirtyEndpoints.add(id);
    }
    this.#podsChanged.clear();
    this.#namespacesChanged.clear();
    this.#labelsChanged.clear();
    for (const id of this.#dirtyEndpoints) {
      const row = this.#endpointRows.get(id);
      if (row === undefined) {
        this.#infos.delete(id);
        this.#ipcache.setLocal(id, undefined, 0);
        continue;
      }
      const before = this.#infos.get(id);
      const info = endpointIdentity(row, before, this.#context);
      this.#infos.set(id, info);
      if (before?.identity !== info.identity || before.row.ipv4 !== row.ipv4) {
        this.#ipcache.setLocal(id, row.ipv4, info.identity);
      }
    }
    this.#dirtyEndpoints.clear();
    const local = new Map<number, EndpointIdentity>();
    for (const info of this.#infos.values()) if (info.identity >= 0x03000000) local.set(info.identity, info);
    const changed = local.size !== this.#localLabels.size || [...local.keys()].some((id) => !this.#localLabels.has(id));
    if (changed) {
      this.#localLabels.clear();
      for (const [id, info] of local) this.#localLabels.set(id, info);
    }
    return changed;
  }

  async #settleSubjects(): Promise<void> {
    const used = new Set<number>();
    for (const info of this.#infos.values()) {
      if (!info.ready) continue;
      used.add(info.identity);
      if (this.#subjects.has(info.identity)) continue;
      await this.#options.breathe();
      const subject: Subject = { rules: new Map(), info };
      for (const [uid] of this.policies.allInUse()) this.#select(subject, uid);
      this.#subjects.set(info.identity, subject);
    }
    for (const identity of this.#subjects.keys()) if (!used.has(identity)) this.#subjects.delete(identity);
  }

  #select(subject: Subject, uid: string): void {
    const inUse = this.policies.inUse(uid);
    const indexes: number[] = [];
    for (const [index, rule] of inUse?.row.rules.entries() ?? []) {
      const set = this.policies.view(rule.subject);
      if (set === undefined) continue;
      const { identity, labels } = subject.info;
      const local = identity >= 0x03000000 || identity < 100;
      if (local ? matches(set.selector, labels) : includesSorted(set.identities, identity)) indexes.push(index);
    }
    if (indexes.length > 0) subject.rules.set(uid, indexes);
    else subject.rules.delete(uid);
  }

  #shape(info: EndpointIdentity): Shape | undefined {
    const { policyMode, allowLocalhost } = this.#options.core;
    if (policyMode === 'never') return undefined;
    if (!info.ready) return DENY_ALL;
    const rules: (readonly [string, ResolvedRule])[] = [];
    for (const [uid, indexes] of this.#subjects.get(info.identity)?.rules ?? []) {
      const inUse = this.policies.inUse(uid);
      for (const index of indexes) {
        const rule = inUse?.row.rules[index];
        const key = inUse?.ruleKeys[index];
        if (rule && key !== undefined) rules.push([key, rule]);
      }
    }
    const mode = 'reserved:init' in info.labels ? 'always' : policyMode;
    return shapeOf(rules, mode, allowLocalhost);
  }

  #settleShapes(localChanged: boolean): { users: Map<string, number[]>; departing: string[] } {
    const users = new Map<string, number[]>();
    for (const [id, info] of this.#infos) {
      const wanted = this.#shape(info);
      this.#wanted.set(id, wanted?.key);
      const failed = wanted !== undefined && this.#failures.has(wanted.key);
      // Nothing is in force yet that could stay: it is closed until its policy compiles.
      const closed = failed && !this.#found.has(id) && (!this.#states.has(id) || this.#shapes.get(id) === DENY_ALL.key);
      this.#shapes.set(id, closed ? DENY_ALL.key : wanted?.key);
      for (const shape of closed ? [wanted, DENY_ALL] : [wanted]) {
        if (shape === undefined) continue;
        this.#slots.need(shape);
        const list = users.get(shape.key);
        if (list) list.push(id);
        else users.set(shape.key, [id]);
      }
    }
    const departing = this.#slots.departing(new Set(users.keys()));
    if (localChanged) this.#slots.allChanged();
    if (this.#cidrsChanged) this.#slots.identitiesChanged();
    return { users, departing };
  }

  /**
   * Shapes whose slot some endpoint leaves while others stay. Editing it in place would show the leaving ones the new members
   * of rules that no longer are theirs.
   */
  #leavers(users: ReadonlyMap<string, readonly number[]>): Set<string> {
    const bySlot = new Map<number, string>();
    for (const key of users.keys()) {
      const row = this.#slots.row(key);
      if (row) bySlot.set(row.slot, key);
    }
    const out = new Set<string>();
    for (const [id, { slot }] of this.#states) {
      const key = bySlot.get(slot);
      if (key !== undefined && this.#shapes.get(id) !== key) out.add(key);
    }
    return out;
  }

  /** Whether an endpoint that was found at the slot goes to another shape: the slot must then stay as it is. */
  #leftAtStart(slot: number, shape: string): boolean {
    for (const { id, slot: had } of this.#kernelEndpoints.values()) {
      if (had === slot && this.#infos.has(id) && this.#shapes.get(id) !== shape) return true;
    }
    return false;
  }

  async #settleIpcache(): Promise<{
    upserts: IpcacheRow[];
    deletes: string[];
    moved: [number, number][];
    movedByDelete: [number, number][];
  }> {
    const upserts: IpcacheRow[] = [];
    const deletes: string[] = [];
    const before = new Map<string, number>();
    let step = 0;
    for (const prefix of this.#ipcache.dirty) {
      step += 1;
      if (step % 500 === 0) await this.#options.breathe();
      const row = this.#ipcache.row(prefix);
      const had = this.#rows.get(prefix);
      const kernel = this.#current.get(prefix);
      if (row === undefined) {
        if (kernel === undefined && had === undefined) continue;
        deletes.push(prefix);
      } else {
        if (had && had.identity === row.identity && had.node === row.node && had.source === row.source) continue;
        upserts.push(row);
      }
      if (row?.identity !== kernel) before.set(prefix, this.#current.match(prefix));
    }
    this.#ipcache.dirty.clear();
    for (const row of upserts) {
      step += 1;
      if (step % 2000 === 0) await this.#options.breathe();
      this.#rows.set(row.prefix, row);
      const had = this.#current.get(row.prefix);
      if (had !== undefined) this.#count(had, -1);
      this.#current.set(row.prefix, row.identity);
      this.#count(row.identity, 1);
    }
    for (const prefix of deletes) {
      this.#rows.delete(prefix);
      const had = this.#current.get(prefix);
      if (had !== undefined) this.#count(had, -1);
      this.#current.delete(prefix);
    }
    // Many addresses move between few identities: each pair is looked at once.
    const pairs = { upsert: new Map<string, [number, number]>(), delete: new Map<string, [number, number]>() };
    const gone = new Set(deletes);
    for (const [prefix, old] of before) {
      step += 1;
      if (step % 500 === 0) await this.#options.breathe();
      const now = this.#current.match(prefix);
      if (now !== old) pairs[gone.has(prefix) ? 'delete' : 'upsert'].set(`${old}>${now}`, [old, now]);
    }
    return { upserts, deletes, moved: [...pairs.upsert.values()], movedByDelete: [...pairs.delete.values()] };
  }

  #count(identity: number, by: number): void {
    const next = (this.#addresses.get(identity) ?? 0) + by;
    if (next === 0) this.#addresses.delete(identity);
    else this.#addresses.set(identity, next);
  }

  /** Whether the endpoint keeps what is in force while its policy cannot be compiled. */
  #holds(id: number): boolean {
    return this.#found.has(id) || (this.#states.has(id) && this.#shapes.get(id) === this.#wanted.get(id));
  }

  #slotOf(id: number): SlotRow | undefined {
    const shape = this.#shapes.get(id);
    return shape === undefined ? undefined : this.#slots.row(shape);
  }

  /** The endpoint's state when it differs from the one before. */
  #settleState(
    id: number,
    info: EndpointIdentity,
    moved: readonly (readonly [number, number])[],
  ): EndpointStateRow | undefined {
    const slotRow = this.#slotOf(id);
    const shape = this.#shapes.get(id);
    const closed = shape !== this.#wanted.get(id);
    if (shape !== undefined && this.#failures.has(shape)) {
      // What is in force stays; without anything in force there is nothing to write, and the endpoint is not ready.
      const held = this.#states.get(id);
      if (held === undefined || !slotRow || !moved.some(([a, b]) => distinguishes(slotRow, a, b))) return undefined;
      return this.bump([id])[0];
    }
    const slot = slotRow?.slot ?? 0;
    const epoch = slotRow?.epoch ?? 0;
    const enforced = slotRow
      ? { ingress: slotRow.compiled.ingress.enforced, egress: slotRow.compiled.egress.enforced }
      : OPEN;
    const policies: Record<string, number> = {};
    if (info.ready && !closed) {
      for (const uid of [...(this.#subjects.get(info.identity)?.rules.keys() ?? [])].sort()) {
        const generation = this.policies.inUse(uid)?.row.generation;
        if (generation !== undefined) policies[uid] = generation;
      }
    }
    const reason = closed ? (this.failure(id)?.message ?? 'its policy has just compiled') : info.reason;
    const before = this.#states.get(id);
    let revision: number;
    const affected = slotRow !== undefined && moved.some(([a, b]) => distinguishes(slotRow, a, b));
    if (before) {
      const had = this.#epochs.get(id);
      const differs =
        had?.slot !== slot ||
        had.epoch !== epoch ||
        affected ||
        before.ifindex !== info.row.ifindex ||
        before.ipv4 !== info.row.ipv4 ||
        before.enforced.ingress !== enforced.ingress ||
        before.enforced.egress !== enforced.egress;
      revision = differs ? this.#options.numbers.revision() : before.revision;
    } else {
      const kernel = this.#adopting ? this.#kernelEndpoints.get(id) : undefined;
      if (kernel && kernel.ifindex === info.row.ifindex && kernel.ipv4 === info.row.ipv4) {
        const same =
          !this.#interrupted &&
          kernel.slot === slot &&
          epoch === 0 &&
          !affected &&
          kernel.enforced.ingress === enforced.ingress &&
          kernel.enforced.egress === enforced.egress;
        revision = same ? kernel.revision : this.#options.numbers.revision();
      } else revision = this.#options.numbers.revision();
    }
    this.#epochs.set(id, { slot, epoch });
    const state: EndpointStateRow = {
      id,
      ifindex: info.row.ifindex,
      ipv4: info.row.ipv4,
      identity: info.identity,
      labels: info.labels,
      slot,
      enforced,
      revision,
      policies,
      state: closed ? 'not-ready' : info.ready ? 'ready' : 'waiting-for-identity',
      ...(reason === undefined ? {} : { reason }),
    };
    if (before && sameState(before, state)) return undefined;
    this.#states.set(id, state);
    this.#found.delete(id);
    return state;
  }
}

function sameState(a: EndpointStateRow, b: EndpointStateRow): boolean {
  return (
    a.revision === b.revision &&
    a.slot === b.slot &&
    a.identity === b.identity &&
    a.state === b.state &&
    a.reason === b.reason &&
    a.ifindex === b.ifindex &&
    a.ipv4 === b.ipv4 &&
    a.labels === b.labels &&
    JSON.stringify(a.policies) === JSON.stringify(b.policies)
  );
}

/** Key of an identity in the identities table. */
export function identityKey(id: number): string {
  return keys.uint(id);
}
