/** Events as they come out of the ring buffer, their rate limit, and the switch for allowed flows. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { RingBufferReader } from 'libbpf-ts';

import { ENDPOINT_FLAGS, SETTINGS } from './constants.ts';
import { type DatapathEvent, decodeEvent } from './flows.ts';
import { settingsKey, settingsValue } from './layout.ts';
import { TEST_IFINDEX, TestDatapath } from './testing/datapath.ts';
import { ETHERTYPE, ethernet, icmp, ip4, ip6, ipv4, ipv6, tcp } from './testing/packets.ts';

const ENFORCED = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
const path = new TestDatapath();
const reader = new RingBufferReader({
  map: path.map('events'),
  handler: (record) => events.push(decodeEvent(record)),
  onError: (error) => {
    throw error;
  },
});
let events: DatapathEvent[] = [];

function taken(): DatapathEvent[] {
  reader.drain();
  const all = events;
  events = [];
  return all;
}

const out = (dport: number, dst = '10.0.0.2') =>
  ethernet(ipv4({ src: '10.0.0.1', dst, protocol: 6, payload: tcp({ sport: 40_000, dport }) }));

beforeAll(() => {
  path.endpoint({ flags: ENFORCED, revision: 42 });
  path.identity('10.0.0.2', 2000);
  path.slot(
    0,
    [],
    [
      { class: 1, direction: 'egress', protocol: 'tcp', port: 80, verdict: 'allow', cookie: 11 },
      { class: 1, direction: 'egress', protocol: 'tcp', port: 81, verdict: 'deny', cookie: 12 },
      // The host, whom no rule names.
      { class: 0, direction: 'egress', protocol: 'tcp', port: 81, verdict: 'allow', cookie: 13 },
      { class: 0, direction: 'egress', protocol: 'tcp', port: 82, verdict: 'allow', cookie: 13 },
      { class: 0, direction: 'egress', protocol: 'tcp', port: 83, verdict: 'deny', cookie: 14 },
    ],
  );
});
afterAll(() => path.close());

describe('events', () => {
  it('can be read whatever bytes the pod or its peer sends', () => {
    // The kernel's test run takes no frame that is shorter than the header that its type promises.
    const bytes = fc.uint8Array({ minLength: 54, maxLength: 120 });
    // Half of them with a type that is looked into, behind which anything may come.
    const frame = fc.tuple(bytes, fc.constantFrom(0x0800, 0x86dd, 0x0806, 0x8100, undefined)).map(([all, type]) => {
      if (type !== undefined) new DataView(all.buffer, all.byteOffset).setUint16(12, type);
      if (type === 0x0800) all[14] = 0x45;
      return all;
    });
    let read = 0;
    fc.assert(
      fc.property(fc.constantFrom('egress' as const, 'ingress' as const), frame, (direction, sent) => {
        path.run(direction, sent);
        for (const event of taken()) {
          read += 1;
          expect(event).toMatchObject({ endpoint: 7, length: sent.length });
          expect([0, 4, 16]).toContain(event.src.length);
          expect(event.dst.length).toBe(event.src.length);
          expect(event.reasonName).not.toMatch(/^reason-/);
        }
      }),
      { numRuns: 500, endOnFailure: true },
    );
    expect(read).toBeGreaterThan(0);
  });

  it('tell who, what and why of a drop', () => {
    path.run('egress', out(81));
    expect(taken()).toEqual([
      {
        timeNs: expect.any(BigInt),
        kind: 'drop',
        direction: 1,
        reason: 7,
        reasonName: 'policy-denied',
        protocol: 6,
        endpoint: 7,
        family: 4,
        src: ip4('10.0.0.1'),
        dst: ip4('10.0.0.2'),
        sport: 40_000,
        dport: 81,
        ethertype: 0x0800,
        icmpType: 0,
        icmpCode: 0,
        tcpFlags: 2,
        ifindex: TEST_IFINDEX,
        srcIdentity: 1000,
        dstIdentity: 2000,
        cookie: 12,
        length: 54,
        revision: 42,
      },
    ]);
    const ping = ipv4({ src: '10.0.0.2', dst: '10.0.0.1', protocol: 1, payload: icmp({ type: 8, id: 5 }) });
    path.run('ingress', ethernet(ping));
    expect(taken()).toMatchObject([
      { direction: 0, reasonName: 'policy', icmpType: 8, sport: 5, srcIdentity: 2000, dstIdentity: 1000 },
    ]);
    const [src, dst] = [ip6('fd00::1'), Uint8Array.from({ length: 16 }, (_, at) => 32 + at)];
    path.run('egress', ethernet(ipv6({ src, dst, nextHeader: 17, payload: new Uint8Array(8) }), ETHERTYPE.ipv6));
    expect(taken()).toMatchObject([{ reasonName: 'unknown-identity', family: 6, src, dst, protocol: 17 }]);
  });

  it('name no rule that allows what was dropped: of a group, the rule that denies the host or pods', () => {
    for (const [port, cookie] of [
      [81, 12],
      [82, 0],
      [83, 14],
    ] as const) {
      path.run('egress', out(port, '224.0.0.1'));
      expect(taken()).toMatchObject([{ reasonName: 'group-address', dport: port, cookie }]);
    }
  });

  it('tell of allowed flows only when asked to, once a flow', () => {
    path.run('egress', out(80));
    expect(taken()).toEqual([]);
    path.map('ct4').deleteBatch([...path.map('ct4').keys()]);
    path.map('settings').update(settingsKey.encode(0), settingsValue.encode(SETTINGS.allowEvents));
    path.run('egress', out(80));
    path.run('egress', out(80));
    expect(taken()).toMatchObject([{ kind: 'allow', reasonName: 'allowed', cookie: 11, dport: 80 }]);
  });

  it('of one endpoint are not hidden by a flood of others', () => {
    path.runMany('egress', out(81), 5000);
    expect(taken().length).toBeLessThan(5000);
    for (const id of [8, 9]) {
      path.endpoint({ flags: ENFORCED, revision: 42, id });
      for (let packet = 0; packet < 5; packet += 1) path.run('egress', out(81));
      expect(taken().map(({ endpoint }) => endpoint)).toEqual([id, id, id, id, id]);
    }
    path.endpoint({ flags: ENFORCED, revision: 42 });
  });

  it('are limited, and what is suppressed is counted', () => {
    taken();
    const before = { drops: path.count('policy-denied', 'egress'), lost: path.count('event-lost', 'egress') };
    path.runMany('egress', out(81), 5000);
    const seen = BigInt(taken().length);
    const lost = path.count('event-lost', 'egress') - before.lost;
    expect(path.count('policy-denied', 'egress') - before.drops).toBe(5000n);
    expect(seen + lost).toBe(5000n);
    expect(seen).toBeGreaterThan(0n);
    expect(lost).toBeGreaterThan(0n);
  });
});
