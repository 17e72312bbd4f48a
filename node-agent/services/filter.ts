/** Map `svc_filter`: to which addresses packets may go that are a Service's. */
import { parseAddress } from '@weir/net';
import type { BpfMap } from 'libbpf-ts';
import { number } from './layout.ts';

/** SVC_FILTER_WORDS of bpf/services.h. */
export const FILTER_WORDS = 1024;

/**
 * Has packets to the address looked up from now on. Bits stay until the map is recreated: what is set in vain costs time and nothing else. Addresses of IPv6
 * are looked up without it.
 */
export function letThrough(filter: BpfMap, address: string): void {
  const { bytes } = parseAddress(address);
  if (bytes.length !== 4) return;
  const [a = 0, b = 0, c = 0, d = 0] = bytes;
  const hash = ((a ^ c) << 8) | (b ^ d);
  const key = number.encode(hash >> 6);
  const entry = filter.lookup(key) ?? new Uint8Array(8);
  const view = new DataView(entry.buffer, entry.byteOffset, 8);
  const bits = view.getBigUint64(0, true) | (1n << BigInt(hash & 63));
  if (bits === view.getBigUint64(0, true)) return;
  view.setBigUint64(0, bits, true);
  filter.update(key, entry);
}
