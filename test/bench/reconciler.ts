/** Suite `reconciler`: the reconciler beside cilium/statedb's, and into the kernel beside the kernel's own limit. */
import { beside, type Case } from './statedb-beside.ts';
import { own, peer } from './statedb-programs.ts';
import type { Suite } from './suite.ts';

const CASES: readonly Case[] = [
  {
    name: 'reconcile-100k',
    times: 3,
    lines: [{ figure: 'reconcile-100k', title: 'reconcile 100,000 rows', target: 401_000, kind: 'rate' }],
  },
  {
    name: 'reconcile-1m',
    times: 3,
    lines: [
      { figure: 'reconcile-1m', title: 'reconcile 1,000,000 rows', target: 440_000, kind: 'rate' },
      { figure: 'reconcile-1m-live', title: '1,000,000 reconciled rows, live', goal: 354 },
    ],
  },
];

const KERNEL: Case = {
  name: 'kernel',
  times: 1,
  lines: [
    {
      figure: 'kernel-reconciled',
      peerFigure: 'kernel-bare',
      title: "100,000 prefixes into the kernel's trie, reconciled (peer: bare batch calls)",
      slack: 1.2,
    },
  ],
};

export const reconciler: Suite = async function* () {
  const ours = own('reconciler-own.ts');
  yield* beside(CASES, ours, await peer());
  yield* beside([KERNEL], ours, undefined);
};
