import { describe, expect, it } from '@jest/globals';
import { slotMapOptions, verdictValue } from '@weir/bpf';
import type { ClassRows, Decision } from '@weir/policy';
import { anyDecision } from '@weir/policy/testing/decisions.ts';
import fc from 'fast-check';
import { createMemoryMap } from 'libbpf-ts';
import { ADDRESS_CLASSES, ADDRESSES, both } from '../derive/contract.ts';
import { addressesKey } from '../derive/rows.ts';
import type { SlotContent, VerdictBlock } from '../tables.ts';
import { meaning, readSlot, verdictEntry } from './slot-content.ts';

const PEER = 300;
const ALLOW = { verdict: 'allow' } as const satisfies Decision;
const BLANK = { protocol: 0, port: 0, bits: 0, verdict: 'deny' } as const;

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

  it('of addresses are read back, too', () => {
    const prefixes = ['0.0.0.0/0', '10.0.0.0/8', '10.1.2.3/32', '::/0', '2001:db8::/33', '2001:db8::1/128'];
    const blocks = prefixes.map((prefix, at) => ({
      ...BLANK,
      ...{ cookie: at % 2, prefix, ...(at === 2 ? { identity: PEER } : {}) },
    }));
    const port = (cookie: number): VerdictBlock[] => [{ protocol: 6, port: 80, bits: 16, ...ALLOW, cookie }];
    const rows = new Map<number, readonly VerdictBlock[]>([
      ...([0, 1, 16] as const).map((number) => [number, port(7 + number)] as const),
      ...([0, 1] as const).map((number) => [ADDRESS_CLASSES + number, port(20 + number)] as const),
      [ADDRESSES, blocks],
    ]);
    const found = read({ elements: both(() => new Map([[PEER, 16]])), rows: both(() => rows) });
    const sorted = (list: readonly VerdictBlock[] = []) =>
      list.toSorted((a, b) => ((a.prefix ?? '') < (b.prefix ?? '') ? -1 : 1));
    expect(new Set(found.rows.ingress.keys())).toEqual(new Set(rows.keys()));
    for (const [number, of] of rows) expect(sorted(found.rows.ingress.get(number))).toEqual(sorted(of));
    const { addresses, rows: classes } = meaning(found);
    expect([...classes.ingress.keys()]).toEqual([16]);
    const compiled = prefixes.map((prefix, at) => ({
      prefix,
      ...(at === 2 ? { identity: PEER } : {}),
      rows: [{ protocol: 6 as const, from: 80, to: 80, ...ALLOW, cookie: 20 + (at % 2) }] as ClassRows,
    }));
    const direction = { enforced: true, scope: { unknown: [], pod: [], world: [] }, classes: [], addresses: compiled };
    expect(addresses.ingress).toBe(addressesKey(direction));
    expect(addresses.ingress).not.toBe(addressesKey({ ...direction, addresses: compiled.slice(1) }));
  });

  it.each([
    ['an allow with a proxy port', { verdict: 1, proxyPort: 15_000 }],
    ['a verdict that nobody knows', { verdict: 9 }],
    ['no verdict', { verdict: 0 }],
  ])('are denies where the kernel drops by them: %s', (_, value) => {
    const found = read(content([ALLOW]), verdictValue.encode(value));
    expect([...found.rows.ingress.values()].flat().map(({ verdict }) => verdict)).toEqual(['deny']);
  });
});
