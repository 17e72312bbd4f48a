import { expect, it } from '@jest/globals';
import { runs } from '../../runs.ts';
import { fuzzPolicies, printPolicies } from './run.ts';

// Five minutes beside two other tests on a slow machine.
const PATIENCE_MS = 900_000;

it(
  'random worlds: oracle, compiled policy, explanation and kernel agree, and no refusal opens anything',
  async () => {
    const report = await fuzzPolicies({ worlds: 150 + runs(100), seed: 41 });
    expect(report.findings.length === 0 ? '' : printPolicies(report)).toBe('');
    // What was never seen proves nothing.
    // DNS rules are in few worlds.
    const reasons = Object.keys(report.reasons).filter((reason) => reason !== 'asks-names');
    expect(reasons.sort()).toEqual([
      'asks-authentication',
      'asks-proxy',
      'explicit-deny',
      'localhost',
      'no-default-deny',
      'no-match',
      'not-enforced',
      'rule-allows',
    ]);
    expect(report.refused).toBeGreaterThan(60);
  },
  PATIENCE_MS,
);
