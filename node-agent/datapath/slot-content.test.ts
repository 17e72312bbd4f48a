import { describe, expect, it } from '@jest/globals';
import { slotMapOptions, verdictValue } from '@weir/bpf';
import type { Decision } from '@weir/policy';
import { anyDecision } from '@weir/policy/testing/decisions.ts';
import fc from 'fast-check';
import { createMemoryMap } from 'libbpf-ts';
import { both } from '../derive/contract.ts';
import type { SlotContent, VerdictBlock } from '../tables.ts';
import { readSlot, verdictEntry } from './slot-content.ts';

const PEER = 300;
const ALLOW: Decision = { verdict: 'allow' };

/** A slot that decides so of each of the first ports; undefined: no row. */
function content(decisions: readonly (Decision | undefined)[]): SlotContent {
  const blocks = decisions.flatMap((decision, port): VerdictBlock[] =>
    decision === undefined ? [] : [{ protocol: 6, port, bits: 16, ...decision, cookie: port }],
  );
  return { elements: both(() => new Map([[PEER, 16]])), rows: both(() => new Map([[16, blocks]])) };
}

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
