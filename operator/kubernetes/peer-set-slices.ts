/** What the API holds of a peer set, whose identities are spread over slices. */
import type { PeerSet } from '@weir/kube';
import { peerSetName } from '../names.ts';
import type { ObjectTarget } from './target.ts';

/** Whether every slice is there, and none of them is being deleted. */
export function isComplete(target: ObjectTarget<PeerSet>, hash: string): boolean {
  const slices = target.get(hash)?.spec.slices ?? 0;
  for (let slice = 0; slice < slices; slice += 1) {
    if (!target.stays(peerSetName(hash, slice))) return false;
  }
  return slices > 0;
}
