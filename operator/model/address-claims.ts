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
 * - A claim of a pod that stays and that does not count is told once, with its reason.
 */
import type { AnyTable, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { PodRow } from '../types.ts';
import type { PlacedPod } from './placed-pods.ts';
import { addressKey, type Place, type PodNetworks } from './pod-networks.ts';

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

/** A claim that does not count. */
export interface RefusedAddress {
  readonly address: string;
  /** `namespace/name`. */
  readonly pod: string;
  /** `elsewhere`: pods of its node have no such address. `taken`: another pod had it first. `contested`: several claimed it at once. */
  readonly reason: 'elsewhere' | 'taken' | 'contested';
  /** Pods that have it, or claim it too: the first by name, at most 5. */
  readonly others: readonly string[];
}

interface Refusal extends RefusedAddress {
  readonly told: boolean;
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
  readonly #refusals: Table<Refusal>;

  constructor(db: StateDB, options: AddressClaimsOptions) {
    this.#options = options;
    this.#owners = db.table<Owner>({
      name: 'address-owners',
      key: ({ address }) => address,
      indexes: [{ name: 'awaited', keys: ({ awaited }) => (awaited ? [''] : []) }],
    });
    this.#refusals = db.table<Refusal>({
      name: 'refused-addresses',
      key: ({ address, pod }) => `${address} ${pod}`,
      indexes: [{ name: 'untold', keys: ({ told }) => (told ? [] : ['']) }],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#owners, this.#refusals];
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
    for (const refusal of Array.from(txn.list(this.#refusals, 'untold', ''))) this.#tell(txn, refusal);
  }

  owns(reader: Reader, pod: string, address: string): boolean {
    const owner = reader.get(this.#owners, address);
    return owner?.pod === pod && !owner.awaited;
  }

  /**
   * Decides whose the address is, after pods that claim it, or their nodes, have changed. `loading`: inputs are still put in, so that who comes
   * first says nothing. Returns the pods that may have gained or lost it.
   */
  settle(txn: WriteTxn, address: string, loading: boolean): string[] {
    const { pods, networks } = this.#options;
    const place = networks.whereIs(txn, address);
    const claims = Array.from(txn.covered(pods, 'address', addressKey(address)), ({ row }) => ({
      row,
      at: place(row),
    }));
    const counting = claims.flatMap(({ row, at }) => (at === 'home' ? [row] : []));
    const staying = counting.filter(({ terminating }) => !terminating);
    const before = txn.get(this.#owners, address);
    const after = decide(before, address, staying.length > 0 ? staying : counting, loading);
    if (after === undefined) txn.delete(this.#owners, address);
    else if (after !== before) txn.upsert(this.#owners, after);
    const rivals = after === undefined ? firstOf(staying) : [after.pod];
    const refused = new Map(
      claims.flatMap((claim) => refusalOf(claim, address, rivals, after)).map((refusal) => [refusal.pod, refusal]),
    );
    for (const { pod } of Array.from(txn.prefix(this.#refusals, `${address} `)))
      if (!refused.has(pod)) txn.delete(this.#refusals, `${address} ${pod}`);
    for (const refusal of refused.values()) {
      const known = txn.get(this.#refusals, `${address} ${refusal.pod}`);
      if (known?.reason === refusal.reason && (known.told || loading)) continue;
      if (loading) txn.upsert(this.#refusals, refusal);
      else this.#tell(txn, refusal);
    }
    return [before, after].flatMap((owner) => owner?.pod ?? []);
  }

  #tell(txn: WriteTxn, refusal: Refusal): void {
    txn.upsert(this.#refusals, { ...refusal, told: true });
    const { told: _, ...refused } = refusal;
    this.#options.onRefused?.(refused);
  }
}

/** `claims`: those of pods that stay; where there are none, of those that are going. */
function decide(
  before: Owner | undefined,
  address: string,
  claims: readonly PodRow[],
  loading: boolean,
): Owner | undefined {
  const holder = before === undefined ? undefined : claims.find((row) => isOf(before, row));
  if (loading && before?.adopted === true) {
    const awaited = holder === undefined;
    return awaited === before.awaited ? before : { ...before, awaited };
  }
  const [first, ...others] = claims;
  const next = loading || holder === undefined ? (others.length > 0 ? undefined : first) : holder;
  if (next === undefined) return undefined;
  const { key: pod, uid } = next;
  if (before?.pod === pod && before.uid === uid && !before.awaited) return before;
  return { address, pod, uid, adopted: false, awaited: false };
}

function isOf({ pod, uid }: Owner, row: PodRow): boolean {
  return pod === row.key && (uid === '' || row.uid === '' || uid === row.uid);
}

/** Many may claim one address. */
function firstOf(claims: readonly PodRow[]): string[] {
  return claims
    .map(({ key }) => key)
    .sort()
    .slice(0, OTHERS + 1);
}

/** Why a pod that stays does not get the address; nothing when it does, or when nobody can say yet. */
function refusalOf(
  { row, at }: { readonly row: PodRow; readonly at: Place },
  address: string,
  rivals: readonly string[],
  owner: Owner | undefined,
): Refusal[] {
  if (row.terminating || owner?.pod === row.key || at === 'unknown') return [];
  const reason = at === 'elsewhere' ? 'elsewhere' : owner === undefined ? 'contested' : 'taken';
  const others = rivals.filter((key) => key !== row.key).slice(0, OTHERS);
  return [{ address, pod: row.key, reason, others, told: false }];
}
