/**
 * The node's own addresses: what its local routing table delivers here (`ip route show table local`), beside those that the Node reports: of a second
 * interface, secondary ones, virtual ones that move between nodes, of bridges.
 *
 *   ip monitor ─► `ip route show table local` ─► localAddresses ─► ipcache: `host` here
 *                                                     └─► annotation of the Node ─► other agents' table `nodes` ─► ipcache: `remote-node` there
 *
 * Guarantees: a change counts as soon as the kernel tells of it, and within five seconds where it does not. Broadcast and anycast addresses of the node's
 * networks count, too: whoever sends there reaches this node. Of another node's word only single addresses count, and none in pod CIDRs.
 */
import type { AddressRow } from '../core.ts';

/** Key: `prefix`. */
export interface LocalAddressRow extends AddressRow {
  readonly kind: 'local' | 'broadcast' | 'anycast';
  /** Its interface. */
  readonly device: string;
}
