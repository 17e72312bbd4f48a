/** What a policy allows addresses, whoever has them: packets on the kernel. */
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { type Direction, ENDPOINT_FLAGS } from './constants.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ETHERTYPE, ethernet, ip6, ipv4, ipv6, TCP_FLAGS, tcp } from './testing/packets.ts';

const POD = { v4: '10.0.0.1', v6: 'fd00::1' };
const PEER = { v4: '10.1.2.3', v6: 'fd01::3' };
const [UNKNOWN, HOST, WORLD, REMOTE_NODE, FRIEND, STRANGER] = [0, 1, 2, 6, 2000, 2001];
const path = new TestDatapath({ ctEntries: 256 });
afterAll(() => path.close());

beforeEach(() => {
  path.forget();
  path.map('ipcache').deleteBatch([...path.map('ipcache').keys()]);
  path.endpoint({ flags: ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced, ipv6: POD.v6 });
});

/** Whether the peer is reached, or reaches, by TCP. */
function passes(direction: Direction, port: number, family: 'v4' | 'v6' = 'v4'): boolean {
  path.forget();
  const [src, dst] = direction === 'egress' ? [POD[family], PEER[family]] : [PEER[family], POD[family]];
  const payload = tcp({ sport: 40_000, dport: port, flags: TCP_FLAGS.syn });
  const frame =
    family === 'v4'
      ? ethernet(ipv4({ src, dst, protocol: 6, payload }))
      : ethernet(ipv6({ src: ip6(src), dst: ip6(dst), nextHeader: 6, hopLimit: 64, payload }), ETHERTYPE.ipv6);
  return path.run(direction, frame) === 'pass';
}

/** Class 16 of identities: the friend's, which may all but port 22. Class 16 of addresses: ports 80 and 22. */
function load(
  direction: Direction,
  prefixes: readonly (readonly [address: string, bits: number, number: number, identity?: number])[],
): void {
  const row = { class: 16, direction, protocol: 'tcp', verdict: 'allow' } as const;
  path.slot(
    0,
    [{ identity: FRIEND, direction, class: 16 }],
    [
      { ...row, port: 443 },
      { ...row, port: 22, verdict: 'deny' },
      { ...row, port: 80, byAddress: true },
      { ...row, port: 22, byAddress: true },
    ],
    prefixes.map(([address, bits, number, identity = 0]) => ({ address, bits, direction, class: number, identity })),
  );
}

describe.each(['ingress', 'egress'] as const)('rows of addresses, %s', (direction) => {
  it.each([
    ['a pod that rules name', FRIEND],
    ['a pod', STRANGER],
    ['another node', REMOTE_NODE],
    ['the node', HOST],
    ['the world', WORLD],
    ['a CIDR of other rules', 0x0100_0001],
  ])('allow %s', (_, identity) => {
    path.identity(PEER.v4, identity);
    path.identity('0.0.0.0', WORLD, 0);
    load(direction, [['10.0.0.0', 8, 16]]);
    expect([80, 81].map((port) => passes(direction, port))).toEqual([true, false]);
  });

  it('come after what is decided of the identity', () => {
    path.identity(PEER.v4, FRIEND);
    load(direction, [['10.0.0.0', 8, 16]]);
    expect([443, 22, 80].map((port) => passes(direction, port))).toEqual([true, false, true]);
  });

  it('allow nobody of whom nothing is known', () => {
    path.identity(PEER.v4, UNKNOWN);
    load(direction, [['0.0.0.0', 0, 16]]);
    expect(passes(direction, 80)).toBe(false);
    path.map('ipcache').deleteBatch([...path.map('ipcache').keys()]);
    expect(passes(direction, 80)).toBe(false);
  });

  it('are of one identity alone, where they say so', () => {
    for (const [identity, passed] of [
      [STRANGER, true],
      [FRIEND, false],
    ] as const) {
      path.identity(PEER.v4, identity);
      load(direction, [['0.0.0.0', 0, 16]]);
      expect(passes(direction, 80)).toBe(true);
      load(direction, [
        ['0.0.0.0', 0, 16],
        [PEER.v4, 32, 16, STRANGER],
      ]);
      expect([identity, passes(direction, 80)]).toEqual([identity, passed]);
    }
  });

  it('are those of the longest prefix, of the family and of the direction', () => {
    path.identity(PEER.v4, STRANGER);
    path.identity(PEER.v6, STRANGER);
    // 17 has no rows: an exception.
    load(direction, [
      ['0.0.0.0', 0, 16],
      ['10.1.0.0', 16, 17],
    ]);
    expect(passes(direction, 80)).toBe(false);
    load(direction, [
      ['10.1.0.0', 16, 17],
      ['10.1.2.3', 32, 16],
    ]);
    expect([passes(direction, 80), passes(direction, 80, 'v6')]).toEqual([true, false]);
    load(direction, [['fd01::', 16, 16]]);
    expect([passes(direction, 80), passes(direction, 80, 'v6')]).toEqual([false, true]);
    load(direction === 'egress' ? 'ingress' : 'egress', [['0.0.0.0', 0, 16]]);
    expect(passes(direction, 80)).toBe(false);
  });
});
