/** Limits of the operator beside what a node has room for. */
import { expect, it } from '@jest/globals';
import { MAPS } from '@weir/bpf';
import { DEFAULT_LIMITS } from '../../operator/limits.ts';

it('the CIDRs of ten namespaces fit into the table of a node, beside 50,000 pods', () => {
  expect(10 * DEFAULT_LIMITS.cidrsPerNamespace + 50_000).toBeLessThan(MAPS.ipcache.maxEntries);
});
