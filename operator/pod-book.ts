/**
 * Pods: which identity each has, and what the slices say of its addresses.
 *
 * Guarantees: a pod moves from one identity to the next in one edit, never over none; a pod on the host's network, or one
 * that has ended, has no identity and is in no slice; an address is in one slice at most (addresses.ts).
 */
import { podIdentityLabels } from '@weir/labels';
import { AddressBook } from './addresses.ts';
import type { Census } from './census.ts';
import { IdentityBook } from './identity-book.ts';
import type { PortNames } from './port-names.ts';
import type { SelectorIndex } from './selector-index.ts';
import { SlicePacker } from './slices.ts';
import type { Adopted, Edit, IdentityRow, NamespaceRow, PodRow, SlicedPod, SliceRow } from './types.ts';

export interface PodBookOptions {
  readonly cluster: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** A pod that got no identity, with the reason: no number is left. */
  readonly onNoIdentity?: (pod: string, error: Error) => void;
  /** Pods that claim one address on equal terms: none of them gets it. */
  readonly onAddressClash?: (address: string, pods: readonly string[]) => void;
}

export interface PodBookSources {
  readonly sets: SelectorIndex;
  readonly census: Census;
  readonly portNames: PortNames;
}

interface PodState {
  readonly row: PodRow;
  readonly identity: number | undefined;
}

export class PodBook {
  readonly #options: PodBookOptions;
  readonly #sources: PodBookSources;
  readonly #identities = new IdentityBook();
  readonly #slices = new SlicePacker();
  readonly #addresses = new AddressBook();
  readonly #namespaces = new Map<string, NamespaceRow>();
  readonly #pods = new Map<string, PodState>();
  readonly #podsIn = new Map<string, Set<string>>();
  /** Pods that found no free number. */
  readonly #waiting = new Set<string>();
  readonly #identityEdits = new Map<string, IdentityRow | undefined>();

  constructor(sources: PodBookSources, options: PodBookOptions) {
    this.#sources = sources;
    this.#options = options;
  }

  adopt(adopted: Pick<Adopted, 'identities' | 'slices'>): void {
    for (const row of adopted.identities) {
      if (!this.#identities.adopt(row.id, row.labels, this.#options.now())) continue;
      this.#sources.sets.addIdentity(row.id, row.labels);
      this.#identityEdits.set(String(row.id), row);
    }
    for (const { name, namespace, pods } of adopted.slices) this.#slices.adopt(name, namespace, pods);
  }

  adoptionDone(): void {
    this.#slices.adoptionDone();
  }

  setNamespace(row: NamespaceRow): void {
    this.#namespaces.set(row.name, row);
    for (const key of this.#podsIn.get(row.name) ?? []) this.#refresh(key);
  }

  deleteNamespace(name: string): void {
    // Its pods keep their identity until they go: a namespace vanishes after its pods.
    this.#namespaces.delete(name);
  }

  setPod(row: PodRow): void {
    const before = this.#pods.get(row.key);
    if (before === undefined) {
      const others = this.#podsIn.get(row.namespace);
      if (others === undefined) this.#podsIn.set(row.namespace, new Set([row.key]));
      else others.add(row.key);
    }
    this.#place(row, before);
  }

  deletePod(key: string): void {
    const before = this.#pods.get(key);
    if (before === undefined) return;
    this.#pods.delete(key);
    this.#waiting.delete(key);
    this.#move(before, undefined);
    if (before.identity !== undefined) this.#identities.release(before.identity, this.#options.now());
    const others = this.#podsIn.get(before.row.namespace);
    others?.delete(key);
    if (others?.size === 0) this.#podsIn.delete(before.row.namespace);
  }

  /** Forgets identities that nobody uses for long enough, and gives numbers to pods that wait for one. */
  collect(graceMs: number): void {
    for (const id of this.#identities.collect(this.#options.now(), graceMs)) {
      this.#sources.sets.removeIdentity(id);
      this.#identityEdits.set(String(id), undefined);
    }
    for (const key of [...this.#waiting]) this.#refresh(key);
  }

  flush(): { readonly identities: Edit<IdentityRow>[]; readonly slices: Edit<SliceRow>[] } {
    const identities = [...this.#identityEdits].map(([key, row]) => ({ key, row }));
    this.#identityEdits.clear();
    return { identities, slices: this.#slices.drainChanged().map(({ name, row }) => ({ key: name, row })) };
  }

  #refresh(key: string): void {
    const state = this.#pods.get(key);
    if (state !== undefined) this.#place(state.row, state);
  }

  #place(row: PodRow, before: PodState | undefined): void {
    const after: PodState = { row, identity: this.#identityOf(row, before) };
    this.#pods.set(row.key, after);
    this.#move(before, after);
    if (before?.identity !== undefined) this.#identities.release(before.identity, this.#options.now());
  }

  /** Tells everybody who counts pods. */
  #move(before: PodState | undefined, after: PodState | undefined): void {
    const { census, portNames } = this.#sources;
    census.move(residentOf(before), residentOf(after));
    portNames.move(namerOf(before), namerOf(after));
    const row = (after ?? before)?.row;
    if (row === undefined) return;
    const leaving = after?.row.terminating ?? false;
    const rivals = this.#addresses.set(row.key, claimsOf(before), claimsOf(after), leaving);
    this.#show(row.key, row);
    for (const rival of rivals) this.#show(rival, this.#pods.get(rival)?.row);
  }

  /** Puts into the slices what the pod owns now. */
  #show(key: string, row: PodRow | undefined): void {
    if (row === undefined) return;
    const state = this.#pods.get(key);
    const owned = claimsOf(state).filter((address) => {
      const owns = this.#addresses.owns(key, address);
      if (!owns && state?.row.terminating === false) this.#clash(key, address);
      return owns;
    });
    if (state?.identity === undefined || owned.length === 0) this.#slices.remove(row.namespace, row.name);
    else this.#slices.set(row.namespace, endpointOf(row, state.identity, owned));
  }

  #clash(pod: string, address: string): void {
    const rivals = this.#addresses.rivals(pod, address).filter((key) => this.#pods.get(key)?.row.terminating === false);
    if (rivals.length > 0) this.#options.onAddressClash?.(address, [pod, ...rivals].sort());
  }

  /** Counts one use of the pod's identity; the use of before is released by the caller. */
  #identityOf(row: PodRow, before: PodState | undefined): number | undefined {
    this.#waiting.delete(row.key);
    if (row.hostNetwork || row.finished) return undefined;
    const namespace = this.#namespaces.get(row.namespace);
    // Without the namespace's labels the identity would be a wrong one: the pod waits, unknown to the nodes.
    if (namespace === undefined) return this.#keep(before);
    const labels = podIdentityLabels({
      namespace: row.namespace,
      namespaceLabels: namespace.labels,
      podLabels: row.labels,
      serviceAccount: row.serviceAccount,
      cluster: this.#options.cluster,
    });
    try {
      const { id, allocated } = this.#identities.use(labels);
      if (allocated) {
        const peerSets = [...this.#sources.sets.addIdentity(id, labels)].sort();
        this.#identityEdits.set(String(id), { id, labels, peerSets });
      }
      return id;
    } catch (error) {
      this.#waiting.add(row.key);
      this.#options.onNoIdentity?.(row.key, error instanceof Error ? error : new Error(String(error)));
      return undefined;
    }
  }

  #keep(before: PodState | undefined): number | undefined {
    const labels = before?.identity === undefined ? undefined : this.#identities.labels(before.identity);
    return labels === undefined ? undefined : this.#identities.use(labels).id;
  }
}

/** Addresses that the pod claims: none without an identity. */
function claimsOf(state: PodState | undefined): readonly string[] {
  return state?.identity === undefined ? [] : state.row.addresses;
}

function residentOf(
  state: PodState | undefined,
): { readonly identity: number; readonly node: string | undefined; readonly leaving: boolean } | undefined {
  if (state?.identity === undefined || state.row.addresses.length === 0) return undefined;
  return { identity: state.identity, node: state.row.node, leaving: state.row.terminating };
}

function namerOf(
  state: PodState | undefined,
): { readonly identity: number; readonly ports: PodRow['namedPorts'] } | undefined {
  if (state?.identity === undefined || state.row.addresses.length === 0) return undefined;
  return { identity: state.identity, ports: state.row.namedPorts };
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
