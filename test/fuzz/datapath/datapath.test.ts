import { expect, it } from '@jest/globals';
import { DROP_REASONS } from '@weir/bpf';
import { fuzzFrames, printFrames } from './run.ts';

/** What no frame here can bring about. */
const ELSEWHERE = [
  ...[
    'no-endpoint',
    'source-range',
    'no-judge',
    'no-policy',
    'misplaced-checksum',
    'ct-full',
    'ct-share',
    'ct-evicted',
    'event-lost',
  ],
  ...['no-backend', 'no-service', 'proxy-rate'],
];

it('some thousands of frames: the kernel judges each as the oracle does', async () => {
  const report = await fuzzFrames({ packets: 5000, seed: 7 });
  expect(report.findings.length === 0 ? '' : printFrames(report)).toBe('');
  // What was never seen proves nothing.
  const reasons = Array.from(DROP_REASONS.values(), ({ name }) => name).filter(
    // Where pods' packets leave the node another test looks.
    (name) => !ELSEWHERE.includes(name) && !name.startsWith('nat-'),
  );
  expect(Object.keys(report.outcomes).sort()).toEqual(reasons.sort());
  expect(Math.min(...Object.values(report.outcomes))).toBeGreaterThan(10);
});
