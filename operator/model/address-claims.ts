/**
 * Which pod an address speaks for. Pods may claim the same address for a while: one that is going keeps its address in
 * the API when its network is gone already, and a rebooted node's pods come back with each other's.
 *
 * Guarantee: at most one pod owns an address. One that stays wins over those that are going; among equals nobody does, so
 * that nodes take the address for unknown until the API server tells them apart.
 */
import type { Reader, Table } from '@weir/statedb';
import { claimsOf, type PlacedPod } from './placed-pods.ts';

export class AddressClaims {
  readonly #pods: Table<PlacedPod>;

  constructor(pods: Table<PlacedPod>) {
    this.#pods = pods;
  }

  /** The other pods that may have gained or lost an address because a pod is now `after`. */
  affected(reader: Reader, before: PlacedPod | undefined, after: PlacedPod | undefined): ReadonlySet<PlacedPod> {
    const [had, has] = [claimsOf(before), claimsOf(after)];
    const moved = before?.row.terminating !== after?.row.terminating;
    const changed = [
      ...had.filter((address) => moved || !has.includes(address)),
      ...has.filter((address) => !had.includes(address)),
    ];
    const pod = (after ?? before)?.row.key;
    return new Set(changed.flatMap((address) => this.rivals(reader, pod, address)));
  }

  owns(reader: Reader, pod: string, address: string): boolean {
    const claims = [...reader.list(this.#pods, 'address', address)];
    const staying = claims.filter(({ row }) => !row.terminating);
    const [owner, ...others] = staying.length > 0 ? staying : claims;
    return others.length === 0 && owner?.row.key === pod;
  }

  /** Other pods that claim the address. */
  rivals(reader: Reader, pod: string | undefined, address: string): PlacedPod[] {
    return [...reader.list(this.#pods, 'address', address)].filter(({ row }) => row.key !== pod);
  }
}
