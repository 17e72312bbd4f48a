/** Keys and values of the maps of bpf/services.h. */
import type { Codec } from '@weir/bpf';
import { formatAddress, parseAddress, parsePrefix } from '@weir/net';
import type { Protocol, Scope } from './types.ts';

const PROTOCOLS: Readonly<Record<Protocol, number>> = { TCP: 6, UDP: 17, SCTP: 132 };
/** The first 12 bytes of an IPv4 address in a map. */
const MAPPED = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff);

export interface BackendValue {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}

export interface FrontendKey extends BackendValue {
  readonly scope: Scope;
}

export interface FrontendValue {
  readonly service: number;
  readonly count: number;
  /** 0: no affinity. */
  readonly affinitySeconds: number;
  /** Reached from outside of the cluster, too. */
  readonly external: boolean;
  /** From there by the frontend of scope `local`. */
  readonly localExternal: boolean;
  /** Only for who is in `svc_sources`. */
  readonly sources: boolean;
  /** Other nodes have backends. */
  readonly elsewhere: boolean;
}

export interface SlotKey {
  readonly service: number;
  readonly index: number;
}

/** An address in the trie of sources, or a prefix. */
export interface SourceKey {
  readonly service: number;
  readonly cidr: string;
}

export interface NodeFlags {
  readonly self: boolean;
  readonly loopback: boolean;
}

const FLAGS = { affinity: 1, external: 2, localExternal: 4, sources: 8, elsewhere: 16 } as const;
const NODE_FLAGS = { self: 1, other: 2, loopback: 4 } as const;
/** Of a key of the trie before its address. */
const SERVICE_BITS = 32;

function view(bytes: Uint8Array, size: number): DataView {
  if (bytes.length !== size) throw new RangeError(`${bytes.length} bytes instead of ${size}`);
  return new DataView(bytes.buffer, bytes.byteOffset, size);
}

function putAddress(bytes: Uint8Array, at: number, text: string): void {
  const { bytes: address } = parseAddress(text);
  if (address.length === 4) bytes.set(MAPPED, at);
  bytes.set(address, at + 16 - address.length);
}

function addressAt(bytes: Uint8Array, at: number): string {
  const mapped = MAPPED.every((byte, index) => bytes[at + index] === byte);
  return formatAddress(bytes.slice(mapped ? at + 12 : at, at + 16));
}

function protocolOf(number: number): Protocol {
  for (const [name, each] of Object.entries(PROTOCOLS)) if (each === number) return name as Protocol;
  throw new RangeError(`protocol ${number} is none of a Service`);
}

function addressCodec<T extends BackendValue>(rest: (scope: Scope) => object): Codec<T> {
  return {
    size: 20,
    encode(value) {
      const { address, port, protocol } = value;
      const bytes = new Uint8Array(20);
      putAddress(bytes, 0, address);
      bytes[16] = port >> 8;
      bytes[17] = port & 0xff;
      bytes[18] = PROTOCOLS[protocol];
      if ('scope' in value && value.scope === 'local') bytes[19] = 1;
      return bytes;
    },
    decode(bytes) {
      const at = view(bytes, 20);
      const address = addressAt(bytes, 0);
      const scope = at.getUint8(19) === 1 ? 'local' : 'cluster';
      return { address, port: at.getUint16(16), protocol: protocolOf(at.getUint8(18)), ...rest(scope) } as T;
    },
  };
}

export const frontendKey: Codec<FrontendKey> = addressCodec((scope) => ({ scope }));
export const backendValue: Codec<BackendValue> = addressCodec(() => ({}));

export const frontendValue: Codec<FrontendValue> = {
  size: 16,
  encode({ service, count, affinitySeconds, external, localExternal, sources, elsewhere }) {
    const at = new DataView(new ArrayBuffer(16));
    const flags =
      (affinitySeconds > 0 ? FLAGS.affinity : 0) |
      (external ? FLAGS.external : 0) |
      (localExternal ? FLAGS.localExternal : 0) |
      (sources ? FLAGS.sources : 0) |
      (elsewhere ? FLAGS.elsewhere : 0);
    at.setUint32(0, service, true);
    at.setUint32(4, count, true);
    at.setUint32(8, flags, true);
    at.setUint32(12, affinitySeconds, true);
    return new Uint8Array(at.buffer);
  },
  decode(bytes) {
    const at = view(bytes, 16);
    const flags = at.getUint32(8, true);
    return {
      service: at.getUint32(0, true),
      count: at.getUint32(4, true),
      affinitySeconds: at.getUint32(12, true),
      external: (flags & FLAGS.external) !== 0,
      localExternal: (flags & FLAGS.localExternal) !== 0,
      sources: (flags & FLAGS.sources) !== 0,
      elsewhere: (flags & FLAGS.elsewhere) !== 0,
    };
  },
};

export const sourceKey: Codec<SourceKey> = {
  size: 24,
  encode({ service, cidr }) {
    const { family, bytes: address, bits } = parsePrefix(cidr);
    const bytes = new Uint8Array(24);
    const at = new DataView(bytes.buffer);
    at.setUint32(0, SERVICE_BITS + bits + (family === 4 ? 96 : 0), true);
    at.setUint32(4, service, true);
    if (family === 4) bytes.set(MAPPED, 8);
    bytes.set(address, 24 - address.length);
    return bytes;
  },
  decode(bytes) {
    const at = view(bytes, 24);
    const address = addressAt(bytes, 8);
    const bits = at.getUint32(0, true) - SERVICE_BITS;
    return { service: at.getUint32(4, true), cidr: `${address}/${address.includes(':') ? bits : bits - 96}` };
  },
};

export const addressKey: Codec<string> = {
  size: 16,
  encode(address) {
    const bytes = new Uint8Array(16);
    putAddress(bytes, 0, address);
    return bytes;
  },
  decode: (bytes) => addressAt(bytes, 0),
};

export const nodeFlags: Codec<NodeFlags> = {
  size: 4,
  encode: ({ self, loopback }) =>
    number.encode((self ? NODE_FLAGS.self : NODE_FLAGS.other) | (loopback ? NODE_FLAGS.loopback : 0)),
  decode(bytes) {
    const flags = number.decode(bytes);
    return { self: (flags & NODE_FLAGS.self) !== 0, loopback: (flags & NODE_FLAGS.loopback) !== 0 };
  },
};

export const slotKey: Codec<SlotKey> = {
  size: 8,
  encode({ service, index }) {
    const at = new DataView(new ArrayBuffer(8));
    at.setUint32(0, service, true);
    at.setUint32(4, index, true);
    return new Uint8Array(at.buffer);
  },
  decode(bytes) {
    const at = view(bytes, 8);
    return { service: at.getUint32(0, true), index: at.getUint32(4, true) };
  },
};

/** A client of a service with affinity. */
export interface ClientKey {
  readonly service: number;
  /** Address of a packet's sender. */
  readonly client?: string;
  /** Network namespace of a socket, by the kernel's number for it. */
  readonly netns?: string;
}

const CLIENT_SIZE = 24;

/** For people: entries of svc_clients are the programs' own. */
export function describeClient(key: Uint8Array, value: Uint8Array): { key: ClientKey; value: object } {
  const at = view(key, CLIENT_SIZE);
  const service = at.getUint32(0, true);
  // A namespace's number is in the first half, and nothing in the second: as no address is.
  const isNetns = at.getUint32(16) === 0 && at.getUint32(20) === 0;
  const client = isNetns ? { netns: String(at.getBigUint64(8, true)) } : { client: addressAt(key, 8) };
  return { key: { service, ...client }, value: { backend: view(value, 8).getUint32(0, true) } };
}

const FLOW_SIZE = 24;

/** For people: entries of svc_flows (bpf/flows.h) are the programs' own. */
export function describeFlows(key: Uint8Array, value: Uint8Array): { key: object; value: object } {
  const from = view(key, 8);
  const flows = [];
  for (let start = 0; start + FLOW_SIZE <= value.length; start += FLOW_SIZE) {
    const at = view(value.subarray(start, start + FLOW_SIZE), FLOW_SIZE);
    if (at.getUint8(14) === 0) continue;
    const address = (offset: number): string => formatAddress(value.slice(start + offset, start + offset + 4));
    const [port, frontend] = [at.getUint16(12), `${address(0)}:${at.getUint16(8)}`];
    flows.push({ protocol: protocolOf(at.getUint8(14)), port, frontend, backend: `${address(4)}:${at.getUint16(10)}` });
  }
  return { key: { ifindex: from.getUint32(0, true), set: from.getUint32(4, true) }, value: { flows } };
}

/** A socket and its backend, as the programs write them into svc_sockets. */
export interface SocketKey extends BackendValue {
  readonly cookie: bigint;
}

const SOCKET_SIZE = 32;

export function readSocketKey(key: Uint8Array): SocketKey {
  const at = view(key, SOCKET_SIZE);
  const port = at.getUint16(24);
  return {
    ...{ cookie: at.getBigUint64(0, true), address: addressAt(key, 8), port },
    protocol: protocolOf(at.getUint8(26)),
  };
}

/** Its port alone. */
export function socketPort(key: Uint8Array): number {
  return view(key, SOCKET_SIZE).getUint16(24);
}

/** For people: entries of svc_sockets are the programs' own. */
export function describeSocket(key: Uint8Array, value: Uint8Array): { key: object; value: object } {
  const { cookie, address: backend, port, protocol } = readSocketKey(key);
  const to = view(value, 24);
  return {
    key: { cookie: String(cookie), backend, port, protocol },
    value: { address: addressAt(value, 0), port: to.getUint16(16), service: to.getUint32(20, true) },
  };
}

export interface SlotValue {
  readonly backend: number;
  /** As in the key. */
  readonly service: number;
}

export const slotValue: Codec<SlotValue> = {
  size: 8,
  encode: ({ backend, service }) => slotKey.encode({ service: backend, index: service }),
  decode(bytes) {
    const { service: backend, index: service } = slotKey.decode(bytes);
    return { backend, service };
  },
};

export interface MemberKey {
  readonly service: number;
  readonly backend: number;
}

export const memberKey: Codec<MemberKey> = {
  size: 8,
  encode: ({ service, backend }) => slotKey.encode({ service, index: backend }),
  decode(bytes) {
    const { service, index } = slotKey.decode(bytes);
    return { service, backend: index };
  },
};

export const number: Codec<number> = {
  size: 4,
  encode(value) {
    const at = new DataView(new ArrayBuffer(4));
    at.setUint32(0, value, true);
    return new Uint8Array(at.buffer);
  },
  decode: (bytes) => view(bytes, 4).getUint32(0, true),
};
