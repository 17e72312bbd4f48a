import type { Removal, RemovalReport } from './types.ts';

/** Takes all steps once, in their order. Rejects at the first that fails; what was removed until then stays removed. */
export async function removeFromNode(steps: Removal): Promise<RemovalReport> {
  await steps.refuse();
  const removed = [...(await steps.cni()), ...(await steps.datapath())];
  const left = await steps.podLinks();
  if (left.length === 0) removed.push(...(await steps.routes()));
  return { removed, left };
}
