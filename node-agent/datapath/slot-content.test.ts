import { describe, expect, it } from '@jest/globals';
import { slotMapOptions, verdictValue } from '@weir/bpf';
import { type Decision, opens } from '@weir/policy';
import { anyDecision } from '@weir/policy/testing/decisions.ts';
import fc from 'fast-check';
import { createMemoryMap } from 'libbpf-ts';
import { both } from '../derive/contract.ts';
import type { SlotContent, VerdictBlock } from '../tables.ts';
import { decisionsOf, type Judged, opensPeer, readSlot, verdictEntry } from './slot-content.ts';

const PEER = 300;
const PORTS = 4;
const ALLOW: Decision = { verdict: 'allow' };
const REDIRECT: Decision = { verdict: 'redirect', listener: { port: 15_000, priority: 101 } };

/** A slot that decides so of each of the first ports; undefined: no row. */
function content(decisions: readonly (Decision | undefined)[]): SlotContent {
  const blocks = decisions.flatMap((decision, port): VerdictBlock[] =>
    decision === undefined ? [] : [{ protocol: 6, port, bits: 16, ...decision, cookie: port }],
  );
  return { elements: both(() => new Map([[PEER, 16]])), rows: both(() => new Map([[16, blocks]])) };
}

const judged = (...decisions: readonly (Decision | undefined)[]): Judged => ({
  content: content(decisions),
  identity: PEER,
  around: (identity) => identity,
});

function read({ rows }: SlotContent, value?: Uint8Array): SlotContent {
  const maps = slotMapOptions({ classes: 8, verdicts: 64 });
  const [classes, verdicts] = [createMemoryMap(maps.classes), createMemoryMap(maps.verdicts)];
  for (const [number, blocks] of rows.ingress)
    for (const block of blocks) {
      const [key, own] = verdictEntry('ingress', number, block);
      verdicts.update(key, value ?? own);
    }
  const steps = readSlot(classes, verdicts);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

describe('what a peer is decided', () => {
  const anyPorts = fc.array(fc.option(anyDecision, { nil: undefined }), { minLength: PORTS, maxLength: PORTS });

  it('opens exactly where it opens a port of each of the others', () => {
    fc.assert(
      fc.property(anyPorts, fc.array(anyPorts, { maxLength: 3 }), (one, others) => {
        const at = (ports: typeof one, port: number): Decision => ports[port] ?? { verdict: 'deny' };
        const expected = one.some(
          (_, port) =>
            at(one, port).verdict !== 'deny' && others.every((other) => opens(at(one, port), at(other, port))),
        );
        expect(
          opensPeer(
            judged(...one),
            others.map((other) => judged(...other)),
            'ingress',
          ),
        ).toBe(expected);
      }),
    );
  });

  it('opens from redirect to allow, and not from allow to redirect', () => {
    expect(opensPeer(judged(ALLOW), [judged(REDIRECT)], 'ingress')).toBe(true);
    expect(opensPeer(judged(REDIRECT), [judged(ALLOW)], 'ingress')).toBe(false);
  });

  it('has a text that tells exactly what passes', () => {
    fc.assert(
      fc.property(anyPorts, anyPorts, (one, other) => {
        const [a, b] = [judged(...one), judged(...other)];
        const text = ({ content: of, identity, around }: Judged): string => decisionsOf(of, identity, around);
        const same = !opensPeer(a, [b], 'ingress') && !opensPeer(b, [a], 'ingress');
        expect(text(a) === text(b)).toBe(same);
      }),
    );
  });
});

describe('decisions in the kernel', () => {
  it('are read back as they were written', () => {
    fc.assert(
      fc.property(anyDecision, (decision) => {
        const wanted = content([decision]);
        const found = read(wanted).rows.ingress;
        expect(found).toEqual(wanted.rows.ingress);
      }),
    );
  });

  it.each([
    ['an allow with a proxy port', { verdict: 1, proxyPort: 15_000 }],
    ['a redirect to nowhere', { verdict: 3 }],
    ['a verdict that nobody knows', { verdict: 9 }],
    ['no verdict', { verdict: 0 }],
  ])('are denies where the kernel drops by them: %s', (_, value) => {
    const found = read(content([ALLOW]), verdictValue.encode(value));
    expect([...found.rows.ingress.values()].flat().map(({ verdict }) => verdict)).toEqual(['deny']);
  });
});
