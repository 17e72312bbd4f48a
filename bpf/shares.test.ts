/** Who may have how much of the connection tables, on the kernel: no agent runs. */
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { ENDPOINT_FLAGS, PROTOCOL } from './constants.ts';
import { CT_CELLS, CT_KEYS, ctShare, ctValue, ticksAt } from './flows.ts';
import { ctShareKey, settingsKey, settingsValue } from './layout.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ETHERTYPE, ethernet, ip6, ipv4, ipv6, TCP_FLAGS, tcp, udp } from './testing/packets.ts';

const { syn, ack, rst } = TCP_FLAGS;
const FAMILIES = [
  { family: 4, map: 'ct4', pod: '10.0.0.1', peer: '192.0.2.2', other: '192.0.2.3' },
  { family: 6, map: 'ct6', pod: 'fd00::1', peer: '2001:db8:0:2::1', other: '2001:db8:0:3::1' },
] as const;
const EVICTED = 'ct-evicted+forwarded';
const FULL = 'ct-share+forwarded';

const path = new TestDatapath({ ctEntries: 4096 });
afterAll(() => path.close());

describe.each(FAMILIES)('the table of IPv$family', ({ family, map, pod, peer, other }) => {
  const frame = (protocol: number, payload: Uint8Array, src: string, dst: string): Uint8Array =>
    family === 4
      ? ethernet(ipv4({ src, dst, protocol, payload }))
      : ethernet(ipv6({ src: ip6(src), dst: ip6(dst), nextHeader: protocol, payload }), ETHERTYPE.ipv6);
  const tcpFrame = (sport: number, dport: number, flags: number, from: string, to: string): Uint8Array =>
    frame(PROTOCOL.tcp, tcp({ sport, dport, flags }), from, to);
  const sends = (dport: number, flags: number = syn) => path.judge('egress', tcpFrame(40_000, dport, flags, pod, peer));
  const gets = (sport: number, flags: number = syn | ack) =>
    path.judge('ingress', tcpFrame(sport, 40_000, flags, peer, pod));
  const udpOut = (dport: number) => path.judge('egress', frame(PROTOCOL.udp, udp({ sport: 40_000, dport }), pod, peer));
  const opens = (sport: number, from: string = peer) => path.judge('ingress', tcpFrame(sport, 80, syn, from, pod));
  const connect = (port: number): void => {
    sends(port);
    gets(port);
    sends(port, ack);
  };
  const each = <T>(ports: readonly number[], judge: (port: number) => T): T[] => ports.map((port) => judge(port));
  const range = (first: number, count: number): number[] => Array.from({ length: count }, (_, at) => first + at);

  const cell = (at: number) => ctShare.decode(path.map('ct_shares').lookup(ctShareKey.encode(at)) ?? new Uint8Array(8));
  const flowsOf = (id: number): number => cell(CT_CELLS.endpoint(map, id)).flows;
  const flowsOfTable = (): number => cell(CT_CELLS.table(map)).flows;
  const be = (id: number): void => path.endpoint({ id, flags: ENDPOINT_FLAGS.ingressEnforced });
  const size = (flows: number): void => {
    path.map('ct_shares').update(ctShareKey.encode(CT_CELLS.table(map)), ctShare.encode({ flows: 0, size: flows }));
  };
  const collectedAt = (tick: number): void =>
    path.map('settings').update(settingsKey.encode(1), settingsValue.encode(tick >>> 0));
  const now = (): number => ticksAt(process.hrtime.bigint());

  beforeEach(() => {
    path.forget();
    for (let at = 0; at < CT_CELLS.seed; at += 1) {
      const { flows } = cell(at);
      if (flows !== 0) path.map('ct_shares').update(ctShareKey.encode(at), ctShare.encode({ flows: 0, size: 0 }));
    }
    path.slot(0, [], []);
    be(7);
    size(9);
    collectedAt(now());
  });

  it('gives an endpoint half of the room that there is: what goes beyond passes untracked, and others have theirs', () => {
    for (const port of [1, 2, 3]) connect(port);
    expect(each([4, 5], (port) => sends(port))).toEqual([FULL, FULL]);
    expect([path.flows(), flowsOf(7), flowsOfTable()]).toEqual([3, 3, 3]);
    expect([gets(3, ack), gets(4)]).toEqual(['forwarded', 'unknown-identity']);
    // Ids that have the same last bits share.
    be(4096 + 7);
    expect(sends(6)).toBe(FULL);
    be(8);
    expect(each([1, 2, 3], (port) => sends(port))).toEqual(['forwarded', 'forwarded', EVICTED]);
    expect([flowsOf(8), flowsOfTable()]).toEqual([2, 5]);
  });

  it('lets a new flow take the place of an unanswered one of the same endpoint, the oldest first', () => {
    size(100);
    be(8);
    for (const port of range(1, 10)) sends(port);
    be(7);
    for (const port of range(1, 30)) expect(sends(port)).toBe('forwarded');
    expect(sends(31)).toBe(EVICTED);
    expect(flowsOf(7)).toBe(30);
    be(8);
    expect(each(range(1, 10), (port) => gets(port))).toEqual(range(1, 10).map(() => 'forwarded'));
  });

  it('forgets neither a connection nor a datagram that was answered for a new flow', () => {
    connect(1);
    udpOut(53);
    path.judge('ingress', frame(PROTOCOL.udp, udp({ sport: 53, dport: 40_000 }), peer, pod));
    sends(3);
    expect([sends(4), sends(5)]).toEqual([EVICTED, EVICTED]);
    expect([gets(1, ack), gets(4), gets(5)]).toEqual(['forwarded', 'unknown-identity', 'forwarded']);
  });

  it('lets a flow that it has begin anew', () => {
    for (const port of [1, 2, 3]) connect(port);
    for (const port of [1, 2]) sends(port, rst);
    expect([sends(1), sends(2), sends(4)]).toEqual(['forwarded', 'forwarded', FULL]);
    expect(flowsOf(7)).toBe(3);
  });

  it('is given back by a connection that its other end opens anew', () => {
    path.endpoint({ id: 7 });
    each([1, 2], (port) => sends(port));
    sends(1, rst);
    expect(gets(1, syn)).toBe('forwarded');
    expect([path.flows(), flowsOf(7), flowsOfTable()]).toEqual([2, 2, 2]);
  });

  it('gives one who opens flows a quarter of the room, at all endpoints together; of IPv6, all addresses of a /64', () => {
    size(30);
    const outcomes = [1, 2, 3].flatMap((id) => {
      path.endpoint({ id, flags: 0 });
      return each(range(10 * id, 4), (sport) =>
        opens(sport, sport % 2 === 0 || family === 4 ? peer : '2001:db8:0:2::9'),
      );
    });
    expect(outcomes.filter((outcome) => outcome === 'forwarded')).toHaveLength(6);
    // A flow of the same sender at the same endpoint makes room, and no other.
    expect(new Set(outcomes.slice(6))).toEqual(new Set([EVICTED, FULL]));
    expect(flowsOfTable()).toBe(6);
    expect(opens(1, other)).toBe('forwarded');
  });

  it('counts nobody for what the node itself opens', () => {
    path.endpoint({ id: 7, flags: 0 });
    size(1000);
    opens(5);
    const peers = [...path.map(map).entries()].map(([, value]) => ctValue.decode(value).peer);
    expect(peers).toEqual([expect.any(Number)]);
    expect(cell(peers[0] ?? 0).flows).toBe(1);
    path.forget();
    path.judge('ingress', tcpFrame(6, 80, syn, peer, pod), 0);
    expect([...path.map(map).entries()].map(([, value]) => ctValue.decode(value).peer)).toEqual([0]);
  });

  it('costs others nothing when endpoints and strangers flood it', () => {
    size(4096);
    const floods = [10, 11, 12].map((id) => {
      path.endpoint({ id, flags: 0 });
      for (let port = 1; port <= 3000; port += 1) {
        udpOut(port);
        if (port % 2 === 0)
          opens(port, family === 4 ? `198.51.${port % 100}.${port % 250}` : `2001:db8:${port.toString(16)}::1`);
      }
      return flowsOf(id);
    });
    // All together leave two fifths: each may have half of what is left.
    for (const flows of floods) expect(flows).toBeLessThanOrEqual(4096 / 2);
    expect(flowsOfTable()).toBeLessThan((4096 * 4) / 5);
    be(20);
    const lost = range(1, 200).filter((port) => {
      sends(port);
      return gets(port) !== 'forwarded';
    });
    expect(lost).toEqual([]);
  });

  describe('while nobody collects what is over', () => {
    const silent = (seconds: number): void => path.age(Math.floor((seconds * 1e9) / 2 ** 30));

    it('has room again once flows are over, and for handshakes that came to nothing', () => {
      collectedAt(now() - 70);
      for (const port of [1, 2, 3]) connect(port);
      expect(sends(4)).toBe(FULL);
      // Once a minute.
      silent(22_000);
      expect(sends(5)).toBe(FULL);
      collectedAt(now() - 70);
      expect(sends(6)).toBe('forwarded');
      expect([path.flows(), flowsOf(7), flowsOfTable()]).toEqual([1, 1, 1]);
    });

    it('keeps connections, denied flows, and all that is not over', () => {
      connect(80);
      connect(81);
      opens(50_000);
      path.endpoint({ id: 7 });
      opens(50_001);
      path.endpoint({ id: 7, flags: ENDPOINT_FLAGS.ingressEnforced, revision: 2 });
      expect(path.judge('ingress', tcpFrame(50_001, 80, ack, peer, pod))).toBe('unknown-identity');
      silent(200);
      collectedAt(now() - 70);
      expect(sends(1)).toBe(FULL);
      expect(path.flows()).toBe(3);
    });
  });

  it('has what entries say: the endpoint and the table of each flow', () => {
    size(1000);
    for (const port of range(1, 20)) connect(port);
    for (const port of range(100, 20)) opens(port);
    const keys = [...path.map(map).keys()].map((key) => CT_KEYS[map].decode(key).endpoint);
    expect(new Set(keys)).toEqual(new Set([7]));
    expect([flowsOf(7), flowsOfTable()]).toEqual([keys.length, keys.length]);
  });
});
