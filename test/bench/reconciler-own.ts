/** `node --expose-gc reconciler-own.ts CASE`: measures one case of our reconciler in a process of its own. */
import { kernelTrie } from './reconciler-kernel.ts';
import { reconcileMany, reconcileSome } from './reconciler-rounds.ts';
import { printCase } from './statedb-measure.ts';

await printCase({ 'reconcile-100k': reconcileSome, 'reconcile-1m': reconcileMany, kernel: kernelTrie });
