/** Frames as they leave the programs at a pod's interface: addresses, ports and every checksum, for whatever a pod or its peer sends. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { buildDatapath, ENDPOINT_FLAGS, STAGES } from '@weir/bpf';
import {
  concat,
  ETHERTYPE,
  ethernet,
  icmpError,
  ip4,
  ip6,
  ipv4,
  ipv6,
  PASSED,
  TCP_FLAGS,
  TEST_IFINDEX,
  TestDatapath,
  tcp,
  udp,
} from '@weir/bpf/testing';
import fc from 'fast-check';
import { type BpfObject, loadObject, skbContext } from 'libbpf-ts';
import { runs } from '../../test/runs.ts';
import { letThrough } from './filter.ts';
import { addressKey, backendValue, frontendKey, frontendValue, number, slotKey, slotValue } from './layout.ts';
import { SOURCE } from './programs.ts';
import { checksummed, readdressed } from './testing/checksums.ts';

const POD = '10.0.0.1';
const SERVICE = '10.96.0.10';
const BACKEND = '10.1.2.3';
const ROUTER = '10.9.9.9';
/** Frontends of the TCP Service that are no cluster IPs. */
const EXTERNAL = '192.0.2.9';
const STICKY = '192.0.2.10';
const [SERVICE_PORT, BACKEND_PORT] = [80, 8080];
const PROTOCOLS = { TCP: 6, UDP: 17 } as const;
type Protocol = keyof typeof PROTOCOLS;
const [CLASS_WORLD, WORLD_V6] = [2, 10];
/** TC_ACT_SHOT */
const DROPPED = 2;

const path = new TestDatapath();
let object: BpfObject;

beforeAll(() => {
  object = loadObject(buildDatapath({ source: SOURCE.source }).objectPath, { sharedMaps: path.object.maps });
  const judge = path.object.program('weir_judge_sent');
  path.map('stages').update(number.encode(STAGES['judge-sent']), number.encode(judge.fd));
  path.endpoint({ ipv4: POD });
  letThrough(object.map('svc_filter'), SERVICE);
  for (const [id, protocol] of (['TCP', 'UDP'] as const).entries()) {
    const service = {
      service: id + 1,
      count: 1,
      affinitySeconds: 0,
      external: false,
      localExternal: false,
      sources: false,
      elsewhere: false,
    };
    object
      .map('svc_backends')
      .update(number.encode(id + 1), backendValue.encode({ address: BACKEND, port: BACKEND_PORT, protocol }));
    object
      .map('svc_slots')
      .update(slotKey.encode({ service: id + 1, index: 0 }), slotValue.encode({ backend: id + 1, service: id + 1 }));
    object
      .map('svc_frontends')
      .update(
        frontendKey.encode({ address: SERVICE, port: SERVICE_PORT, protocol, scope: 'cluster' }),
        frontendValue.encode(service),
      );
  }
});
afterAll(() => {
  object?.close();
  path[Symbol.dispose]();
});

function run(program: string, frame: Uint8Array): Uint8Array {
  const { returnValue, data } = object
    .program(program)
    .testRun({ data: frame, context: skbContext({ ifindex: TEST_IFINDEX, ingressIfindex: 0 }) });
  expect(returnValue).toBe(PASSED);
  return data;
}
const sent = (packet: Uint8Array): Uint8Array => run('svc_from_pod', ethernet(packet));
const received = (packet: Uint8Array): Uint8Array => run('svc_to_pod', ethernet(packet));

interface End {
  readonly address: string;
  readonly port: number;
}
const service: End = { address: SERVICE, port: SERVICE_PORT };
const backend: End = { address: BACKEND, port: BACKEND_PORT };
const client = (port: number): End => ({ address: POD, port });

function packet(
  protocol: Protocol,
  from: End,
  to: End,
  payload: Uint8Array,
  flags: number = TCP_FLAGS.syn,
  options = new Uint8Array(0),
): Uint8Array {
  const ports = { sport: from.port, dport: to.port, payload };
  const segment = protocol === 'TCP' ? tcp({ ...ports, flags }) : udp(ports);
  return checksummed(
    ipv4({ src: from.address, dst: to.address, protocol: PROTOCOLS[protocol], payload: segment, options }),
  );
}

const protocols = fc.constantFrom<Protocol>('TCP', 'UDP');
const ports = fc.integer({ min: 1, max: 65_535 });
const payloads = fc.uint8Array({ maxLength: 1200 });
/** No-operations. */
const options = fc.integer({ min: 0, max: 10 }).map((words) => new Uint8Array(words * 4).fill(1));

describe('a frame', () => {
  it('to a Service leaves as one to its backend, and what the backend answers comes from the Service', () => {
    fc.assert(
      fc.property(protocols, ports, payloads, payloads, options, (protocol, port, question, answer, padding) => {
        expect(sent(packet(protocol, client(port), service, question, TCP_FLAGS.syn, padding))).toEqual(
          ethernet(packet(protocol, client(port), backend, question, TCP_FLAGS.syn, padding)),
        );
        expect(received(packet(protocol, backend, client(port), answer, TCP_FLAGS.ack, padding))).toEqual(
          ethernet(packet(protocol, service, client(port), answer, TCP_FLAGS.ack, padding)),
        );
      }),
      { numRuns: runs(200) },
    );
  });

  it('that opens a connection to a backend itself is answered by that, whatever its port was used for', () => {
    const nothing = new Uint8Array(0);
    sent(packet('TCP', client(41_000), service, nothing));
    sent(packet('TCP', client(41_000), backend, nothing));
    const answer = packet('TCP', backend, client(41_000), nothing, TCP_FLAGS.syn | TCP_FLAGS.ack);
    expect(received(answer)).toEqual(ethernet(answer));
  });

  it('of anything else stays as it is, both ways', () => {
    const other = fc.record({ address: fc.constantFrom(BACKEND, ROUTER), port: ports });
    fc.assert(
      fc.property(protocols, ports, other, payloads, (protocol, port, end, payload) => {
        const out = packet(protocol, client(port), end, payload);
        expect(sent(out)).toEqual(ethernet(out));
        const back = packet(protocol, end, client(port), payload);
        expect(received(back)).toEqual(ethernet(back));
      }),
      { numRuns: runs(200) },
    );
  });

  it('with an ICMP error quotes what the receiver knows', () => {
    const errors = fc.constantFrom([3, 3], [3, 4], [11, 0]);
    const senders = fc.constantFrom(BACKEND, ROUTER);
    fc.assert(
      fc.property(protocols, ports, errors, senders, (protocol, port, [type = 0, code = 0], from) => {
        const nothing = new Uint8Array(0);
        const error = (src: string, dst: string, quoted: Uint8Array): Uint8Array =>
          ethernet(ipv4({ src, dst, protocol: 1, payload: icmpError(type, code, quoted) }));
        sent(packet(protocol, client(port), service, nothing));
        const out = packet(protocol, client(port), backend, nothing);
        expect(run('svc_to_pod', error(from, POD, out))).toEqual(
          error(from === BACKEND ? SERVICE : from, POD, readdressed(out, 'destination', ip4(SERVICE), SERVICE_PORT)),
        );
        const back = packet(protocol, service, client(port), nothing);
        expect(run('svc_from_pod', error(POD, SERVICE, back))).toEqual(
          error(POD, BACKEND, readdressed(back, 'source', ip4(BACKEND), BACKEND_PORT)),
        );
      }),
      { numRuns: runs(200) },
    );
  });
});

describe('over IPv6, which is translated at sockets alone', () => {
  const [CLUSTER_IP, EXTERNAL6, OUTSIDE, OWN] = ['fd00:96::10', '2001:db8::9', '2001:db8::10', 'fd00::1'];
  const HOP_BY_HOP = 0;
  const ENFORCED = ENDPOINT_FLAGS.egressEnforced;
  const datagram = (dport: number): Uint8Array => udp({ sport: 40_000, dport });
  const segment = (flags: number): Uint8Array => tcp({ sport: 40_000, dport: SERVICE_PORT, flags });
  const behind = (next: number, payload: Uint8Array): Uint8Array =>
    concat(Uint8Array.of(next, 0, 0, 0, 0, 0, 0, 0), payload);
  const WAYS = [
    ['plain', PROTOCOLS.UDP, datagram(SERVICE_PORT)],
    ['behind an extension header', HOP_BY_HOP, behind(PROTOCOLS.UDP, datagram(SERVICE_PORT))],
  ] as const;
  const passes = { returnValue: PASSED, noService: 0n };
  const drops = { returnValue: DROPPED, noService: 1n };

  const judged = (dst: string, nextHeader: number, payload: Uint8Array): object => {
    const data = ethernet(ipv6({ src: ip6(OWN), dst: ip6(dst), nextHeader, payload }), ETHERTYPE.ipv6);
    const context = skbContext({ ifindex: TEST_IFINDEX, ingressIfindex: 0 });
    const before = path.count('no-service', 'egress');
    const { returnValue } = object.program('svc_from_pod').testRun({ data, context });
    return { returnValue, noService: path.count('no-service', 'egress') - before };
  };
  const endpoint = (flags: number, revision: number): void => path.endpoint({ ipv4: POD, ipv6: OWN, flags, revision });

  beforeAll(() => {
    object.map('svc_addresses').update(addressKey.encode(CLUSTER_IP), number.encode(1));
    for (const protocol of ['TCP', 'UDP'] as const)
      object.map('svc_frontends').update(
        frontendKey.encode({ address: EXTERNAL6, port: SERVICE_PORT, protocol, scope: 'cluster' }),
        frontendValue.encode({
          ...{ service: 1, count: 1, affinitySeconds: 0, external: true },
          ...{ localExternal: false, sources: false, elsewhere: false },
        }),
      );
    path.identity('::', WORLD_V6, 0);
    const world = { class: CLASS_WORLD, direction: 'egress', verdict: 'allow' } as const;
    path.slot(
      0,
      [],
      [
        { ...world, protocol: 'udp', port: SERVICE_PORT },
        { ...world, protocol: 'udp', port: SERVICE_PORT + 1 },
        { ...world, protocol: 'tcp', port: SERVICE_PORT },
      ],
    );
  });
  afterAll(() => path.endpoint({ ipv4: POD, revision: 9 }));

  it.each(WAYS)(
    'what goes to a Service, %s, is dropped where egress is enforced, whatever the world may',
    (_, next, payload) => {
      for (const to of [CLUSTER_IP, EXTERNAL6]) {
        endpoint(0, 4);
        expect(judged(to, next, payload)).toEqual(passes);
        endpoint(ENFORCED, 5);
        expect([to, judged(to, next, payload)]).toEqual([to, drops]);
      }
      expect(judged(OUTSIDE, next, payload)).toEqual(passes);
    },
  );

  it('other ports of an address that a Service claims are whose the address is, and so is what opens no connection', () => {
    endpoint(ENFORCED, 6);
    expect(judged(EXTERNAL6, PROTOCOLS.UDP, datagram(SERVICE_PORT + 1))).toEqual(passes);
    expect(judged(EXTERNAL6, PROTOCOLS.TCP, segment(TCP_FLAGS.syn))).toEqual(drops);
    expect(judged(EXTERNAL6, PROTOCOLS.TCP, segment(TCP_FLAGS.ack))).toEqual(passes);
    expect(judged(CLUSTER_IP, PROTOCOLS.TCP, segment(TCP_FLAGS.ack))).toEqual(drops);
  });
});

describe('at an address that a Service claims', () => {
  const claim = (address: string, affinitySeconds: number): void => {
    letThrough(object.map('svc_filter'), address);
    const flags = { external: true, localExternal: false, sources: false, elsewhere: false };
    object
      .map('svc_frontends')
      .update(
        frontendKey.encode({ address, port: SERVICE_PORT, protocol: 'TCP', scope: 'cluster' }),
        frontendValue.encode({ service: 1, count: 1, affinitySeconds, ...flags }),
      );
  };

  it('a client that is there already gets its answers from a pod whose egress is enforced', () => {
    claim(EXTERNAL, 0);
    path.slot(0, [], []);
    path.endpoint({ ipv4: POD, flags: ENDPOINT_FLAGS.egressEnforced, revision: 2 });
    const outside: End = { address: EXTERNAL, port: SERVICE_PORT };
    const nothing = new Uint8Array(0);
    expect(path.run('ingress', ethernet(packet('TCP', outside, client(8080), nothing)))).toBe('pass');
    const answer = packet('TCP', client(8080), outside, nothing, TCP_FLAGS.syn | TCP_FLAGS.ack);
    expect(sent(answer)).toEqual(ethernet(answer));
    path.endpoint({ ipv4: POD, revision: 3 });
  });

  it('nobody is a client by a packet that has the address of another', () => {
    claim(STICKY, 100);
    const to: End = { address: STICKY, port: SERVICE_PORT };
    const clients = (): number => [...object.map('svc_clients').keys()].length;
    const forged = packet('TCP', { address: ROUTER, port: 40_000 }, to, new Uint8Array(0));
    const context = skbContext({ ifindex: TEST_IFINDEX, ingressIfindex: 0 });
    const { returnValue } = object.program('svc_from_pod').testRun({ data: ethernet(forged), context });
    expect({ returnValue, clients: clients() }).toEqual({ returnValue: DROPPED, clients: 0 });
    sent(packet('TCP', client(40_000), to, new Uint8Array(0)));
    expect(clients()).toBe(1);
  });
});
