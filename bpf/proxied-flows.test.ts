/** Flows of a proxy while policies change, on the kernel: what conntrack makes of them. No proxy listens, so that what is handed to one is dropped (`no-proxy`). */
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';

import { ENDPOINT_FLAGS, PROTOCOL } from './constants.ts';
import { CT_CELLS, ctShare, listenerOf } from './flows.ts';
import { ctShareKey } from './layout.ts';
import { TestDatapath, type VerdictRow } from './testing/datapath.ts';
import { ETHERTYPE, ethernet, icmpError, ip6, ipv4, ipv6, TCP_FLAGS, tcp, udp } from './testing/packets.ts';

const { syn, ack, fin } = TCP_FLAGS;
const SERVER_IDENTITY = 300;
const [ALLOW, REDIRECT, OTHER_LISTENER, DENY] = [0, 1, 2, 3];
const FAMILIES = [
  { family: 4, pod: '10.0.0.1', server: '192.0.2.2', table: 'ct4' },
  { family: 6, pod: 'fd00::1', server: '2001:db8::2', table: 'ct6' },
] as const;

const path = new TestDatapath();
let revision = 0;
afterAll(() => path.close());

function judgeBy(slot: number, flags: number = ENDPOINT_FLAGS.egressEnforced): void {
  revision += 1;
  path.endpoint({ slot, revision, flags });
}

function rows(row: Pick<VerdictRow, 'verdict' | 'proxyPort'>): VerdictRow[] {
  return (['udp', 'tcp'] as const).map((protocol) => ({
    ...{ class: 16, direction: 'egress' as const, protocol, port: 53 },
    ...row,
  }));
}

const classes = [{ identity: SERVER_IDENTITY, direction: 'egress' as const, class: 16 }];
path.slot(ALLOW, classes, rows({ verdict: 'allow' }));
path.slot(REDIRECT, classes, rows({ verdict: 'redirect', proxyPort: 3 }));
path.slot(OTHER_LISTENER, classes, rows({ verdict: 'redirect', proxyPort: 4 }));
path.slot(DENY, classes, rows({ verdict: 'deny' }));
for (const { server } of FAMILIES) path.identity(server, SERVER_IDENTITY);

describe.each(FAMILIES)('a flow of IPv$family', ({ family, pod, server, table }) => {
  const frame = (protocol: number, payload: Uint8Array, src: string, dst: string): Uint8Array =>
    family === 4
      ? ethernet(ipv4({ src, dst, protocol, payload }))
      : ethernet(ipv6({ src: ip6(src), dst: ip6(dst), nextHeader: protocol, payload }), ETHERTYPE.ipv6);
  const asks = (sport = 40_000): string =>
    path.judge('egress', frame(PROTOCOL.udp, udp({ sport, dport: 53 }), pod, server));
  const answers = (sport = 40_000): string =>
    path.judge('ingress', frame(PROTOCOL.udp, udp({ sport: 53, dport: sport }), server, pod));
  const sends = (flags: number): string =>
    path.judge('egress', frame(PROTOCOL.tcp, tcp({ sport: 40_000, dport: 53, flags }), pod, server));
  const gets = (flags: number): string =>
    path.judge('ingress', frame(PROTOCOL.tcp, tcp({ sport: 53, dport: 40_000, flags }), server, pod));
  /** An ICMP error of the server's about the flow. */
  const tellsOf = (protocol: number): string => {
    const quoted = ipv4({ src: pod, dst: server, protocol, payload: udp({ sport: 40_000, dport: 53 }) });
    return path.judge('ingress', frame(PROTOCOL.icmp, icmpError(3, 3, quoted), server, pod));
  };
  /** The listener of the flow; 0: no proxy has it. */
  const listener = (protocol: number, port = 40_000): number | string => {
    const flow = path.flow('egress', protocol, pod, port, server, 53).get();
    if (flow === undefined) return 'no flow';
    return flow.denied ? 'denied' : listenerOf(flow);
  };

  beforeEach(() => path.forget());

  it('of UDP comes to the proxy, and leaves it, by its next packet of either side', () => {
    judgeBy(ALLOW);
    expect([asks(), answers(), listener(PROTOCOL.udp)]).toEqual(['forwarded', 'forwarded', 0]);
    judgeBy(REDIRECT);
    expect([answers(), listener(PROTOCOL.udp)]).toEqual(['no-proxy', 3]);
    judgeBy(ALLOW);
    expect([answers(), listener(PROTOCOL.udp)]).toEqual(['forwarded', 0]);
    judgeBy(REDIRECT);
    expect([asks(), listener(PROTOCOL.udp)]).toEqual(['no-proxy', 3]);
    expect(answers()).toBe('no-proxy');
    judgeBy(ALLOW);
    expect([asks(), listener(PROTOCOL.udp)]).toEqual(['forwarded', 0]);
  });

  it('goes from one list of names to another', () => {
    judgeBy(REDIRECT);
    asks();
    sends(syn);
    expect([listener(PROTOCOL.udp), listener(PROTOCOL.tcp)]).toEqual([3, 3]);
    judgeBy(OTHER_LISTENER);
    expect([answers(), gets(syn | ack)]).toEqual(['no-proxy', 'no-proxy']);
    expect([listener(PROTOCOL.udp), listener(PROTOCOL.tcp)]).toEqual([4, 4]);
    judgeBy(REDIRECT);
    asks();
    sends(ack);
    expect([listener(PROTOCOL.udp), listener(PROTOCOL.tcp)]).toEqual([3, 3]);
  });

  it('is cut by a deny, and goes on at the proxy when that is gone', () => {
    judgeBy(REDIRECT);
    asks();
    judgeBy(DENY);
    expect([asks(), listener(PROTOCOL.udp)]).toEqual(['policy-denied', 'denied']);
    judgeBy(REDIRECT);
    expect([asks(), listener(PROTOCOL.udp)]).toEqual(['no-proxy', 3]);
  });

  it('of TCP comes to the proxy, which resets it, and another one of the same ports goes there', () => {
    judgeBy(ALLOW);
    expect([sends(syn), gets(syn | ack), sends(ack)]).toEqual(['forwarded', 'forwarded', 'forwarded']);
    judgeBy(REDIRECT);
    expect([sends(ack), gets(ack), listener(PROTOCOL.tcp)]).toEqual(['no-proxy', 'no-proxy', 3]);
    expect([sends(syn), listener(PROTOCOL.tcp)]).toEqual(['no-proxy', 3]);
    expect(gets(syn | ack)).toBe('no-proxy');
  });

  it('of TCP is cut where the proxy would go, and another one of the same ports passes', () => {
    judgeBy(REDIRECT);
    expect([sends(syn), listener(PROTOCOL.tcp)]).toEqual(['no-proxy', 3]);
    sends(ack);
    judgeBy(ALLOW);
    expect([sends(ack), sends(ack), listener(PROTOCOL.tcp)]).toEqual(['no-proxy', 'no-proxy', 'denied']);
    if (family === 4) tellsOf(6);
    judgeBy(DENY);
    expect(sends(ack)).toBe('policy-denied');
    judgeBy(ALLOW);
    expect([sends(ack), listener(PROTOCOL.tcp)]).toEqual(['no-proxy', 'denied']);
    expect([sends(syn), listener(PROTOCOL.tcp)]).toEqual(['forwarded', 0]);
    expect([gets(syn | ack), sends(ack)]).toEqual(['forwarded', 'forwarded']);
  });

  it('of TCP begins with a SYN alone', () => {
    judgeBy(REDIRECT);
    expect([sends(ack), sends(syn | ack), sends(ack | fin), path.flows()]).toEqual([
      ...['no-proxy', 'no-proxy', 'no-proxy'],
      0,
    ]);
  });

  it('is never forgotten for others: its late answer would be a flow of the server, in which the pod goes on past the proxy', () => {
    judgeBy(REDIRECT);
    const size = (flows: number): void => {
      for (const cell of [CT_CELLS.table(table), CT_CELLS.endpoint(table, 7)])
        path.map('ct_shares').update(ctShareKey.encode(cell), ctShare.encode({ flows: 0, size: 0 }));
      path.map('ct_shares').update(ctShareKey.encode(CT_CELLS.table(table)), ctShare.encode({ flows: 0, size: flows }));
    };
    size(60);
    for (let port = 1; port <= 100; port += 1) asks(port);
    const known = Array.from({ length: 100 }, (_, at) => listener(PROTOCOL.udp, at + 1));
    expect(known.slice(0, 20)).toEqual(Array<number>(20).fill(3));
    // Those that found no room went nowhere.
    expect(known.slice(20)).toEqual(Array<string>(80).fill('no flow'));
    size(0);
  });

  it('is for nobody else to tell of: an ICMP error about it is judged by itself', () => {
    if (family === 6) return;
    judgeBy(REDIRECT, ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced);
    asks();
    expect(tellsOf(17)).toBe('policy');
    judgeBy(ALLOW, ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced);
    asks();
    expect(tellsOf(17)).toBe('forwarded');
  });

  it('takes no datagram in fragments to the proxy', () => {
    if (family === 6) return;
    judgeBy(REDIRECT);
    const whole = udp({ sport: 40_000, dport: 53, payload: new Uint8Array(24) });
    const fragment = (offset: number, payload: Uint8Array): Uint8Array =>
      ethernet(ipv4({ src: pod, dst: server, protocol: 17, id: 9, offset, moreFragments: offset === 0, payload }));
    expect(path.judge('egress', fragment(0, whole.slice(0, 16)))).toBe('no-proxy');
    expect(path.judge('egress', fragment(16, whole.slice(16)))).toBe('fragment-without-first');
  });
});
