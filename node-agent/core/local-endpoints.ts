import type { InitDone, StateDB } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { Model } from '../derive/index.ts';
import { EndpointNotReadyError, IdsExhaustedError, InterfaceGoneError, NotStartedError } from '../errors.ts';
import { nodeInterfaces } from '../host/interfaces.ts';
import type { StateFiles } from '../state/state-files.ts';
import type { EndpointRow, EndpointStateRow } from '../tables.ts';
import { checkEndpoint, LAST_ENDPOINT, outdated } from './endpoint-rows.ts';
import type { KernelSide } from './kernel-side.ts';
import type { Waiters } from './waiters.ts';

const TIMEOUT_MS = 10_000;

export interface LocalEndpointsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'endpoints'>;
  readonly model: Model;
  readonly files: StateFiles;
  readonly nodeNetns: string | undefined;
  readonly log: Logger;
  readonly waiters: Waiters;
  /** Inputs that are not complete. */
  readonly pendingInputs: () => readonly string[];
  /** Undefined before the core starts and after it stops. */
  readonly side: () => Pick<KernelSide, 'endpoints' | 'writer' | 'sync'> | undefined;
}

/** Adds and removes endpoints of this node, and restores them from their file at the start. */
export class LocalEndpoints {
  readonly #options: LocalEndpointsOptions;
  readonly #restored: InitDone;
  #nextId = 1;

  constructor(options: LocalEndpointsOptions) {
    const { db, tables, files } = options;
    this.#options = options;
    this.#restored = db.initialiser(tables.endpoints, 'state-folder');
    files.provide('endpoints', () => this.#rows());
  }

  /** @param away endpoints whose interface is, with our programs, in another network namespace, with its index there */
  async restore(away: ReadonlyMap<number, number>): Promise<void> {
    const { db, tables, files, log, nodeNetns } = this.#options;
    const loaded = files.load('endpoints');
    const endpoints = typeof loaded === 'object' ? loaded.content : [];
    const interfaces = endpoints.length === 0 ? new Map() : await nodeInterfaces(nodeNetns);
    const kept = endpoints.flatMap((row) => {
      const reason = outdated(row, interfaces);
      // The interface may come back if it still has our programs elsewhere. Otherwise its pod is one that we connected, until it is deleted.
      if (!interfaces.has(row.interfaceName) && (row.pod !== undefined || away.has(row.id)))
        return [{ ...row, gone: row.gone ?? new Date().toISOString() }];
      if (reason === undefined) return [row];
      log.info({ endpoint: row.id, reason }, 'dropping a saved endpoint: its interface is gone or is another one');
      return [];
    });
    db.write([tables.endpoints], (txn) => {
      for (const row of kept) {
        txn.upsert(tables.endpoints, row);
        this.#nextId = Math.max(this.#nextId, (row.id % LAST_ENDPOINT) + 1);
      }
      this.#restored(txn);
    });
    if (kept.length < endpoints.length) void files.save('endpoints');
  }

  /** As `Core.upsertEndpoint`. */
  async upsert(
    endpoint: EndpointRow,
    { timeoutMs = TIMEOUT_MS }: { readonly timeoutMs?: number },
  ): Promise<EndpointStateRow> {
    const { db, tables, model, files, waiters } = this.#options;
    this.#need('add an endpoint');
    checkEndpoint(endpoint);
    db.write([tables.endpoints], (txn) => txn.upsert(tables.endpoints, endpoint));
    void files.save('endpoints');
    const key = tableKey.endpoint(endpoint.id);
    const ready = (): EndpointStateRow | undefined => {
      const side = this.#need('add an endpoint');
      const acknowledged = side.endpoints.acknowledged(endpoint.id);
      const status = side.writer.endpoints.status(key);
      if (status?.kind === 'error' && status.error instanceof InterfaceGoneError) throw status.error;
      if (model.info(endpoint.id)?.row !== endpoint || acknowledged?.state !== 'ready' || status?.kind !== 'done')
        return undefined;
      return acknowledged === model.state(endpoint.id) ? acknowledged : undefined;
    };
    const found = await waiters.until(ready, AbortSignal.timeout(timeoutMs));
    await files.saved();
    if (found) return found;
    throw this.#notReady(endpoint.id, timeoutMs);
  }

  #notReady(id: number, timeoutMs: number): EndpointNotReadyError {
    const { model, pendingInputs, side } = this.#options;
    const { writer, sync } = side() ?? {};
    const status = writer?.endpoints.status(tableKey.endpoint(id));
    const broken = sync?.broken instanceof Error ? sync.broken : undefined;
    const cause = status?.kind === 'error' ? status.error : broken;
    const pending = pendingInputs();
    const awaited =
      pending.length > 0
        ? `these inputs are not complete yet: ${pending.join(', ')}`
        : (model.info(id)?.reason ?? model.failure(id)?.message);
    const why = cause?.message ?? awaited ?? 'the kernel has not acknowledged it yet';
    const waits = cause === undefined && awaited !== undefined;
    return new EndpointNotReadyError(id, timeoutMs, why, { waits, cause });
  }

  /** As `Core.deleteEndpoint`. */
  async delete(id: number): Promise<boolean> {
    const { db, tables, model, files, waiters, pendingInputs } = this.#options;
    const side = this.#need('delete an endpoint');
    const key = tableKey.endpoint(id);
    const row = db.write([tables.endpoints], (txn) => txn.delete(tables.endpoints, key));
    if (row === undefined) return false;
    void files.save('endpoints');
    // It left the kernel when its interface went: no round removes it again.
    if (row.gone !== undefined) side.endpoints.delete(id, { everywhere: true });
    const gone = (): true | undefined =>
      model.info(id) === undefined &&
      side.endpoints.acknowledged(id) === undefined &&
      side.writer.endpoints.status(key) === undefined
        ? true
        : undefined;
    // No round runs before the inputs are complete. Until then the programs of a pod that is gone have nothing to enforce.
    await waiters.until(() => (pendingInputs().length > 0 ? true : gone()), AbortSignal.timeout(TIMEOUT_MS));
    await files.saved();
    return true;
  }

  /** @throws IdsExhaustedError */
  allocateId(): number {
    const { db, tables, side } = this.#options;
    using snapshot = db.read();
    for (let tried = 0; tried < LAST_ENDPOINT; tried += 1) {
      const id = this.#nextId;
      this.#nextId = id === LAST_ENDPOINT ? 1 : id + 1;
      if (!snapshot.has(tables.endpoints, tableKey.endpoint(id)) && side()?.endpoints.has(id) !== true) return id;
    }
    throw new IdsExhaustedError('endpoint ids', LAST_ENDPOINT);
  }

  #need(what: string): Pick<KernelSide, 'endpoints' | 'writer' | 'sync'> {
    const side = this.#options.side();
    if (side === undefined) throw new NotStartedError(what);
    return side;
  }

  #rows(): readonly EndpointRow[] {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    return [...snapshot.all(tables.endpoints)];
  }
}
