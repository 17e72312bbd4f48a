/** Options of IPv4: one that cannot be read, or leads a packet on to another address than the one it names, is dropped. */
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { ENDPOINT_FLAGS, PROTOCOL } from './constants.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ethernet, ipv4, udp } from './testing/packets.ts';

const [POD, PEER] = ['10.0.0.1', '10.0.0.2'];
const ENFORCED = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
const [END, NONE, RECORD_ROUTE, LOOSE_ROUTE, STRICT_ROUTE, ROUTER_ALERT] = [0, 1, 7, 131, 137, 148];

const path = new TestDatapath({ ctEntries: 64 });
afterAll(() => path.close());

/** By each direction. */
const judged = (...options: readonly number[]) =>
  (['egress', 'ingress'] as const).map((direction) => {
    const [src, dst] = direction === 'egress' ? [POD, PEER] : [PEER, POD];
    const payload = udp({ sport: 4, dport: 53 });
    return path.judge(
      direction,
      ethernet(ipv4({ src, dst, protocol: PROTOCOL.udp, payload, options: Uint8Array.from(options) })),
    );
  });

describe.each([
  ['enforced', ENFORCED],
  ['not enforced', 0],
])('an endpoint that is %s', (_, flags) => {
  beforeEach(() => {
    path.forget();
    path.endpoint({ flags });
    path.identity(PEER, 2000);
    path.slot(
      0,
      (['egress', 'ingress'] as const).map((direction) => ({ identity: 2000, direction, class: 16 })),
      (['egress', 'ingress'] as const).map(
        (direction) => ({ class: 16, direction, protocol: 'udp', port: 53, verdict: 'allow' }) as const,
      ),
    );
  });

  it.each([
    ['a loose source route', [LOOSE_ROUTE, 7, 4, 10, 0, 0, 3, END]],
    ['a strict one', [STRICT_ROUTE, 7, 4, 10, 0, 0, 3, END]],
    ['one behind other options', [NONE, ROUTER_ALERT, 4, 0, 0, LOOSE_ROUTE, 3, 4]],
    ['one that is the last byte', [NONE, NONE, NONE, LOOSE_ROUTE]],
    ['an option longer than the header', [ROUTER_ALERT, 5, 0, 0]],
    ['an option shorter than itself', [ROUTER_ALERT, 1, 0, 0]],
    ['an option without its length', [NONE, NONE, NONE, RECORD_ROUTE]],
  ])('neither sends nor gets %s', (name, options) => {
    expect([name, judged(...options)]).toEqual([name, ['invalid-packet', 'invalid-packet']]);
  });

  it.each([
    ['a router alert', [ROUTER_ALERT, 4, 0, 0]],
    ['what lies behind the end of options', [NONE, END, LOOSE_ROUTE, 3]],
    ['40 bytes of nothing', Array.from({ length: 40 }, () => NONE)],
    [
      'bytes of another option that look like a source route',
      [RECORD_ROUTE, 7, 4, LOOSE_ROUTE, STRICT_ROUTE, 0, 0, END],
    ],
  ])('sends and gets %s', (name, options) => {
    expect([name, judged(...options)]).toEqual([name, ['forwarded', 'forwarded']]);
  });
});
