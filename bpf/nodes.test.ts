/** A node that has a number of its own: to policies that do not name it, it is any remote node, or an API server's. Packets on the kernel. */
import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { ENDPOINT_FLAGS } from './constants.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ethernet, ipv4, TCP_FLAGS, tcp } from './testing/packets.ts';

const [REMOTE_NODE, API_SERVER, NODE] = [6, 7, 0x0200_0001];
const NODE_WITH_API = NODE + 0x80_0000;
const PEER = '10.1.2.3';
const path = new TestDatapath({ ctEntries: 256 });
afterAll(() => path.close());

beforeEach(() => {
  path.forget();
  path.endpoint({ flags: ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced });
});

describe.each(['ingress', 'egress'] as const)('%s', (direction) => {
  const passes = (identity: number): boolean => {
    path.forget();
    path.identity(PEER, identity);
    const [src, dst] = direction === 'egress' ? ['10.0.0.1', PEER] : [PEER, '10.0.0.1'];
    const payload = tcp({ sport: 40_000, dport: 80, flags: TCP_FLAGS.syn });
    return path.run(direction, ethernet(ipv4({ src, dst, protocol: 6, payload }))) === 'pass';
  };
  const load = (...named: readonly (readonly [identity: number, verdict: 'allow' | 'deny'])[]): void => {
    path.slot(
      0,
      named.map(([identity], at) => ({ identity, direction, class: 16 + at })),
      named.map(([, verdict], at) => ({ class: 16 + at, direction, protocol: 'tcp', port: 80, verdict })),
    );
  };

  it('a node that is not named is judged as all', () => {
    load([REMOTE_NODE, 'allow']);
    expect([NODE, NODE_WITH_API, REMOTE_NODE].map(passes)).toEqual([true, false, true]);
    load([API_SERVER, 'allow']);
    expect([NODE, NODE_WITH_API, REMOTE_NODE].map(passes)).toEqual([false, true, false]);
    load();
    expect([NODE, NODE_WITH_API].map(passes)).toEqual([false, false]);
  });

  it('a node that is named is judged by itself, with a deny too', () => {
    load([REMOTE_NODE, 'allow'], [NODE, 'deny'], [API_SERVER, 'deny'], [NODE_WITH_API, 'allow']);
    expect([NODE, NODE + 1, NODE_WITH_API, NODE_WITH_API + 1].map(passes)).toEqual([false, true, true, false]);
  });
});
