/** The pinned maps of Services (bpf/services.h), and how people read them. */
import type { MapSpec } from '@weir/bpf';
import { mapFlags } from 'libbpf-ts';
import { FILTER_WORDS } from './filter.ts';
import {
  addressKey,
  backendValue,
  describeClient,
  describeFlows,
  describeSocket,
  frontendKey,
  frontendValue,
  memberKey,
  nodeFlags,
  number,
  slotKey,
  slotValue,
  sourceKey,
} from './layout.ts';

/** Their versions change together: a frontend that is kept beside new, empty slots would refuse. */
const hash = { type: 'hash', flags: mapFlags.NO_PREALLOC, version: 2 } as const;
const array = { type: 'array', flags: 0, version: 1 } as const;
const lru = { type: 'lru_hash', flags: 0, version: 1 } as const;

export const SERVICE_MAPS = [
  {
    ...{ ...hash, name: 'svc_frontends', keySize: 20, valueSize: 16, maxEntries: 65_536 },
    describe: (key, value) => ({ key: frontendKey.decode(key), value: frontendValue.decode(value) }),
  },
  {
    ...{ ...hash, name: 'svc_slots', keySize: 8, valueSize: 8, maxEntries: 524_288 },
    describe: (key, value) => ({ key: slotKey.decode(key), value: { backend: slotValue.decode(value).backend } }),
  },
  {
    ...{ ...hash, name: 'svc_backends', keySize: 4, valueSize: 20, maxEntries: 262_144 },
    describe: (key, value) => ({ key: { backend: number.decode(key) }, value: backendValue.decode(value) }),
  },
  {
    ...{ ...hash, name: 'svc_members', keySize: 8, valueSize: 4, maxEntries: 262_144 },
    describe: (key) => ({ key: memberKey.decode(key), value: {} }),
  },
  {
    ...{ ...hash, type: 'lpm_trie', name: 'svc_sources', keySize: 24, valueSize: 4, maxEntries: 65_536 },
    describe: (key) => ({ key: sourceKey.decode(key), value: {} }),
  },
  {
    ...{ ...hash, name: 'svc_nodes', keySize: 16, valueSize: 4, maxEntries: 65_536 },
    describe: (key, value) => ({ key: { address: addressKey.decode(key) }, value: nodeFlags.decode(value) }),
  },
  {
    ...{ ...hash, name: 'svc_addresses', keySize: 16, valueSize: 4, maxEntries: 65_536 },
    describe: (key) => ({ key: { address: addressKey.decode(key) }, value: {} }),
  },
  {
    ...{ ...lru, name: 'svc_clients', keySize: 24, valueSize: 8, maxEntries: 65_536 },
    describe: describeClient,
  },
  {
    ...{ ...array, name: 'svc_filter', keySize: 4, valueSize: 8, maxEntries: FILTER_WORDS },
    describe: (key, value) => ({
      key: { word: number.decode(key) },
      value: { bits: Buffer.from(value).toString('hex') },
    }),
  },
  {
    ...{ ...array, name: 'svc_flowing', keySize: 4, valueSize: 1, maxEntries: 4096 },
    describe: (key, value) => ({ key: { interface: number.decode(key) }, value: { flowing: value[0] !== 0 } }),
  },
  {
    ...{ ...lru, name: 'svc_flows', keySize: 8, valueSize: 192, maxEntries: 16_384 },
    describe: describeFlows,
  },
  {
    ...{ ...lru, name: 'svc_sockets', keySize: 32, valueSize: 24, maxEntries: 131_072 },
    describe: describeSocket,
  },
] as const satisfies readonly MapSpec[];
