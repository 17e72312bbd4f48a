import type { LabelMap } from '@weir/labels';
import type { Reader } from '@weir/statedb';
import type { Core } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { EndpointRow, EndpointStateRow } from '../tables.ts';

/** What the kernel has of an endpoint: put there since the agent's start, or found at it and left as it was (`restoring`). */
export type ShownState = Omit<EndpointStateRow, 'state'> & { readonly state: EndpointStateRow['state'] | 'restoring' };

/** What the kernel had of the endpoint at the agent's start, while that stands; which policies made it so is not in it. */
export function foundState(core: Core, row: EndpointRow, reader: Reader): ShownState | undefined {
  const found = core.asFound(row.id);
  if (found === undefined || row.gone !== undefined) return undefined;
  const { id, ifindex, ipv4, identity, slot, enforced, revision } = found;
  const labels: LabelMap = row.labels ?? reader.get(core.tables.identities, tableKey.identity(identity))?.labels ?? {};
  const inputs = core.health().checks.find(({ name, ok }) => name === 'inputs' && !ok)?.message;
  const how = found.closed
    ? 'closed, as its pod is not the one that it was, or has other labels'
    : "shown as it was found in the kernel at the agent's start";
  const reason = `${how}${inputs === undefined ? '' : `: ${inputs}`}`;
  return { id, ifindex, ipv4, identity, labels, slot, enforced, revision, policies: {}, state: 'restoring', reason };
}
