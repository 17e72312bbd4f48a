/** Keys and values of the maps of bpf/services.h. */
import type { Codec } from '@weir/bpf';
import { formatAddress, parseAddress } from '@weir/net';
import type { Protocol } from './types.ts';

const PROTOCOLS: Readonly<Record<Protocol, number>> = { TCP: 6, UDP: 17, SCTP: 132 };
/** The first 12 bytes of an IPv4 address in a map. */
const MAPPED = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff);

export interface FrontendKey {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}

export interface FrontendValue {
  readonly service: number;
  readonly count: number;
  /** 0: no affinity. */
  readonly affinitySeconds: number;
}

export interface SlotKey {
  readonly service: number;
  readonly index: number;
}

const AFFINITY = 1;

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

/** Address, port and protocol: of a frontend's key, and of a backend. */
export const frontendKey: Codec<FrontendKey> = {
  size: 20,
  encode({ address, port, protocol }) {
    const bytes = new Uint8Array(20);
    putAddress(bytes, 0, address);
    new DataView(bytes.buffer).setUint16(16, port);
    bytes[18] = PROTOCOLS[protocol];
    return bytes;
  },
  decode(bytes) {
    const at = view(bytes, 20);
    return { address: addressAt(bytes, 0), port: at.getUint16(16), protocol: protocolOf(at.getUint8(18)) };
  },
};

export const backendValue = frontendKey;

export const frontendValue: Codec<FrontendValue> = {
  size: 16,
  encode({ service, count, affinitySeconds }) {
    const at = new DataView(new ArrayBuffer(16));
    at.setUint32(0, service, true);
    at.setUint32(4, count, true);
    at.setUint32(8, affinitySeconds > 0 ? AFFINITY : 0, true);
    at.setUint32(12, affinitySeconds, true);
    return new Uint8Array(at.buffer);
  },
  decode(bytes) {
    const at = view(bytes, 16);
    return {
      service: at.getUint32(0, true),
      count: at.getUint32(4, true),
      affinitySeconds: at.getUint32(12, true),
    };
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

export const number: Codec<number> = {
  size: 4,
  encode(value) {
    const at = new DataView(new ArrayBuffer(4));
    at.setUint32(0, value, true);
    return new Uint8Array(at.buffer);
  },
  decode: (bytes) => view(bytes, 4).getUint32(0, true),
};
