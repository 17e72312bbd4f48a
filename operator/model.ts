/**
 * The derivation: what the API should hold, kept up to date by increments.
 *
 * Guarantee: whatever the order and grouping of the changes, the desired state is that of a model that starts from
 * scratch with the same inputs and adopts what this one had written. No change costs policies x pods: a selector is
 * evaluated against identities when it is new, an identity against selectors when it is new.
 */
import { Census } from './census.ts';
import { peerSetName, resolvedName } from './names.ts';
import { PodBook, type PodBookOptions } from './pod-book.ts';
import { hashesOf, PolicyBook, type PolicyEntry } from './policy-book.ts';
import { PortNames } from './port-names.ts';
import { SelectorIndex } from './selector-index.ts';
import { StatusBoard } from './status-board.ts';
import type {
  Adopted,
  Edit,
  Edits,
  NamespaceRow,
  NodeReportRow,
  NodeRow,
  PeerSetRow,
  PodRow,
  PolicyObjectKind,
  PolicyRow,
  ResolvedRow,
} from './types.ts';

/** Most identities in one slice of a peer set. */
export const PEER_SLICE_SIZE = 10_000;

export interface ModelOptions extends PodBookOptions {
  /** Milliseconds an unused identity is kept. */
  readonly identityGraceMs: number;
  /** Milliseconds between two statuses of one policy. Default 0: nothing is held back. */
  readonly statusIntervalMs?: number;
}

export class Model {
  readonly #options: ModelOptions;
  readonly #sets = new SelectorIndex();
  readonly #policies = new PolicyBook();
  readonly #portNames: PortNames;
  readonly #pods: PodBook;
  readonly #statuses: StatusBoard;
  /** Policies whose subject is this set. */
  readonly #subjectOf = new Map<string, Set<string>>();
  /** Slices that a desired peer set has. */
  readonly #peerSlices = new Map<string, number>();
  readonly #resolvedEdits = new Map<string, ResolvedRow | undefined>();
  readonly #missingKinds = new Set<PolicyObjectKind>();

  constructor(options: ModelOptions) {
    this.#options = options;
    const census = new Census((identity) => {
      for (const hash of this.#sets.setsOf(identity)) this.#markSubjects(hash);
    });
    this.#portNames = new PortNames(this.#sets, (policy) => this.#statuses.mark(policy));
    const sources = { sets: this.#sets, policies: this.#policies, census, portNames: this.#portNames };
    this.#statuses = new StatusBoard(sources, { now: options.now, intervalMs: options.statusIntervalMs ?? 0 });
    this.#pods = new PodBook(sources, options);
  }

  /** Takes over what the API holds; call first, and `adoptionDone` when every input has been put in. */
  adopt(adopted: Adopted): void {
    for (const { hash, selector } of adopted.peerSets) this.#policies.adoptSelector(hash, selector);
    for (const row of adopted.resolved) this.#policies.adopt(row);
    this.#pods.adopt(adopted);
    for (const { key, uid, status } of adopted.statuses) this.#statuses.adopt(key, uid, status);
  }

  /** `missing`: kinds of policies that cannot be read now. What was resolved of them stays, until `kindKnown`. */
  adoptionDone(missing: Iterable<PolicyObjectKind> = []): void {
    for (const kind of missing) this.#missingKinds.add(kind);
    for (const { resolved, selectors } of this.#policies.adoptionDone(this.#missingKinds)) {
      for (const [hash, selector] of selectors) this.#sets.retain(hash, selector, keptBy(resolved.name));
      this.#resolvedEdits.set(resolved.name, resolved);
    }
    this.#pods.adoptionDone();
    if (this.#missingKinds.size === 0) this.#statuses.adoptionDone();
  }

  /** Kinds that `adoptionDone` was told are missing. */
  get missingKinds(): ReadonlySet<PolicyObjectKind> {
    return this.#missingKinds;
  }

  /** All policies of a kind that was missing have been set now. */
  kindKnown(kind: PolicyObjectKind): void {
    if (!this.#missingKinds.delete(kind)) return;
    for (const resolved of this.#policies.forgetAdopted(kind)) {
      this.#resolvedEdits.set(resolved.name, undefined);
      this.#unkeep(resolved.name, hashesOf(resolved.rules));
    }
    if (this.#missingKinds.size === 0) this.#statuses.adoptionDone();
  }

  setNamespace(row: NamespaceRow): void {
    this.#pods.setNamespace(row);
  }

  deleteNamespace(name: string): void {
    this.#pods.deleteNamespace(name);
  }

  setPod(row: PodRow): void {
    this.#pods.setPod(row);
  }

  deletePod(key: string): void {
    this.#pods.deletePod(key);
  }

  setPolicy(row: PolicyRow): void {
    const known = this.#policies.get(row.key);
    if (known?.row.uid === row.uid && known.row.generation === row.generation) return;
    const name = resolvedName(row.kind, row.namespace, row.name);
    const kept = this.#missingKinds.has(row.kind) ? this.#policies.adopted(name) : undefined;
    const { before, after } = this.#policies.set(row);
    if (kept !== undefined) this.#resolvedEdits.set(name, undefined);
    this.#replacePolicy(row.key, before, after);
    if (kept !== undefined) this.#unkeep(name, hashesOf(kept.rules));
  }

  deletePolicy(key: string): void {
    const before = this.#policies.delete(key);
    if (before !== undefined) this.#replacePolicy(key, before, undefined);
  }

  setNode(row: NodeRow): void {
    this.#statuses.setNode(row);
  }

  deleteNode(name: string): void {
    this.#statuses.deleteNode(name);
  }

  setReport(row: NodeReportRow): void {
    this.#statuses.setReport(row);
  }

  deleteReport(node: string): void {
    this.#statuses.deleteReport(node);
  }

  /** The API holds another status of this policy than the one that was written. */
  touchStatus(key: string): void {
    this.#statuses.touch(key);
  }

  /** The API has taken this policy's status. */
  statusWritten(key: string): void {
    this.#statuses.written(key);
  }

  /** Forgets identities that nobody uses for long enough, and gives numbers to pods that wait for one. */
  collect(): void {
    this.#pods.collect(this.#options.identityGraceMs);
  }

  /** Some changes did not fit in the last flush. */
  get more(): boolean {
    return this.#statuses.more;
  }

  /** Milliseconds until a status that was held back is due; undefined: none was. */
  get dueInMs(): number | undefined {
    return this.#statuses.dueInMs;
  }

  /** The same for Events. */
  get eventDueInMs(): number | undefined {
    return this.#statuses.eventDueInMs;
  }

  /** Desired rows that changed since the last call; of the statuses, as many as fit. */
  flush(): Edits {
    const peerSets = this.#sets.drainChanged().flatMap((hash) => this.#peerSetEdits(hash));
    const resolved = [...this.#resolvedEdits].map(([key, row]) => ({ key, row }));
    this.#resolvedEdits.clear();
    return { ...this.#pods.flush(), peerSets, resolved, ...this.#statuses.flush() };
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
    this.#portNames.setPolicy(key, before, after);
    if (before?.resolved !== undefined) this.#resolvedEdits.set(before.resolved.name, undefined);
    if (after?.resolved !== undefined) this.#resolvedEdits.set(after.resolved.name, after.resolved);
    this.#statuses.mark(key);
  }

  #unkeep(name: string, hashes: Iterable<string>): void {
    for (const hash of hashes) this.#sets.release(hash, keptBy(name));
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
    this.#markSubjects(hash);
    return edits;
  }

  #markSubjects(hash: string): void {
    for (const key of this.#subjectOf.get(hash) ?? []) this.#statuses.mark(key);
  }
}

/** Who holds the peer sets of a ResolvedPolicy whose policy cannot be read. */
function keptBy(name: string): string {
  return `kept ${name}`;
}
