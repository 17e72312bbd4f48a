import { isIP } from 'node:net';
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  addressesOf,
  addressIn,
  addressPair,
  addressToInt,
  canonicalPrefix,
  formatAddress,
  formatPrefix,
  intToAddress,
  ipv4Of,
  ipv6Of,
  isAddressOf,
  isV4Mapped,
  maskPrefix,
  NetError,
  parseAddress,
  parsePrefix,
  portPrefixes,
  prefixContains,
  sameAddresses,
} from './index.ts';

const v4Bytes = fc.uint8Array({ minLength: 4, maxLength: 4 });
const v6Bytes = fc
  .uint8Array({ minLength: 16, maxLength: 16 })
  .chain((bytes) =>
    fc.uint8Array({ minLength: 16, maxLength: 16, max: 1 }).map((keep) => bytes.map((b, i) => b * (keep[i] ?? 0))),
  );
const anyBytes = fc.oneof(v4Bytes, v6Bytes);

describe('addresses of one host', () => {
  it.each([
    [[], {}],
    [['10.0.0.1'], { ipv4: '10.0.0.1' }],
    [['fd00::1', 'fd00::2'], { ipv6: 'fd00::1' }],
    [['fd00::1', '10.0.0.1'], { ipv4: '10.0.0.1', ipv6: 'fd00::1' }],
  ])('%j are one of each family', (addresses, pair) => {
    expect(addressPair(addresses)).toEqual(pair);
    expect(addressesOf(pair)).toEqual(Object.values(pair));
    expect(ipv4Of(addresses)).toBe(addressPair(addresses).ipv4);
    expect(ipv6Of(addresses)).toBe(addressPair(addresses).ipv6);
  });

  it('are the same only in the same order', () => {
    expect(sameAddresses(['10.0.0.1', 'fd00::1'], ['10.0.0.1', 'fd00::1'])).toBe(true);
    expect(sameAddresses(['10.0.0.1'], ['10.0.0.1', 'fd00::1'])).toBe(false);
    expect(sameAddresses(['fd00::1'], ['10.0.0.1'])).toBe(false);
  });

  it('are of the family that their text shows, where it is one', () => {
    expect(
      (['10.0.0.1', 'fd00::1', '10.0.0.01', 'fd00::1::', ''] as const).map((text) => isAddressOf(4, text)),
    ).toEqual([true, false, false, false, false]);
    expect(
      (['10.0.0.1', 'fd00::1', '10.0.0.01', 'fd00::1::', ''] as const).map((text) => isAddressOf(6, text)),
    ).toEqual([false, true, false, false, false]);
  });
});

describe('addresses', () => {
  it('are printed in canonical form', () => {
    const cases: [string, string][] = [
      ['10.1.2.3', '10.1.2.3'],
      ['0.0.0.0', '0.0.0.0'],
      ['::', '::'],
      ['::1', '::1'],
      ['1::', '1::'],
      ['2001:DB8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
      ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
      ['::ffff:1.2.3.4', '::ffff:102:304'],
      ['1:0:0:2::', '1:0:0:2::'],
    ];
    for (const [text, canonical] of cases) expect(formatAddress(parseAddress(text).bytes)).toBe(canonical);
  });

  it('survive printing and parsing', () => {
    fc.assert(
      fc.property(anyBytes, (bytes) => {
        expect(parseAddress(formatAddress(bytes)).bytes).toEqual(bytes);
      }),
    );
  });

  it.each([
    '',
    '10',
    '10.1',
    '10.1.2',
    '10.1.2.3.4',
    '256.1.1.1',
    '01.2.3.4',
    '1.2.3.04',
    '1.2.3.4 ',
    ' 1.2.3.4',
    '0x1.2.3.4',
    '-1.2.3.4',
    ':',
    ':::',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1::2::3',
    'fe80::1%eth0',
    '12345::',
    'g::',
    '1:2:3:4:5:6:7::8',
    '::1.2.3',
    '1.2.3.4::',
    ':1::',
    '1:2:3:4:5:6:7:',
  ])('refuse %j', (text) => {
    expect(() => parseAddress(text)).toThrow(NetError);
    expect(() => parseAddress(text)).toThrow(JSON.stringify(text));
  });

  it('are taken as Node takes them, but for zones', () => {
    const taken = (text: string): boolean => {
      try {
        return parseAddress(text).bytes.length > 0;
      } catch {
        return false;
      }
    };
    const part = fc.oneof(
      fc.constantFrom(
        '0',
        '00',
        '01',
        '010',
        '255',
        '256',
        'ffff',
        '10000',
        'A',
        'g',
        '',
        ' ',
        '-1',
        '0x1',
        '1.2.3.4',
        '::',
        '%',
      ),
      fc.nat(300).map(String),
    );
    const random = fc
      .tuple(fc.array(part, { maxLength: 10 }), fc.constantFrom('.', ':'))
      .map(([parts, by]) => parts.join(by));
    const nearly = fc.tuple(anyBytes, fc.nat(40), fc.constantFrom('', '0', ':', '.', 'f')).map(([bytes, at, put]) => {
      const text = formatAddress(bytes);
      return `${text.slice(0, at)}${put}${text.slice(put === '' ? at + 1 : at)}`;
    });
    fc.assert(
      fc.property(fc.oneof(random, nearly), (text) => {
        expect(taken(text)).toBe(isIP(text) !== 0 && !text.includes('%'));
      }),
      { numRuns: 5_000 },
    );
  });

  it('convert to numbers', () => {
    expect(addressToInt(parseAddress('10.0.0.1').bytes)).toBe(0x0a000001n);
    expect(addressToInt(parseAddress('255.255.255.255').bytes)).toBe(0xffffffffn);
    expect(addressToInt(parseAddress('fd00::1:2').bytes)).toBe((0xfdn << 120n) + 0x10002n);
    fc.assert(fc.property(v4Bytes, (bytes) => expect(intToAddress(4, addressToInt(bytes))).toEqual(bytes)));
    fc.assert(fc.property(v6Bytes, (bytes) => expect(intToAddress(6, addressToInt(bytes))).toEqual(bytes)));
    for (const [family, value] of [
      [4, 1n << 32n],
      [6, 1n << 128n],
      [4, -1n],
    ] as const)
      expect(() => intToAddress(family, value)).toThrow(NetError);
  });

  it('know IPv4 in IPv6', () => {
    expect(isV4Mapped(parseAddress('::ffff:10.0.0.1'))).toBe(true);
    expect(isV4Mapped(parseAddress('::fffe:10.0.0.1'))).toBe(false);
    expect(isV4Mapped(parseAddress('1::ffff:a00:1'))).toBe(false);
    expect(isV4Mapped(parseAddress('10.0.0.1'))).toBe(false);
  });
});

describe('prefixes', () => {
  it('lose their host bits', () => {
    expect(canonicalPrefix('10.1.2.3/8')).toBe('10.0.0.0/8');
    expect(canonicalPrefix('10.1.2.3/0')).toBe('0.0.0.0/0');
    expect(canonicalPrefix('10.1.2.255/25')).toBe('10.1.2.128/25');
    expect(canonicalPrefix('10.1.2.3')).toBe('10.1.2.3/32');
    expect(canonicalPrefix('2001:db8:ffff::/33')).toBe('2001:db8:8000::/33');
    expect(canonicalPrefix('::1')).toBe('::1/128');
  });

  it.each([
    '10.0.0.0/33',
    '10.0.0.0/-1',
    '10.0.0.0/08',
    '10.0.0.0/',
    '10.0.0.0/255.0.0.0',
    '::/129',
    '10.0.0.0/8/8',
    '/8',
    '10/8',
  ])('refuse %j', (text) => {
    expect(() => parsePrefix(text)).toThrow(NetError);
  });

  it('demand a length where asked', () => {
    expect(() => parsePrefix('10.0.0.1', { requireLength: true })).toThrow('write 10.0.0.1/32');
    expect(formatPrefix(parsePrefix('10.0.0.1/32', { requireLength: true }))).toBe('10.0.0.1/32');
  });

  it('contain exactly the addresses that share their bits', () => {
    const model = (bytes: Uint8Array) => [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
    fc.assert(
      fc.property(anyBytes, anyBytes, fc.nat(128), fc.nat(128), fc.nat(128), (a, other, bitsA, bitsB, share) => {
        // b shares its first bits with a, so that containment is not rare.
        const b = a.length === other.length ? a.map((x, i) => (i * 8 < share ? x : (other[i] ?? 0))) : other;
        const lengthA = Math.min(bitsA, a.length * 8);
        const lengthB = Math.min(bitsB, b.length * 8);
        const outer = maskPrefix(a.length === 4 ? 4 : 6, a, lengthA);
        const inner = maskPrefix(b.length === 4 ? 4 : 6, b, lengthB);
        expect(model(outer.bytes)).toBe(
          model(a)
            .slice(0, lengthA)
            .padEnd(a.length * 8, '0'),
        );
        const same = a.length === b.length && model(a).slice(0, lengthA) === model(b).slice(0, lengthA);
        expect(addressIn(outer, b)).toBe(same);
        expect(prefixContains(outer, inner)).toBe(same && lengthA <= lengthB);
      }),
      { numRuns: 500 },
    );
  });
});

describe('portPrefixes', () => {
  it('gives the known covers', () => {
    expect(portPrefixes(8080, 8095)).toEqual([{ port: 8080, bits: 12 }]);
    expect(portPrefixes(80, 89)).toEqual([
      { port: 80, bits: 13 },
      { port: 88, bits: 15 },
    ]);
    expect(portPrefixes(0, 65535)).toEqual([{ port: 0, bits: 0 }]);
    expect(portPrefixes(1, 65535)).toHaveLength(16);
    expect(portPrefixes(443, 443)).toEqual([{ port: 443, bits: 16 }]);
  });

  it('covers exactly, with aligned blocks, and with no two that could be one', () => {
    fc.assert(
      fc.property(fc.nat(65535), fc.nat(65535), (a, b) => {
        const [from, to] = a < b ? [a, b] : [b, a];
        const blocks = portPrefixes(from, to);
        let next = from;
        for (const { port, bits } of blocks) {
          const size = 2 ** (16 - bits);
          expect(port).toBe(next);
          expect(port % size).toBe(0);
          next += size;
        }
        expect(next).toBe(to + 1);
        blocks.forEach(({ port, bits }, index) => {
          const after = blocks[index + 1];
          const buddies = after !== undefined && after.bits === bits && port % 2 ** (17 - bits) === 0;
          expect(buddies).toBe(false);
        });
      }),
    );
  });

  it.each([
    [5, 4],
    [-1, 4],
    [0, 65536],
    [0.5, 1],
  ])('refuses %d..%d', (from, to) => {
    expect(() => portPrefixes(from, to)).toThrow(expect.objectContaining({ code: 'ERR_WEIR_PORT' }));
  });
});
