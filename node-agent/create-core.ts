import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeEvent, SETTINGS } from '@weir/bpf';
import { parseAddress } from '@weir/net';
import { type AnyTable, createStateDB, type InitDone, type StateDB } from '@weir/statedb';
import { hasTcx, inNetns, RingBufferReader } from 'libbpf-ts';
import { Subject } from 'rxjs';
import type { Core, CoreOptions, FlowEvent, ImportedRule, Realised, Tables } from './core.ts';
import { createTables, tableKey } from './create-tables.ts';
import {
  ClsactLinks,
  Conntrack,
  EndpointStore,
  FlowNames,
  type InNode,
  IpcacheStore,
  Links,
  PinnedDatapath,
  PlanWriter,
  RootLock,
  RoundMark,
  SlotStore,
  SyncLoop,
} from './datapath/index.ts';
import { decodeNumbers, Engine, ImportedRules, LocalNumbers, type NumbersState } from './derive/index.ts';
import {
  CoreError,
  EndpointNotReadyError,
  IdsExhaustedError,
  InterfaceGoneError,
  InvalidEndpointError,
  NotStartedError,
} from './errors.ts';
import { MapInspector } from './map-inspector.ts';
import { objects, StateFile } from './persist.ts';
import { RealisedReport } from './realised.ts';
import type { EndpointRow, EndpointStateRow } from './tables.ts';

const LAST_ENDPOINT = 65535;
const UPSERT_TIMEOUT_MS = 10_000;
/** A packet is judged in microseconds. */
const QUIESCE_MS = 50;
const COLLECT_MS = 10_000;

/** Lets timers, sockets and other callers of this process run. */
const breathe = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

interface Running {
  readonly lock: RootLock;
  readonly pinned: PinnedDatapath;
  readonly slots: SlotStore;
  readonly sync: SyncLoop;
  readonly writer: PlanWriter;
  readonly mark: RoundMark;
  readonly report: RealisedReport;
  readonly inspector: MapInspector;
  readonly ring: RingBufferReader;
  readonly endpoints: EndpointStore;
  readonly stop: AbortController;
  collecting: Promise<void>;
}

/** The agent's core on the kernel. In Kubernetes, register initialisers on the input tables before `start()`. */
export function createCore(options: CoreOptions): Core {
  return new KernelCore(options);
}

class KernelCore implements Core {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly events = new Subject<FlowEvent>();
  readonly realisedChanges = new Subject<Realised>();
  readonly #options: CoreOptions;
  readonly #numbers = new LocalNumbers();
  readonly #engine: Engine;
  readonly #imported: ImportedRules;
  readonly #files: {
    readonly endpoints: StateFile<readonly EndpointRow[]>;
    readonly rules: StateFile<readonly unknown[]>;
    readonly numbers: StateFile<NumbersState>;
  };
  readonly #restored: InitDone;
  readonly #waiters = new Set<() => void>();
  #running: Running | undefined;
  #realised: Realised = { revision: 0, policies: new Map(), failures: [] };
  #realisedText = '';
  #nextId = 1;
  #ctEntries = 0;
  #ringError: string | undefined;

  constructor(options: CoreOptions) {
    this.#options = options;
    this.db = createStateDB();
    this.tables = createTables(this.db);
    this.#restored = this.db.initialiser(this.tables.endpoints, 'state-folder');
    this.#engine = new Engine({
      db: this.db,
      tables: this.tables,
      core: options,
      numbers: this.#numbers,
      now: () => performance.now(),
      breathe,
    });
    this.#imported = new ImportedRules(this.db, this.tables);
    this.#files = {
      endpoints: new StateFile({ path: join(options.stateDir, 'endpoints.json'), decode: decodeEndpoints, empty: [] }),
      rules: new StateFile({ path: join(options.stateDir, 'rules.json'), decode: decodeRules, empty: [] }),
      numbers: new StateFile({
        path: join(options.stateDir, 'identities.json'),
        decode: decodeNumbers,
        empty: { cidrs: {}, labels: {}, revisions: 0 },
      }),
    };
  }

  async start(): Promise<void> {
    if (this.#running) return;
    const { log, bpfRoot, stateDir } = this.#options;
    const lock = new RootLock(bpfRoot, stateDir);
    await lock.acquire();
    try {
      const restored = {
        endpoints: this.#files.endpoints.load(),
        rules: this.#files.rules.load(),
        numbers: this.#files.numbers.load(),
      };
      const pinned = PinnedDatapath.open({
        root: bpfRoot,
        ...(this.#options.datapathObject === undefined ? {} : { object: this.#options.datapathObject }),
        ...(this.#options.ctEntries === undefined ? {} : { ctEntries: this.#options.ctEntries }),
      });
      if (pinned.replaced.length > 0)
        log.info({ maps: pinned.replaced }, 'maps of another shape are replaced beside the old ones');
      this.#restore(restored);
      const inNode = this.#inNode();
      const now = (): number => performance.now();
      const slots = new SlotStore({ ...pinned.maps, now });
      const mark = new RoundMark(pinned.maps.settings);
      const attachment = this.#options.attachment ?? (hasTcx() ? 'tcx' : 'clsact');
      const links =
        attachment === 'tcx' ? new Links(bpfRoot, pinned, inNode) : new ClsactLinks(bpfRoot, pinned, inNode);
      const ipcache = new IpcacheStore(pinned.maps.ipcache);
      const endpoints = new EndpointStore(pinned.endpoints, links, (slot) => writer.slotReady(slot));
      const conntrack = new Conntrack(pinned.maps.ct4, breathe);
      this.#engine.adopt({
        endpoints: endpoints.adopt(),
        slots: await slots.adopt(breathe),
        ipcache: await ipcache.adopt(breathe),
        interrupted: mark.set,
      });
      const writer = new PlanWriter({
        db: this.db,
        tables: this.tables,
        engine: this.#engine,
        numbers: this.#numbers,
        slots,
        ipcache,
        endpoints,
        conntrack,
        mark,
        breathe,
        quiesce: () => new Promise((resolve) => setTimeout(resolve, QUIESCE_MS)),
        saveNumbers: () => this.#files.numbers.save(this.#numbers.state()),
        onAdopted: () => pinned.commitPins(),
        log,
      });
      const sync = new SyncLoop({
        engine: this.#engine,
        imported: this.#imported,
        writer,
        slots,
        breathe,
        now,
        log,
        complete: () => this.#pendingInputs().length === 0,
        policyRevision: () => this.policyRevision(),
        onRound: () => this.#onRound(),
      });
      const report = new RealisedReport({ engine: this.#engine, sync, writer, endpoints, now, wallClock: Date.now });
      const inspector = new MapInspector({
        root: bpfRoot,
        maps: pinned.maps,
        endpoints: pinned.endpoints,
        slots,
        counts: () => ({ ipcache: this.#engine.ipcacheSize(), ct4: this.#ctEntries }),
      });
      const names = new FlowNames(this.#engine, bootOffset);
      const ring = new RingBufferReader({
        map: pinned.maps.events,
        handler: (record) => {
          if (this.events.observed) this.events.next(names.event(decodeEvent(record)));
        },
        onError: (error) => {
          this.#ringError = String(error);
          log.error({ error: this.#ringError }, 'reading drop events failed');
        },
      });
      ring.start();
      const stop = new AbortController();
      this.#running = {
        lock,
        pinned,
        slots,
        sync,
        writer,
        mark,
        report,
        inspector,
        ring,
        endpoints,
        stop,
        collecting: Promise.resolve(),
      };
      this.#running.collecting = this.#collect(conntrack, stop.signal);
      // A table may become complete without a changed row.
      for (const table of this.#inputs()) this.db.initialisedWatch(table).onFire(() => sync.schedule());
      sync.schedule();
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  async stop(): Promise<void> {
    const running = this.#running;
    if (running === undefined) return;
    this.#running = undefined;
    running.stop.abort();
    await running.sync.stop();
    await running.collecting;
    running.ring.close();
    running.slots.close();
    running.pinned.close();
    this.#engine.dispose();
    this.#imported.dispose();
    await running.lock.release();
    for (const waiter of [...this.#waiters]) waiter();
  }

  async upsertEndpoint(
    endpoint: EndpointRow,
    options: { readonly timeoutMs?: number } = {},
  ): Promise<EndpointStateRow> {
    this.#need('add an endpoint');
    checkEndpoint(endpoint);
    this.db.write([this.tables.endpoints], (txn) => txn.upsert(this.tables.endpoints, endpoint));
    this.#saveEndpoints();
    const timeoutMs = options.timeoutMs ?? UPSERT_TIMEOUT_MS;
    const key = tableKey.endpoint(endpoint.id);
    const ready = (): EndpointStateRow | undefined => {
      const running = this.#need('add an endpoint');
      const held = running.endpoints.held(endpoint.id);
      const status = running.writer.endpoints.status(key);
      if (status?.kind === 'error' && status.error instanceof InterfaceGoneError) throw status.error;
      if (this.#engine.info(endpoint.id)?.row !== endpoint || held?.state !== 'ready' || status?.kind !== 'done')
        return undefined;
      return held === this.#engine.state(endpoint.id) ? held : undefined;
    };
    const found = await this.#until(ready, AbortSignal.timeout(timeoutMs));
    if (found) return found;
    const status = this.#running?.writer.endpoints.status(key);
    const cause = status?.kind === 'error' ? status.error : undefined;
    const pending = this.#pendingInputs();
    const why =
      cause?.message ??
      this.#engine.info(endpoint.id)?.reason ??
      (pending.length > 0
        ? `these inputs are not complete yet: ${pending.join(', ')}`
        : 'the kernel has not acknowledged it yet');
    throw new EndpointNotReadyError(endpoint.id, timeoutMs, why, cause);
  }

  async deleteEndpoint(id: number): Promise<boolean> {
    const running = this.#need('delete an endpoint');
    const row = this.db.write([this.tables.endpoints], (txn) =>
      txn.delete(this.tables.endpoints, tableKey.endpoint(id)),
    );
    if (row === undefined) return false;
    this.#saveEndpoints();
    const key = tableKey.endpoint(id);
    const gone = (): true | undefined =>
      this.#engine.info(id) === undefined &&
      running.endpoints.held(id) === undefined &&
      running.writer.endpoints.status(key) === undefined
        ? true
        : undefined;
    // Before the inputs are complete no round runs: the programs of a pod that is gone have nothing to enforce until then.
    await this.#until(() => (this.#pendingInputs().length > 0 ? true : gone()), AbortSignal.timeout(UPSERT_TIMEOUT_MS));
    return true;
  }

  allocateEndpointId(): number {
    using snapshot = this.db.read();
    for (let tried = 0; tried < LAST_ENDPOINT; tried += 1) {
      const id = this.#nextId;
      this.#nextId = id === LAST_ENDPOINT ? 1 : id + 1;
      if (
        !snapshot.has(this.tables.endpoints, tableKey.endpoint(id)) &&
        this.#running?.endpoints.held(id) === undefined
      )
        return id;
    }
    throw new IdsExhaustedError('endpoint ids', LAST_ENDPOINT);
  }

  policyRevision(): number {
    using snapshot = this.db.read();
    return 1 + snapshot.revision(this.tables.policies) + snapshot.revision(this.tables.peerSets);
  }

  async waitPolicyRevision(
    revision: number,
    signal?: AbortSignal,
  ): Promise<{ readonly revision: number; readonly failing: readonly string[] }> {
    const running = this.#need('wait for a policy revision');
    const reached = (): number | undefined => (running.sync.reached >= revision ? running.sync.reached : undefined);
    const found = await this.#until(reached, signal);
    if (found === undefined) {
      signal?.throwIfAborted();
      throw new NotStartedError('wait for a policy revision');
    }
    const failing = running.writer.endpoints.failing().map(({ row, error }) => `endpoint ${row.id}: ${error.message}`);
    return { revision: found, failing };
  }

  importRules(
    json: unknown,
    options: { readonly replace?: boolean; readonly replaceWithLabels?: readonly string[] } = {},
  ): ReturnType<Core['importRules']> {
    const problems = this.#imported.import(json, options);
    if (!problems.some(({ code }) => code !== 'Warning')) this.#saveRules();
    return { revision: this.policyRevision(), problems };
  }

  importedRules(labels: readonly string[] = []): readonly ImportedRule[] {
    return this.#imported.list(labels);
  }

  deleteRules(labels: readonly string[]): { readonly revision: number; readonly deleted: number } {
    const deleted = this.#imported.delete(labels);
    if (deleted > 0) this.#saveRules();
    return { revision: this.policyRevision(), deleted };
  }

  realised(): Realised {
    return this.#realised;
  }

  setVerbose(on: boolean): void {
    this.#need('change the event level').mark.change(on ? SETTINGS.allowEvents : 0);
  }

  maps(): ReturnType<Core['maps']> {
    return this.#need('list maps').inspector.maps();
  }

  mapEntries(name: string): ReturnType<Core['mapEntries']> {
    return this.#need('read a map').inspector.entries(name);
  }

  metrics(): ReturnType<Core['metrics']> {
    return this.#need('read metrics').inspector.metrics();
  }

  health(): ReturnType<Core['health']> {
    const running = this.#running;
    const pending = this.#pendingInputs();
    const failing = running
      ? [...running.writer.slots.failing(), ...running.writer.ipcache.failing(), ...running.writer.endpoints.failing()]
      : [];
    const first = failing[0]?.error.message;
    const broken = running?.sync.broken;
    const checks = [
      { name: 'running', ok: running !== undefined, message: running ? 'the core runs' : 'the core is not started' },
      {
        name: 'inputs',
        ok: pending.length === 0,
        message:
          pending.length === 0
            ? 'all inputs are complete'
            : `not complete yet: ${pending.join(', ')}; what was enforced stays enforced`,
      },
      {
        name: 'kernel',
        ok: failing.length === 0 && broken === undefined,
        message:
          broken !== undefined
            ? `the last round failed: ${broken instanceof Error ? broken.message : 'for an unknown reason'}`
            : first === undefined
              ? 'the kernel holds what is wanted'
              : `${failing.length} changes are refused: ${first}`,
      },
      {
        name: 'events',
        ok: this.#ringError === undefined,
        message: this.#ringError === undefined ? 'drop events are read' : this.#ringError,
      },
    ];
    return { ok: checks.every(({ ok }) => ok), checks };
  }

  #need(what: string): Running {
    if (this.#running === undefined) throw new NotStartedError(what);
    return this.#running;
  }

  #inNode(): InNode {
    const { nodeNetns } = this.#options;
    return nodeNetns === undefined ? (body) => body() : (body) => inNetns(nodeNetns, body);
  }

  #inputs(): readonly AnyTable[] {
    const {
      policies,
      peerSets,
      identities,
      remoteEndpoints,
      nodes,
      localPods,
      namespaces,
      apiserverAddresses,
      endpoints,
    } = this.tables;
    return [
      policies,
      peerSets,
      identities,
      remoteEndpoints,
      nodes,
      localPods,
      namespaces,
      apiserverAddresses,
      endpoints,
    ];
  }

  /** Inputs that are not complete; while there is one the kernel is left as it is. */
  #pendingInputs(): string[] {
    const tables = this.#inputs().flatMap((table) =>
      this.db.pendingInitialisers(table).map((name) => `${table.name} (${name})`),
    );
    return [...tables, ...this.#engine.awaited().map((hash) => `peerSets (${hash}, which a policy names)`)];
  }

  #restore(restored: { endpoints: readonly EndpointRow[]; rules: readonly unknown[]; numbers: NumbersState }): void {
    const { log } = this.#options;
    this.#numbers.adopt(restored.numbers);
    const interfaces = this.#inNode()(interfaceNames);
    this.db.write([this.tables.endpoints], (txn) => {
      for (const row of restored.endpoints) {
        if (!interfaces.has(row.interfaceName)) {
          log.info(
            { endpoint: row.id, interface: row.interfaceName },
            'an endpoint of the state folder has no interface any more',
          );
          continue;
        }
        txn.upsert(this.tables.endpoints, row);
        this.#nextId = Math.max(this.#nextId, (row.id % LAST_ENDPOINT) + 1);
      }
      this.#restored(txn);
    });
    if (restored.rules.length > 0) {
      const problems = this.#imported.import(restored.rules).filter(({ code }) => code !== 'Warning');
      if (problems.length > 0) {
        throw new CoreError(
          'ERR_WEIR_RULES',
          `the imported rules of ${this.#files.rules.path} are not valid any more: ${problems[0]?.path}: ${problems[0]?.message}`,
        );
      }
    }
  }

  #saveEndpoints(): void {
    using snapshot = this.db.read();
    this.#files.endpoints.save([...snapshot.all(this.tables.endpoints)]);
  }

  #saveRules(): void {
    this.#files.rules.save(this.#imported.list().map(({ json }) => json));
  }

  /** Calls `test` now and after each round until it answers; undefined when the signal or the core's end comes first. */
  async #until<T>(test: () => T | undefined, signal?: AbortSignal): Promise<T | undefined> {
    const now = test();
    if (now !== undefined) return now;
    return await new Promise<T | undefined>((resolve, reject) => {
      const finish = (answer: T | undefined): void => {
        this.#waiters.delete(look);
        signal?.removeEventListener('abort', aborted);
        resolve(answer);
      };
      const aborted = (): void => finish(undefined);
      const look = (): void => {
        if (this.#running === undefined) {
          finish(undefined);
          return;
        }
        try {
          const answer = test();
          if (answer !== undefined) finish(answer);
        } catch (error) {
          this.#waiters.delete(look);
          signal?.removeEventListener('abort', aborted);
          reject(error);
        }
      };
      this.#waiters.add(look);
      signal?.addEventListener('abort', aborted);
      if (signal?.aborted) aborted();
    });
  }

  #onRound(): void {
    const running = this.#running;
    if (running) {
      const next = running.report.take();
      const text = JSON.stringify([[...next.policies], next.failures]);
      if (text !== this.#realisedText || this.#realised.revision === 0) {
        this.#realisedText = text;
        this.#realised = next;
        this.realisedChanges.next(next);
      } else this.#realised = next;
    }
    for (const waiter of [...this.#waiters]) waiter();
  }

  async #collect(conntrack: Conntrack, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, COLLECT_MS);
        timer.unref();
        function done(): void {
          signal.removeEventListener('abort', done);
          clearTimeout(timer);
          resolve();
        }
        signal.addEventListener('abort', done);
      });
      if (signal.aborted) return;
      // Missing PeerSets become failures by the passing of time.
      this.#onRound();
      try {
        const { entries, deleted } = await conntrack.collect(signal);
        this.#ctEntries = entries - deleted;
      } catch (error) {
        this.#options.log.error({ error: String(error) }, 'collecting expired connections failed');
      }
    }
  }
}

/** Wall clock less boot clock now, in nanoseconds (`/proc/uptime` counts suspended time, as CLOCK_BOOTTIME does). */
function bootOffset(): bigint {
  const uptime = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
  return BigInt(Math.round((Date.now() / 1000 - uptime) * 1000)) * 1_000_000n;
}

/** Interfaces of the calling thread's network namespace. */
function interfaceNames(): Set<string> {
  const lines = readFileSync('/proc/thread-self/net/dev', 'utf8').split('\n').slice(2);
  return new Set(lines.map((line) => line.slice(0, line.indexOf(':')).trim()).filter((name) => name !== ''));
}

function checkEndpoint(row: EndpointRow): void {
  if (!Number.isInteger(row.id) || row.id < 1 || row.id > LAST_ENDPOINT)
    throw new InvalidEndpointError(row.id, 'its id must be 1..65535');
  if (!Number.isInteger(row.ifindex) || row.ifindex < 1)
    throw new InvalidEndpointError(row.id, `ifindex ${row.ifindex} is no interface index`);
  try {
    if (parseAddress(row.ipv4).family === 4) return;
  } catch (error) {
    throw new InvalidEndpointError(
      row.id,
      `ipv4 ${JSON.stringify(row.ipv4)}: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  throw new InvalidEndpointError(row.id, `ipv4 ${JSON.stringify(row.ipv4)} is no IPv4 address`);
}

function decodeEndpoints(json: unknown): readonly EndpointRow[] {
  return objects(json, 'endpoints').map((fields) => {
    const row = fields as unknown as EndpointRow;
    if (typeof fields.interfaceName !== 'string') throw new Error('has an endpoint without interfaceName');
    checkEndpoint(row);
    return row;
  });
}

function decodeRules(json: unknown): readonly unknown[] {
  return objects(json, 'rules');
}
