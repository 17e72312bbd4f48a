/** What the API holds of a peer set, whose identities are spread over slices. */
import { includesSorted } from '@weir/identity';
import type { PeerSet } from '@weir/kube';
import { peerSetName } from '../model/names.ts';
import type { ObjectTarget } from './target.ts';

/** Whether every slice is there. */
export function isComplete(target: ObjectTarget<PeerSet>, hash: string): boolean {
  const slices = target.get(hash)?.spec.slices ?? 0;
  for (let slice = 0; slice < slices; slice += 1) {
    if (target.get(peerSetName(hash, slice)) === undefined) return false;
  }
  return slices > 0;
}

/** Whether one of the slices lists the identity. */
export function listsIdentity(target: ObjectTarget<PeerSet>, hash: string, id: number): boolean {
  const slices = target.get(hash)?.spec.slices ?? 0;
  for (let slice = 0; slice < slices; slice += 1) {
    if (includesSorted(target.get(peerSetName(hash, slice))?.spec.identities ?? [], id)) return true;
  }
  return false;
}
