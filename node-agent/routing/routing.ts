import { type Family, familyOf } from '@weir/net';
import { createReconciler, type Reconciler } from '@weir/reconciler';
import type { Derivation, StateDB, Table } from '@weir/statedb';
import type { Logger } from '../core.ts';
import { type RunCommand, runCommand } from '../host/command.ts';
import type { NodeRow } from '../tables.ts';
import { Forwarding } from './forwarding.ts';
import { KernelRoutes } from './kernel.ts';
import type { RouteRow, RoutingStatus } from './types.ts';
import { deriveRoutes } from './wanted.ts';

/** How soon a route that somebody took away is back. */
const REFRESH_MS = 30_000;
const FIRST_RETRY_MS = 1000;

export interface NodeRoutingOptions {
  readonly db: StateDB;
  readonly nodes: Table<NodeRow>;
  readonly nodeName: string;
  /** `none`: no route is wanted, those of an earlier `direct` are taken away. */
  readonly mode: 'direct' | 'none';
  readonly log: Logger;
  /** Turns a family's forwarding on, without which no pod reaches another; whether it was off. Rejects when it is off and stays so. */
  readonly forward: (family: Family) => Promise<boolean>;
  readonly run?: RunCommand;
  readonly refreshMs?: number;
}

/** Keeps the kernel's routes to other nodes' pods as the nodes table asks for (contract: types.ts). */
export class NodeRouting {
  readonly #options: NodeRoutingOptions;
  readonly #kernel: KernelRoutes;
  readonly #table: Table<RouteRow>;
  readonly #reconciler: Reconciler<RouteRow>;
  readonly #derivation: Derivation | undefined;
  readonly #forwarding: readonly Forwarding[];

  constructor(options: NodeRoutingOptions) {
    const { db, log } = options;
    const refreshMs = options.refreshMs ?? REFRESH_MS;
    this.#options = options;
    this.#forwarding = ([4, 6] as const).map(
      (family) => new Forwarding(family, { forward: options.forward, log, wanted: () => this.#forwards(family) }),
    );
    this.#kernel = new KernelRoutes(options.run ?? runCommand);
    this.#table = db.table<RouteRow>({ name: 'nodeRoutes', key: (row) => row.prefix });
    // Without it nothing is wanted, and nothing waited for.
    if (options.mode === 'direct') {
      this.#derivation = deriveRoutes(db, options.nodes, this.#table, options.nodeName);
      this.#derivation.stop();
    }
    this.#reconciler = createReconciler<RouteRow>({
      name: 'node-routes',
      db,
      table: this.#table,
      operations: {
        update: async (row) => throwFailure(await this.#kernel.replace([row]), row.prefix),
        delete: async (row) => throwFailure(await this.#kernel.delete([row]), row.prefix),
        updateBatch: async (batch) => {
          const failed = await this.#kernel.replace(batch.map(({ row }) => row));
          for (const item of batch) if (failed.has(item.row.prefix)) item.fail(failed.get(item.row.prefix));
        },
        deleteBatch: async (batch) => {
          const failed = await this.#kernel.delete(batch.map(({ row }) => row));
          for (const item of batch) if (failed.has(item.row.prefix)) item.fail(failed.get(item.row.prefix));
        },
        prune: async (rows) => {
          for (const each of this.#forwarding) await each.look();
          await this.#prune(rows);
        },
      },
      minBackoffMs: Math.min(FIRST_RETRY_MS, refreshMs),
      maxBackoffMs: refreshMs,
      refreshIntervalMs: refreshMs,
      pruneIntervalMs: refreshMs,
      onError: ({ node, prefix, gateway }, error, retries) => {
        if (retries === 0) log.error({ peer: node, prefix, gateway, error: error.message }, 'no route to a node');
      },
      onPruneError: (error) => log.warn({ error: error.message }, 'cannot remove routes of nodes that are gone'),
    });
  }

  start(): void {
    this.#derivation?.start();
    this.#reconciler.start();
  }

  /** The routes stay. */
  async stop(): Promise<void> {
    this.#derivation?.stop();
    await this.#reconciler.stop();
  }

  status(): RoutingStatus {
    using snapshot = this.#options.db.read();
    const wanted = snapshot.count(this.#table);
    const failing = this.#reconciler
      .failing()
      .map(({ row, error }) => ({ node: row.node, prefix: row.prefix, message: error.message }));
    const routes = messageOf(this.#options.mode, wanted, failing);
    const blocked = this.#forwarding.flatMap((each) => each.problem ?? []);
    const message = [...blocked, routes].join('; ');
    return { ok: failing.length + blocked.length === 0, message, wanted, failing };
  }

  /** IPv6 only where the node has pods of it: to forward changes how a node hears its routers. */
  #forwards(family: Family): boolean {
    const { db, nodes, nodeName } = this.#options;
    using snapshot = db.read();
    const cidrs = snapshot.get(nodes, nodeName)?.podCidrs ?? [];
    return family === 4 || cidrs.some((cidr) => familyOf(cidr) === family);
  }

  async #prune(rows: Iterable<RouteRow>): Promise<void> {
    const wanted = new Set<string>();
    for (const row of rows) wanted.add(row.prefix);
    const stale = (await this.#kernel.list()).filter((route) => !wanted.has(route.prefix));
    for (const error of (await this.#kernel.delete(stale)).values()) throw error;
    if (stale.length > 0)
      this.#options.log.info({ prefixes: stale.map((route) => route.prefix) }, 'removed routes of nodes that are gone');
  }
}

function throwFailure(failed: ReadonlyMap<string, Error>, prefix: string): void {
  const error = failed.get(prefix);
  if (error !== undefined) throw error;
}

function messageOf(mode: string, wanted: number, failing: RoutingStatus['failing']): string {
  if (mode === 'none') return 'left to the network (--routing none)';
  if (failing.length === 0) return `${wanted} ${wanted === 1 ? 'route' : 'routes'} to other nodes`;
  return failing.map((failure) => failure.message).join('; ');
}
