/** Codecs of the maps: what is encoded is decoded, and lies where bpf/services.h has it. */
import { expect, it } from '@jest/globals';
import {
  addressKey,
  backendValue,
  frontendKey,
  frontendValue,
  memberKey,
  nodeFlags,
  slotKey,
  sourceKey,
} from './layout.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

it('frontends and backends: 16 bytes of address, port in network order, protocol, scope', () => {
  const key = { address: '10.96.0.1', port: 0x1234, protocol: 'SCTP', scope: 'local' } as const;
  expect(hex(frontendKey.encode(key))).toBe('00000000000000000000ffff0a600001' + '1234' + '84' + '01');
  expect(frontendKey.decode(frontendKey.encode(key))).toEqual(key);
  const six = { address: '2001:db8::1', port: 53, protocol: 'UDP' } as const;
  expect(hex(backendValue.encode(six))).toBe('20010db8000000000000000000000001' + '0035' + '11' + '00');
  expect(backendValue.decode(backendValue.encode(six))).toEqual(six);
});

it('a frontend says its service, count, flags and time', () => {
  const off = { external: false, localExternal: false, sources: false, elsewhere: false };
  const value = { ...off, service: 7, count: 3, affinitySeconds: 0 };
  expect(hex(frontendValue.encode(value))).toBe('07000000' + '03000000' + '00000000' + '00000000');
  const flags = { affinitySeconds: 1, external: 2, localExternal: 4, sources: 8, elsewhere: 16 } as const;
  for (const [name, flag] of Object.entries(flags)) {
    const one = { ...value, [name]: name === 'affinitySeconds' ? 60 : true };
    expect(new DataView(frontendValue.encode(one).buffer).getUint32(8, true)).toBe(flag);
    expect(frontendValue.decode(frontendValue.encode(one))).toEqual(one);
  }
});

it('a source range has the bits of its service before those of its address', () => {
  const four = { service: 7, cidr: '10.0.0.0/8' };
  expect(hex(sourceKey.encode(four))).toBe('88000000' + '07000000' + '00000000000000000000ffff0a000000');
  expect(sourceKey.decode(sourceKey.encode(four))).toEqual(four);
  const six = { service: 7, cidr: '2001:db8::/32' };
  expect(new DataView(sourceKey.encode(six).buffer).getUint32(0, true)).toBe(64);
  expect(sourceKey.decode(sourceKey.encode(six))).toEqual(six);
});

it('slots, members, addresses and nodes', () => {
  expect(slotKey.decode(slotKey.encode({ service: 1, index: 2 }))).toEqual({ service: 1, index: 2 });
  expect(hex(memberKey.encode({ service: 1, backend: 2 }))).toBe('01000000' + '02000000');
  expect(memberKey.decode(memberKey.encode({ service: 1, backend: 2 }))).toEqual({ service: 1, backend: 2 });
  for (const address of ['10.0.0.1', '::', '2001:db8::1', '0.0.0.0'])
    expect(addressKey.decode(addressKey.encode(address))).toBe(address);
  expect(hex(nodeFlags.encode({ self: false, loopback: false }))).toBe('02000000');
  expect(hex(nodeFlags.encode({ self: true, loopback: true }))).toBe('05000000');
});

it('what is no key of a Service is refused', () => {
  expect(() => frontendKey.decode(new Uint8Array(19))).toThrow(RangeError);
  expect(() => frontendKey.decode(new Uint8Array(20))).toThrow('protocol 0');
});
