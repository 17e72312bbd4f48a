/** Shows a peer set: its identities, ascending, in as many slices as they need. */
import type { Table, WriteTxn } from '@weir/statedb';
import { peerSetName } from '../names.ts';
import { type Desired, show } from '../tables.ts';
import type { PeerSetRow } from '../types.ts';
import type { SelectorIndex } from './selector-index.ts';

/** Most identities in one slice of a peer set. */
const PEER_SLICE_SIZE = 10_000;

/** Shows the set as it is now, or takes it away. */
export function showPeerSet(txn: WriteTxn, table: Table<Desired<PeerSetRow>>, sets: SelectorIndex, hash: string): void {
  const selector = sets.selector(txn, hash);
  let slices = 0;
  if (selector !== undefined) {
    const members = sets.members(txn, hash);
    slices = Math.max(1, Math.ceil(members.length / PEER_SLICE_SIZE));
    for (let slice = 0; slice < slices; slice += 1) {
      const identities = members.slice(slice * PEER_SLICE_SIZE, (slice + 1) * PEER_SLICE_SIZE);
      show(txn, table, { name: peerSetName(hash, slice), hash, selector, identities, slice, slices });
    }
  }
  for (const { row } of txn.list(table, 'hash', hash)) if (row.slice >= slices) txn.delete(table, row.name);
}
