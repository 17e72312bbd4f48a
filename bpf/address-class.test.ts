/** As whom a packet's peer is judged, where only other policies name the CIDRs that it is in. */
import { afterAll, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';

import { type Direction, ENDPOINT_FLAGS } from './constants.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ethernet, ipv4, TCP_FLAGS, tcp } from './testing/packets.ts';

const POD = '10.0.0.1';
const [HOST, WORLD] = [1, 2];
const SCOPES = { unknown: 0, pod: 1, world: 2 } as const;
/** What the ipcache says of a prefix. `cidr`: a number of its own. */
const KINDS = ['cidr', 'cidr', 'cidr', 'none', 'pod', 'host', 'world'] as const;
type Kind = (typeof KINDS)[number];

interface Prefix {
  readonly address: string;
  readonly bits: number;
  readonly identity: number;
}

function identityOf(kind: Kind, at: number): number {
  return { cidr: 0x0100_0000 + at, none: 0, pod: 2000 + at, host: HOST, world: WORLD }[kind];
}

function number(address: string): number {
  return address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0);
}

function masked(address: string, bits: number): string {
  const host = 2 ** (32 - bits);
  const base = Math.floor(number(address) / host) * host;
  return [24, 16, 8, 0].map((shift) => Math.floor(base / 2 ** shift) % 256).join('.');
}

const isCidr = (identity: number): boolean => identity >>> 24 === 1;

/** The plain model. `around`: the identities of the prefixes around the address, of the longest first. */
function classOf(around: readonly number[], named: ReadonlyMap<number, number>, direction: Direction): number {
  const [own = 0] = around;
  // What an interface brings with an address of this node is no more than the world's.
  const first = own === HOST && direction === 'ingress' ? WORLD : own;
  const chain = isCidr(own) ? [...around.filter((one) => isCidr(one) || one === WORLD), WORLD] : [first];
  for (const identity of chain) {
    const known = named.get(identity);
    if (known !== undefined) return known;
    if (!isCidr(identity)) return identity >= 256 ? SCOPES.pod : identity === WORLD ? SCOPES.world : SCOPES.unknown;
  }
  throw new Error('nothing is around the world');
}

const path = new TestDatapath();
path.endpoint({ flags: ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced });
afterAll(() => path.close());

/** A class lets one port through, which tells it. */
const portOf = (number: number): number => 1000 + number;

function load(ipcache: readonly Prefix[], named: Record<Direction, ReadonlyMap<number, number>>): void {
  for (const name of ['ct4', 'ipcache']) path.map(name).deleteBatch([...path.map(name).keys()]);
  for (const { address, bits, identity } of ipcache) path.identity(address, identity, bits);
  const directions = ['ingress', 'egress'] as const;
  const classes = directions.flatMap((direction) =>
    Array.from(named[direction], ([identity, number]) => ({ identity, direction, class: number })),
  );
  const verdicts = directions.flatMap((direction) =>
    [...new Set([0, 1, 2, ...named[direction].values()])].map((number) => ({
      class: number,
      direction,
      protocol: 'tcp' as const,
      port: portOf(number),
      verdict: 'allow' as const,
    })),
  );
  path.slot(0, classes, verdicts);
}

function passes(direction: Direction, address: string, number: number): boolean {
  const [src, dst] = direction === 'egress' ? [POD, address] : [address, POD];
  const payload = tcp({ sport: 40_000, dport: portOf(number), flags: TCP_FLAGS.syn });
  return path.run(direction, ethernet(ipv4({ src, dst, protocol: 6, payload }))) === 'pass';
}

/** The one class whose port passes. */
function found(direction: Direction, address: string, numbers: Iterable<number>): readonly number[] {
  return [...new Set([0, 1, 2, ...numbers])].filter((number) => passes(direction, address, number));
}

describe('the class of an address', () => {
  it('is that of the longest CIDR around it that the policy names, or of the world', () => {
    const seen = new Map<string, number>();
    const address = fc.constantFrom('192.0.2.1', '192.0.2.77', '192.0.3.1', '198.51.100.9');
    const prefix = fc.record({ of: address, bits: fc.integer({ min: 1, max: 32 }), kind: fc.constantFrom(...KINDS) });
    const names = fc.array(fc.tuple(fc.nat(39), fc.integer({ min: 16, max: 19 })), { maxLength: 12 });
    fc.assert(
      fc.property(fc.array(prefix, { maxLength: 40 }), names, names, address, (prefixes, ingress, egress, of) => {
        // That of no bits is the world's, as from the agent.
        const byPrefix = new Map<string, Prefix>();
        byPrefix.set('0.0.0.0/0', { address: '0.0.0.0', bits: 0, identity: WORLD });
        for (const [at, { of: within, bits, kind }] of prefixes.entries()) {
          const base = masked(within, bits);
          byPrefix.set(`${base}/${bits}`, { address: base, bits, identity: identityOf(kind, at) });
        }
        const ipcache = [...byPrefix.values()];
        // The last number is the world's.
        const identities = [...ipcache.map(({ identity }) => identity).filter((one) => one !== 0), WORLD];
        const mapOf = (all: readonly (readonly [number, number])[]) =>
          new Map(all.map(([at, number]) => [identities[at % identities.length] ?? WORLD, number]));
        const named = { ingress: mapOf(ingress), egress: mapOf(egress) };
        load(ipcache, named);
        const around = ipcache
          .filter((one) => masked(of, one.bits) === one.address)
          .sort((a, b) => b.bits - a.bits)
          .map(({ identity }) => identity);
        for (const direction of ['ingress', 'egress'] as const) {
          const expected = classOf(around, named[direction], direction);
          expect(found(direction, of, named[direction].values())).toEqual([expected]);
          const [own] = around;
          const kind = own !== undefined && isCidr(own) && !named[direction].has(own) ? 'walked to' : 'had';
          const text = `${kind} ${expected >= 16 ? 'a name' : expected}`;
          seen.set(text, (seen.get(text) ?? 0) + 1);
        }
      }),
      { numRuns: 400 },
    );
    for (const text of ['walked to a name', 'walked to 2', 'had a name', 'had 0', 'had 1', 'had 2'])
      expect([text, (seen.get(text) ?? 0) > 0]).toEqual([text, true]);
  });

  it('is found through a CIDR of every length', () => {
    const address = '192.0.2.1';
    const nested = Array.from({ length: 33 }, (_, bits) => ({
      address: masked(address, bits),
      bits,
      identity: bits === 0 ? WORLD : identityOf('cidr', bits),
    }));
    for (const bits of [1, 16, 31, 32]) {
      const named = new Map([[identityOf('cidr', bits), 16]]);
      load(nested, { ingress: named, egress: named });
      expect([bits, found('ingress', address, [16]), found('egress', address, [16])]).toEqual([bits, [16], [16]]);
    }
    load(nested, { ingress: new Map(), egress: new Map([[WORLD, 16]]) });
    expect([found('ingress', address, [16]), found('egress', address, [16])]).toEqual([[2], [16]]);
  });
});
