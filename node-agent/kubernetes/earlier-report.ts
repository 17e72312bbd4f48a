import { ApiError, type KubeClient, type NodePolicyStatus, resources } from '@weir/kube';
import { delay } from '@weir/process/delay';
import { Backoff } from '@weir/reconciler/backoff';
import type { Core } from '../core.ts';
import type { EarlierReportRow } from '../tables.ts';
import type { Connection } from './connection.ts';

const WHAT = 'nodepolicystatus';

/**
 * Reads what this node reported before this start into table `earlierReport`, trying for as long as that takes. Resolves when it is
 * there, or on abort. A report that there is not is an empty one.
 */
export async function readEarlierReport(options: {
  readonly core: Core;
  readonly client: KubeClient;
  readonly nodeName: string;
  readonly connection: Connection;
  readonly signal: AbortSignal;
}): Promise<void> {
  const { core, client, nodeName, connection, signal } = options;
  const backoff = new Backoff({ minMs: 500, maxMs: 5_000 });
  while (!signal.aborted) {
    try {
      const row = await earlierReport(client, nodeName, signal);
      core.db.write([core.tables.earlierReport], (txn) => txn.upsert(core.tables.earlierReport, row));
      return;
    } catch (error) {
      if (signal.aborted) return;
      const retryInMs = backoff.next();
      connection.failed(WHAT, error, retryInMs);
      await delay(retryInMs, signal);
    }
  }
}

async function earlierReport(client: KubeClient, node: string, signal: AbortSignal): Promise<EarlierReportRow> {
  let object: NodePolicyStatus;
  try {
    object = await client.get(resources.NodePolicyStatus, node, undefined, signal);
  } catch (error) {
    if (error instanceof ApiError && error.notFound) return { node, policies: {} };
    throw error;
  }
  const { policies, policyVersion } = object.status;
  const known = Object.entries(policies).map(([uid, policy]) => [uid, { ...policy, at: policy.at ?? 0 }] as const);
  return { node, policies: Object.fromEntries(known), ...(policyVersion === undefined ? {} : { policyVersion }) };
}
