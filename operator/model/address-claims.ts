/**
 * Which pod an address speaks for. Pods may claim the same address for a while: one that is going keeps its address in
 * the API when its network is gone already, and a rebooted node's pods come back with each other's. And a pod's status says what whoever
 * may write it likes.
 *
 * Guarantees:
 * - At most one pod owns an address, and only where it can have it (pod-networks.ts).
 * - Who owns an address keeps it for as long as it claims it and stays: what a newcomer says takes nothing from it. Over a restart the slices
 *   tell who owned what.
 * - One that stays wins over those that are going. Of several that come at once for an address that nobody owns, none gets it until one is
 *   left: nodes take it for unknown until then.
 * - A rejected claim of a pod that stays is reported once, with its reason.
 * - A change costs what it changes, however many claim the address: who comes or goes is looked at, and all of them only where their reason is
 *   another one.
 */
import { isDeepStrictEqual } from 'node:util';
import type { AnyTable, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { RefusedAddress } from '../types.ts';
import { claimsOf, type PlacedPod } from './placed-pods.ts';
import type { Place, PodNetworks } from './pod-networks.ts';

/** Pods that a refusal names. */
const OTHERS = 5;

/** Whose an address is. */
interface Owner {
  readonly address: string;
  /** `namespace/name` of the pod, and what tells it from others of that name: '' where nobody says it. */
  readonly pod: string;
  readonly uid: string;
  /** By the slices of before a restart: while inputs are put in nobody else gets it. */
  readonly adopted: boolean;
  /** Adopted, and the pod does not claim it yet. */
  readonly awaited: boolean;
}

interface Claim {
  readonly address: string;
  /** `namespace/name`. */
  readonly pod: string;
  readonly uid: string;
  readonly at: Place;
  readonly leaving: boolean;
  /** Undefined: it counts, or nobody can say yet, or nobody needs to know. */
  readonly refused: RefusedAddress['reason'] | undefined;
  readonly reported: boolean;
}

export interface AddressClaimsOptions {
  readonly pods: Table<PlacedPod>;
  readonly networks: Pick<PodNetworks, 'whereIs'>;
  /** Called within a transaction. */
  readonly onRefused?: (refused: RefusedAddress) => void;
}

export class AddressClaims {
  readonly #options: AddressClaimsOptions;
  readonly #owners: Table<Owner>;
  readonly #claims: Table<Claim>;

  constructor(db: StateDB, options: AddressClaimsOptions) {
    this.#options = options;
    this.#owners = db.table<Owner>({
      name: 'addressOwners',
      key: ({ address }) => address,
      indexes: [{ name: 'awaited', keys: ({ awaited }) => (awaited ? [''] : []) }],
    });
    this.#claims = db.table<Claim>({
      name: 'addressClaims',
      key: ({ address, pod }) => claimKey(address, pod),
      equals: isDeepStrictEqual,
      indexes: [
        { name: 'counting', keys: ({ address, at, leaving }) => (at === 'home' ? [groupKey(address, leaving)] : []) },
        { name: 'unreported', keys: ({ refused, reported }) => (refused === undefined || reported ? [] : ['']) },
      ],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#owners, this.#claims];
  }

  /** A slice of before a restart gives the address to the pod. Of two slices the first one counts. */
  adopt(txn: WriteTxn, address: string, pod: string, uid: string): void {
    if (!txn.has(this.#owners, address)) txn.insert(this.#owners, { address, pod, uid, adopted: true, awaited: true });
  }

  /** Addresses that are kept for owners of before a restart, who did not come: settle them when all inputs have been put in. */
  awaited(reader: Reader): string[] {
    return Array.from(reader.list(this.#owners, 'awaited', ''), ({ address }) => address);
  }

  /** Tells what was refused while inputs were put in. */
  tellRefused(txn: WriteTxn): void {
    for (const claim of Array.from(txn.list(this.#claims, 'unreported', ''))) this.#report(txn, claim);
  }

  owns(reader: Reader, pod: string, address: string): boolean {
    const owner = reader.get(this.#owners, address);
    return owner?.pod === pod && !owner.awaited;
  }

  /**
   * Decides whose the address is. `changed`: pods that claim it, or claim it no more, and have changed, or their nodes have. `loading`: inputs are
   * still put in, so that who comes first says nothing. Returns the pods that may have gained or lost it.
   */
  settle(txn: WriteTxn, address: string, changed: Iterable<string>, loading: boolean): string[] {
    const place = this.#options.networks.whereIs(txn, address);
    const before = txn.get(this.#owners, address);
    const touched = new Set(changed);
    for (const pod of touched) this.#take(txn, address, pod, place);
    const after = this.#decide(txn, address, before, loading);
    if (after === undefined) txn.delete(this.#owners, address);
    else if (after !== before) txn.upsert(this.#owners, after);
    const concerned = [before, after].flatMap((owner) => owner?.pod ?? []);
    for (const pod of concerned) touched.add(pod);
    // Where somebody has it now, or nobody any more, the reason of all is another one.
    if ((before === undefined) !== (after === undefined))
      for (const { pod } of txn.list(this.#claims, 'counting', groupKey(address, false))) touched.add(pod);
    for (const pod of [...touched].sort()) this.#judge(txn, claimKey(address, pod), after, loading);
    return concerned;
  }

  /** Takes in what the pod claims now. */
  #take(txn: WriteTxn, address: string, pod: string, place: (row: PlacedPod['row']) => Place): void {
    const placed = txn.get(this.#options.pods, pod);
    const key = claimKey(address, pod);
    if (placed === undefined || !claimsOf(placed).includes(address)) {
      txn.delete(this.#claims, key);
      return;
    }
    const { refused, reported = false } = txn.get(this.#claims, key) ?? {};
    const { uid, terminating: leaving } = placed.row;
    txn.upsert(this.#claims, { address, pod, uid, at: place(placed.row), leaving, refused, reported });
  }

  #decide(txn: WriteTxn, address: string, before: Owner | undefined, loading: boolean): Owner | undefined {
    const staying = this.#first(txn, address, false, 2);
    const [first, ...others] = staying.length > 0 ? staying : this.#first(txn, address, true, 2);
    const claim = before === undefined ? undefined : txn.get(this.#claims, claimKey(address, before.pod));
    const counts = claim?.at === 'home' && claim.leaving === first?.leaving;
    const holder = before !== undefined && claim !== undefined && counts && isOf(before, claim) ? claim : undefined;
    if (loading && before?.adopted === true) {
      const awaited = holder === undefined;
      return awaited === before.awaited ? before : { ...before, awaited };
    }
    const next = loading || holder === undefined ? (others.length > 0 ? undefined : first) : holder;
    if (next === undefined) return undefined;
    const { pod, uid } = next;
    if (before?.pod === pod && before.uid === uid && !before.awaited) return before;
    return { address, pod, uid, adopted: false, awaited: false };
  }

  /** Claims of pods that stay, or that are going, where they can have the address: the first ones by name. */
  #first(reader: Reader, address: string, leaving: boolean, most: number): Claim[] {
    return Iterator.from(reader.list(this.#claims, 'counting', groupKey(address, leaving)))
      .take(most)
      .toArray();
  }

  /** Says of one claim why it does not count. */
  #judge(txn: WriteTxn, key: string, owner: Owner | undefined, loading: boolean): void {
    const claim = txn.get(this.#claims, key);
    if (claim === undefined) return;
    const refused = refusalOf(claim, owner);
    const reported = claim.reported && refused === claim.refused;
    const judged = { ...claim, refused, reported };
    txn.upsert(this.#claims, judged);
    if (refused !== undefined && !reported && !loading) this.#report(txn, judged);
  }

  #report(txn: WriteTxn, claim: Claim): void {
    const { address, pod, refused: reason } = claim;
    if (reason === undefined) return;
    txn.upsert(this.#claims, { ...claim, reported: true });
    const owner = txn.get(this.#owners, address);
    const rivals =
      owner === undefined ? this.#first(txn, address, false, OTHERS + 1).map((rival) => rival.pod) : [owner.pod];
    this.#options.onRefused?.({ address, pod, reason, others: rivals.filter((one) => one !== pod).slice(0, OTHERS) });
  }
}

function claimKey(address: string, pod: string): string {
  return `${address} ${pod}`;
}

/** Of those that stay, and of those that are going. */
function groupKey(address: string, leaving: boolean): string {
  return `${address} ${leaving ? 'going' : 'staying'}`;
}

function isOf({ pod, uid }: Owner, claim: Claim): boolean {
  return pod === claim.pod && (uid === '' || claim.uid === '' || uid === claim.uid);
}

/** Why a pod that stays does not get the address; nothing when it does, or when nobody can say yet. */
function refusalOf({ pod, at, leaving }: Claim, owner: Owner | undefined): Claim['refused'] {
  if (leaving || owner?.pod === pod || at === 'unknown') return undefined;
  return at === 'elsewhere' ? 'elsewhere' : owner === undefined ? 'contested' : 'taken';
}
