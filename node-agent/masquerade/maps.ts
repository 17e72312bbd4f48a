/** The pinned maps of bpf/masquerade.h, and how people read them. */
import type { MapSpec } from '@weir/bpf';
import { familyOf, parsePrefix } from '@weir/net';
import { mapFlags } from 'libbpf-ts';
import { addressAt, putAddress, uplinkMap } from '../uplinks/part.ts';

export const MASQUERADE_MAPS: readonly MapSpec[] = [
  {
    ...{ type: 'lpm_trie', flags: mapFlags.NO_PREALLOC, version: 1 },
    ...{ name: 'masq_excluded', keySize: 20, valueSize: 4, maxEntries: 65_536 },
    describe: (key, value) => ({
      key: { prefix: prefixAt(key) },
      value: value[0] === 1 ? { pods: true } : {},
    }),
  },
  uplinkMap('masq_uplinks'),
];

function prefixAt(key: Uint8Array): string {
  const address = addressAt(key, 4);
  const bits = new DataView(key.buffer, key.byteOffset).getUint32(0, true);
  return `${address}/${familyOf(address) === 4 ? bits - 96 : bits}`;
}

/** Key of `masq_excluded`. */
export function prefixKey(text: string): Uint8Array {
  const { family, bytes: raw, bits } = parsePrefix(text);
  const bytes = new Uint8Array(20);
  new DataView(bytes.buffer).setUint32(0, family === 4 ? 96 + bits : bits, true);
  putAddress(bytes, 4, raw);
  return bytes;
}
