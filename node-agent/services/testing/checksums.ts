/** Checksums of frames of tests (RFC 768, RFC 9293). */
import { checksum, concat } from '@weir/bpf/testing';

/** Of an IPv4 packet of TCP or UDP: the same with the checksum of its segment. */
export function checksummed(packet: Uint8Array): Uint8Array {
  const out = packet.slice();
  const at = ((out[0] ?? 0) & 0xf) * 4;
  const [protocol = 0] = out.slice(9, 10);
  const segment = out.subarray(at);
  const offset = protocol === 6 ? 16 : 6;
  const length = Uint8Array.of(segment.length >> 8, segment.length & 0xff);
  const sum = checksum(concat(out.slice(12, 20), Uint8Array.of(0, protocol), length, segment));
  // UDP: 0 says that there is none.
  new DataView(out.buffer).setUint16(at + offset, sum === 0 && protocol === 17 ? 0xffff : sum);
  return out;
}

/** The same packet with another end, as an error quotes it: without a new checksum of its segment. */
export function readdressed(
  packet: Uint8Array,
  end: 'source' | 'destination',
  address: Uint8Array,
  port: number,
): Uint8Array {
  const out = packet.slice();
  const header = ((out[0] ?? 0) & 0xf) * 4;
  const view = new DataView(out.buffer);
  out.set(address, end === 'source' ? 12 : 16);
  view.setUint16(header + (end === 'source' ? 0 : 2), port);
  view.setUint16(10, 0);
  view.setUint16(10, checksum(out.subarray(0, header)));
  return out;
}
