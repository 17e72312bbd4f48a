/**
 * The derivation: what the API should hold, kept up to date by increments.
 *
 * Guarantee: whatever the order and grouping of the changes, the desired state is that of a model that starts from
 * scratch with the same inputs and adopts what this one had written. No change costs policies x pods: a selector is
 * evaluated against identities when it is new, an identity against selectors when it is new.
 */
import type { PolicyStatus, SliceEndpoint } from '@weir/kube';
import { podIdentityLabels } from '@weir/labels';
import { IdentityBook } from './identity-book.ts';
import { peerSetName } from './names.ts';
import { PolicyBook, type PolicyEntry } from './policy-book.ts';
import { SelectorIndex } from './selector-index.ts';
import { SlicePacker } from './slices.ts';
import { foldStatus } from './status.ts';
import type {
  Adopted,
  IdentityRow,
  NamespaceRow,
  NodeReportRow,
  NodeRow,
  PeerSetRow,
  PodRow,
  PolicyRow,
  ResolvedRow,
  SliceRow,
  StatusRow,
} from './types.ts';

/** Statuses folded in one flush: each may look at many identities, and other work waits meanwhile. */
const STATUSES_PER_FLUSH = 200;
/** Milliseconds between two statuses of one policy that say something new: a bound for what flaps. */
const NEWS_INTERVAL_MS = 10;
/** Most identities in one slice of a peer set. */
export const PEER_SLICE_SIZE = 10_000;

export interface ModelOptions {
  readonly cluster: string;
  /** Milliseconds an unused identity is kept. */
  readonly identityGraceMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds between two statuses of one policy that differ in counts only. Default 0: nothing is held back. */
  readonly statusIntervalMs?: number;
  /** A pod that got no identity, with the reason: no number is left. */
  readonly onNoIdentity?: (pod: string, error: Error) => void;
}

/** A desired row that changed; without `row` it is gone. */
export interface Edit<T> {
  readonly key: string;
  readonly row: T | undefined;
}

export interface Edits {
  readonly identities: readonly Edit<IdentityRow>[];
  readonly peerSets: readonly Edit<PeerSetRow>[];
  readonly resolved: readonly Edit<ResolvedRow>[];
  readonly slices: readonly Edit<SliceRow>[];
  readonly statuses: readonly Edit<StatusRow>[];
}

interface PodState {
  readonly row: PodRow;
  readonly identity: number | undefined;
  /** Node on which the pod counts as an endpoint. */
  readonly countedOn: string | undefined;
}

export class Model {
  readonly #options: ModelOptions;
  readonly #identities = new IdentityBook();
  readonly #sets = new SelectorIndex();
  readonly #policies = new PolicyBook();
  readonly #slices = new SlicePacker();
  readonly #namespaces = new Map<string, NamespaceRow>();
  readonly #pods = new Map<string, PodState>();
  readonly #podsIn = new Map<string, Set<string>>();
  readonly #live = new Set<string>();
  readonly #reports = new Map<string, NodeReportRow>();
  /** Selected-pod counts: identity -> node -> pods. */
  readonly #counts = new Map<number, Map<string, number>>();
  /** Policies whose subject is this set. */
  readonly #subjectOf = new Map<string, Set<string>>();
  readonly #statuses = new Map<string, { uid: string; status: PolicyStatus }>();
  /** Slices that a desired peer set has. */
  readonly #peerSlices = new Map<string, number>();
  /** Pods that found no free number. */
  readonly #waiting = new Set<string>();

  readonly #identityEdits = new Map<string, IdentityRow | undefined>();
  readonly #resolvedEdits = new Map<string, ResolvedRow | undefined>();
  readonly #dirtyStatuses = new Set<string>();
  /** When a status was shown last, and when a change of it that may wait will be. Milliseconds of `now`. */
  readonly #shownAt = new Map<string, number>();
  readonly #deferred = new Map<string, number>();

  constructor(options: ModelOptions) {
    this.#options = options;
  }

  /** Takes over what the API holds; call first, and `adoptionDone` when every input has been put in. */
  adopt(adopted: Adopted): void {
    for (const { hash, selector } of adopted.peerSets) this.#policies.adoptSelector(hash, selector);
    for (const row of adopted.resolved) this.#policies.adopt(row);
    for (const row of adopted.identities) {
      if (!this.#identities.adopt(row.id, row.labels, this.#options.now())) continue;
      this.#sets.addIdentity(row.id, row.labels);
      this.#identityEdits.set(String(row.id), row);
    }
    for (const { name, namespace, pods } of adopted.slices) this.#slices.adopt(name, namespace, pods);
    for (const { key, uid, status } of adopted.statuses) this.#statuses.set(key, { uid, status });
  }

  adoptionDone(): void {
    this.#policies.adoptionDone();
    this.#slices.adoptionDone();
    for (const key of [...this.#statuses.keys()]) {
      if (this.#policies.get(key) === undefined) this.#statuses.delete(key);
    }
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
    this.#count(before, -1);
    if (before.identity !== undefined) this.#identities.release(before.identity, this.#options.now());
    this.#slices.remove(before.row.namespace, before.row.name);
    this.#pods.delete(key);
    this.#waiting.delete(key);
    const others = this.#podsIn.get(before.row.namespace);
    others?.delete(key);
    if (others?.size === 0) this.#podsIn.delete(before.row.namespace);
  }

  setPolicy(row: PolicyRow): void {
    const known = this.#policies.get(row.key);
    if (known?.row.uid === row.uid && known.row.generation === row.generation) return;
    const { before, after } = this.#policies.set(row);
    this.#replacePolicy(row.key, before, after);
  }

  deletePolicy(key: string): void {
    const before = this.#policies.delete(key);
    if (before !== undefined) this.#replacePolicy(key, before, undefined);
  }

  setNode(row: NodeRow): void {
    if (this.#live.has(row.name) === row.live) return;
    if (row.live) this.#live.add(row.name);
    else this.#live.delete(row.name);
    for (const key of this.#policies.keys()) this.#dirtyStatuses.add(key);
  }

  deleteNode(name: string): void {
    this.setNode({ name, live: false });
  }

  setReport(row: NodeReportRow): void {
    const before = this.#reports.get(row.node);
    this.#reports.set(row.node, row);
    this.#reportChanged(before, row);
  }

  deleteReport(node: string): void {
    const before = this.#reports.get(node);
    this.#reports.delete(node);
    this.#reportChanged(before, undefined);
  }

  /** Forgets identities that nobody uses for long enough, and gives numbers to pods that wait for one. */
  collect(): void {
    for (const id of this.#identities.collect(this.#options.now(), this.#options.identityGraceMs)) {
      this.#sets.removeIdentity(id);
      this.#counts.delete(id);
      this.#identityEdits.set(String(id), undefined);
    }
    for (const key of [...this.#waiting]) this.#refresh(key);
  }

  /** Some changes did not fit in the last flush. */
  get more(): boolean {
    return this.#dirtyStatuses.size > 0;
  }

  /** Milliseconds until a status that was held back is due; undefined: none was. */
  get dueInMs(): number | undefined {
    if (this.#deferred.size === 0) return undefined;
    let due = Number.POSITIVE_INFINITY;
    for (const at of this.#deferred.values()) due = Math.min(due, at);
    return Math.max(0, due - this.#options.now());
  }

  /** Desired rows that changed since the last call; of the statuses, as many as fit. */
  flush(): Edits {
    const peerSets = this.#sets.drainChanged().flatMap((hash) => this.#peerSetEdits(hash));
    const statuses: Edit<StatusRow>[] = [];
    const now = this.#options.now();
    for (const [key, at] of this.#deferred) if (at <= now) this.#dirtyStatuses.add(key);
    let folded = 0;
    for (const key of this.#dirtyStatuses) {
      if (folded === STATUSES_PER_FLUSH) break;
      folded += 1;
      this.#dirtyStatuses.delete(key);
      const row = this.#statusRow(key);
      const wait = row === undefined ? 0 : this.#holdBack(row, now);
      if (wait > 0) this.#deferred.set(key, now + wait);
      else {
        this.#show(key, row, now);
        statuses.push({ key, row });
      }
    }
    return {
      identities: drain(this.#identityEdits),
      peerSets,
      resolved: drain(this.#resolvedEdits),
      slices: this.#slices.drainChanged().map(({ name, row }) => ({ key: name, row })),
      statuses,
    };
  }

  #refresh(key: string): void {
    const state = this.#pods.get(key);
    if (state !== undefined) this.#place(state.row, state);
  }

  #place(row: PodRow, before: PodState | undefined): void {
    const identity = this.#identityOf(row, before);
    const placed = identity !== undefined && row.addresses.length > 0;
    const countedOn = placed && !row.terminating ? row.node : undefined;
    const after: PodState = { row, identity, countedOn };
    if (before?.identity !== identity || before?.countedOn !== countedOn) {
      if (before !== undefined) this.#count(before, -1);
      this.#count(after, 1);
    }
    if (before?.identity !== undefined) this.#identities.release(before.identity, this.#options.now());
    this.#pods.set(row.key, after);
    if (placed) this.#slices.set(row.namespace, endpointOf(row, identity));
    else this.#slices.remove(row.namespace, row.name);
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
        const peerSets = [...this.#sets.addIdentity(id, labels)].sort();
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

  #count(pod: PodState, by: 1 | -1): void {
    if (pod.identity === undefined || pod.countedOn === undefined) return;
    const nodes = this.#counts.get(pod.identity) ?? new Map<string, number>();
    this.#counts.set(pod.identity, nodes);
    const count = (nodes.get(pod.countedOn) ?? 0) + by;
    if (count === 0) nodes.delete(pod.countedOn);
    else nodes.set(pod.countedOn, count);
    for (const hash of this.#sets.setsOf(pod.identity)) {
      for (const key of this.#subjectOf.get(hash) ?? []) this.#dirtyStatuses.add(key);
    }
  }

  #replacePolicy(key: string, before: PolicyEntry | undefined, after: PolicyEntry | undefined): void {
    // First retained, then released: a set that both name stays as it is.
    for (const [hash, selector] of after?.selectors ?? []) this.#sets.retain(hash, selector, key);
    for (const hash of before?.selectors.keys() ?? []) {
      if (after?.selectors.has(hash) !== true) this.#sets.release(hash, key);
    }
    for (const hash of before?.subjects ?? []) {
      const owners = this.#subjectOf.get(hash);
      owners?.delete(key);
      if (owners?.size === 0) this.#subjectOf.delete(hash);
    }
    for (const hash of after?.subjects ?? []) {
      const owners = this.#subjectOf.get(hash);
      if (owners === undefined) this.#subjectOf.set(hash, new Set([key]));
      else owners.add(key);
    }
    if (before?.resolved !== undefined) this.#resolvedEdits.set(before.resolved.name, undefined);
    if (after?.resolved !== undefined) this.#resolvedEdits.set(after.resolved.name, after.resolved);
    this.#dirtyStatuses.add(key);
  }

  #reportChanged(before: NodeReportRow | undefined, after: NodeReportRow | undefined): void {
    const uids = new Set<string>();
    for (const row of [before, after]) {
      if (row === undefined) continue;
      for (const uid of Object.keys(row.generations)) {
        if (before?.generations[uid] !== after?.generations[uid]) uids.add(uid);
      }
      for (const failure of row.failures) uids.add(failure.uid);
    }
    for (const uid of uids) {
      const key = this.#policies.keyOfUid(uid);
      if (key !== undefined) this.#dirtyStatuses.add(key);
    }
  }

  #peerSetEdits(hash: string): Edit<PeerSetRow>[] {
    const selector = this.#sets.selector(hash);
    const members = this.#sets.members(hash);
    const before = this.#peerSlices.get(hash) ?? 0;
    const edits: Edit<PeerSetRow>[] = [];
    let slices = 0;
    if (selector !== undefined && members !== undefined) {
      const sorted = [...members].sort((a, b) => a - b);
      slices = Math.max(1, Math.ceil(sorted.length / PEER_SLICE_SIZE));
      for (let slice = 0; slice < slices; slice += 1) {
        const name = peerSetName(hash, slice);
        const identities = sorted.slice(slice * PEER_SLICE_SIZE, (slice + 1) * PEER_SLICE_SIZE);
        edits.push({ key: name, row: { name, hash, selector, identities, slice, slices } });
      }
      this.#peerSlices.set(hash, slices);
    } else this.#peerSlices.delete(hash);
    for (let slice = slices; slice < before; slice += 1) edits.push({ key: peerSetName(hash, slice), row: undefined });
    for (const key of this.#subjectOf.get(hash) ?? []) this.#dirtyStatuses.add(key);
    return edits;
  }

  /**
   * Milliseconds to hold a status back. The first change after a while is shown at once, and so is, a moment later at
   * most, one that says something new; counts that move while many nodes follow wait their turn.
   */
  #holdBack(row: StatusRow, now: number): number {
    const shownAt = this.#shownAt.get(row.key);
    const shown = this.#statuses.get(row.key);
    if (shownAt === undefined || shown === undefined || shown.uid !== row.uid) return 0;
    const interval = this.#options.statusIntervalMs ?? 0;
    const least = saysTheSame(shown.status, row.status) ? interval : Math.min(interval, NEWS_INTERVAL_MS);
    // A clock that was set back holds nothing back for long.
    return Math.min(least, shownAt + least - now);
  }

  #show(key: string, row: StatusRow | undefined, now: number): void {
    this.#deferred.delete(key);
    if (row === undefined) {
      this.#statuses.delete(key);
      this.#shownAt.delete(key);
      return;
    }
    this.#statuses.set(key, { uid: row.uid, status: row.status });
    this.#shownAt.set(key, now);
  }

  #statusRow(key: string): StatusRow | undefined {
    const entry = this.#policies.get(key);
    if (entry === undefined) return undefined;
    const { kind, namespace, name, uid, generation } = entry.row;
    const perNode = new Map<string, number>();
    const seen = new Set<number>();
    let endpoints = 0;
    for (const hash of entry.subjects) {
      for (const id of this.#sets.members(hash) ?? []) {
        if (seen.has(id)) continue;
        seen.add(id);
        for (const [node, count] of this.#counts.get(id) ?? []) {
          endpoints += count;
          if (this.#live.has(node)) perNode.set(node, (perNode.get(node) ?? 0) + count);
        }
      }
    }
    const previous = this.#statuses.get(key);
    const status = foldStatus({
      generation,
      problems: entry.problems,
      enforcedGeneration: entry.resolved?.source.generation,
      rules: entry.resolved?.rules.length ?? 0,
      nodes: [...perNode.keys()].sort(),
      endpoints,
      reported: (node) => {
        const report = this.#reports.get(node);
        return {
          generation: report?.generations[uid],
          failures: report?.failures.filter((failure) => failure.uid === uid) ?? [],
        };
      },
      previous: previous?.uid === uid ? previous.status : undefined,
      now: new Date(Math.floor(this.#options.now() / 1000) * 1000).toISOString().replace('.000Z', 'Z'),
    });
    return { key, kind, ...(namespace === undefined ? {} : { namespace }), name, uid, status };
  }
}

/** Whether two statuses differ in counts and messages at most. */
function saysTheSame(a: PolicyStatus, b: PolicyStatus): boolean {
  const said = ({ observedGeneration, conditions }: PolicyStatus): string =>
    JSON.stringify([observedGeneration, conditions.map(({ type, status, reason }) => [type, status, reason])]);
  return said(a) === said(b);
}

function drain<T>(edits: Map<string, T | undefined>): Edit<T>[] {
  const drained = [...edits].map(([key, row]) => ({ key, row }));
  edits.clear();
  return drained;
}

function endpointOf(row: PodRow, identity: number): SliceEndpoint {
  const ipv4 = row.addresses.find((address) => !address.includes(':'));
  const ipv6 = row.addresses.find((address) => address.includes(':'));
  const pair = { ...(ipv4 === undefined ? {} : { ipv4 }), ...(ipv6 === undefined ? {} : { ipv6 }) };
  return {
    name: row.name,
    id: 0,
    identity,
    networking: { addressing: [pair], node: row.hostIP },
    ...(row.namedPorts.length === 0 ? {} : { 'named-ports': row.namedPorts }),
  };
}
