import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { changedCidrs, cidrsOf } from './rule-changes.ts';
import type { ResolvedRule } from './types.ts';

const cidr = fc.constantFrom('10.0.0.0/8', '10.1.0.0/16', '10.1.2.0/24', '192.0.2.1/32');
const peer = fc.record({ cidr, except: fc.array(cidr, { maxLength: 2 }) }, { requiredKeys: ['cidr'] });
const rules = fc.array(
  fc.array(peer, { maxLength: 5 }).map(
    (peers): ResolvedRule => ({
      subject: 's',
      direction: 'ingress',
      verdict: 'allow',
      peers,
      defaultDeny: true,
      cookie: 1,
      path: 'spec.ingress[0]',
    }),
  ),
  { maxLength: 3 },
);

it('CIDRs that only one of two lists of rules names are found, wherever in the lists and however often they are named', () => {
  fc.assert(
    fc.property(rules, rules, (before, after) => {
      const [had, has] = [new Set(cidrsOf(before)), new Set(cidrsOf(after))];
      const changed = changedCidrs(before, after);
      expect(changed.cidrs).toEqual(had.symmetricDifference(has));
      for (const one of changed.cidrs) expect(changed.named.has(one)).toBe(has.has(one));
    }),
    { numRuns: 1000 },
  );
});
