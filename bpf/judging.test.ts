/** The steps of judging a packet, in the contract's order, on the kernel. */
import { execFileSync } from 'node:child_process';
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { inNetns, skbContext } from 'libbpf-ts';

import { CT_FLAGS, ENDPOINT_FLAGS, PROTOCOL } from './constants.ts';
import { ENDPOINT_CELLS } from './endpoint-cells.ts';
import { type EndpointValue, endpointKey, endpointValue, slotKey } from './layout.ts';
import { PROGRAMS } from './maps.ts';
import { PASSED, TEST_IFINDEX, TestDatapath } from './testing/datapath.ts';
import {
  arp,
  concat,
  ETHERTYPE,
  ethernet,
  icmp,
  icmpError,
  ip4,
  ip6,
  ipv4,
  ipv6,
  type NeighbourFields,
  neighbour,
  sctp,
  TCP_FLAGS,
  tcp,
  udp,
} from './testing/packets.ts';

const POD = '10.0.0.1';
const FRIEND = '10.0.0.2';
const STRANGER = '10.0.0.3';
const ROUTER = '192.0.2.9';
const ENFORCED = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
const { syn, ack, fin, rst } = TCP_FLAGS;

const path = new TestDatapath({ ctEntries: 256 });

/** Friend (class 16): TCP 80-95 both ways, UDP 53 out, ICMP echo out. Everything else of the friend: nothing. */
function setUp(flags: number): void {
  path.forget();
  path.map('ipcache').deleteBatch([...path.map('ipcache').keys()]);
  path.endpoint({ flags });
  path.identity(FRIEND, 2000);
  path.identity(STRANGER, 2001);
  path.identity(ROUTER, 2);
  path.slot(
    0,
    [
      { identity: 2000, direction: 'egress', class: 16 },
      { identity: 2000, direction: 'ingress', class: 16 },
    ],
    [
      { class: 16, direction: 'egress', protocol: 'tcp', port: 80, portBits: 12, verdict: 'allow', cookie: 5 },
      { class: 16, direction: 'ingress', protocol: 'tcp', port: 80, portBits: 12, verdict: 'allow' },
      { class: 16, direction: 'egress', protocol: 'tcp', port: 90, verdict: 'deny' },
      { class: 16, direction: 'egress', protocol: 'udp', port: 53, verdict: 'allow' },
      { class: 16, direction: 'egress', protocol: 'sctp', port: 53, verdict: 'allow' },
      { class: 16, direction: 'egress', protocol: 'icmp', port: 8, verdict: 'allow' },
    ],
  );
}

const endpoint = (fields: Partial<EndpointValue>) =>
  endpointValue.encode({ revision: 1, slot: 0, flags: 0, ifindex: 1, ipv4: ip4(POD), identity: 1, id: 7, ...fields });

beforeEach(() => setUp(ENFORCED));
afterAll(() => path.close());

const out = (protocol: number, payload: Uint8Array, dst = FRIEND) =>
  ethernet(ipv4({ src: POD, dst, protocol, payload }));
const into = (protocol: number, payload: Uint8Array, src = FRIEND) =>
  ethernet(ipv4({ src, dst: POD, protocol, payload }));
const tcpOut = (dport: number, flags: number = syn, dst = FRIEND) => out(6, tcp({ sport: 40_000, dport, flags }), dst);
const tcpBack = (sport: number, flags: number = syn | ack) => into(6, tcp({ sport, dport: 40_000, flags }));

describe('1. endpoint', () => {
  it('drops what belongs to no endpoint', () => {
    path.clearEndpoints();
    expect(path.judge('egress', tcpOut(80))).toBe('no-endpoint');
    expect(path.judge('ingress', tcpBack(80))).toBe('no-endpoint');
  });
});

describe.each(['array', 'hash'] as const)('1. endpoint in the %s', (place) => {
  const other = new TestDatapath({ place });
  const name = place === 'array' ? 'endpoint_array' : 'endpoints';
  beforeEach(() => {
    other.clearEndpoints();
    other.endpoint();
  });
  afterAll(() => other.close());

  it('is found there and nowhere else', () => {
    expect(other.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(other.cells.holder(TEST_IFINDEX)).toBe(place === 'array' ? TEST_IFINDEX : undefined);
    expect([...other.map('endpoints').keys()]).toHaveLength(place === 'array' ? 0 : 1);
    other.clearEndpoints();
    expect(other.judge('egress', tcpOut(80))).toBe('no-endpoint');
  });

  it('is not taken when it is not the device’s own', () => {
    const key = endpointKey.encode(TEST_IFINDEX);
    const value = other.map(name).lookup(key) ?? new Uint8Array(0);
    for (const at of [7, 8]) {
      const foreign = value.slice();
      foreign[at] = (foreign[at] ?? 0) ^ 0x20;
      other.map(name).update(key, foreign);
      expect(other.judge('egress', tcpOut(80))).toBe('no-endpoint');
    }
  });

  it('is judged by the new word from the next packet on', () => {
    other.endpoint({ revision: 2, flags: ENFORCED, slot: 9 });
    expect(other.judge('egress', tcpOut(80))).toBe('no-policy');
    other.endpoint({ revision: 3 });
    expect(other.judge('egress', tcpOut(80))).toBe('forwarded');
    other.endpoint({ revision: 4, ipv4: STRANGER });
    expect(other.judge('egress', tcpOut(80))).toBe('invalid-source');
  });

  it('is found beside another endpoint of the same cell', () => {
    other.clearEndpoints();
    other.cells.put(endpoint({ ifindex: TEST_IFINDEX + ENDPOINT_CELLS, ipv4: ip4(STRANGER) }));
    expect(other.judge('egress', tcpOut(80))).toBe('no-endpoint');
    other.endpoint();
    expect(other.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(other.cells.holder(TEST_IFINDEX)).toBe(TEST_IFINDEX + ENDPOINT_CELLS);
  });
});

describe('1. a half-written endpoint', () => {
  it('is none, also where a word of 0 has the right guard', () => {
    // Its guard is 0.
    const ifindex = ENDPOINT_CELLS + 1;
    const namespace = `wt${process.pid}-half`;
    const ip = (...args: string[]) => execFileSync('ip', args, { stdio: 'pipe' });
    ip('netns', 'add', namespace);
    try {
      ip('-n', namespace, 'link', 'add', 'half', 'index', `${ifindex}`, 'type', 'veth', 'peer', 'name', 'halfp');
      const context = skbContext({ ifindex });
      const passes = () =>
        inNetns(`/run/netns/${namespace}`, () =>
          path.object.program(PROGRAMS.fromPod).testRun({ data: tcpOut(80), context }),
        ).returnValue === PASSED;
      const value = endpoint({ ifindex });
      path.clearEndpoints();
      path.cells.stage(value);
      expect(path.map('endpoint_array').lookup(slotKey.encode(1))?.slice(8)).toEqual(value.slice(8));
      expect(passes()).toBe(false);
      path.map('endpoints').update(endpointKey.encode(ifindex), Uint8Array.from(value).fill(0, 0, 8));
      expect(passes()).toBe(false);
      path.cells.publish(value);
      expect(passes()).toBe(true);
      path.cells.clear(ifindex);
      expect(passes()).toBe(false);
    } finally {
      path.clearEndpoints();
      ip('netns', 'delete', namespace);
    }
  });
});

describe('2. layer 3', () => {
  it('passes the pod’s own ARP and no other', () => {
    const ask = (sender: string) => ethernet(arp({ sender, target: FRIEND }), ETHERTYPE.arp);
    expect(path.judge('egress', ask(POD))).toBe('forwarded');
    expect(path.judge('egress', ask('0.0.0.0'))).toBe('forwarded');
    expect(path.judge('egress', ask(FRIEND))).toBe('invalid-source');
    expect(path.judge('ingress', ask(FRIEND))).toBe('forwarded');
    expect(path.judge('egress', ask(POD).slice(0, 40))).toBe('invalid-packet');
    path.endpoint({ flags: ENDPOINT_FLAGS.noSourceCheck });
    expect(path.judge('egress', ask(FRIEND))).toBe('forwarded');
  });

  it('lets no pod speak as a router, enforced or not: its node would take routes and addresses from it', () => {
    const message = (type: number) => Uint8Array.of(type, ...new Uint8Array(15));
    const v6 = (nextHeader: number, payload: Uint8Array, hopLimit = 255) =>
      ethernet(ipv6({ src: ip6('fe80::2'), dst: ip6('ff02::1'), nextHeader, hopLimit, payload }), ETHERTYPE.ipv6);
    for (const flags of [0, ENFORCED]) {
      path.endpoint({ flags });
      for (const hopLimit of [255, 64]) {
        for (const type of [134, 137])
          expect(path.judge('egress', v6(58, message(type), hopLimit))).toBe('not-a-router');
        expect(path.judge('egress', v6(58, message(133), hopLimit))).toBe('neighbour-discovery');
        for (const extension of [0, 43, 44, 51, 60]) {
          const hidden = concat(Uint8Array.of(58, ...new Uint8Array(7)), message(134));
          expect(path.judge('egress', v6(extension, hidden, hopLimit))).toBe('not-a-router');
        }
      }
    }
    expect(path.judge('egress', v6(58, new Uint8Array(0)))).toBe('invalid-packet');
  });

  it('drops VLAN tags and unknown ethertypes, except to a pod whose ingress is open', () => {
    const tagged = ethernet(
      concat(
        Uint8Array.of(0, 1, 8, 0),
        ipv4({ src: POD, dst: FRIEND, protocol: 6, payload: tcp({ sport: 1, dport: 80 }) }),
      ),
      ETHERTYPE.vlan,
    );
    const odd = ethernet(new Uint8Array(46), 0x1234);
    for (const frame of [tagged, odd]) {
      expect(path.judge('egress', frame)).toBe('unknown-l3');
      expect(path.judge('ingress', frame)).toBe('unknown-l3');
    }
    path.endpoint({ flags: 0 });
    for (const frame of [tagged, odd]) {
      expect(path.judge('egress', frame)).toBe('unknown-l3');
      expect(path.judge('ingress', frame)).toBe('forwarded');
    }
  });
});

describe('2. neighbour discovery', () => {
  const [SOURCE_LINK, TARGET_LINK, NONCE] = [1, 2, 14] as const;
  const solicit = { type: 135, src: 'fe80::2', dst: 'ff02::1:ff00:1', options: [SOURCE_LINK] } as const;
  const probe = { ...solicit, dst: 'fe80::1' } as const;
  const detect = { ...solicit, src: '::', options: [NONCE] } as const;
  const answer = { type: 136, src: 'fe80::2', dst: 'fe80::1', options: [TARGET_LINK] } as const;
  const announce = { ...answer, dst: 'ff02::1' } as const;
  const frame = (fields: NeighbourFields, behind = 0) => ethernet(neighbour(fields), ETHERTYPE.ipv6, behind);
  const both = (flags: number, outcomes: (direction: 'ingress' | 'egress') => void) => {
    path.endpoint({ flags });
    for (const direction of ['ingress', 'egress'] as const) outcomes(direction);
  };

  it('works between a pod and its node, enforced or not: resolution, unreachability, duplicate addresses', () => {
    for (const flags of [0, ENFORCED])
      both(flags, (direction) => {
        for (const each of [solicit, probe, detect, answer, announce]) {
          expect(path.judge(direction, frame(each))).toBe('forwarded');
          expect(path.judge(direction, frame({ ...each, options: [] }))).toBe('forwarded');
        }
        expect(path.judge(direction, frame({ ...solicit, options: [SOURCE_LINK, NONCE] }))).toBe('forwarded');
      });
  });

  it('carries no more than it needs, and nothing behind it', () => {
    const beyond: readonly (readonly [NeighbourFields, number?])[] = [
      [{ ...solicit, options: [SOURCE_LINK, NONCE, NONCE] }],
      [{ ...solicit, options: [TARGET_LINK] }],
      [{ ...solicit, options: [99] }],
      [{ ...detect, options: [SOURCE_LINK] }],
      [{ ...detect, options: [NONCE, SOURCE_LINK] }],
      [{ ...answer, options: [TARGET_LINK, TARGET_LINK] }],
      [{ ...answer, options: [SOURCE_LINK] }],
      [{ ...answer, options: [NONCE] }],
      ...[1, 7, 8, 9, 16, 1000].map((bytes) => [{ ...solicit, extra: new Uint8Array(bytes) }] as const),
      // An option that says it is longer than 8 bytes, or has no length.
      [{ ...solicit, options: [], extra: Uint8Array.of(NONCE, 2, ...new Uint8Array(14)) }],
      [{ ...solicit, options: [], extra: Uint8Array.of(NONCE, 0, ...new Uint8Array(6)) }],
      [{ ...solicit, payloadLength: 31 }],
      [{ ...solicit, payloadLength: 33 }],
      [{ ...solicit, payloadLength: 0 }],
      [solicit, 1],
      [solicit, 8],
      [solicit, 1000],
      [{ ...solicit, code: 1 }],
      [{ ...answer, code: 1 }],
      [{ ...solicit, hopLimit: 254 }],
      [{ ...answer, hopLimit: 0 }],
    ];
    for (const flags of [0, ENFORCED])
      both(flags, (direction) => {
        const open = flags === 0 ? 'forwarded' : 'unknown-identity';
        for (const [fields, behind] of beyond)
          expect([fields, behind, path.judge(direction, frame(fields, behind))]).toEqual([
            fields,
            behind,
            fields.payloadLength === 33 || fields.payloadLength === 0
              ? 'invalid-packet'
              : direction === 'egress'
                ? 'neighbour-discovery'
                : open,
          ]);
      });
    for (let length = 1; length < 64 - 40; length++)
      expect(path.judge('egress', frame(solicit).slice(0, 14 + 40 + length))).toBe('invalid-packet');
  });

  it('goes to its own link alone', () => {
    const elsewhere = [
      '2001:db8::1',
      'fd00::1',
      'fec0::1',
      'ff02::2',
      'ff02::16',
      'ff05::1',
      'ff0e::1',
      'ff02::1:fe00:1',
      'ff02::1:0:1',
      '::',
      '::1',
    ];
    for (const flags of [0, ENFORCED]) {
      path.endpoint({ flags });
      for (const each of [solicit, answer])
        for (const dst of elsewhere)
          expect([dst, path.judge('egress', frame({ ...each, dst }))]).toEqual([dst, 'neighbour-discovery']);
      // Of all nodes nobody asks; to who may have an address nobody answers.
      expect(path.judge('egress', frame({ ...solicit, dst: 'ff02::1' }))).toBe('neighbour-discovery');
      expect(path.judge('egress', frame({ ...answer, dst: 'ff02::1:ff00:1' }))).toBe('neighbour-discovery');
    }
  });

  it('comes from a link-local address or the pod’s own', () => {
    for (const flags of [0, ENFORCED]) {
      path.endpoint({ flags, ipv6: 'fd00::1' });
      for (const each of [solicit, probe, answer, announce]) {
        expect(path.judge('egress', frame({ ...each, src: 'fd00::1' }))).toBe('forwarded');
        for (const src of ['2001:db8::2', 'fd00::2', '::2', 'ff02::1'])
          expect(path.judge('egress', frame({ ...each, src }))).toBe('neighbour-discovery');
      }
      // Who has no address asks whether one is free, and nothing else.
      for (const each of [probe, { ...detect, dst: 'fe80::1' }, answer, announce])
        expect(path.judge('egress', frame({ ...each, src: '::' }))).toBe('neighbour-discovery');
    }
    // The node asks for, and answers to, whatever address a pod has.
    expect(path.judge('ingress', frame({ ...probe, dst: 'fd00::2' }))).toBe('forwarded');
    expect(path.judge('ingress', frame({ ...answer, src: 'fe80::1', dst: 'fd00::2' }))).toBe('forwarded');
  });
});

describe('3. IPv4', () => {
  it('lets a pod whose address is not known ask for one by DHCP, and send nothing else', () => {
    const ask = (sport = 68, dport = 67, fields: object = {}) =>
      path.judge(
        'egress',
        ethernet(
          ipv4({ src: '0.0.0.0', dst: '255.255.255.255', protocol: 17, payload: udp({ sport, dport }), ...fields }),
        ),
      );
    for (const flags of [0, ENFORCED]) {
      path.forget();
      path.endpoint({ flags, ipv4: '0.0.0.0' });
      expect(ask()).toBe(flags === 0 ? 'forwarded' : 'group-address');
      expect([ask(67), ask(68, 53), ask(68, 67, { dst: FRIEND })]).toEqual(Array(3).fill('invalid-source'));
      expect(ask(68, 67, { protocol: 6, payload: tcp({ sport: 68, dport: 67 }) })).toBe('invalid-source');
      expect(ask(68, 67, { offset: 1480 })).toBe('invalid-source');
    }
    path.endpoint({ flags: 0 });
    expect(ask()).toBe('invalid-source');
  });

  const syn80 = tcp({ sport: 40_000, dport: 80 });
  const lie = (fields: object, payload = syn80, pad = 0) =>
    ethernet(ipv4({ src: POD, dst: FRIEND, protocol: 6, payload, ...fields }), ETHERTYPE.ipv4, pad);

  it('drops headers that contradict the packet, enforced or not', () => {
    for (const flags of [ENFORCED, 0]) {
      path.endpoint({ flags });
      expect(path.judge('egress', lie({ version: 5 }))).toBe('invalid-packet');
      expect(path.judge('egress', lie({ headerWords: 4 }))).toBe('invalid-packet');
      expect(path.judge('egress', lie({ headerWords: 15 }))).toBe('invalid-packet');
      expect(path.judge('egress', lie({ totalLength: 0 }))).toBe('invalid-packet');
      expect(path.judge('egress', lie({ totalLength: 19 }))).toBe('invalid-packet');
      expect(path.judge('egress', lie({ totalLength: 41 }))).toBe('invalid-packet');
      expect(path.judge('egress', lie({}))).toBe('forwarded');
    }
  });

  it('drops short L4 headers, and does not take padding for one', () => {
    const cases = [
      [6, syn80, 20],
      [17, udp({ sport: 40_000, dport: 53 }), 8],
      [132, sctp({ sport: 40_000, dport: 53 }), 12],
      [1, icmp({ type: 8 }), 8],
    ] as const;
    for (const [protocol, whole, size] of cases) {
      for (const pad of [0, 40]) {
        expect(path.judge('egress', lie({ protocol }, whole.slice(0, size - 1), pad))).toBe('invalid-packet');
        expect(path.judge('egress', lie({ protocol }, whole.slice(0, 0), pad))).toBe('invalid-packet');
      }
      expect(path.judge('egress', lie({ protocol }, whole, 6))).toBe('forwarded');
    }
    expect(path.judge('egress', lie({}, tcp({ sport: 1, dport: 80, dataOffset: 4 })))).toBe('invalid-packet');
    expect(path.judge('egress', lie({}, tcp({ sport: 1, dport: 80, dataOffset: 6 })))).toBe('invalid-packet');
  });

  it('reads the ports behind IP options, not in them', () => {
    for (let words = 1; words <= 10; words++) {
      // An option that holds a TCP header to an allowed port, but for its beginning.
      const options = concat(syn80, syn80).slice(0, words * 4);
      options.set([148, options.length]);
      expect(path.judge('egress', lie({ options }))).toBe('forwarded');
      expect(path.judge('egress', lie({ options }, tcp({ sport: 40_000, dport: 81 + 16 })))).toBe('policy');
    }
  });

  it('lets no pod reach the loopback of its node, enforced or not: a node may route such addresses', () => {
    for (const flags of [0, ENFORCED]) {
      setUp(flags);
      for (const dst of ['127.0.0.1', '127.255.255.254'])
        for (const [protocol, payload] of [
          [6, tcp({ sport: 40_000, dport: 80 })],
          [6, tcp({ sport: 40_000, dport: 80, flags: ack })],
          [17, udp({ sport: 40_000, dport: 53 })],
          [1, icmp({ type: 8, id: 1 })],
          [1, icmpError(3, 4, ipv4({ src: dst, dst: POD, protocol: 17, payload: udp({ sport: 1, dport: 2 }) }))],
          [47, new Uint8Array(8)],
        ] as const)
          expect([dst, protocol, path.judge('egress', out(protocol, payload, dst))]).toEqual([
            dst,
            protocol,
            'invalid-packet',
          ]);
      expect(path.flows()).toBe(0);
    }
    setUp(0);
    expect(path.judge('egress', tcpOut(80, syn, '126.255.255.255'))).toBe('forwarded');
    expect(path.judge('egress', tcpOut(80, syn, '128.0.0.1'))).toBe('forwarded');
  });

  it('drops a source that is not the endpoint’s own, unless the endpoint may', () => {
    for (const flags of [ENFORCED, 0]) {
      path.endpoint({ flags });
      expect(path.judge('egress', lie({ src: STRANGER }))).toBe('invalid-source');
      path.endpoint({ flags: flags | ENDPOINT_FLAGS.noSourceCheck });
      expect(path.judge('egress', lie({ src: STRANGER }))).toBe('forwarded');
    }
  });
});

describe('3. who sends to a pod', () => {
  const NODE = '10.0.0.9';
  const [LOCAL, LOOPBACK] = [0, 1];
  const into = (src: string, flags: number = syn) =>
    ethernet(ipv4({ src, dst: POD, protocol: 6, payload: tcp({ sport: 50_000, dport: 8080, flags }) }));
  const answer = (dst: string) =>
    ethernet(ipv4({ src: POD, dst, protocol: 6, payload: tcp({ sport: 8080, dport: 50_000, flags: syn | ack }) }));
  /** Port 8080 is open to the node, and to world where that is said. Nothing goes out. */
  function policy(slot: number, revision: number, world: boolean): void {
    const open = { direction: 'ingress', protocol: 'tcp', port: 8080, verdict: 'allow' } as const;
    path.slot(
      slot,
      [
        { identity: 1, direction: 'ingress', class: 20 },
        { identity: 2, direction: 'ingress', class: 21 },
      ],
      [{ class: 20, ...open }, ...(world ? [{ class: 21, ...open }] : [])],
    );
    path.endpoint({ slot, revision, flags: ENFORCED });
  }
  beforeEach(() => {
    path.identity(NODE, 1);
    policy(2, 2, false);
  });

  it('the node, whichever of its addresses its packet has', () => {
    for (const source of [NODE, STRANGER, '198.51.100.7'])
      for (const from of [LOCAL, LOOPBACK]) expect(path.judge('ingress', into(source), from)).toBe('forwarded');
  });

  it('with an address of the node and brought by an interface: nobody knows, so no more than world', () => {
    expect(path.judge('ingress', into(NODE))).toBe('policy');
    policy(3, 3, true);
    expect(path.judge('ingress', into(NODE))).toBe('forwarded');
    expect(path.judge('egress', answer(NODE))).toBe('forwarded');
    // Whoever opened it: a policy without world cuts it, and one without the node's own does not.
    policy(2, 4, false);
    expect(path.judge('egress', answer(NODE))).toBe('policy');
    expect(path.judge('ingress', into(NODE, ack))).toBe('policy');
  });

  it('the node’s connection goes on at another revision, by its answers too, and nobody else rides on it', () => {
    expect(path.judge('ingress', into(NODE), LOCAL)).toBe('forwarded');
    expect(path.judge('ingress', into(NODE, ack))).toBe('policy');
    for (const revision of [2, 3, 4]) {
      policy(2, revision, false);
      if (revision === 3) expect(path.judge('ingress', into(NODE, ack))).toBe('policy');
      expect(path.judge('ingress', into(NODE, ack), LOCAL)).toBe('forwarded');
      expect(path.judge('egress', answer(NODE))).toBe('forwarded');
    }
  });
});

describe('3. fragments', () => {
  const piece = (offset: number, more: boolean, payload: Uint8Array, protocol = 17, id = 9) =>
    ethernet(ipv4({ src: POD, dst: FRIEND, protocol, payload, offset, moreFragments: more, id }));
  const first = (dport: number, id = 9) =>
    piece(0, true, udp({ sport: 40_000, dport, payload: new Uint8Array(16) }), 17, id);

  it('judges later fragments as their first', () => {
    expect(path.judge('egress', piece(24, false, new Uint8Array(8)))).toBe('fragment-without-first');
    expect(path.judge('egress', first(53))).toBe('forwarded');
    expect(path.judge('egress', piece(24, true, new Uint8Array(8)))).toBe('forwarded');
    expect(path.judge('egress', piece(32, false, new Uint8Array(1)))).toBe('forwarded');
    expect(path.judge('egress', piece(24, false, new Uint8Array(8), 17, 10))).toBe('fragment-without-first');
  });

  it('remembers a first fragment only once it has passed', () => {
    expect(path.judge('egress', first(54))).toBe('policy');
    expect([...path.map('frags').keys()]).toEqual([]);
    expect(path.judge('egress', piece(24, false, new Uint8Array(8)))).toBe('fragment-without-first');
  });

  it('passes a later one that overtakes its first where nothing is enforced, with no entry', () => {
    path.endpoint({ flags: ENDPOINT_FLAGS.ingressEnforced });
    expect(path.judge('egress', piece(24, false, new Uint8Array(8)))).toBe('forwarded');
    path.endpoint({ flags: ENDPOINT_FLAGS.egressEnforced });
    expect(path.judge('egress', piece(24, false, new Uint8Array(8)))).toBe('fragment-without-first');
    expect([...path.map('ct4').keys(), ...path.map('frags').keys()]).toEqual([]);
  });

  it('remembers a hundred datagrams under way at once', () => {
    const ids = Array.from({ length: 100 }, (_, index) => 65_500 + index).map((id) => id & 0xffff);
    for (const id of ids) expect(path.judge('egress', first(53, id))).toBe('forwarded');
    for (const id of ids) expect(path.judge('egress', piece(24, false, new Uint8Array(8), 17, id))).toBe('forwarded');
  });

  it('of one endpoint no other’s are forgotten, however many there are', () => {
    expect(path.judge('egress', first(53))).toBe('forwarded');
    path.endpoint({ id: 77, flags: ENDPOINT_FLAGS.egressEnforced });
    for (let id = 0; id < 20_000; id += 1) path.run('egress', first(53, id));
    path.endpoint({ flags: ENDPOINT_FLAGS.egressEnforced });
    expect(path.judge('egress', piece(24, false, new Uint8Array(8)))).toBe('forwarded');
    expect([...path.map('frags').keys()].length).toBeLessThanOrEqual(33);
  });

  it('drops fragments that could rewrite a header, or hold too little of it', () => {
    expect(path.judge('egress', piece(0, true, tcp({ sport: 40_000, dport: 80 }).slice(0, 16), 6))).toBe(
      'invalid-packet',
    );
    expect(path.judge('egress', piece(0, true, udp({ sport: 40_000, dport: 53 }).slice(0, 4)))).toBe('invalid-packet');
    expect(path.judge('egress', piece(0, true, tcp({ sport: 40_000, dport: 80, payload: new Uint8Array(4) }), 6))).toBe(
      'forwarded',
    );
    expect(path.judge('egress', piece(8, true, new Uint8Array(16), 6))).toBe('invalid-packet');
    expect(path.judge('egress', piece(16, true, new Uint8Array(16), 6))).toBe('invalid-packet');
    expect(path.judge('egress', piece(24, true, new Uint8Array(16), 6))).toBe('forwarded');
    expect(path.judge('egress', piece(8, true, new Uint8Array(16), 132))).toBe('invalid-packet');
    expect(path.judge('egress', piece(65_528, false, new Uint8Array(64)))).toBe('invalid-packet');
  });

  it('judges fragments of replies and pings as those', () => {
    expect(path.judge('egress', out(17, udp({ sport: 40_000, dport: 53 })))).toBe('forwarded');
    const reply = (offset: number, more: boolean, payload: Uint8Array) =>
      ethernet(ipv4({ src: FRIEND, dst: POD, protocol: 17, payload, offset, moreFragments: more, id: 3 }));
    expect(path.judge('ingress', reply(0, true, udp({ sport: 53, dport: 40_000 })))).toBe('forwarded');
    expect(path.judge('ingress', reply(8, false, new Uint8Array(8)))).toBe('forwarded');
    expect(path.judge('egress', piece(0, true, icmp({ type: 8, id: 5, payload: new Uint8Array(8) }), 1))).toBe(
      'forwarded',
    );
    expect(path.judge('egress', piece(16, false, new Uint8Array(8), 1))).toBe('forwarded');
    expect(path.judge('egress', piece(0, true, icmp({ type: 13, id: 5, payload: new Uint8Array(8) }), 1, 4))).toBe(
      'policy',
    );
    expect(path.judge('egress', piece(16, false, new Uint8Array(8), 1, 4))).toBe('fragment-without-first');
  });
});

describe('3. ICMP errors', () => {
  const quote = ipv4({ src: POD, dst: FRIEND, protocol: 6, payload: tcp({ sport: 40_000, dport: 80 }) });

  const received = ipv4({ src: FRIEND, dst: POD, protocol: 6, payload: tcp({ sport: 80, dport: 40_000 }) });
  const ERRORS = [
    [3, 4],
    [3, 1],
    [4, 0],
    [11, 0],
    [12, 0],
  ] as const;

  it.each(ERRORS)('pass only when they quote a known flow, also path MTU discovery: type %i, code %i', (type, code) => {
    const theirs = into(1, icmpError(type, code, quote), ROUTER);
    const ours = out(1, icmpError(type, code, received));
    const empty = icmp({ type, code, payload: new Uint8Array(1000) });
    for (const unknown of [theirs, into(1, empty)]) expect(path.judge('ingress', unknown)).toBe('policy');
    for (const unknown of [ours, out(1, empty)]) expect(path.judge('egress', unknown)).toBe('policy');
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(path.judge('ingress', theirs)).toBe('forwarded');
    expect(path.judge('egress', ours)).toBe('forwarded');
    expect(path.judge('ingress', into(1, empty))).toBe('policy');
    expect(path.flows()).toBe(1);
  });

  it.each(ERRORS)('pass as any packet does where nothing is enforced: type %i, code %i', (type, code) => {
    setUp(0);
    expect(path.judge('ingress', into(1, icmpError(type, code, quote), ROUTER))).toBe('forwarded');
    expect(path.judge('egress', out(1, icmpError(type, code, received), STRANGER))).toBe('forwarded');
    expect(path.flows()).toBe(0);
  });

  it('quote within the datagram: what pads the frame behind it is not read', () => {
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    const tail = (length: number) =>
      concat(into(1, icmp({ type: 3, code: 4, payload: quote.slice(0, length) }), ROUTER), quote.slice(length));
    for (let length = 0; length < 28; length++)
      expect([length, path.judge('ingress', tail(length))]).toEqual([length, 'policy']);
    expect(path.judge('ingress', tail(28))).toBe('forwarded');
    const options = ipv4({ src: POD, dst: FRIEND, protocol: 6, options: new Uint8Array(8), payload: quote.slice(20) });
    for (const [length, outcome] of [
      [35, 'policy'],
      [36, 'forwarded'],
    ] as const) {
      const error = icmp({ type: 3, code: 4, payload: options.slice(0, length) });
      expect(path.judge('ingress', concat(into(1, error, ROUTER), options.slice(length)))).toBe(outcome);
    }
  });

  it('keep no flow alive, allowed or denied', () => {
    const ports = { sport: 40_000, dport: 53 };
    const flow = path.flow('egress', PROTOCOL.udp, POD, ports.sport, FRIEND, ports.dport);
    const error = into(1, icmpError(3, 4, ipv4({ src: POD, dst: FRIEND, protocol: 17, payload: udp(ports) })), ROUTER);
    for (const [slot, outcome, lifetime] of [
      [0, 'forwarded', 60],
      [1, 'policy', 300],
    ] as const) {
      setUp(ENFORCED);
      expect(path.judge('egress', out(17, udp(ports)))).toBe('forwarded');
      path.slot(1, [], []);
      path.endpoint({ flags: ENFORCED, revision: 2, slot });
      expect(path.judge('egress', out(17, udp(ports)))).toBe(outcome);
      flow.age(lifetime - 10);
      const { lastSeen, stamp } = flow.get() ?? {};
      expect(path.judge('ingress', error)).toBe(outcome);
      expect(flow.get()).toMatchObject({ lastSeen, stamp, denied: slot === 1 });
      // The policy allows it again.
      path.endpoint({ flags: ENFORCED, revision: 3 });
      flow.age(20);
      expect(path.judge('ingress', error)).toBe('policy');
    }
  });

  it('are lost where the table was full for their flow', () => {
    using small = new TestDatapath({ ctEntries: 1 });
    small.endpoint({ flags: ENDPOINT_FLAGS.ingressEnforced });
    small.slot(0, [], []);
    const sent = Array.from({ length: 64 }, (_, at) => ({ sport: 40_000, dport: at + 1 })).map((ports) => ({
      outcome: small.judge('egress', tcpOut(ports.dport)),
      error: into(1, icmpError(3, 4, ipv4({ src: POD, dst: FRIEND, protocol: 6, payload: tcp(ports) }))),
    }));
    for (const { outcome, error } of sent)
      expect(small.judge('ingress', error)).toBe(outcome === 'forwarded' ? 'forwarded' : 'unknown-identity');
    expect(new Set(sent.map(({ outcome }) => outcome))).toEqual(new Set(['forwarded', 'ct-full+forwarded']));
  });

  it('passes errors about a known flow, from any router, both ways', () => {
    const error = into(1, icmpError(3, 1, quote), ROUTER);
    expect(path.judge('ingress', error)).toBe('policy');
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(path.judge('ingress', error)).toBe('forwarded');
    expect(path.judge('ingress', into(1, icmpError(11, 0, quote), ROUTER))).toBe('forwarded');
    expect(path.judge('ingress', into(1, icmpError(5, 0, quote), ROUTER))).toBe('policy');
    // About the reply that the pod received.
    expect(path.judge('egress', out(1, icmpError(3, 3, received)))).toBe('forwarded');
    expect(path.judge('egress', out(1, icmpError(3, 3, received), STRANGER))).toBe('policy');
  });

  it.each([
    ['a pod', 2001, 'policy'],
    ['a pod whose identity is its node’s own', 0x0300_0001, 'policy'],
    ['an unknown address', 0, 'unknown-identity'],
    ['the world', 2, 'forwarded'],
    ['a CIDR', 0x0100_0001, 'forwarded'],
    ['a node', 6, 'forwarded'],
    ['an API server', 7, 'forwarded'],
    ['a host whose address is masqueraded', 1, 'forwarded'],
  ] as const)('about a flow with somebody else, from %s (identity %i): %s', (_, identity, outcome) => {
    const asked = ipv4({ src: POD, dst: FRIEND, protocol: 17, payload: udp({ sport: 40_000, dport: 53 }) });
    const ping = ipv4({ src: POD, dst: FRIEND, protocol: 1, payload: icmp({ type: 8, id: 77 }) });
    path.identity(STRANGER, identity);
    for (const quoted of [asked, ping]) {
      expect(path.judge('egress', ethernet(quoted))).toBe('forwarded');
      for (const [type, code] of ERRORS) {
        const error = icmpError(type, code, quoted);
        expect(path.judge('ingress', into(1, error, STRANGER))).toBe(outcome);
        expect(path.judge('ingress', into(1, error))).toBe('forwarded');
        // What the node itself sends is its own, whoever has the address.
        expect(path.judge('ingress', into(1, error, STRANGER), 0)).toBe('forwarded');
      }
    }
  });

  it('about a flow with somebody else, from a pod, pass where a rule allows its ICMP', () => {
    path.slot(
      1,
      [{ identity: 2001, direction: 'ingress', class: 17 }],
      [
        { class: 17, direction: 'ingress', protocol: 'icmp', port: 3, verdict: 'allow' },
        { class: 17, direction: 'ingress', protocol: 'icmp', port: 11, verdict: 'deny' },
      ],
    );
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    path.endpoint({ flags: ENFORCED, slot: 1 });
    expect(path.judge('ingress', into(1, icmpError(3, 3, quote), STRANGER))).toBe('forwarded');
    expect(path.judge('ingress', into(1, icmpError(11, 0, quote), STRANGER))).toBe('policy-denied');
    expect(path.judge('ingress', into(1, icmpError(11, 0, quote), ROUTER))).toBe('forwarded');
  });

  it.each([
    ['without options', new Uint8Array(0)],
    ['with options', new Uint8Array(40)],
  ])('carry 576 bytes of ICMP, both ways, %s', (_, options) => {
    const error = (about: Uint8Array, length: number) =>
      icmp({ type: 3, code: 4, payload: concat(about, new Uint8Array(length - 8 - about.length).fill(0x41)) });
    const theirs = (length: number) =>
      ethernet(ipv4({ src: ROUTER, dst: POD, protocol: 1, options, payload: error(quote, length) }));
    const ours = (length: number) =>
      ethernet(ipv4({ src: POD, dst: FRIEND, protocol: 1, options, payload: error(received, length) }));
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    for (const [length, outcome] of [
      [576, 'forwarded'],
      [577, 'policy'],
      [1480, 'policy'],
    ] as const) {
      expect([length, path.judge('ingress', theirs(length))]).toEqual([length, outcome]);
      expect([length, path.judge('egress', ours(length))]).toEqual([length, outcome]);
    }
  });

  it('does not believe a quote that names no flow, lies about its sender, or is short', () => {
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    const other = ipv4({ src: POD, dst: FRIEND, protocol: 6, payload: tcp({ sport: 40_001, dport: 80 }) });
    expect(path.judge('ingress', into(1, icmpError(3, 1, other), ROUTER))).toBe('policy');
    const foreign = ipv4({ src: FRIEND, dst: POD, protocol: 6, payload: tcp({ sport: 80, dport: 40_000 }) });
    expect(path.judge('ingress', into(1, icmpError(3, 1, foreign), ROUTER))).toBe('policy');
    const short = icmp({ type: 3, code: 1, payload: quote.slice(0, 27) });
    expect(path.judge('ingress', into(1, short, ROUTER))).toBe('policy');
    const fragment = ipv4({ src: POD, dst: FRIEND, protocol: 6, offset: 24, payload: quote.slice(20) });
    expect(path.judge('ingress', into(1, icmpError(3, 1, fragment), ROUTER))).toBe('policy');
  });

  it('judges a related error by the flow’s present policy', () => {
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    path.slot(1, [], []);
    path.endpoint({ flags: ENFORCED, revision: 2, slot: 1 });
    for (let again = 0; again < 2; again++) {
      expect(path.judge('ingress', into(1, icmpError(3, 1, quote), ROUTER))).toBe('policy');
      expect(path.flow('egress', PROTOCOL.tcp, POD, 40_000, FRIEND, 80).get()).toMatchObject({ denied: true });
    }
    path.endpoint({ flags: ENFORCED, revision: 3 });
    expect(path.judge('ingress', into(1, icmpError(3, 1, quote), ROUTER))).toBe('forwarded');
    expect(path.flow('egress', PROTOCOL.tcp, POD, 40_000, FRIEND, 80).get()).toMatchObject({
      denied: false,
      revision: 3,
    });
  });

  it('relates errors about pings', () => {
    const ping = ipv4({ src: POD, dst: FRIEND, protocol: 1, payload: icmp({ type: 8, id: 77 }) });
    expect(path.judge('ingress', into(1, icmpError(11, 0, ping), ROUTER))).toBe('policy');
    expect(path.judge('egress', ethernet(ping))).toBe('forwarded');
    expect(path.judge('ingress', into(1, icmpError(11, 0, ping), ROUTER))).toBe('forwarded');
  });
});

describe('4. conntrack', () => {
  const flow = (dport = 80) => path.flow('egress', PROTOCOL.tcp, POD, 40_000, FRIEND, dport);

  it('lets replies in, and only replies', () => {
    expect(path.judge('ingress', tcpBack(85))).toBe('policy');
    expect(path.judge('egress', tcpOut(85))).toBe('forwarded');
    expect(path.judge('ingress', tcpBack(85))).toBe('forwarded');
    expect(flow(85).get()).toMatchObject({ flags: CT_FLAGS.replied, cookie: 5, packets: 2n, revision: 1 });
    expect(path.judge('ingress', tcpBack(86))).toBe('policy');
    expect(path.judge('ingress', into(6, tcp({ sport: 85, dport: 40_001, flags: ack })))).toBe('policy');
  });

  it('tracks flows of a direction that is not enforced, so that a later policy does not cut their replies', () => {
    setUp(0);
    expect(path.judge('egress', tcpOut(443))).toBe('forwarded');
    path.endpoint({ flags: ENDPOINT_FLAGS.ingressEnforced, revision: 2 });
    expect(path.judge('ingress', tcpBack(443))).toBe('forwarded');
    expect(flow(443).get()?.revision).toBe(2);
  });

  it('cuts an established flow in both directions when the policy tightens', () => {
    for (const direction of ['egress', 'ingress'] as const) {
      setUp(ENFORCED);
      path.judge('egress', tcpOut(80));
      path.judge('ingress', tcpBack(80));
      path.slot(1, [], []);
      path.endpoint({ flags: ENFORCED, revision: 2, slot: 1 });
      const packet = direction === 'egress' ? tcpOut(80, ack) : tcpBack(80, ack);
      expect(path.judge(direction, packet)).toBe('policy');
      expect(flow().get()).toMatchObject({ denied: true, revision: 2 });
    }
  });

  it('keeps an established flow over a policy change that still allows it', () => {
    path.judge('egress', tcpOut(80));
    path.endpoint({ flags: ENFORCED, revision: 2 });
    expect(path.judge('ingress', tcpBack(80))).toBe('forwarded');
    expect(flow().get()).toMatchObject({ revision: 2, packets: 2n });
    path.endpoint({ flags: ENFORCED, revision: 3 });
    expect(path.judge('egress', tcpOut(80, ack))).toBe('forwarded');
    expect(flow().get()).toMatchObject({ revision: 3, packets: 3n });
  });

  it('lets a packet of an older policy neither delete nor take back what a newer one allowed', () => {
    path.endpoint({ flags: ENFORCED, revision: 5 });
    path.judge('egress', tcpOut(80));
    path.endpoint({ flags: ENFORCED, revision: 4 });
    expect(path.judge('egress', tcpOut(80, ack))).toBe('forwarded');
    expect(flow().get()?.revision).toBe(5);
    path.slot(1, [], []);
    path.endpoint({ flags: ENFORCED, revision: 4, slot: 1 });
    expect(path.judge('egress', tcpOut(80, ack))).toBe('policy');
    expect(flow().get()?.revision).toBe(5);
  });

  it('does not pass an entry whose tag is another flow’s', () => {
    path.judge('egress', tcpOut(80));
    path.judge('egress', tcpOut(81));
    const map = path.map('ct4');
    const rows = [...map.entries()];
    const [a, b] = rows;
    if (a === undefined || b === undefined) throw new Error('two flows expected');
    map.update(a[0], b[1]);
    map.update(b[0], a[1]);
    expect(path.judge('ingress', tcpBack(80))).toBe('policy');
    expect(path.judge('ingress', tcpBack(81))).toBe('policy');
  });

  it('forgets idle flows: half-open 60 s, established 6 h, closed 10 s, UDP 60 s or 180 s', () => {
    const reply = () => path.judge('ingress', tcpBack(80, ack));
    const connect = () =>
      [tcpOut(80), tcpBack(80), tcpOut(80, ack)].map((each, at) => path.judge(at === 1 ? 'ingress' : 'egress', each));
    path.judge('egress', tcpOut(80));
    flow().age(65);
    expect(reply()).toBe('policy');
    path.judge('egress', tcpOut(80));
    path.judge('ingress', tcpBack(80));
    // It is answered, and its initiator has not said that it has seen that.
    flow().age(65);
    expect(reply()).toBe('policy');
    connect();
    flow().age(21_500);
    expect(reply()).toBe('forwarded');
    flow().age(21_700);
    expect(reply()).toBe('policy');

    path.judge('egress', tcpOut(80));
    path.judge('ingress', tcpBack(80));
    path.judge('egress', tcpOut(80, fin | ack));
    flow().age(15);
    expect(reply()).toBe('forwarded');
    path.judge('ingress', tcpBack(80, fin | ack));
    flow().age(15);
    expect(reply()).toBe('policy');
    path.judge('egress', tcpOut(80));
    path.judge('ingress', tcpBack(80, rst | ack));
    flow().age(15);
    expect(reply()).toBe('policy');

    const dns = () => path.flow('egress', PROTOCOL.udp, POD, 40_000, FRIEND, 53);
    const answer = () => path.judge('ingress', into(17, udp({ sport: 53, dport: 40_000 })));
    path.judge('egress', out(17, udp({ sport: 40_000, dport: 53 })));
    dns().age(55);
    expect(answer()).toBe('forwarded');
    dns().age(170);
    expect(answer()).toBe('forwarded');
    dns().age(185);
    expect(answer()).toBe('policy');
  });

  it('begins no TCP connection but by its SYN: nothing else says who opened it', () => {
    for (const flags of [ack, fin | ack, syn | ack, rst]) {
      expect(path.judge('egress', tcpOut(80, flags))).toBe('forwarded');
      expect(path.flows()).toBe(0);
      expect(path.judge('ingress', tcpBack(80, flags))).toBe('policy');
    }
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(path.judge('ingress', tcpBack(80))).toBe('forwarded');
    expect(flow().get()?.flags).toBe(CT_FLAGS.replied);
  });

  it('forgets a TCP connection that was silent for six hours', () => {
    path.judge('egress', tcpOut(80));
    path.judge('ingress', tcpBack(80));
    path.judge('egress', tcpOut(80, ack));
    flow().age(21_500);
    expect(path.judge('ingress', tcpBack(80, ack))).toBe('forwarded');
    flow().age(21_700);
    expect(path.judge('ingress', tcpBack(80, ack))).toBe('policy');
    // By its own direction: it begins nothing.
    expect(path.judge('egress', tcpOut(80, ack))).toBe('forwarded');
    expect(path.judge('ingress', tcpBack(80, ack))).toBe('policy');
    path.judge('egress', tcpOut(80));
    expect(path.judge('ingress', tcpBack(80))).toBe('forwarded');
  });

  it('in quarantine begins no flow but of a SYN, and remembers nothing', () => {
    const query = () => path.judge('egress', out(17, udp({ sport: 40_000, dport: 53 })));
    const answer = () => path.judge('ingress', into(17, udp({ sport: 53, dport: 40_000 })));
    path.endpoint({ flags: ENFORCED, quarantine: true });
    expect([query(), answer(), query(), answer()]).toEqual(['forwarded', 'policy', 'forwarded', 'policy']);
    expect([...path.map('ct4').keys()]).toEqual([]);
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(path.judge('ingress', tcpBack(80))).toBe('forwarded');
    // Conversations of the pod's own go on when it is over, from the same port too.
    path.endpoint({ flags: ENFORCED });
    expect([query(), answer()]).toEqual(['forwarded', 'forwarded']);
  });

  describe.each(['egress', 'ingress'] as const)('a reset in a connection that was opened on %s', (opener) => {
    const [ours, theirs] = opener === 'egress' ? [40_000, 80] : [80, 40_000];
    const connection = () =>
      opener === 'egress'
        ? path.flow(opener, PROTOCOL.tcp, POD, ours, FRIEND, theirs)
        : path.flow(opener, PROTOCOL.tcp, FRIEND, theirs, POD, ours);
    /** The pod's own numbers begin at 500, the other side's at 1000. */
    const send = (flags: number, number: number): string =>
      path.judge('egress', out(6, tcp({ sport: ours, dport: theirs, flags, seq: 501, ack: number })));
    const receive = (flags: number, number: number): string =>
      path.judge('ingress', into(6, tcp({ sport: theirs, dport: ours, flags, seq: number, ack: 501 })));
    const isReset = (): boolean => ((connection().get()?.flags ?? 0) & CT_FLAGS.reset) !== 0;
    beforeEach(() => {
      setUp(0);
      // It is opened, and the other side sends ten bytes.
      const opened =
        opener === 'egress'
          ? [send(syn, 0), receive(syn | ack, 1000), send(ack, 1001)]
          : [receive(syn, 1000), send(syn | ack, 1001), receive(ack, 1001)];
      expect([...opened, receive(ack, 1001), send(ack, 1011)]).toEqual(Array(5).fill('forwarded'));
    });

    it('that the pod does not take ends nothing', () => {
      for (const number of [0, 501, 1001, 1010, 1012, 0xffff_ffff])
        for (const flags of [rst, rst | ack]) expect([receive(flags, number), isReset()]).toEqual(['forwarded', false]);
      connection().age(21_000);
      receive(ack, 1011);
      expect(connection().get()?.packets).toBe(18n);
    });

    it('that the pod takes ends it', () => {
      expect([receive(rst, 1011), isReset()]).toEqual(['forwarded', true]);
    });

    it('that the pod sends ends it', () => {
      expect([send(rst, 0), isReset()]).toEqual(['forwarded', true]);
    });
  });

  it('judges a SYN on a closing flow as a new one', () => {
    path.judge('egress', tcpOut(80));
    path.judge('egress', tcpOut(80, rst));
    expect(flow().get()?.flags).toBe(CT_FLAGS.reset);
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(flow().get()).toMatchObject({ flags: 0, packets: 1n });
  });

  it('does not take a SYN of the responder for a reply, except for a simultaneous open', () => {
    path.judge('egress', tcpOut(85));
    expect(path.judge('ingress', tcpBack(85, syn))).toBe('forwarded');
    expect(path.judge('ingress', tcpBack(85, syn))).toBe('policy');
    expect(path.judge('ingress', tcpBack(85, ack))).toBe('forwarded');
  });

  it('matches an echo reply to its request, and neither to anything else', () => {
    const echo = (type: number, id: number) => icmp({ type, id });
    expect(path.judge('egress', out(1, echo(8, 5)))).toBe('forwarded');
    expect(path.judge('ingress', into(1, echo(0, 6)))).toBe('policy');
    expect(path.judge('ingress', into(1, echo(0, 5)))).toBe('forwarded');
    expect(path.judge('ingress', into(1, echo(8, 5)))).toBe('policy');
    expect(path.judge('egress', out(1, echo(0, 5)))).toBe('policy');
    expect(path.judge('egress', out(1, echo(13, 5)))).toBe('policy');
    expect(path.judge('ingress', into(1, echo(14, 5)))).toBe('policy');
  });

  it('passes untracked when the table is full, and its replies are not wider', () => {
    using small = new TestDatapath({ ctEntries: 1 });
    small.endpoint({ flags: ENDPOINT_FLAGS.ingressEnforced });
    small.slot(0, [], []);
    let full = '';
    for (let port = 1; port <= 64 && full === ''; port++) {
      if (small.judge('egress', tcpOut(port)) === 'ct-full+forwarded') full = `${port}`;
    }
    expect(full).not.toBe('');
    expect(small.judge('ingress', tcpBack(Number(full)))).toBe('unknown-identity');
  });
});

describe('4. packets that can only answer', () => {
  it('open nothing: neither a SYN-ACK nor a reset makes the other side’s packets replies', () => {
    setUp(0);
    for (const flags of [syn | ack, rst, rst | ack]) {
      expect(path.judge('egress', tcpOut(80, flags))).toBe('forwarded');
      expect(path.flows()).toBe(0);
    }
    path.endpoint({ flags: ENDPOINT_FLAGS.ingressEnforced, revision: 2 });
    expect(path.judge('ingress', tcpBack(443, ack))).toBe('policy');
    expect(path.judge('egress', tcpOut(443, ack))).toBe('forwarded');
    expect(path.judge('ingress', tcpBack(443, ack))).toBe('policy');
  });
});

describe('4. denied flows', () => {
  const INGRESS_ONLY = ENDPOINT_FLAGS.ingressEnforced;
  const ALLOWING = 0;
  const DENYING = 1;
  const NOTHING = 2;
  /** The friend opened a flow to the pod; the pod's egress is open. */
  const protocols = [
    {
      name: 'TCP',
      number: PROTOCOL.tcp,
      opening: into(6, tcp({ sport: 50_000, dport: 80, flags: syn })),
      answer: out(6, tcp({ sport: 80, dport: 50_000, flags: syn | ack })),
      theirs: into(6, tcp({ sport: 50_000, dport: 80, flags: ack })),
      ours: out(6, tcp({ sport: 80, dport: 50_000, flags: ack })),
    },
    {
      name: 'UDP',
      number: PROTOCOL.udp,
      opening: into(17, udp({ sport: 50_000, dport: 80 })),
      answer: out(17, udp({ sport: 80, dport: 50_000 })),
      theirs: into(17, udp({ sport: 50_000, dport: 80 })),
      ours: out(17, udp({ sport: 80, dport: 50_000 })),
    },
  ] as const;
  let revision = 1;

  function enforce(slot: number, flags: number = INGRESS_ONLY): void {
    revision += 1;
    path.endpoint({ flags, revision, slot });
  }

  function establish(each: (typeof protocols)[number]): void {
    const class16 = [
      { identity: 2000, direction: 'ingress', class: 16 },
      { identity: 2000, direction: 'egress', class: 16 },
    ] as const;
    path.slot(ALLOWING, class16, [
      { class: 16, direction: 'ingress', protocol: 'tcp', port: 80, verdict: 'allow', cookie: 3 },
      { class: 16, direction: 'ingress', protocol: 'udp', port: 80, verdict: 'allow', cookie: 3 },
    ]);
    path.slot(DENYING, class16, [
      { class: 16, direction: 'ingress', protocol: 'tcp', port: 80, verdict: 'deny' },
      { class: 16, direction: 'ingress', protocol: 'udp', port: 80, verdict: 'deny' },
    ]);
    path.slot(NOTHING, class16, []);
    enforce(ALLOWING);
    expect(path.judge('ingress', each.opening)).toBe('forwarded');
    expect(path.judge('egress', each.answer)).toBe('forwarded');
    expect(path.judge('ingress', each.theirs)).toBe('forwarded');
  }

  const theirFlow = (protocol: number) => path.flow('ingress', protocol, FRIEND, 50_000, POD, 80);

  it.each(protocols)('$name: stay cut however the other side’s packets fall, its own direction being open', (each) => {
    const orders = [
      ['theirs', 'ours', 'theirs', 'ours', 'theirs'],
      ['ours', 'theirs', 'ours', 'ours', 'theirs'],
      ['ours', 'ours', 'ours', 'theirs', 'theirs'],
    ] as const;
    for (const order of orders) {
      setUp(0);
      establish(each);
      enforce(DENYING);
      for (const side of order) {
        if (side === 'theirs') expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
        // What the pod sends is judged by its own direction, and opens nothing for the friend.
        else expect(path.judge('egress', each.ours)).toBe('forwarded');
      }
      expect(path.flows()).toBe(1);
      expect(theirFlow(each.number).get()).toMatchObject({ denied: true, revision });
      // The tightening of the other direction cuts the rest.
      enforce(DENYING, ENFORCED);
      expect(path.judge('egress', each.ours)).toBe('policy');
      expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    }
  });

  it.each(protocols)('$name: are decided by the present policy, and go on when it allows them again', (each) => {
    establish(each);
    enforce(DENYING);
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    enforce(NOTHING);
    expect(path.judge('ingress', each.theirs)).toBe('policy');
    expect(theirFlow(each.number).get()).toMatchObject({ denied: true, revision });
    // Rows may become wider without a new revision.
    path.slot(
      NOTHING,
      [],
      [
        { class: 1, direction: 'ingress', protocol: 'tcp', verdict: 'allow' },
        { class: 1, direction: 'ingress', protocol: 'udp', verdict: 'allow' },
      ],
    );
    expect(path.judge('ingress', each.theirs)).toBe('forwarded');
    expect(theirFlow(each.number).get()).toMatchObject({ denied: false, revision });
    enforce(DENYING);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(theirFlow(each.number).get()).toMatchObject({ denied: true });
    enforce(ALLOWING, ENFORCED);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(theirFlow(each.number).get()).toMatchObject({ denied: false, revision });
    enforce(NOTHING, 0);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(path.judge('ingress', each.theirs)).toBe('forwarded');
  });

  it.each(protocols)('$name: are remembered for 300 s after the last packet of either side', (each) => {
    establish(each);
    enforce(DENYING);
    const flow = theirFlow(each.number);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    for (const side of ['ingress', 'egress'] as const) {
      flow.age(295);
      const aged = flow.get()?.lastSeen ?? 0;
      path.judge(side, side === 'ingress' ? each.theirs : each.ours);
      // The stamp is modulo 2^32: on a machine that has just booted an aged one is before zero.
      expect(((flow.get()?.lastSeen ?? 0) - aged) | 0).toBeGreaterThan(270);
      expect(path.flows()).toBe(1);
    }
    flow.age(305);
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    // Of TCP it takes a SYN to open a connection of the pod's own; others are remembered for longer.
    expect(path.flows()).toBe(1);
    flow.age(490);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(path.flows()).toBe(each.name === 'TCP' ? 1 : 2);
  });

  it('do not come back as the pod’s own by a forged reset: its next packet opens nothing', () => {
    const [each] = protocols;
    establish(each);
    expect(path.judge('ingress', into(6, tcp({ sport: 50_000, dport: 80, flags: rst })))).toBe('forwarded');
    theirFlow(each.number).age(15);
    for (const slot of [ALLOWING, DENYING]) {
      enforce(slot);
      expect(path.judge('egress', each.ours)).toBe('forwarded');
      expect(path.flow('egress', each.number, POD, 80, FRIEND, 50_000).get()).toBeUndefined();
      expect(path.judge('ingress', each.theirs)).toBe(slot === ALLOWING ? 'forwarded' : 'policy-denied');
    }
  });

  it.each([
    ['that was reset', () => path.judge('ingress', into(6, tcp({ sport: 50_000, dport: 80, flags: rst })))],
    ['that is established', () => undefined],
    ['that was silent for long', () => path.flow('egress', PROTOCOL.tcp, POD, 80, FRIEND, 50_000).age(25_000)],
  ])('do not go on as replies of a connection of the pod’s own of before, %s', (_, end) => {
    const [each] = protocols;
    establish(each);
    path.map('ct4').deleteBatch([...path.map('ct4').keys()]);
    expect(path.judge('egress', out(6, tcp({ sport: 80, dport: 50_000, flags: syn })))).toBe('forwarded');
    expect(path.judge('ingress', into(6, tcp({ sport: 50_000, dport: 80, flags: syn | ack })))).toBe('forwarded');
    end();
    expect(path.judge('ingress', each.opening)).toBe('forwarded');
    expect(path.flows()).toBe(1);
    expect(path.judge('egress', each.answer)).toBe('forwarded');
    expect(path.judge('ingress', each.theirs)).toBe('forwarded');
    enforce(DENYING);
    for (let round = 0; round < 3; round += 1) {
      expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
      expect(path.judge('egress', each.ours)).toBe('forwarded');
    }
  });

  it('are remembered as long as they would have been, and longer while their initiator is refused', () => {
    const [, each] = protocols;
    establish(each);
    enforce(DENYING);
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    theirFlow(each.number).age(470);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    setUp(0);
    establish(each);
    theirFlow(each.number).age(185);
    enforce(DENYING);
    for (let round = 0; round < 4; round += 1) {
      expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
      theirFlow(each.number).age(200);
    }
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(path.flows()).toBe(1);
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
  });

  it('do not come back as the pod’s own after silence, for as long as the pod goes on sending', () => {
    const [, each] = protocols;
    establish(each);
    theirFlow(each.number).age(200);
    for (let round = 0; round < 5; round += 1) {
      enforce(round === 0 ? ALLOWING : DENYING);
      expect(path.judge('egress', each.ours)).toBe('forwarded');
      expect(path.flows()).toBe(1);
      theirFlow(each.number).age(250);
    }
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    // It is theirs again once the policy allows it.
    enforce(ALLOWING);
    expect(path.judge('ingress', each.theirs)).toBe('forwarded');
    expect(path.flows()).toBe(1);
    enforce(DENYING);
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
  });

  it('outlive their connection’s own timeout, reset or not', () => {
    const [each] = protocols;
    establish(each);
    path.judge('ingress', into(6, tcp({ sport: 50_000, dport: 80, flags: rst })));
    enforce(DENYING);
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    theirFlow(each.number).age(200);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    expect(path.flows()).toBe(1);
  });

  it('do not hinder a connection that the pod opens itself on the same ports', () => {
    const [each] = protocols;
    establish(each);
    enforce(DENYING);
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    expect(path.judge('egress', out(6, tcp({ sport: 80, dport: 50_000, flags: syn })))).toBe('forwarded');
    expect(theirFlow(each.number).get()).toBeUndefined();
    expect(path.flows()).toBe(1);
    expect(path.judge('ingress', into(6, tcp({ sport: 50_000, dport: 80, flags: syn | ack })))).toBe('forwarded');
    expect(path.judge('ingress', into(6, tcp({ sport: 50_000, dport: 80, flags: syn })))).toBe('policy-denied');
  });

  it('leave nothing behind when they never were flows', () => {
    const [each] = protocols;
    establish(each);
    theirFlow(each.number).delete();
    enforce(DENYING);
    expect(path.judge('ingress', each.opening)).toBe('policy-denied');
    expect(path.flows()).toBe(0);
  });

  it('are not brought back, nor newer ones denied, by a packet of an older policy', () => {
    const [each] = protocols;
    establish(each);
    const old = revision;
    enforce(DENYING);
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    path.endpoint({ flags: INGRESS_ONLY, revision: old, slot: ALLOWING });
    expect(path.judge('ingress', each.theirs)).toBe('forwarded');
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(theirFlow(each.number).get()).toMatchObject({ denied: true, revision });
    enforce(ALLOWING);
    expect(path.judge('ingress', each.theirs)).toBe('forwarded');
    path.endpoint({ flags: INGRESS_ONLY, revision: revision - 1, slot: DENYING });
    expect(path.judge('egress', each.ours)).toBe('forwarded');
    expect(path.judge('ingress', each.theirs)).toBe('policy-denied');
    expect(theirFlow(each.number).get()).toMatchObject({ denied: false, revision });
    expect(path.flows()).toBe(1);
  });
});

describe('5. new flows', () => {
  it('asks the longest port block of the class, in its direction and protocol', () => {
    expect(path.judge('egress', tcpOut(79))).toBe('policy');
    expect(path.judge('egress', tcpOut(80))).toBe('forwarded');
    expect(path.judge('egress', tcpOut(95))).toBe('forwarded');
    expect(path.judge('egress', tcpOut(96))).toBe('policy');
    expect(path.judge('egress', tcpOut(90))).toBe('policy-denied');
    expect(path.judge('ingress', into(6, tcp({ sport: 1, dport: 90 })))).toBe('forwarded');
    expect(path.judge('egress', out(17, udp({ sport: 1, dport: 80 })))).toBe('policy');
    expect(path.judge('egress', out(132, sctp({ sport: 1, dport: 53 })))).toBe('forwarded');
    expect(path.judge('egress', tcpOut(80, syn, STRANGER))).toBe('policy');
    expect(path.judge('egress', tcpOut(80, syn, '10.9.9.9'))).toBe('unknown-identity');
  });

  it('drops when the slot is missing, but only where the direction is enforced', () => {
    path.endpoint({ flags: ENDPOINT_FLAGS.ingressEnforced, slot: 4095 });
    expect(path.judge('ingress', into(6, tcp({ sport: 1, dport: 80 })))).toBe('no-policy');
    expect(path.judge('egress', tcpOut(81))).toBe('forwarded');
    path.endpoint({ flags: ENFORCED, slot: 60_000 });
    expect(path.judge('egress', tcpOut(82))).toBe('no-policy');
    expect(path.map('policy_classes').openInner(slotKey.encode(4095))).toBeUndefined();
  });

  it('falls back to the class of the identity’s scope', () => {
    const scopes: readonly [number, number][] = [
      [0, 0],
      [1, 0],
      [2, 2],
      [6, 0],
      [9, 2],
      [10, 2],
      [99, 0],
      [100, 1],
      [65_535, 1],
      [65_536, 0],
      [0x0100_0001, 2],
      [0x0200_0001, 0],
      [0x0300_0001, 1],
    ];
    for (const [identity, expected] of scopes) {
      path.identity(STRANGER, identity);
      for (const probe of [0, 1, 2]) {
        path.slot(2, [], [{ class: probe, direction: 'egress', protocol: 'tcp', verdict: 'allow' }]);
        path.endpoint({ flags: ENFORCED, revision: 1000 + identity + probe, slot: 2 });
        path.map('ct4').deleteBatch([...path.map('ct4').keys()]);
        const denied = identity === 0 ? 'unknown-identity' : 'policy';
        expect([identity, probe, path.judge('egress', tcpOut(80, syn, STRANGER))]).toEqual([
          identity,
          probe,
          probe === expected ? 'forwarded' : denied,
        ]);
      }
    }
  });

  it.each([
    { verdict: 'allow', proxyPort: 15_000, reason: 'policy' },
    { verdict: 'redirect', proxyPort: 15_000, reason: 'no-proxy' },
    { verdict: 'redirect', reason: 'no-proxy' },
    { verdict: 'authenticate', reason: 'no-authentication' },
  ] as const)('lets nothing pass by $verdict, to proxy port $proxyPort', ({ reason, ...decision }) => {
    path.slot(2, [], [{ class: 1, direction: 'egress', protocol: 'tcp', ...decision }]);
    path.endpoint({ flags: ENFORCED, slot: 2 });
    expect(path.judge('egress', tcpOut(80))).toBe(reason);
  });

  it('judges protocols without ports by the row for others', () => {
    path.slot(2, [], [{ class: 1, direction: 'egress', protocol: 'other', verdict: 'allow' }]);
    path.endpoint({ flags: ENFORCED, slot: 2 });
    expect(path.judge('egress', out(47, new Uint8Array(4)))).toBe('forwarded');
    expect(path.judge('ingress', into(47, new Uint8Array(4)))).toBe('forwarded');
    expect(path.judge('ingress', into(50, new Uint8Array(8)))).toBe('policy');
    expect(path.judge('egress', tcpOut(80))).toBe('policy');
  });

  it('knows the peer by the longest prefix', () => {
    path.identity('10.1.0.0', 2001, 16);
    path.identity('10.1.2.0', 2000, 24);
    expect(path.judge('egress', tcpOut(80, syn, '10.1.2.3'))).toBe('forwarded');
    expect(path.judge('egress', tcpOut(80, syn, '10.1.3.3'))).toBe('policy');
    expect(path.map('ipcache').info.maxEntries).toBe(4096);
    expect(ip4('10.1.2.3')).toHaveLength(4);
  });
});
