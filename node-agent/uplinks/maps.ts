/** The pinned maps of bpf/nat.h, the addresses of uplinks, and how people read them. */
import type { MapSpec } from '@weir/bpf';
import { formatAddress, parseAddress } from '@weir/net';
import { mapFlags } from 'libbpf-ts';
import type { UplinkRow } from './types.ts';

const NAT_FLOWS = 262_144;
/** The first 12 bytes of an IPv4 address in a map. */
const MAPPED = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff);
const hash = { type: 'hash', flags: mapFlags.NO_PREALLOC, version: 1 } as const;

/** Of translated flows. Their versions change together: counters belong to flows. */
export const NAT_MAPS = [
  {
    ...{ ...hash, name: 'nat_flows', keySize: 40, valueSize: 100, maxEntries: NAT_FLOWS },
    describe: (key, value) => ({
      key: tuple(key),
      value: { becomes: tuple(value.subarray(40, 80)), endpoint: u32(value, 88) },
    }),
  },
  {
    ...{ ...hash, name: 'nat_replies', keySize: 40, valueSize: 40, maxEntries: NAT_FLOWS },
    describe: (key, value) => ({ key: tuple(key), value: { of: tuple(value) } }),
  },
  {
    ...{ type: 'array', flags: 0, version: 1, name: 'nat_owners', keySize: 4, valueSize: 4, maxEntries: 4097 },
    describe: (key, value) => ({ key: { endpoint: u32(key, 0) }, value: { flows: u32(value, 0) } }),
  },
  {
    ...{ type: 'lru_hash', flags: 0, version: 1, name: 'nat_fragments', keySize: 40, valueSize: 8, maxEntries: 16_384 },
    describe: (key, value) => ({
      key: { source: addressAt(key, 0), destination: addressAt(key, 16), id: u32(key, 32), protocol: u32(key, 36) },
      value: { sourcePort: port(value, 0), destinationPort: port(value, 2) },
    }),
  },
] as const satisfies readonly MapSpec[];

/** Of the addresses of the node's interfaces. */
export function uplinkMap(name: string): MapSpec {
  return {
    ...{ ...hash, name, keySize: 4, valueSize: 32, maxEntries: 1024 },
    describe: (key, value) => ({
      key: { ifindex: u32(key, 0) },
      value: { ...known('ipv4', value.subarray(0, 16)), ...known('ipv6', value.subarray(16, 32)) },
    }),
  };
}

/** Nothing where the interface has no address of the family: then it is all 0. */
function known(name: string, address: Uint8Array): Readonly<Record<string, string>> {
  return address.some((byte) => byte !== 0) ? { [name]: addressAt(address, 0) } : {};
}

export const UPLINK_MAPS: readonly MapSpec[] = [...NAT_MAPS, uplinkMap('node_uplinks')];

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function u32(bytes: Uint8Array, at: number): number {
  return view(bytes).getUint32(at, true);
}

function port(bytes: Uint8Array, at: number): number {
  return view(bytes).getUint16(at);
}

export function addressAt(bytes: Uint8Array, at: number): string {
  const mapped = MAPPED.every((byte, index) => bytes[at + index] === byte);
  return formatAddress(bytes.slice(mapped ? at + 12 : at, at + 16));
}

function tuple(bytes: Uint8Array): object {
  return {
    source: addressAt(bytes, 0),
    destination: addressAt(bytes, 16),
    sourcePort: port(bytes, 32),
    destinationPort: port(bytes, 34),
    protocol: view(bytes).getUint8(36),
  };
}

export function putAddress(bytes: Uint8Array, at: number, raw: Uint8Array): void {
  if (raw.length === 4) bytes.set(MAPPED, at);
  bytes.set(raw, at + 16 - raw.length);
}

/** Of a map of uplinks. */
export function uplinkEntry({ ifindex, ipv4, ipv6 }: UplinkRow): readonly [key: Uint8Array, value: Uint8Array] {
  const [key, value] = [new Uint8Array(4), new Uint8Array(32)];
  view(key).setUint32(0, ifindex, true);
  if (ipv4 !== undefined) putAddress(value, 0, parseAddress(ipv4).bytes);
  if (ipv6 !== undefined) putAddress(value, 16, parseAddress(ipv6).bytes);
  return [key, value];
}
