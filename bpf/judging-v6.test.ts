/** IPv6 packets on the kernel: policy, flows, extension headers, fragments, errors. Random ones are in test/fuzz/datapath. */
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { ENDPOINT_FLAGS, PROTOCOL } from './constants.ts';
import { ipcacheKey, ipcacheValue } from './layout.ts';
import { TestDatapath } from './testing/datapath.ts';
import { concat, ETHERTYPE, ethernet, icmp, ip6, ipv6, TCP_FLAGS, tcp, udp } from './testing/packets.ts';

const POD = 'fd00::1';
const FRIEND = 'fd00::2';
const STRANGER = 'fd00::3';
const ROUTER = '2001:db8:9::9';
const NEAR = '2001:db8:1::5';
const ENFORCED = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
const { syn, ack } = TCP_FLAGS;
const [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION] = [0, 43, 44, 51, 60];
const WORLD = 10;
const CIDR = (number: number) => 0x0100_0000 + number;

const path = new TestDatapath({ ctEntries: 256 });
afterAll(() => path.close());

beforeEach(() => {
  path.forget();
  path.map('ipcache').deleteBatch([...path.map('ipcache').keys()]);
  path.endpoint({ flags: ENFORCED, ipv6: POD });
  path.identity(FRIEND, 2000);
  path.identity(STRANGER, 2001);
  path.identity('::', WORLD, 0);
  const both = ['egress', 'ingress'] as const;
  path.slot(
    0,
    both.map((direction) => ({ identity: 2000, direction, class: 16 })),
    [
      ...both.map((direction) => ({ class: 16, direction, protocol: 'tcp', port: 80, verdict: 'allow' }) as const),
      { class: 16, direction: 'egress', protocol: 'udp', port: 53, verdict: 'allow' },
      { class: 16, direction: 'egress', protocol: 'icmpv6', port: 128, verdict: 'allow' },
    ],
  );
});

interface Fields {
  readonly src?: string;
  readonly dst?: string;
  readonly nextHeader?: number;
  readonly hopLimit?: number;
  readonly payloadLength?: number;
}

const v6 = (payload: Uint8Array, { src = POD, dst = FRIEND, nextHeader = PROTOCOL.tcp, ...rest }: Fields = {}) =>
  ipv6({ src: ip6(src), dst: ip6(dst), nextHeader, hopLimit: 64, payload, ...rest });
const frame = (payload: Uint8Array, fields: Fields = {}, pad = 0) => ethernet(v6(payload, fields), ETHERTYPE.ipv6, pad);
const to80 = (flags: number = syn) => tcp({ sport: 40_000, dport: 80, flags });
const from80 = (flags: number) => tcp({ sport: 80, dport: 40_000, flags });
const back: Fields = { src: FRIEND, dst: POD };

/** An extension header of 8 bytes times `eights`. */
function extension(kind: number, next: number, eights = 1, rest: readonly number[] = []): Uint8Array {
  const out = new Uint8Array(8 * eights);
  out.set([next, kind === AUTHENTICATION ? eights * 2 - 2 : eights - 1, ...rest]);
  return out;
}
function fragment(next: number, id: number, offset: number, more: boolean): Uint8Array {
  const out = Uint8Array.of(next, 0, 0, 0, 0, 0, 0, 0);
  const view = new DataView(out.buffer);
  view.setUint16(2, offset | (more ? 1 : 0));
  view.setUint32(4, id);
  return out;
}

describe('policy and flows', () => {
  it('allow what a row allows, and its replies', () => {
    expect(path.judge('egress', frame(to80()))).toBe('forwarded');
    expect(path.judge('ingress', frame(from80(syn | ack), back))).toBe('forwarded');
    expect(path.flow('egress', PROTOCOL.tcp, POD, 40_000, FRIEND, 80).get()).toMatchObject({ flags: 1, packets: 2n });
    expect(path.judge('egress', frame(tcp({ sport: 1, dport: 81 })))).toBe('policy');
    expect(path.judge('egress', frame(to80(), { dst: STRANGER }))).toBe('policy');
    expect(path.judge('ingress', frame(from80(syn | ack), { ...back, src: STRANGER }))).toBe('policy');
  });

  it('tell the families apart: the same ports of IPv4 are another flow', () => {
    path.judge('egress', frame(to80()));
    expect([...path.map('ct6').keys()]).toHaveLength(1);
    expect([...path.map('ct4').keys()]).toHaveLength(0);
  });

  it('judge ICMPv6 by its type, and echo as a flow', () => {
    const ping = (type: number) => icmp({ type, id: 9 });
    expect(path.judge('ingress', frame(ping(129), { ...back, nextHeader: 58 }))).toBe('policy');
    expect(path.judge('egress', frame(ping(128), { nextHeader: 58 }))).toBe('forwarded');
    expect(path.judge('ingress', frame(ping(129), { ...back, nextHeader: 58 }))).toBe('forwarded');
    expect(path.judge('egress', frame(ping(139), { nextHeader: 58 }))).toBe('policy');
    // ICMP is no protocol of IPv6, nor ICMPv6 one of IPv4.
    expect(path.judge('egress', frame(ping(8), { nextHeader: 1 }))).toBe('policy');
  });

  it('know CIDRs by the longest prefix, and exceptions', () => {
    path.identity('2001:db8::', CIDR(1), 32);
    path.identity('2001:db8:1::', CIDR(2), 48);
    path.identity('2001:db8:1:2::', CIDR(3), 64);
    path.slot(
      0,
      [
        { identity: CIDR(1), direction: 'egress', class: 16 },
        { identity: CIDR(3), direction: 'egress', class: 17 },
      ],
      [{ class: 16, direction: 'egress', protocol: 'tcp', port: 80, verdict: 'allow' }],
    );
    // The policy names /32 and, as an exception, /64; another policy names the /48 between.
    expect(path.judge('egress', frame(to80(), { dst: NEAR }))).toBe('forwarded');
    expect(path.judge('egress', frame(to80(), { dst: '2001:db8:1:2::1' }))).toBe('policy');
    expect(path.judge('egress', frame(to80(), { dst: '2001:db9::1' }))).toBe('policy');
  });

  it('give the world of IPv6 what the class of the world has', () => {
    expect(path.judge('egress', frame(to80(), { dst: NEAR }))).toBe('policy');
    path.slot(0, [], [{ class: 2, direction: 'egress', protocol: 'tcp', port: 80, verdict: 'allow' }]);
    expect(path.judge('egress', frame(to80(), { dst: NEAR }))).toBe('forwarded');
  });

  it('find a rule for a protocol by its number', () => {
    const allow = { class: 16, direction: 'egress', protocol: 'other', verdict: 'allow' } as const;
    path.slot(0, [{ identity: 2000, direction: 'egress', class: 16 }], [{ ...allow, port: 47 }]);
    const gre = (nextHeader: number) => path.judge('egress', frame(new Uint8Array(20), { nextHeader }));
    expect([gre(47), gre(50), gre(59)]).toEqual(['forwarded', 'policy', 'policy']);
  });
});

describe('an address that goes over to another identity', () => {
  const since = 10;
  const element = (before: number, identity: number) =>
    path
      .map('ipcache')
      .update(
        ipcacheKey.encode({ address: ip6(FRIEND), bits: 128 }),
        ipcacheValue.encode({ before, identity, since, bits: 128 }),
      );
  const at = (revision: number): string => {
    path.forget();
    path.endpoint({ flags: ENFORCED, ipv6: POD, revision });
    return path.judge('egress', frame(to80()));
  };

  it('is judged as what it was by endpoints of before, and by others as what it is', () => {
    element(2001, 2000);
    expect([1, 9, 10, 11].map(at)).toEqual(['policy', 'policy', 'forwarded', 'forwarded']);
    element(2000, 2001);
    expect([9, 10].map(at)).toEqual(['forwarded', 'policy']);
  });

  it('may be unknown to one of them', () => {
    element(0, 2000);
    expect([9, 10].map(at)).toEqual(['unknown-identity', 'forwarded']);
  });

  it('has flows decided again by the world that their endpoint goes over to', () => {
    element(2000, 2001);
    expect(at(9)).toBe('forwarded');
    expect(path.judge('egress', frame(to80(ack)))).toBe('forwarded');
    path.endpoint({ flags: ENFORCED, ipv6: POD, revision: 10 });
    expect(path.judge('egress', frame(to80(ack)))).toBe('policy');
  });
});

describe('what a pod may send', () => {
  it('comes from its own address', () => {
    for (const flags of [0, ENFORCED]) {
      path.endpoint({ flags, ipv6: POD });
      for (const src of [FRIEND, 'fe80::1', '::', '::ffff:10.0.0.1'.replace('10.0.0.1', 'a00:1')])
        expect(path.judge('egress', frame(to80(), { src }))).toBe('invalid-source');
    }
    path.endpoint({ flags: 0, ipv6: '::' });
    expect(path.judge('egress', frame(to80(), { src: '::' }))).toBe('invalid-source');
    expect(path.judge('egress', frame(to80()))).toBe('invalid-source');
  });

  it('does not go to ::1', () => {
    path.endpoint({ flags: 0, ipv6: POD });
    expect(path.judge('egress', frame(to80(), { dst: '::1' }))).toBe('invalid-packet');
  });

  it('has headers that agree with the packet', () => {
    path.endpoint({ flags: 0, ipv6: POD });
    expect(path.judge('egress', frame(to80(), { payloadLength: 21 }))).toBe('invalid-packet');
    expect(path.judge('egress', frame(to80(), { payloadLength: 19 }))).toBe('invalid-packet');
    expect(path.judge('egress', frame(to80(), {}, 6))).toBe('forwarded');
    expect(path.judge('egress', frame(udp({ sport: 1, dport: 2 }).slice(0, 7), { nextHeader: 17 }))).toBe(
      'invalid-packet',
    );
    const wrong = frame(to80());
    wrong[14] = 0x40;
    expect(path.judge('egress', wrong)).toBe('invalid-packet');
  });
});

describe('extension headers', () => {
  const behind = (kinds: readonly (number | undefined)[], rest: readonly number[] = []): Uint8Array =>
    frame(concat(...kinds.map((kind, at) => extension(kind ?? 0, kinds[at + 1] ?? PROTOCOL.tcp, 1, rest)), to80()), {
      nextHeader: kinds[0] ?? 0,
    });

  it('are followed to the ports', () => {
    for (const kind of [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION])
      expect([kind, path.judge('egress', behind([kind]))]).toEqual([kind, 'forwarded']);
    expect(
      path.judge('egress', behind([HOP_BY_HOP, DESTINATION, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION])),
    ).toBe('forwarded');
    const closed = concat(extension(DESTINATION, PROTOCOL.tcp, 3), tcp({ sport: 1, dport: 81 }));
    expect(path.judge('egress', frame(closed, { nextHeader: DESTINATION }))).toBe('policy');
    const long = concat(extension(DESTINATION, PROTOCOL.tcp, 100), to80());
    expect(path.judge('egress', frame(long, { nextHeader: DESTINATION }))).toBe('forwarded');
  });

  it('that cannot be followed drop the packet, enforced or not', () => {
    for (const flags of [0, ENFORCED]) {
      path.endpoint({ flags, ipv6: POD });
      const eight = Array.from({ length: 8 }, () => DESTINATION);
      expect(path.judge('egress', behind(eight))).toBe('forwarded');
      expect(path.judge('egress', behind([...eight, DESTINATION]))).toBe('ipv6-headers');
      expect(path.judge('egress', behind([FRAGMENT, FRAGMENT]))).toBe('ipv6-headers');
      // Segments left: it goes on to another address than the one that was judged.
      expect(path.judge('egress', behind([ROUTING], [4, 1]))).toBe('ipv6-headers');
      const long = concat(extension(DESTINATION, PROTOCOL.tcp, 130), to80());
      expect(path.judge('egress', frame(long, { nextHeader: DESTINATION }))).toBe('ipv6-headers');
      const beyond = extension(DESTINATION, PROTOCOL.tcp, 1, []);
      beyond[1] = 9;
      expect(path.judge('egress', frame(concat(beyond, to80()), { nextHeader: DESTINATION }))).toBe('ipv6-headers');
    }
  });
});

describe('fragments', () => {
  const first = (id: number, dport = 53) =>
    frame(concat(fragment(17, id, 0, true), udp({ sport: 7, dport, payload: new Uint8Array(24) })), {
      nextHeader: FRAGMENT,
    });
  const later = (id: number, offset = 32, fields: Fields = {}) =>
    frame(concat(fragment(17, id, offset, false), new Uint8Array(16)), { nextHeader: FRAGMENT, ...fields });

  it('are judged by the ports that their first one carries', () => {
    expect(path.judge('egress', later(1))).toBe('fragment-without-first');
    expect(path.judge('egress', first(1))).toBe('forwarded');
    expect(path.judge('egress', later(1))).toBe('forwarded');
    expect(path.judge('egress', later(2))).toBe('fragment-without-first');
    expect(path.judge('egress', later(1, 32, { dst: STRANGER }))).toBe('fragment-without-first');
    expect(path.judge('egress', first(3, 54))).toBe('policy');
    expect(path.judge('egress', later(3))).toBe('fragment-without-first');
  });

  it('may not reach into the headers of the first', () => {
    const options = concat(
      fragment(DESTINATION, 5, 0, true),
      extension(DESTINATION, 17, 2),
      udp({ sport: 7, dport: 53 }),
    );
    expect(path.judge('egress', frame(options, { nextHeader: FRAGMENT }))).toBe('forwarded');
    expect(path.judge('egress', later(5, 16))).toBe('fragment-without-first');
    expect(path.judge('egress', later(5, 24))).toBe('forwarded');
  });

  it('carry no neighbour discovery', () => {
    path.endpoint({ flags: 0, ipv6: POD });
    for (const type of [134, 135, 136]) {
      const message = concat(fragment(58, 6, 0, true), Uint8Array.of(type, ...new Uint8Array(23)));
      expect(path.judge('egress', frame(message, { nextHeader: FRAGMENT, hopLimit: 255 }))).toBe('not-a-router');
    }
  });
});

describe('errors', () => {
  const tooBig = (quoted: Uint8Array, from = ROUTER, type = 2) =>
    frame(icmp({ type, payload: quoted }), { src: from, dst: POD, nextHeader: 58 });

  it('about a flow of the pod pass from any router: path MTU', () => {
    expect(path.judge('ingress', tooBig(v6(to80())))).toBe('policy');
    path.judge('egress', frame(to80()));
    for (const type of [1, 2, 3, 4])
      expect(path.judge('ingress', tooBig(v6(to80(ack)), ROUTER, type))).toBe('forwarded');
    expect(path.judge('ingress', tooBig(v6(to80(ack)), ROUTER, 5))).toBe('policy');
    expect(path.judge('ingress', tooBig(v6(to80(ack)), STRANGER))).toBe('policy');
    expect(path.judge('ingress', tooBig(v6(tcp({ sport: 1, dport: 80 }))))).toBe('policy');
    expect(path.judge('ingress', tooBig(v6(to80(ack)).slice(0, 47)))).toBe('policy');
  });

  it('quote extension headers, too', () => {
    path.judge('egress', frame(to80()));
    const quoted = v6(concat(extension(DESTINATION, PROTOCOL.tcp), to80(ack)), { nextHeader: DESTINATION });
    expect(path.judge('ingress', tooBig(quoted))).toBe('forwarded');
    const big = v6(concat(fragment(PROTOCOL.tcp, 1, 0, true), to80(ack)), { nextHeader: FRAGMENT });
    expect(path.judge('ingress', tooBig(big))).toBe('forwarded');
    const rest = v6(concat(fragment(PROTOCOL.tcp, 1, 8, true), to80(ack)), { nextHeader: FRAGMENT });
    expect(path.judge('ingress', tooBig(rest))).toBe('policy');
  });

  it('carry no more than the least MTU', () => {
    path.judge('egress', frame(to80()));
    const quoted = (bytes: number) => concat(v6(to80(ack), { payloadLength: bytes }), new Uint8Array(bytes));
    expect(path.judge('ingress', tooBig(quoted(1400).slice(0, 1232)))).toBe('forwarded');
    expect(path.judge('ingress', tooBig(quoted(1400).slice(0, 1233)))).toBe('policy');
  });
});
