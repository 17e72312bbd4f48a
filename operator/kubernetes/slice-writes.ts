/**
 * What of a slice may be written now: an endpoint goes after its identity, as nodes take an identity that they do not know for
 * unknown.
 *
 * Guarantee: a relabelled pod whose new identity is not written yet stays in the slice with the identity that it had there, so that
 * its flows see no gap. Only the same pod does, at the addresses that it had, and only while that identity is the object that it was
 * when the slice was written; any other endpoint is left out.
 */
import type { CiliumEndpointSlice, CiliumIdentity } from '@weir/kube';
import { addressesOf } from '@weir/net';
import type { SlicedPod, SliceRow } from '../types.ts';
import { slicedPods } from './objects.ts';

export interface Writable {
  readonly row: SliceRow;
  /** Endpoints that are not in it as they should be. */
  readonly waiting: number;
}

/** `written`: the slice as the API holds it; `identity`: an identity as the API holds it. */
export function writableSlice(
  row: SliceRow,
  written: CiliumEndpointSlice | undefined,
  identity: (id: number) => CiliumIdentity | undefined,
): Writable {
  let before: ReadonlyMap<string, SlicedPod> | undefined;
  let waiting = 0;
  const endpoints = row.endpoints.flatMap((pod): readonly SlicedPod[] => {
    if (identity(pod.identity) !== undefined) return [pod];
    waiting += 1;
    if (written === undefined) return [];
    before ??= new Map(slicedPods(written).map((each) => [each.name, each]));
    const had = before.get(pod.name);
    const kept = had !== undefined && samePlace(pod, had) ? identity(had.identity) : undefined;
    return had !== undefined && kept !== undefined && !newer(kept, written) ? [{ ...pod, identity: had.identity }] : [];
  });
  return { row: { ...row, endpoints }, waiting };
}

/** Whether it is the same pod, at addresses that it had. */
function samePlace(pod: SlicedPod, had: SlicedPod): boolean {
  const known = allAddresses(had);
  return pod.uid !== undefined && pod.uid === had.uid && allAddresses(pod).every((address) => known.includes(address));
}

function allAddresses({ networking }: SlicedPod): readonly string[] {
  return networking.addressing.flatMap(addressesOf);
}

/** Whether the identity was written after the slice: its number may mean other labels now. */
function newer(identity: CiliumIdentity, slice: CiliumEndpointSlice): boolean {
  const [ours, theirs] = [identity, slice].map(({ metadata: { resourceVersion = '' } }) =>
    /^[0-9]{1,20}$/.test(resourceVersion) ? BigInt(resourceVersion) : undefined,
  );
  return ours === undefined || theirs === undefined || ours > theirs;
}
