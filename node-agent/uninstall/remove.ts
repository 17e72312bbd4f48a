import type { Removal } from '../parts/contract.ts';
import type { RemovalReport } from './types.ts';

/** Takes all steps once, in their order. Rejects at the first that fails; what was removed until then stays removed. */
export async function removeFromNode(shares: readonly Removal[]): Promise<RemovalReport> {
  for (const share of shares) await share.refuse?.();
  const removed: string[] = [];
  const left: string[] = [];
  for (const share of shares) removed.push(...((await share.runtime?.()) ?? []));
  for (const share of shares) removed.push(...((await share.enforcement?.()) ?? []));
  for (const share of shares) left.push(...((await share.inUse?.()) ?? []));
  if (left.length === 0) for (const share of shares) removed.push(...((await share.network?.()) ?? []));
  return { removed, left };
}
