/** Who derives what, and what each of them asks of the others. */
import { RESERVED } from '@weir/identity';
import { type LabelMap, matches } from '@weir/labels';
import type { PeerIdentity, SelectorHash } from '@weir/policy';
import type { StateDB } from '@weir/statedb';
import type { CoreOptions, Tables } from '../core.ts';
import type { KernelEndpoint } from '../tables.ts';
import { Addresses } from './addresses.ts';
import { CidrPeers } from './cidr-peers.ts';
import { EndpointShapes } from './endpoint-shapes.ts';
import { computedStates, EndpointStates } from './endpoint-states.ts';
import { Identities } from './identities.ts';
import { InForce, type Subject } from './in-force.ts';
import type { Inputs } from './inputs.ts';
import { IpcacheDeriver } from './ipcache.ts';
import { LocalEndpoints } from './local-endpoints.ts';
import { NodePeers } from './node-peers.ts';
import type { LocalNumbers } from './numbers.ts';
import { Pace } from './pace.ts';
import { PeerPortNames } from './peer-port-names.ts';
import { PeerSetViews } from './peer-set-views.ts';
import type { Derivers } from './plan-steps.ts';
import { Policies } from './policies.ts';
import { RemoteEndpoints } from './remote-endpoints.ts';
import { Slots } from './slots.ts';
import { UnconnectedPods } from './unconnected-pods.ts';

export interface DeriverOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly inputs: Inputs;
  readonly core: Pick<CoreOptions, 'nodeName' | 'clusterName' | 'policyMode' | 'allowLocalhost'>;
  readonly numbers: LocalNumbers;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Lets other work of the process run; called between steps of a few milliseconds. */
  readonly yieldNow: () => Promise<void>;
  /** Rows that a direction of a slot may have at most; a namespace has four times as many. Default MOST_ROWS. */
  readonly mostRows?: number;
  /** Numbers that the classes of a slot may have, as in `SlotPlacesOptions`. */
  readonly classNumbers?: number;
}

export class AllDerivers implements Derivers {
  readonly policies: Policies;
  readonly identities: Identities;
  readonly pace: Pace;
  readonly ipcache: IpcacheDeriver;
  readonly addresses: Addresses;
  readonly cidrPeers: CidrPeers;
  readonly local: LocalEndpoints;
  readonly remote: RemoteEndpoints;
  readonly nodes: NodePeers;
  readonly unconnected: UnconnectedPods;
  readonly inForce: InForce;
  readonly portNames: PeerPortNames;
  readonly slots: Slots;
  readonly peerSets: PeerSetViews;
  readonly shapes: EndpointShapes;
  readonly states: ReturnType<typeof computedStates>;
  readonly endpointStates: EndpointStates;
  readonly subjects = (): Iterable<Subject> => this.#subjects();
  readonly #options: DeriverOptions;
  /** Of the plan under way: sets by their members, as far as somebody asked. */
  readonly #sets = new Map<number, ReadonlySet<SelectorHash>>();

  constructor(options: DeriverOptions) {
    const { db, tables, inputs, core, numbers, now, mostRows } = options;
    this.#options = options;
    const pace = new Pace(now, options.yieldNow);
    this.pace = pace;
    const common = { db, tables, inputs };
    const named = (hash: SelectorHash): boolean => this.slots.names(hash);
    const policies = new Policies({ ...common, compiled: named, now });
    this.policies = policies;
    this.identities = new Identities(common);
    const ipcache = new IpcacheDeriver({ db, nodeName: core.nodeName, numbers });
    this.ipcache = ipcache;
    this.addresses = new Addresses({ db, ipcache, pace });
    this.cidrPeers = new CidrPeers({ db, ipcache, pace });
    this.portNames = new PeerPortNames(db, pace);
    const placing = { ...common, identities: this.identities, ipcache, portNames: this.portNames, pace };
    const found = (id: number): KernelEndpoint | undefined =>
      this.states.has(id) ? undefined : this.shapes.kernel(id);
    this.local = new LocalEndpoints({
      ...placing,
      clusterName: core.clusterName,
      numbers,
      policies,
      found,
      now,
    });
    this.remote = new RemoteEndpoints({ ...placing, nodeName: core.nodeName });
    this.nodes = new NodePeers({ ...common, nodeName: core.nodeName, numbers, ipcache, pace });
    this.unconnected = new UnconnectedPods({ ...common, identities: this.identities });
    this.inForce = new InForce({ db, policies, ipcache, pace });
    const addressed = (identity: number): boolean => this.addresses.has(identity);
    const around = (identity: number): number => this.cidrPeers.around(identity);
    this.slots = new Slots({
      db,
      members: (hash) => this.#membersOf(hash),
      setsOf: (id) => this.#setsOf(id),
      namingChanged: (hash) => {
        policies.namingChanged(hash);
        this.peerSets.setChanged(hash);
      },
      servers: () => this.#servers(),
      cidrPeers: this.cidrPeers,
      nameIdentities: (pattern) => inputs.snapshot.list(tables.nameIdentities, 'pattern', pattern),
      listeners: numbers.listeners,
      peerPorts: this.portNames,
      addressed,
      around,
      pace,
      now,
      classNumbers: options.classNumbers,
    });
    this.peerSets = new PeerSetViews({ ...common, identities: this.identities, policies, named, addressed, pace });
    const { infos } = this.local;
    this.states = computedStates(db);
    const shared = { infos, states: this.states, inForce: this.inForce, pace };
    this.shapes = new EndpointShapes({ ...shared, db, core, mostRows, slots: this.slots });
    this.endpointStates = new EndpointStates({ ...shared, shapes: this.shapes, policies, numbers, around });
  }

  /** A plan is computed. */
  endPlan(): void {
    this.#sets.clear();
  }

  /** Members of a PeerSet that rules in use name as a peer: of the cluster, and this node's own label sets that its selector matches. */
  members(hash: SelectorHash): readonly number[] | undefined {
    const members = this.#membersOf(hash);
    return members && [...members];
  }

  #membersOf(hash: SelectorHash): Iterable<number> | undefined {
    const row = this.policies.view(hash);
    const members = this.peerSets.members(hash);
    if (row === undefined || members === undefined) return undefined;
    const { nodes, local } = this;
    const { selector } = row;
    return (function* () {
      yield* members;
      yield* nodes.selected(selector);
      for (const { identity, labels } of local.localLabels()) if (matches(selector, labels)) yield identity;
    })();
  }

  /** Sets that have the identity among their `members`. */
  #setsOf(id: number): ReadonlySet<SelectorHash> {
    const known = this.#sets.get(id) ?? new Set(this.peerSets.setsOf(id, this.#ownLabels(id)));
    this.#sets.set(id, known);
    return known;
  }

  /** Of an identity of this node's own. */
  #ownLabels(id: number): LabelMap | undefined {
    return this.local.localLabelsOf(id)?.labels ?? this.nodes.labelsOf(id);
  }

  *#subjects(): Generator<Subject> {
    for (const { ready, identity, labels } of this.local.infos.values()) if (ready) yield { identity, labels };
    yield* this.unconnected.values();
  }

  hostIsApiserver(): boolean {
    const { tables, core, inputs } = this.#options;
    return inputs.snapshot.get(tables.nodes, core.nodeName)?.kubeApiserver === true;
  }

  *#servers(): Generator<PeerIdentity> {
    for (const id of RESERVED.keys()) yield id === 1 && this.hostIsApiserver() ? { id, kubeApiserver: true } : { id };
    yield* this.cidrPeers.servers();
  }
}
