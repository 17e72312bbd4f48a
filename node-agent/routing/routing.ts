import { isDeepStrictEqual } from 'node:util';
import { createReconciler, type Reconciler } from '@weir/reconciler';
import type { InitDone, StateDB, Table } from '@weir/statedb';
import { type RunCommand, runCommand } from '../cni/command.ts';
import type { Logger } from '../core.ts';
import type { NodeRow } from '../tables.ts';
import { KernelRoutes } from './kernel.ts';
import type { RouteRow, RoutingStatus } from './types.ts';
import { wantedRoutes } from './wanted.ts';

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
  readonly run?: RunCommand;
  readonly refreshMs?: number;
}

/** Keeps the kernel's routes to other nodes' pods as the nodes table asks for (contract: types.ts). */
export class NodeRouting {
  readonly #options: NodeRoutingOptions;
  readonly #kernel: KernelRoutes;
  readonly #table: Table<RouteRow>;
  readonly #reconciler: Reconciler<RouteRow>;
  #initDone: InitDone | undefined;
  #ended: (() => void) | undefined;

  constructor(options: NodeRoutingOptions) {
    const { db, log } = options;
    const refreshMs = options.refreshMs ?? REFRESH_MS;
    this.#options = options;
    this.#kernel = new KernelRoutes(options.run ?? runCommand);
    this.#table = db.table<RouteRow>({ name: 'nodeRoutes', key: (row) => row.prefix });
    this.#initDone = db.initialiser(this.#table, 'nodes');
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
        prune: async (rows) => await this.#prune(rows),
      },
      minBackoffMs: Math.min(FIRST_RETRY_MS, refreshMs),
      maxBackoffMs: refreshMs,
      refreshIntervalMs: refreshMs,
      pruneIntervalMs: refreshMs,
      onError: ({ node, prefix, gateway }, error, retries) => {
        if (retries === 0) log.error({ peer: node, prefix, gateway, error: error.message }, 'no route to a node');
      },
      onPruneError: (error) => log.warn({ error: error.message }, 'routes of nodes that are gone could not be removed'),
    });
  }

  start(): void {
    this.#follow();
    this.#reconciler.start();
  }

  /** The routes stay. */
  async stop(): Promise<void> {
    this.#ended?.();
    this.#ended = undefined;
    await this.#reconciler.stop();
  }

  status(): RoutingStatus {
    using snapshot = this.#options.db.read();
    const wanted = snapshot.count(this.#table);
    const failing = this.#reconciler
      .failing()
      .map(({ row, error }) => ({ node: row.node, prefix: row.prefix, message: error.message }));
    return { ok: failing.length === 0, message: messageOf(this.#options.mode, wanted, failing), wanted, failing };
  }

  /** Carries the nodes over into the table of routes, now and whenever they change. */
  #follow(): void {
    const { db, nodes, nodeName, mode } = this.#options;
    const undo: (() => void)[] = [];
    const again = (): void => {
      for (const action of undo.splice(0)) action();
      this.#follow();
    };
    using snapshot = db.read();
    const { rows, watch } = snapshot.allWatch(nodes);
    const complete = mode === 'none' || snapshot.initialised(nodes);
    const wanted = mode === 'none' ? new Map<string, RouteRow>() : wantedRoutes(rows, nodeName);
    // A watch tells within the commit that it is of, where nothing may be written.
    const later = (): void => {
      const timer = setImmediate(again);
      undo.push(() => clearImmediate(timer));
    };
    this.#ended = () => {
      for (const action of undo.splice(0)) action();
    };
    this.#write(wanted, complete);
    let told = false;
    const once = (): void => {
      if (told) return;
      told = true;
      later();
    };
    undo.push(watch.onFire(once));
    if (!complete) undo.push(db.initialisedWatch(nodes).onFire(once));
  }

  #write(wanted: ReadonlyMap<string, RouteRow>, complete: boolean): void {
    this.#options.db.write([this.#table], (txn) => {
      for (const row of [...txn.all(this.#table)]) if (!wanted.has(row.prefix)) txn.delete(this.#table, row.prefix);
      for (const row of wanted.values()) {
        if (!isDeepStrictEqual(txn.get(this.#table, row.prefix), row)) txn.upsert(this.#table, row);
      }
      if (complete) this.#initDone?.(txn);
    });
    if (complete) this.#initDone = undefined;
  }

  async #prune(rows: Iterable<RouteRow>): Promise<void> {
    const wanted = new Set<string>();
    for (const row of rows) wanted.add(row.prefix);
    const stale = (await this.#kernel.list()).filter((route) => !wanted.has(route.prefix));
    for (const error of (await this.#kernel.delete(stale)).values()) throw error;
    if (stale.length > 0)
      this.#options.log.info({ prefixes: stale.map((route) => route.prefix) }, 'routes of nodes that are gone removed');
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
