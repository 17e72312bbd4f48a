import { createHash } from 'node:crypto';
import { ApiError, type KubeClient, type KubeEvent, resources } from '@weir/kube';
import { clipped } from '@weir/process/printable';
import type { Reconciler } from '@weir/reconciler';
import type { Core } from '../core.ts';
import type { PodEventRow } from '../tables.ts';
import { apiReconciler } from './api-reconciler.ts';
import type { Connection } from './connection.ts';
import { FIELD_MANAGER } from './node-policy-status.ts';

/** A pod that is tried again and again does not make a write each time. */
const WRITES_PER_SECOND = 1;
/** Characters of a message. */
const LONGEST_MESSAGE = 1024;

/** Drives table `podEvents` into Events. The API server forgets them after an hour; nobody deletes them. */
export class PodEventWriter {
  readonly #reconciler: Reconciler<PodEventRow>;
  readonly #ending = new AbortController();

  constructor(options: {
    readonly core: Pick<Core, 'db' | 'tables'>;
    readonly client: KubeClient;
    readonly nodeName: string;
    readonly connection: Connection;
    /** Default 1. */
    readonly writesPerSecond?: number;
  }) {
    const { core, client, nodeName, connection, writesPerSecond = WRITES_PER_SECOND } = options;
    this.#reconciler = apiReconciler<PodEventRow>({
      name: 'pod-events',
      what: 'events',
      connection,
      ending: this.#ending.signal,
      db: core.db,
      table: core.tables.podEvents,
      operations: {
        update: async (row) => {
          try {
            await client.apply(resources.Event, eventObject(row, nodeName), {
              fieldManager: FIELD_MANAGER,
              force: true,
            });
          } catch (error) {
            // Nobody is left to read it.
            if (!(error instanceof ApiError && error.namespaceGone)) throw error;
          }
        },
        delete: () => undefined,
      },
      roundsPerSecond: writesPerSecond,
    });
  }

  start(): void {
    this.#reconciler.start();
  }

  /** What the API server has not taken is tried now. */
  retry(): void {
    this.#reconciler.retry();
  }

  /** Resolves when the request under way has ended. */
  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#reconciler.stop();
  }
}

export function eventObject(
  row: PodEventRow,
  host: string,
): KubeEvent & { readonly reportingComponent: string; readonly reportingInstance: string } {
  const { namespace, name, uid } = row.pod;
  const digest = createHash('sha256').update(`${uid} ${row.reason}`).digest('hex').slice(0, 16);
  return {
    apiVersion: 'v1',
    kind: 'Event',
    // A name has at most 253 characters, and pods may have names as long as that.
    metadata: { namespace, name: `${name.slice(0, 230).replace(/[.-]+$/, '')}.${digest}` },
    involvedObject:
      row.node === true
        ? { apiVersion: 'v1', kind: 'Node', name, uid }
        : { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
    type: 'Warning',
    reason: row.reason,
    message: clipped(row.message, LONGEST_MESSAGE),
    count: row.count,
    firstTimestamp: rfc3339(row.first),
    lastTimestamp: rfc3339(row.last),
    source: { component: FIELD_MANAGER, host },
    reportingComponent: FIELD_MANAGER,
    reportingInstance: host,
  };
}

/** In seconds, as Events have it. */
function rfc3339(ms: number): string {
  return new Date(Math.floor(ms / 1000) * 1000).toISOString().replace('.000Z', 'Z');
}
