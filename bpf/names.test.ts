/** The map `names`: an address outside counts by the row of its names beside its identity's own, by rank. Packets on the kernel. */
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';

import { ENDPOINT_FLAGS } from './constants.ts';
import { listenerOf } from './flows.ts';
import { nameKey, nameValue } from './layout.ts';
import { TestDatapath, type VerdictRow } from './testing/datapath.ts';
import { ETHERTYPE, ethernet, ip6, ipBytes, ipv4, ipv6, TCP_FLAGS, tcp } from './testing/packets.ts';

const { syn, ack } = TCP_FLAGS;
/** Of selectors of names, and of a CIDR. */
const [NAMED, OTHER_NAMED, CIDR] = [0x0100_0009, 0x0100_000a, 0x0100_0002];
const FAMILIES = [
  { family: 4, world: 2, pod: '10.0.0.1', outside: '192.0.2.2', other: '192.0.2.3', inside: '10.1.0.5' },
  { family: 6, world: 10, pod: 'fd00::1', outside: '2001:db8::2', other: '2001:db8::3', inside: 'fd00:1::5' },
] as const;

const path = new TestDatapath();
let revision = 0;
afterAll(() => path.close());

type Row = Pick<VerdictRow, 'verdict' | 'proxyPort' | 'cookie'>;

/** A policy with rows for TCP 443: of the world, of the CIDR, of the names. */
function load(rows: { readonly world?: Row; readonly cidr?: Row; readonly named?: Row; readonly other?: Row }): void {
  const classes = { world: 2, cidr: 20, named: 21, other: 22 } as const;
  path.slot(
    0,
    [
      { identity: CIDR, direction: 'egress', class: classes.cidr },
      { identity: NAMED, direction: 'egress', class: classes.named },
      { identity: OTHER_NAMED, direction: 'egress', class: classes.other },
    ],
    (Object.keys(rows) as (keyof typeof rows)[]).map((of) => ({
      ...{ class: classes[of], direction: 'egress' as const, protocol: 'tcp' as const, port: 443 },
      ...(rows[of] as Row),
    })),
  );
  revision += 1;
  path.endpoint({ revision, flags: ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced });
}

describe.each(FAMILIES)('IPv$family', ({ family, world, pod, outside, other, inside }) => {
  const frame = (src: string, dst: string, payload: Uint8Array): Uint8Array =>
    family === 4
      ? ethernet(ipv4({ src, dst, protocol: 6, payload }))
      : ethernet(ipv6({ src: ip6(src), dst: ip6(dst), nextHeader: 6, payload }), ETHERTYPE.ipv6);
  const sends = (dst: string = outside, { flags = syn as number, sport = 40_000, dport = 443 } = {}): string =>
    path.judge('egress', frame(pod, dst, tcp({ sport, dport, flags })));
  const gets = (flags: number, src: string = outside): string =>
    path.judge('ingress', frame(src, pod, tcp({ sport: 443, dport: 40_000, flags })));
  const name = (address: string, identity: number): void => {
    path.map('names').update(nameKey.encode(ipBytes(address)), nameValue.encode(identity));
  };
  const forget = (address: string): void => {
    path.map('names').delete(nameKey.encode(ipBytes(address)));
  };

  beforeEach(() => {
    path.forget();
    path.map('names').deleteBatch([...path.map('names').keys()]);
    for (const address of [outside, other]) path.identity(address, world);
    path.identity(inside, 300);
  });

  it('opens the address of a name that a rule allows, and no other, and no other port', () => {
    load({ named: { verdict: 'allow' } });
    expect(sends()).toBe('policy');
    name(outside, NAMED);
    expect([sends(), gets(syn | ack)]).toEqual(['forwarded', 'forwarded']);
    expect([sends(other), sends(outside, { dport: 80 })]).toEqual(['policy', 'policy']);
    // Of names that this policy does not have.
    name(other, OTHER_NAMED);
    expect(sends(other)).toBe('policy');
  });

  it('opens nothing to who sends from that address', () => {
    load({ named: { verdict: 'allow' } });
    name(outside, NAMED);
    expect(gets(syn)).toBe('policy');
  });

  it('says nothing of an address that is a pod, a node, or unknown', () => {
    load({ named: { verdict: 'allow' } });
    for (const identity of [300, 1, 6, 7, 0x0200_0001, 0]) {
      path.identity(inside, identity);
      name(inside, NAMED);
      path.forget();
      expect([identity, sends(inside)]).toEqual([identity, identity === 0 ? 'unknown-identity' : 'policy']);
    }
  });

  it('counts beside the row of the address itself by rank: deny, then the proxy, then allow', () => {
    name(outside, NAMED);
    const ranked: readonly (readonly [Row, string])[] = [
      [{ verdict: 'deny' }, 'policy-denied'],
      [{ verdict: 'authenticate' }, 'no-authentication'],
      [{ verdict: 'redirect', proxyPort: 3 }, 'no-proxy'],
      [{ verdict: 'allow' }, 'forwarded'],
    ];
    for (const [at, [row, outcome]] of ranked.entries())
      for (const [lower] of ranked.slice(at)) {
        for (const identity of [world, CIDR]) {
          path.identity(outside, identity);
          const own = identity === world ? 'world' : 'cidr';
          for (const rows of [
            { named: row, [own]: lower },
            { named: lower, [own]: row },
          ]) {
            load(rows);
            path.forget();
            expect([rows, sends()]).toEqual([rows, outcome]);
          }
        }
      }
    load({ named: { verdict: 'redirect', proxyPort: 3 }, cidr: { verdict: 'allow' } });
    path.forget();
    sends();
    const flow = path.flow('egress', 6, pod, 40_000, outside, 443).get();
    expect(flow === undefined ? 0 : listenerOf(flow)).toBe(3);
  });

  it('says of two rules that allow alike the one of the lower number', () => {
    name(outside, NAMED);
    const cookies = (named: number, own: number): number | undefined => {
      load({ named: { verdict: 'allow', cookie: named }, world: { verdict: 'allow', cookie: own } });
      path.forget();
      sends();
      return path.flow('egress', 6, pod, 40_000, outside, 443).get()?.cookie;
    };
    expect([cookies(5, 9), cookies(9, 5), cookies(0, 5), cookies(5, 0)]).toEqual([5, 5, 5, 5]);
  });

  it('closes to new connections when it goes; those that live are decided again with the next revision', () => {
    load({ named: { verdict: 'allow' } });
    name(outside, NAMED);
    expect([sends(), gets(syn | ack), sends(outside, { flags: ack })]).toEqual(Array(3).fill('forwarded'));
    forget(outside);
    expect(sends(outside, { sport: 40_001 })).toBe('policy');
    expect([sends(outside, { flags: ack }), gets(ack)]).toEqual(['forwarded', 'forwarded']);
    load({ named: { verdict: 'allow' } });
    expect([sends(outside, { flags: ack }), gets(ack)]).toEqual(['policy', 'policy']);
    name(outside, NAMED);
    expect([sends(outside, { flags: ack }), gets(ack)]).toEqual(['forwarded', 'forwarded']);
  });

  it('takes another set of names at once', () => {
    load({ named: { verdict: 'allow' }, other: { verdict: 'deny' } });
    name(outside, NAMED);
    expect(sends()).toBe('forwarded');
    name(outside, OTHER_NAMED);
    expect(sends(outside, { sport: 40_001 })).toBe('policy-denied');
  });
});
