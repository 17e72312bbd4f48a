/**
 * The datapath's keys and values (layout.h) as codecs. Addresses are byte arrays in network order (4 or 16 bytes); ports
 * are plain numbers. Every encoder checks ranges and throws LayoutError.
 */
import { type Codec, reader, Writer } from './codec.ts';
import { LayoutError } from './errors.ts';

export interface EndpointValue {
  /** Revision of the endpoint's policy; grows with every change. */
  readonly revision: number;
  readonly slot: number;
  /** ENDPOINT_FLAGS. */
  readonly flags: number;
  readonly ifindex: number;
  /** 4 bytes; 0.0.0.0 = none. */
  readonly ipv4: Uint8Array;
  readonly identity: number;
  readonly id: number;
  /** Whether nothing but a SYN begins a flow (layout.h). Default: no. */
  readonly quarantine?: boolean;
  /** 16 bytes; :: = none. Default: none. */
  readonly ipv6?: Uint8Array;
}

function u32Codec(what: string): Codec<number> {
  return {
    size: 4,
    encode: (value) => new Writer(what, 4).u32(0, value, 'value').bytes,
    decode: (bytes) => reader(what, bytes, 4).getUint32(0, true),
  };
}

/** ifindex. */
export const endpointKey = u32Codec('endpoints key');
/** Slot number. */
export const slotKey = u32Codec('slot key');
/** A cell: see CT_CELLS. */
export const ctShareKey = u32Codec('ct_shares key');
/** `settings` value. Key 0: bits of SETTINGS; key 1: the conntrack tick at which connections were last collected. */
export const settingsKey = u32Codec('settings key');
export const settingsValue = u32Codec('settings value');

/** What the upper 12 bits of an endpoint's word must be. Devices of one cell of the array differ in it (below 2^24). */
export function guardOf(ifindex: number): number {
  return (ifindex ^ (ifindex >>> 12)) & 0xfff;
}

/** Flags have 4 bits; the 12 bits above them are the guard, so that the word proves whose it is. */
export const endpointValue: Codec<EndpointValue> = {
  size: 40,
  encode(value) {
    if (value.flags > 0xf) throw new LayoutError('endpoints value', 'flags', `${value.flags}`, 'an integer in 0..15');
    return new Writer('endpoints value', 40)
      .u32(0, value.revision, 'revision')
      .u16(4, value.slot, 'slot')
      .u16(6, value.flags | (guardOf(value.ifindex) << 4), 'flags')
      .u32(8, value.ifindex, 'ifindex')
      .raw(12, value.ipv4, 4, 'ipv4')
      .u32(16, value.identity, 'identity')
      .u16(20, value.id, 'id')
      .u16(22, value.quarantine === true ? 1 : 0, 'quarantine')
      .raw(24, value.ipv6 ?? new Uint8Array(16), 16, 'ipv6').bytes;
  },
  decode(bytes) {
    const view = reader('endpoints value', bytes, 40);
    return {
      revision: view.getUint32(0, true),
      slot: view.getUint16(4, true),
      flags: view.getUint16(6, true) & 0xf,
      ifindex: view.getUint32(8, true),
      ipv4: bytes.slice(12, 16),
      identity: view.getUint32(16, true),
      id: view.getUint16(20, true),
      quarantine: view.getUint16(22, true) !== 0,
      ipv6: bytes.slice(24, 40),
    };
  },
};

export interface IpcacheKey {
  /** 4 or 16 bytes; host bits should be zero (the kernel ignores them, equality here does not). */
  readonly address: Uint8Array;
  /** 0..32 or 0..128. */
  readonly bits: number;
}

export const ipcacheKey: Codec<IpcacheKey> = {
  size: 24,
  encode(value) {
    const length = value.address.length === 16 ? 16 : 4;
    if (value.bits > length * 8) {
      throw new LayoutError('ipcache key', 'bits', `${value.bits}`, `an integer in 0..${length * 8}`);
    }
    return new Writer('ipcache key', 24)
      .u32(0, 32 + value.bits, 'bits')
      .u8(4, length === 4 ? 4 : 6, 'family')
      .raw(8, value.address, length, 'address').bytes;
  },
  decode(bytes) {
    const view = reader('ipcache key', bytes, 24);
    return { address: bytes.slice(8, view.getUint8(4) === 4 ? 12 : 24), bits: view.getUint32(0, true) - 32 };
  },
};

/** An address outside that names have. */
export const nameKey: Codec<Uint8Array> = {
  size: 24,
  encode: (address) =>
    new Writer('names key', 24)
      .u8(0, address.length === 16 ? 6 : 4, 'family')
      .raw(8, address, address.length === 16 ? 16 : 4, 'address').bytes,
  decode: (bytes) => bytes.slice(8, reader('names key', bytes, 24).getUint8(0) === 4 ? 12 : 24),
};

/** Identity of its names. */
export const nameValue = u32Codec('names value');

export interface IpcacheValue {
  /** To endpoints whose revision is `since` or later. */
  readonly identity: number;
  /** To others. Default: the same. */
  readonly before?: number;
  /** Default 0. */
  readonly since?: number;
  /** Of the prefix that the element is of: 0..32 or 0..128. */
  readonly bits: number;
}

export const ipcacheValue: Codec<IpcacheValue> = {
  size: 16,
  encode: (value) =>
    new Writer('ipcache value', 16)
      .u32(0, value.before ?? value.identity, 'before')
      .u32(4, value.identity, 'identity')
      .u32(8, value.since ?? 0, 'since')
      .u8(12, value.bits, 'bits').bytes,
  decode(bytes) {
    const view = reader('ipcache value', bytes, 16);
    return {
      before: view.getUint32(0, true),
      identity: view.getUint32(4, true),
      since: view.getUint32(8, true),
      bits: view.getUint8(12),
    };
  },
};

/** The identity that an element says to an endpoint of a revision. */
export function identityIn({ identity, before = identity, since = 0 }: IpcacheValue, revision: number): number {
  return ((revision - since) | 0) >= 0 ? identity : before;
}

export interface ClassKey {
  readonly identity: number;
  /** DIRECTION. */
  readonly direction: number;
}

export const classKey: Codec<ClassKey> = {
  size: 8,
  encode: (value) =>
    new Writer('class key', 8).u32(0, value.identity, 'identity').u32(4, value.direction, 'direction').bytes,
  decode(bytes) {
    const view = reader('class key', bytes, 8);
    return { identity: view.getUint32(0, true), direction: view.getUint32(4, true) };
  },
};

export interface ClassValue extends ClassKey {
  readonly class: number;
}

/** The value repeats its key: the kernel may hand a hash element to another key while a packet still reads it. */
export const classValue: Codec<ClassValue> = {
  size: 8,
  encode: (value) =>
    new Writer('class value', 8)
      .u16(0, value.class, 'class')
      .u16(2, value.direction, 'direction')
      .u32(4, value.identity, 'identity').bytes,
  decode(bytes) {
    const view = reader('class value', bytes, 8);
    return {
      class: view.getUint16(0, true),
      direction: view.getUint16(2, true),
      identity: view.getUint32(4, true),
    };
  },
};

export interface VerdictKey {
  readonly class: number;
  /** DIRECTION; for a class of addresses plus VERDICT_KIND.byAddress. */
  readonly direction: number;
  /** PROTOCOL. */
  readonly protocol: number;
  /** First port of an aligned block of 2^(16-portBits); ICMP: the type. */
  readonly port: number;
  /** 0 = every port .. 16 = exactly `port`. */
  readonly portBits: number;
}

export const verdictKey: Codec<VerdictKey> = {
  size: 24,
  encode(value) {
    if (!Number.isInteger(value.portBits) || value.portBits < 0 || value.portBits > 16) {
      throw new LayoutError('verdict key', 'portBits', `${value.portBits}`, 'an integer in 0..16');
    }
    return new Writer('verdict key', 24)
      .u32(0, 32 + value.portBits, 'portBits')
      .be16(4, value.class, 'class')
      .u8(6, value.direction, 'direction')
      .u8(7, value.protocol, 'protocol')
      .be16(8, value.port, 'port').bytes;
  },
  decode(bytes) {
    const view = reader('verdict key', bytes, 24);
    return {
      class: view.getUint16(4),
      direction: view.getUint8(6),
      protocol: view.getUint8(7),
      port: view.getUint16(8),
      portBits: view.getUint32(0, true) - 32,
    };
  },
};

/** What is added to the direction of a key of a slot's verdicts (layout.h). */
export const VERDICT_KIND = { byAddress: 2, addresses: 4 } as const;

/** A prefix of addresses in a slot's verdicts. The cookie of its value is the number of their class. */
export interface VerdictPrefix {
  /** DIRECTION. */
  readonly direction: number;
  /** 4 or 16 bytes. */
  readonly address: Uint8Array;
  /** Of the prefix. */
  readonly bits: number;
}

export const verdictPrefix: Codec<VerdictPrefix> = {
  size: 24,
  encode({ direction, address, bits }) {
    const family = address.length === 16 ? 6 : 4;
    if (!Number.isInteger(bits) || bits < 0 || bits > 8 * address.length)
      throw new LayoutError('verdict prefix', 'bits', `${bits}`, `an integer in 0..${8 * address.length}`);
    return new Writer('verdict prefix', 24)
      .u32(0, 32 + bits, 'bits')
      .u8(6, direction | VERDICT_KIND.addresses, 'direction')
      .u8(7, family, 'family')
      .raw(8, address, family === 6 ? 16 : 4, 'address').bytes;
  },
  decode(bytes) {
    const view = reader('verdict prefix', bytes, 24);
    return {
      direction: view.getUint8(6) & ~VERDICT_KIND.addresses,
      address: bytes.slice(8, view.getUint8(7) === 6 ? 24 : 12),
      bits: view.getUint32(0, true) - 32,
    };
  },
};

/** Of a prefix. */
export interface VerdictPrefixValue {
  /** Whose the addresses must be; 0: anybody's. */
  readonly identity: number;
  /** Of addresses. */
  readonly class: number;
}

export const verdictPrefixValue: Codec<VerdictPrefixValue> = {
  size: 8,
  encode: (value) =>
    new Writer('verdict prefix value', 8).u32(0, value.identity, 'identity').u32(4, value.class, 'class').bytes,
  decode(bytes) {
    const view = reader('verdict prefix value', bytes, 8);
    return { identity: view.getUint32(0, true), class: view.getUint32(4, true) };
  },
};

/** Whether the key is one of `verdictPrefix`. */
export function isVerdictPrefix(key: Uint8Array): boolean {
  return ((key[6] ?? 0) & VERDICT_KIND.addresses) !== 0;
}

export interface VerdictValue {
  /** VERDICT. */
  readonly verdict: number;
  /** Of a redirect: anything but 0 makes the datapath drop, whatever the verdict. */
  readonly proxyPort?: number;
  /** Of a redirect, for user space alone: that of its listener. */
  readonly priority?: number;
  readonly cookie?: number;
}

export const verdictValue: Codec<VerdictValue> = {
  size: 8,
  encode: (value) =>
    new Writer('verdict value', 8)
      .u8(0, value.verdict, 'verdict')
      .u8(1, value.priority ?? 0, 'priority')
      .be16(2, value.proxyPort ?? 0, 'proxyPort')
      .u32(4, value.cookie ?? 0, 'cookie').bytes,
  decode(bytes) {
    const view = reader('verdict value', bytes, 8);
    return {
      verdict: view.getUint8(0),
      priority: view.getUint8(1),
      proxyPort: view.getUint16(2),
      cookie: view.getUint32(4, true),
    };
  },
};
