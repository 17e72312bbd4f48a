/**
 * Pods: which identity each has, and what the slices say of its addresses.
 *
 * Guarantees: a pod moves from one identity to the next in one edit, never over none; a pod on the host's network, or one
 * that has ended, has no identity and is in no slice; an address is in one slice at most, that of the pod that owns it
 * (address-claims.ts).
 */
import { isDeepStrictEqual } from 'node:util';
import { MOST_NODE_ADDRESSES } from '@weir/kube';
import { labelsKey, podIdentityLabels } from '@weir/labels';
import type { AnyTable, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import { NoIdentityError } from '../errors.ts';
import type { Tables } from '../tables.ts';
import type { Adopted, NodeRow, PodRow, RefusedAddress, SlicedPod } from '../types.ts';
import { AddressClaims } from './address-claims.ts';
import type { Census, Resident } from './census.ts';
import { IdentityBook, type IdentityBookOptions } from './identity-book.ts';
import { IdentityPayers } from './identity-payers.ts';
import type { KnownIdentity } from './known-identities.ts';
import { Marks } from './marks.ts';
import { claimsOf, createPlacedPods, type PlacedPod } from './placed-pods.ts';
import { addressKey, cidrKey, type PodCidrOverlap, PodNetworks } from './pod-networks.ts';
import type { Namer, PortNames } from './port-names.ts';
import { RelabelledNamespaces } from './relabelled.ts';
import type { SelectorIndex } from './selector-index.ts';
import { SlicePacker } from './slices.ts';
import type { Step } from './steps.ts';
import { WaitingPods } from './waiting-pods.ts';
import { WaitingTurns } from './waiting-turns.ts';

export interface PodBookOptions {
  readonly cluster: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Most identities of one namespace, unused ones included; 0 (default): as many as there are. */
  readonly identitiesPerNamespace?: number;
  /** Most that only mirror pods of one node have in one namespace, and in all; 0 (default): as many as there are. */
  readonly mirrorIdentitiesPerNodeAndNamespace?: number;
  readonly mirrorIdentitiesPerNode?: number;
  /** Numbers that are given out. Default: all that pods can have. */
  readonly identityRange?: IdentityBookOptions['range'];
  /**
   * The first pod of a namespace waits for a number, with the reason: told when none of the namespace waited before, and once a minute at
   * most. Called within a transaction, as the next.
   */
  readonly onNoIdentity?: (namespace: string, pod: string, error: NoIdentityError) => void;
  /** An address that a pod claims, and that does not count: once, until the reason changes. */
  readonly onAddressRefused?: (refused: RefusedAddress) => void;
  /** A node begins to report more of its own addresses than count. */
  readonly onNodeAddressesLeftOut?: (node: string, reported: number) => void;
  /** A node has come whose pod CIDRs overlap those of others; at the start, nodes with those of an older one. */
  readonly onPodCidrOverlap?: (overlap: PodCidrOverlap) => void;
}

export interface PodBookSources {
  readonly tables: Pick<Tables, 'namespaces' | 'identities' | 'slices' | 'events'>;
  readonly knownIdentities: Table<KnownIdentity>;
  readonly sets: SelectorIndex;
  readonly census: Census;
  readonly portNames: PortNames;
}

export class PodBook {
  readonly #options: PodBookOptions;
  readonly #sources: PodBookSources;
  readonly #pods: Table<PlacedPod>;
  readonly #identities: IdentityBook;
  readonly #slices: SlicePacker;
  readonly #relabelled: RelabelledNamespaces;
  readonly #networks: PodNetworks;
  readonly #addresses: AddressClaims;
  /** Addresses that may have another owner, each with a pod that claims it, or did, and has changed. */
  readonly #claimed = new Marks<string>();
  /** Pods of which the slices may say something else. */
  readonly #moved = new Marks<string>();
  readonly #payers: IdentityPayers;
  readonly #waiting: WaitingPods;
  /** Accounts that have fewer numbers in use. */
  readonly #freed = new Marks<string>();
  /** Label sets (`labelsKey`) that have a number now. */
  readonly #given = new Marks<string>();
  readonly #turns: WaitingTurns;

  constructor(db: StateDB, sources: PodBookSources, options: PodBookOptions) {
    this.#sources = sources;
    this.#options = options;
    this.#pods = createPlacedPods(db);
    this.#waiting = new WaitingPods(db, {
      pods: this.#pods,
      events: sources.tables.events,
      now: options.now,
      onNoIdentity: options.onNoIdentity,
    });
    this.#turns = new WaitingTurns(db, this.#pods);
    const { identityRange: range, identitiesPerNamespace: perNamespace = 0 } = options;
    const { mirrorIdentitiesPerNodeAndNamespace: perPair = 0, mirrorIdentitiesPerNode: perNode = 0 } = options;
    this.#identities = new IdentityBook(db, sources.knownIdentities, sources.tables.identities, {
      limits: { perNamespace, perPair, perNode },
      ...(range === undefined ? {} : { range }),
      onForgotten: (txn, { id, labels }) => sources.sets.removeIdentity(txn, id, labels),
      onFreed: (txn, account) => this.#freed.add(txn, account),
    });
    this.#payers = new IdentityPayers(this.#pods, this.#identities);
    this.#slices = new SlicePacker(db, sources.tables.slices);
    this.#relabelled = new RelabelledNamespaces(db);
    this.#networks = new PodNetworks(db);
    this.#addresses = new AddressClaims(db, {
      pods: this.#pods,
      networks: this.#networks,
      onRefused: (refused) => options.onAddressRefused?.(refused),
    });
  }

  get tables(): readonly AnyTable[] {
    const waiting = [this.#waiting, this.#turns];
    const books = [this.#identities, ...waiting, this.#slices, this.#relabelled, this.#networks, this.#addresses];
    return [this.#pods, ...books.flatMap(({ tables }) => tables)];
  }

  adopt(txn: WriteTxn, adopted: Pick<Adopted, 'identities' | 'slices'>): void {
    for (const row of adopted.identities) {
      if (!this.#identities.adopt(txn, row, this.#options.now())) continue;
      this.#sources.sets.addIdentity(txn, row.id, row.labels);
    }
    for (const { name, namespace, pods } of adopted.slices) {
      const names = pods.map((pod) => pod.name);
      this.#slices.adopt(txn, name, namespace, names);
      this.#identities.avoid(
        txn,
        pods.flatMap(({ identity }) => identity ?? []),
      );
      for (const { name: pod, uid = '', addresses } of pods)
        for (const address of addresses) this.#addresses.adopt(txn, address, `${namespace}/${pod}`, uid);
    }
  }

  /** Every input has been put in, once. */
  adoptionDone(txn: WriteTxn): void {
    this.settle(txn, true);
    for (const address of this.#addresses.awaited(txn)) this.#settleAddress(txn, address, [], false);
    this.settle(txn, false);
    this.#addresses.tellRefused(txn);
    for (const overlap of this.#networks.overlapping(txn)) this.#options.onPodCidrOverlap?.(overlap);
    this.#slices.adoptionDone(txn);
  }

  /** Everything is shown: from now on it is known which numbers are unused. */
  shown(txn: WriteTxn): void {
    for (const account of this.#waiting.all(txn)) this.#freed.add(txn, account);
  }

  /** Decides on the addresses that changes of this transaction touch. `loading`: inputs are still put in. */
  settle(txn: WriteTxn, loading: boolean): void {
    const claimed = Map.groupBy(Array.from(this.#claimed.take(txn), claimOf), ({ address }) => address);
    for (const [address, claims] of claimed)
      this.#settleAddress(
        txn,
        address,
        claims.map(({ pod }) => pod),
        loading,
      );
    for (const key of this.#moved.take(txn)) this.#show(txn, key);
  }

  /** A node has come, changed or gone. Returns it as it was. */
  setNode(txn: WriteTxn, name: string, after: NodeRow | undefined): NodeRow | undefined {
    const before = after === undefined ? this.#networks.delete(txn, name) : this.#networks.set(txn, after);
    for (const pod of this.#podsBy(txn, before, after)) this.#claim(txn, pod);
    if (after !== undefined && reportsTooMany(after) && !(before !== undefined && reportsTooMany(before)))
      this.#options.onNodeAddressesLeftOut?.(after.name, after.reportedAddresses);
    const loading = !txn.initialised(this.#sources.tables.slices);
    if (after !== undefined && !loading && !isDeepStrictEqual(before?.podCidrs, after.podCidrs)) {
      const overlap = this.#networks.overlap(txn, after);
      if (overlap !== undefined) this.#options.onPodCidrOverlap?.(overlap);
    }
    return before;
  }

  /** The labels of a namespace have changed: its pods are placed anew by `placeNext`. */
  namespaceChanged(txn: WriteTxn, name: string): void {
    this.#relabelled.add(txn, name);
  }

  /** Places the next pod whose namespace has other labels; false: there is none. */
  placeNext(txn: WriteTxn): boolean {
    const pod = this.#relabelled.next(txn, this.#pods);
    if (pod !== undefined) this.#place(txn, pod.row, pod);
    return pod !== undefined;
  }

  setPod(txn: WriteTxn, row: PodRow): void {
    this.#place(txn, row, txn.get(this.#pods, row.key));
  }

  deletePod(txn: WriteTxn, key: string): void {
    const before = txn.delete(this.#pods, key);
    if (before === undefined) return;
    this.#move(txn, before, undefined);
    this.#settle(txn, before, undefined);
  }

  /** Forgets identities that nobody uses for long enough. */
  collect(txn: WriteTxn, graceMs: number): void {
    const now = this.#options.now();
    this.#identities.collect(txn, now, graceMs);
    this.#waiting.collect(txn, now);
  }

  /** Those who wait for the numbers that this transaction has made free, or given, are to be placed by `serveNext`. To be called once everything is shown. */
  queueWaiting(txn: WriteTxn): void {
    for (let freed = [...this.#freed.take(txn)]; freed.length > 0; freed = [...this.#freed.take(txn)]) {
      for (const account of freed) {
        this.#payers.freed(txn, account);
        this.#turns.freed(txn, account);
      }
    }
    for (const labels of this.#given.take(txn)) this.#turns.given(txn, labels);
  }

  /** Whether `serveNext` has something to do. */
  hasToServe(reader: Reader): boolean {
    return !this.#turns.isEmpty(reader);
  }

  /** Places the next pod that waits, and may have a number now; false: there is none. To be called before `settle`. */
  serveNext(txn: WriteTxn): boolean {
    const served = this.#turns.serve(txn, (pod) => this.#place(txn, pod.row, pod, 'its turn'));
    // A pod that gets a number may leave one that another waits for.
    this.queueWaiting(txn);
    return served;
  }

  /** Tells of pods that wait, once none more is served in this transaction. */
  tellWaiting(txn: WriteTxn): void {
    this.#waiting.tell(txn, (account) => this.#turns.has(txn, account));
  }

  /** Pods that wait for a number. */
  waiting(reader: Reader): number {
    return this.#waiting.count(reader);
  }

  /** Numbers that no pod has, and namespaces that have as many as they may. */
  identityUse(reader: Reader): { readonly unused: number; readonly atQuota: number } {
    return { unused: this.#identities.unused(reader), atQuota: this.#identities.atQuota(reader) };
  }

  /** Shows what changed in this transaction. */
  showChanged(txn: WriteTxn): void {
    this.#slices.showChanged(txn);
  }

  /** Steps that show everything. */
  *showAll(reader: Reader): Generator<Step> {
    yield* this.#payers.adopt(reader);
    yield* this.#identities.showAll(reader);
    yield* this.#slices.showAll(reader);
  }

  #place(txn: WriteTxn, row: PodRow, before: PlacedPod | undefined, turn?: 'its turn'): void {
    const after = { row, ...this.#identityOf(txn, row, before, turn) };
    this.#replace(txn, before, after);
    this.#settle(txn, before, after);
  }

  #replace(txn: WriteTxn, before: PlacedPod | undefined, after: PlacedPod): void {
    this.#waiting.begins(txn, before, after);
    txn.upsert(this.#pods, after);
    this.#move(txn, before, after);
  }

  #settle(txn: WriteTxn, before: PlacedPod | undefined, after: PlacedPod | undefined): void {
    for (const id of new Set([before?.identity, after?.identity])) if (id !== undefined) this.#settlePayer(txn, id);
  }

  /** Tells everybody who counts pods. */
  #move(txn: WriteTxn, before: PlacedPod | undefined, after: PlacedPod | undefined): void {
    const { census, portNames } = this.#sources;
    census.move(txn, residentOf(before), residentOf(after));
    portNames.move(txn, namerOf(before), namerOf(after));
    for (const pod of [before, after]) {
      if (pod === undefined) continue;
      this.#moved.add(txn, pod.row.key);
      this.#claim(txn, pod);
    }
  }

  #claim(txn: WriteTxn, pod: PlacedPod): void {
    for (const address of claimsOf(pod)) this.#claimed.add(txn, `${address} ${pod.row.key}`);
  }

  #settleAddress(txn: WriteTxn, address: string, changed: readonly string[], loading: boolean): void {
    for (const pod of this.#addresses.settle(txn, address, changed, loading)) this.#moved.add(txn, pod);
  }

  /** Sees who pays for the identity now. Mirror pods for which nobody can wait. */
  #settlePayer(txn: WriteTxn, id: number): void {
    const evicted = this.#payers.settle(txn, id, this.#options.now());
    if (evicted.length === 0) return;
    const labels = this.#identities.labelsOf(txn, id);
    for (const { pod, because } of evicted)
      this.#replace(txn, pod, { row: pod.row, identity: undefined, waiting: { labels, because } });
    this.#payers.settle(txn, id, this.#options.now());
    this.#identities.drop(txn, id);
  }

  /** Puts into the slices what the pod owns now. */
  #show(txn: WriteTxn, key: string): void {
    const pod = txn.get(this.#pods, key);
    const owned = claimsOf(pod).filter((address) => this.#addresses.owns(txn, key, address));
    if (pod?.identity !== undefined && owned.length > 0)
      this.#slices.set(txn, pod.row.namespace, endpointOf(pod.row, pod.identity, owned));
    else this.#slices.remove(txn, ...splitKey(key));
  }

  /** Pods whose addresses may count, or count no more, because of a node: its own, those in its pod CIDRs, those that have its addresses. */
  *#podsBy(reader: Reader, before: NodeRow | undefined, after: NodeRow | undefined): Generator<PlacedPod> {
    if (before?.created !== after?.created || !isDeepStrictEqual(before?.podCidrs, after?.podCidrs)) {
      for (const node of [before, after]) {
        if (node === undefined) continue;
        yield* reader.list(this.#pods, 'node', node.name);
        for (const cidr of node.podCidrs) yield* reader.covered(this.#pods, 'address', cidrKey(cidr));
      }
    }
    const [had, has] = [new Set(before?.addresses), new Set(after?.addresses)];
    for (const address of had.symmetricDifference(has))
      yield* reader.covered(this.#pods, 'address', addressKey(address));
  }

  #identityOf(
    txn: WriteTxn,
    row: PodRow,
    before: PlacedPod | undefined,
    turn?: 'its turn',
  ): Pick<PlacedPod, 'identity' | 'waiting'> {
    if (row.hostNetwork || row.finished) return { identity: undefined, waiting: undefined };
    const namespace = txn.get(this.#sources.tables.namespaces, row.namespace);
    // Without the namespace's labels the identity would be a wrong one: a new pod waits, unknown to the nodes. Those of a
    // namespace that is gone keep theirs until they go: it vanishes after its pods.
    if (namespace === undefined) return { identity: before?.identity, waiting: undefined };
    const labels = podIdentityLabels({
      namespace: row.namespace,
      namespaceLabels: namespace.labels,
      podLabels: row.labels,
      serviceAccount: row.serviceAccount,
      cluster: this.#options.cluster,
    });
    try {
      if (row.portExcess !== undefined) throw NoIdentityError.ports(row.portExcess);
      const isAwaited = (account: string): boolean => turn === undefined && this.#turns.has(txn, account);
      const { id, allocated } = this.#identities.use(txn, labels, row.mirrorOf, isAwaited);
      if (allocated) {
        this.#sources.sets.addIdentity(txn, id, labels);
        this.#given.add(txn, labelsKey(labels));
      }
      return { identity: id, waiting: undefined };
    } catch (error) {
      if (!(error instanceof NoIdentityError)) throw error;
      // What is too large for an identity is not kept either; and no other pod's number would do.
      const waitsFor = error.account === '' ? '' : labelsKey(labels);
      return { identity: undefined, waiting: { labels: waitsFor, because: error } };
    }
  }
}

function residentOf(pod: PlacedPod | undefined): Resident | undefined {
  if (pod?.identity === undefined || pod.row.addresses.length === 0) return undefined;
  return { identity: pod.identity, node: pod.row.node, leaving: pod.row.terminating };
}

function namerOf(pod: PlacedPod | undefined): Namer | undefined {
  if (pod?.identity === undefined || pod.row.addresses.length === 0) return undefined;
  return { identity: pod.identity, ports: pod.row.namedPorts };
}

function endpointOf(row: PodRow, identity: number, addresses: readonly string[]): SlicedPod {
  const ipv4 = addresses.find((address) => !address.includes(':'));
  const ipv6 = addresses.find((address) => address.includes(':'));
  const pair = { ...(ipv4 === undefined ? {} : { ipv4 }), ...(ipv6 === undefined ? {} : { ipv6 }) };
  return {
    name: row.name,
    id: 0,
    identity,
    networking: { addressing: [pair], node: row.hostIP },
    ...(row.namedPorts.length === 0 ? {} : { 'named-ports': row.namedPorts }),
    ...(row.uid === '' ? {} : { uid: row.uid }),
  };
}

function reportsTooMany({ reportedAddresses }: NodeRow): boolean {
  return reportedAddresses > MOST_NODE_ADDRESSES;
}

/** Of a mark. */
function claimOf(mark: string): { readonly address: string; readonly pod: string } {
  const space = mark.indexOf(' ');
  return { address: mark.slice(0, space), pod: mark.slice(space + 1) };
}

/** Namespace and name of a pod. */
function splitKey(key: string): [namespace: string, name: string] {
  const slash = key.indexOf('/');
  return [key.slice(0, slash), key.slice(slash + 1)];
}
