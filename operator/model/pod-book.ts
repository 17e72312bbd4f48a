/**
 * Pods: which identity each has, and what the slices say of its addresses.
 *
 * Guarantees: a pod moves from one identity to the next in one edit, never over none; a pod on the host's network, or one
 * that has ended, has no identity and is in no slice; an address is in one slice at most, that of the pod that owns it
 * (address-claims.ts).
 */
import { isDeepStrictEqual } from 'node:util';
import { MOST_NODE_ADDRESSES } from '@weir/kube';
import { podIdentityLabels } from '@weir/labels';
import { addressPair } from '@weir/net';
import { type AnyTable, afterPrefix, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { NoIdentityError, RANGE_ACCOUNT } from '../errors.ts';
import type { Tables } from '../tables.ts';
import type { Adopted, NodeRow, PodRow, RefusedAddress, SlicedPod } from '../types.ts';
import { AddressClaims } from './address-claims.ts';
import type { Census, Resident } from './census.ts';
import type { HostPods } from './host-pods.ts';
import { IdentityBook, type IdentityBookOptions } from './identity-book.ts';
import { identityKey, type KnownIdentity } from './known-identities.ts';
import { Marks } from './marks.ts';
import type { Piece } from './pieces.ts';
import { claimsOf, createPlacedPods, type PlacedPod, waitingKey } from './placed-pods.ts';
import { addressKey, cidrKey, type PodCidrOverlap, PodNetworks } from './pod-networks.ts';
import type { Namer, PortNames } from './port-names.ts';
import type { SelectorIndex } from './selector-index.ts';
import { SlicePacker } from './slices.ts';
import { WaitingPods } from './waiting-pods.ts';
import { type WorkQueue, work } from './work.ts';

export interface PodBookOptions {
  readonly cluster: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Most identities of one namespace, unused ones included; 0 (default): as many as there are. */
  readonly identitiesPerNamespace?: number;
  /** Numbers that are given out. Default: all that pods can have. */
  readonly identityRange?: IdentityBookOptions['range'];
  /**
   * The first pod of a namespace waits for a number, with the reason: reported when none of the namespace waited before, and once a minute at
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
  readonly hostPods: HostPods;
  readonly queue: WorkQueue;
}

export class PodBook {
  readonly #options: PodBookOptions;
  readonly #sources: PodBookSources;
  readonly #pods: Table<PlacedPod>;
  readonly #identities: IdentityBook;
  readonly #slices: SlicePacker;
  readonly #networks: PodNetworks;
  readonly #addresses: AddressClaims;
  /** Addresses that may have another owner, each with a pod that claims it, or did, and has changed. */
  readonly #claimed = new Marks<string>();
  /** Pods of which the slices may say something else. */
  readonly #moved = new Marks<string>();
  readonly #waiting: WaitingPods;

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
    const { identityRange: range, identitiesPerNamespace: perNamespace = 0 } = options;
    this.#identities = new IdentityBook(db, sources.knownIdentities, sources.tables.identities, {
      perNamespace,
      ...(range === undefined ? {} : { range }),
      onForgotten: (txn, { id, labels }) => sources.sets.identityChanged(txn, id, labels),
      onFreed: (txn, namespace) => this.#freed(txn, namespace),
    });
    this.#slices = new SlicePacker(db, sources.tables.slices);
    this.#networks = new PodNetworks(db);
    this.#addresses = new AddressClaims(db, {
      pods: this.#pods,
      networks: this.#networks,
      onRefused: (refused) => options.onAddressRefused?.(refused),
    });
  }

  get tables(): readonly AnyTable[] {
    const books = [this.#identities, this.#waiting, this.#slices, this.#networks, this.#addresses];
    return [this.#pods, ...books.flatMap(({ tables }) => tables)];
  }

  adopt(txn: WriteTxn, adopted: Pick<Adopted, 'identities' | 'slices'>): void {
    for (const row of adopted.identities) {
      if (!this.#identities.adopt(txn, row, this.#options.now())) continue;
      this.#sources.sets.identityChanged(txn, row.id, row.labels);
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
    for (const account of this.#waiting.all(txn)) this.#serve(txn, account);
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

  /** The labels of a namespace have changed: places its next pod, in the order of keys from `from` on. Returns where the next is; undefined: it was the last. */
  placeNext(txn: WriteTxn, namespace: string, from = `${namespace}/`): string | undefined {
    const [pod] = txn.range(this.#pods, from, afterPrefix(`${namespace}/`));
    if (pod === undefined) return undefined;
    this.#place(txn, pod.row, pod);
    return `${pod.row.key}\0`;
  }

  setPod(txn: WriteTxn, row: PodRow): void {
    this.#place(txn, row, txn.get(this.#pods, row.key));
  }

  deletePod(txn: WriteTxn, key: string): void {
    const before = txn.delete(this.#pods, key);
    if (before === undefined) return;
    this.#move(txn, before, undefined);
  }

  /** Forgets identities that nobody uses for long enough. */
  collect(txn: WriteTxn, graceMs: number): void {
    const now = this.#options.now();
    this.#identities.collect(txn, now, graceMs);
    this.#waiting.collect(txn, now);
  }

  /** A number is free that pods wait for: places the next of them, from `from` on. Returns where the next is; undefined: it was the last. */
  serveNext(txn: WriteTxn, account: string, from = keys.join(account)): string | undefined {
    const [pod] = txn.range(this.#pods, from, afterPrefix(keys.join(account)), 'waiting');
    if (pod === undefined) return undefined;
    this.#place(txn, pod.row, pod);
    return `${waitingKey(account, pod)}\0`;
  }

  /** Tells of pods that wait, at the end of a round. */
  tellWaiting(txn: WriteTxn): void {
    this.#waiting.tell(txn);
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

  /** Pieces of work that show everything. */
  *showAll(reader: Reader): Generator<Piece> {
    yield* this.#identities.showAll(reader);
    yield* this.#slices.showAll(reader);
  }

  #place(txn: WriteTxn, row: PodRow, before: PlacedPod | undefined): void {
    const after = { row, ...this.#identityOf(txn, row, before) };
    this.#waiting.begins(txn, before, after);
    txn.upsert(this.#pods, after);
    this.#move(txn, before, after);
  }

  #freed(txn: WriteTxn, namespace: string): void {
    if (!this.#identities.isShown(txn)) return;
    for (const account of [namespace, RANGE_ACCOUNT]) this.#serve(txn, account);
  }

  /** Pods that wait for the account are placed again, as there is time for. */
  #serve(txn: WriteTxn, account: string): void {
    for (const _ of txn.prefix(this.#pods, keys.join(account), 'waiting')) {
      this.#sources.queue.put(txn, work('waiting', account, account));
      return;
    }
  }

  /** Tells everybody who counts pods. */
  #move(txn: WriteTxn, before: PlacedPod | undefined, after: PlacedPod | undefined): void {
    const { census, portNames, hostPods } = this.#sources;
    census.move(txn, residentOf(before), residentOf(after));
    portNames.move(txn, namerOf(before), namerOf(after));
    hostPods.set(txn, after?.row.key ?? before?.row.key ?? '', after?.row);
    const left = before?.identity;
    if (
      left !== undefined &&
      left !== after?.identity &&
      txn.list(this.#pods, 'identity', identityKey(left)).next().done
    )
      this.#identities.release(txn, left, this.#options.now());
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

  #identityOf(txn: WriteTxn, row: PodRow, before: PlacedPod | undefined): Pick<PlacedPod, 'identity' | 'waiting'> {
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
      const { id, allocated } = this.#identities.use(txn, labels);
      if (allocated) this.#sources.sets.identityChanged(txn, id, labels);
      return { identity: id, waiting: undefined };
    } catch (error) {
      if (!(error instanceof NoIdentityError)) throw error;
      // What it had before is not kept: that stands for other labels.
      return { identity: undefined, waiting: error };
    }
  }
}

function residentOf(pod: PlacedPod | undefined): Resident | undefined {
  if (pod?.identity === undefined || pod.row.addresses.length === 0) return undefined;
  return { identity: pod.identity, node: pod.row.node, leaving: pod.row.terminating };
}

function namerOf(pod: PlacedPod | undefined): Namer | undefined {
  if (pod?.identity === undefined || pod.row.addresses.length === 0) return undefined;
  return { pod: pod.row.key, identity: pod.identity, ports: pod.row.namedPorts };
}

function endpointOf(row: PodRow, identity: number, addresses: readonly string[]): SlicedPod {
  return {
    name: row.name,
    id: 0,
    identity,
    networking: { addressing: [addressPair(addresses)], node: row.hostIP },
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
