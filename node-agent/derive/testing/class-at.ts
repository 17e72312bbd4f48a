/** The class that the datapath finds for an address (bpf/policy.h, `class_of`), looked up without what the model knows of CIDRs. */
import { isLocalCidr, RESERVED_ID } from '@weir/identity';
import { formatPrefix, maskPrefix, parsePrefix } from '@weir/net';
import { classOf } from '../classes.ts';

interface Ipcache {
  get(prefix: string): { readonly identity: number } | undefined;
}

/** Of the addresses of the prefix that are in no longer one. */
export function classAt(ipcache: Ipcache, classes: ReadonlyMap<number, number>, prefix: string): number {
  const { family, bytes, bits } = parsePrefix(prefix);
  const world = family === 4 ? RESERVED_ID.world : RESERVED_ID['world-ipv6'];
  let longest = true;
  for (let length = bits; length >= 0; length -= 1) {
    const row = ipcache.get(formatPrefix(maskPrefix(family, bytes, length)));
    if (row === undefined) continue;
    const { identity } = row;
    if (longest || isLocalCidr(identity) || identity === world) {
      const named = classes.get(identity);
      if (named !== undefined) return named;
      if (!isLocalCidr(identity)) return classOf(classes, identity, noneAround);
    }
    longest = false;
  }
  return classOf(classes, longest ? RESERVED_ID.unknown : world, noneAround);
}

/** What the longest prefix around it says. */
export function identityAt(ipcache: Ipcache, prefix: string): number {
  const { family, bytes, bits } = parsePrefix(prefix);
  for (let length = bits; length >= 0; length -= 1) {
    const row = ipcache.get(formatPrefix(maskPrefix(family, bytes, length)));
    if (row !== undefined) return row.identity;
  }
  return RESERVED_ID.unknown;
}

/** For identities that are no CIDR's. */
export function noneAround(identity: number): never {
  throw new Error(`identity ${identity} is a CIDR's`);
}
