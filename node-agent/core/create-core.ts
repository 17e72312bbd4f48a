import type { ProgramObject } from '@weir/bpf';
import { type AnyTable, createStateDB, type InitDone, type StateDB } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { Subject } from 'rxjs';
import type { Brought, Core, CoreOptions, ImportedRule, Naming, Realised, RulesWait, Tables } from '../core.ts';
import { createTables, inputTables, tableKey } from '../create-tables.ts';
import { BesidePins, Datapath, liveLinks } from '../datapath/index.ts';
import { LocalNumbers, Model, namingOf } from '../derive/index.ts';
import { EndpointNotReadyError, IdsExhaustedError, InterfaceGoneError, NotStartedError } from '../errors.ts';
import { nodeInterfaces } from '../host/interfaces.ts';
import { RealisedReport } from '../realised/report.ts';
import type { Loaded } from '../state/persist.ts';
import { StateFiles } from '../state/state-files.ts';
import type { EndpointRow, EndpointStateRow } from '../tables.ts';
import { connectionsCheck, endpointsCheck, labelsCheck, stepsCheck } from './endpoint-checks.ts';
import { checkEndpoint, LAST_ENDPOINT, outdated } from './endpoint-rows.ts';
import { healthOf, incompleteText, RULES_UNKNOWN } from './health.ts';
import { InputGates } from './input-gates.ts';
import { breathe, KernelSide } from './kernel-side.ts';
import { PendingInputs } from './pending-inputs.ts';
import { PodEvents } from './pod-events.ts';
import { removeDatapath } from './remove-datapath.ts';
import { SavedRules } from './saved-rules.ts';
import { Strays } from './strays.ts';
import { Waiters } from './waiters.ts';

const UPSERT_TIMEOUT_MS = 10_000;

/**
 * The agent's core on the kernel. In Kubernetes, register initialisers on the input tables before `start()`.
 * @param datapath started before the core and stopped after it; without one the core has its own
 */
export function createCore(options: CoreOptions, datapath?: Datapath): Core {
  return new KernelCore(options, datapath);
}

class KernelCore implements Core {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly files: StateFiles;
  readonly naming: Naming;
  readonly realisedChanges = new Subject<Realised>();
  readonly #options: CoreOptions;
  readonly #datapath: Datapath;
  /** Nobody else starts and stops the datapath. */
  readonly #own: boolean;
  readonly #numbers: LocalNumbers;
  readonly #model: Model;
  readonly #rules: SavedRules;
  readonly #gates: InputGates;
  #inputs: readonly AnyTable[];
  readonly #pending: PendingInputs;
  readonly #restored: InitDone;
  readonly #strays: Strays;
  readonly #report: RealisedReport;
  readonly #waiters = new Waiters();
  #side: KernelSide | undefined;
  #removed = false;
  #taken = false;
  #nextId = 1;

  constructor(options: CoreOptions, datapath?: Datapath) {
    this.#options = options;
    this.#own = datapath === undefined;
    const objects = (): readonly ProgramObject[] => options.brought?.().objects ?? [];
    this.#datapath = datapath ?? new Datapath({ ...options, objects });
    this.db = options.db ?? createStateDB({ countSnapshots: true });
    this.tables = createTables(this.db);
    this.#numbers = new LocalNumbers(this.db);
    this.#inputs = inputTables(this.tables);
    this.#restored = this.db.initialiser(this.tables.endpoints, 'state-folder');
    const now = (): number => performance.now();
    this.#model = new Model({
      db: this.db,
      tables: this.tables,
      core: options,
      numbers: this.#numbers,
      now,
      breathe,
    });
    this.naming = namingOf(this.#model, (endpoint) => this.#side?.endpoints.held(endpoint)?.policies ?? {});
    this.#pending = new PendingInputs(this.db, () => this.#gates.pending(), now);
    this.#report = new RealisedReport({
      db: this.db,
      tables: this.tables,
      model: this.#model,
      policyMode: options.policyMode,
      now,
    });
    this.#gates = new InputGates({
      db: this.db,
      tables: this.tables,
      inputs: () => this.#inputs,
      awaited: () => this.#model.awaited(),
      onLate: () => this.#side?.sync.schedule(),
    });
    this.files = new StateFiles({
      folder: options.stateDir,
      node: options.nodeName,
      db: this.db,
      log: options.log,
    });
    this.#rules = new SavedRules({ db: this.db, tables: this.tables, files: this.files, log: options.log });
    this.files.provide('endpoints', () => this.#endpointRows());
    this.files.provide('numbers', () => this.#numbers.state());
    this.#strays = new Strays({
      db: this.db,
      tables: this.tables,
      numbers: this.#numbers,
      nodeNetns: options.nodeNetns,
      log: options.log,
      allocateId: () => this.allocateEndpointId(),
      file: this.files.path('endpoints'),
      save: () => void this.files.save('endpoints'),
    });
  }

  async start(): Promise<void> {
    if (this.#side) return;
    if (this.#own) this.#datapath.start();
    try {
      const open = this.#datapath.open('start the core');
      const { lock, netns } = open;
      this.#take(this.#options.brought?.() ?? {});
      await this.#restore();
      const side = await KernelSide.open({
        open,
        core: this.#options,
        db: this.db,
        tables: this.tables,
        model: this.#model,
        besidePins: new BesidePins(lock, netns),
        imported: this.#rules.imported,
        numbers: this.#numbers,
        saveNumbers: () => this.files.save('numbers'),
        strays: this.#strays,
        inputs: {
          complete: () => this.#gates.open(),
          policyRevision: () => this.policyRevision(),
        },
        on: {
          round: () => this.#onRound(),
          mended: (what) =>
            new PodEvents(this).warnNode(
              this.#options.nodeName,
              'EnforcementRemoved',
              `somebody removed what enforces policies on this node; found and put back: ${what}`,
            ),
          look: () => {
            lock.look();
            void this.files.look();
            new PodEvents(this).tellHeld();
          },
        },
      });
      this.#side = side;
      this.#rules.restore(side.mark);
      // A table may become complete without a changed row.
      for (const table of this.#inputs) this.db.initialisedWatch(table).onFire(() => side.sync.schedule());
      side.start();
    } catch (error) {
      const side = this.#side;
      this.#side = undefined;
      await side?.stop();
      if (this.#own) this.#datapath.stop();
      throw error;
    }
  }

  /** What parts bring. A second start takes it once. */
  #take({ addresses = [], steps = [] }: Brought): void {
    if (this.#taken) return;
    this.#taken = true;
    this.#model.extend({ addresses, steps });
    this.#inputs = [...this.#inputs, ...addresses.map(({ table }) => table as AnyTable)];
  }

  async stop(): Promise<void> {
    const side = this.#side;
    if (side === undefined) return;
    this.#side = undefined;
    await side.stop();
    await this.files.stop();
    this.#rules.ended(side.mark);
    this.#model.dispose();
    if (this.#own) this.#datapath.stop();
    this.#waiters.close();
  }

  async remove(): Promise<void> {
    // From here on there is nothing to list or count, and those who ask are answered so.
    this.#removed = true;
    await this.stop();
    this.#datapath.stop();
    await removeDatapath(this.#options);
  }

  async upsertEndpoint(
    endpoint: EndpointRow,
    options: { readonly timeoutMs?: number } = {},
  ): Promise<EndpointStateRow> {
    this.#need('add an endpoint');
    checkEndpoint(endpoint);
    this.db.write([this.tables.endpoints], (txn) => txn.upsert(this.tables.endpoints, endpoint));
    void this.files.save('endpoints');
    const timeoutMs = options.timeoutMs ?? UPSERT_TIMEOUT_MS;
    const key = tableKey.endpoint(endpoint.id);
    const ready = (): EndpointStateRow | undefined => {
      const side = this.#need('add an endpoint');
      const held = side.endpoints.held(endpoint.id);
      const status = side.writer.endpoints.status(key);
      if (status?.kind === 'error' && status.error instanceof InterfaceGoneError) throw status.error;
      if (this.#model.info(endpoint.id)?.row !== endpoint || held?.state !== 'ready' || status?.kind !== 'done')
        return undefined;
      return held === this.#model.state(endpoint.id) ? held : undefined;
    };
    const found = await this.#waiters.until(ready, AbortSignal.timeout(timeoutMs));
    await this.files.saved();
    if (found) return found;
    const { writer, sync } = this.#side ?? {};
    const status = writer?.endpoints.status(key);
    const broken = sync?.broken instanceof Error ? sync.broken : undefined;
    const cause = status?.kind === 'error' ? status.error : broken;
    const pending = this.#gates.pending();
    const awaited =
      pending.length > 0
        ? `these inputs are not complete yet: ${pending.join(', ')}`
        : (this.#model.info(endpoint.id)?.reason ?? this.#model.failure(endpoint.id)?.message);
    const why = cause?.message ?? awaited ?? 'the kernel has not acknowledged it yet';
    const waits = cause === undefined && awaited !== undefined;
    throw new EndpointNotReadyError(endpoint.id, timeoutMs, why, { waits, cause });
  }

  async deleteEndpoint(id: number): Promise<boolean> {
    const side = this.#need('delete an endpoint');
    const row = this.db.write([this.tables.endpoints], (txn) =>
      txn.delete(this.tables.endpoints, tableKey.endpoint(id)),
    );
    if (row === undefined) return false;
    void this.files.save('endpoints');
    // No round takes out of the kernel what was taken out when its interface went.
    if (row.gone !== undefined) side.endpoints.delete(id, { everywhere: true });
    const key = tableKey.endpoint(id);
    const gone = (): true | undefined =>
      this.#model.info(id) === undefined &&
      side.endpoints.held(id) === undefined &&
      side.writer.endpoints.status(key) === undefined
        ? true
        : undefined;
    // Before the inputs are complete no round runs: the programs of a pod that is gone have nothing to enforce until then.
    await this.#waiters.until(
      () => (this.#gates.pending().length > 0 ? true : gone()),
      AbortSignal.timeout(UPSERT_TIMEOUT_MS),
    );
    await this.files.saved();
    return true;
  }

  allocateEndpointId(): number {
    using snapshot = this.db.read();
    for (let tried = 0; tried < LAST_ENDPOINT; tried += 1) {
      const id = this.#nextId;
      this.#nextId = id === LAST_ENDPOINT ? 1 : id + 1;
      if (!snapshot.has(this.tables.endpoints, tableKey.endpoint(id)) && this.#side?.endpoints.has(id) !== true)
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
    const side = this.#need('wait for a policy revision');
    const reached = (): number | undefined => (side.sync.reached >= revision ? side.sync.reached : undefined);
    const found = await this.#waiters.until(reached, signal);
    if (found === undefined) {
      signal?.throwIfAborted();
      throw new NotStartedError('wait for a policy revision');
    }
    return { revision: found, failing: side.writer.rows.refusals() };
  }

  importRules(
    json: unknown,
    options: { readonly replace?: boolean; readonly replaceWithLabels?: readonly string[] } = {},
  ): ReturnType<Core['importRules']> {
    const problems = this.#rules.imported.import(json, options);
    if (!problems.some(({ code }) => code !== 'Warning')) this.#rulesChanged();
    return { revision: this.policyRevision(), problems };
  }

  importedRules(labels: readonly string[] = []): readonly ImportedRule[] {
    return this.#rules.imported.list(labels);
  }

  deleteRules(labels: readonly string[]): { readonly revision: number; readonly deleted: number } {
    const deleted = this.#rules.imported.delete(labels);
    // Where nobody knows which there are, only who deletes all says so: there are none.
    if (deleted > 0 || (labels.length === 0 && this.#rules.unknown)) this.#rulesChanged();
    return { revision: this.policyRevision(), deleted };
  }

  kernelSlot(slot: number): ReturnType<Core['kernelSlot']> {
    return this.#side?.slot(slot);
  }

  localIdentities(): ReturnType<Core['localIdentities']> {
    return this.#model.localIdentities();
  }

  rulesWait(): RulesWait | undefined {
    if (this.#side === undefined) return undefined;
    if (this.#rules.unknown) return { reason: 'ImportedRulesUnknown', message: RULES_UNKNOWN };
    if (!this.#pending.lasting()) return undefined;
    return { reason: 'InputsIncomplete', message: incompleteText(this.#gates.pending()) };
  }

  realised(): Realised {
    return this.#report.read();
  }

  policiesInKernel(): ReturnType<Core['policiesInKernel']> {
    return this.#side === undefined ? new Map() : this.#report.policies(this.#side);
  }

  setVerbose(on: boolean): void {
    if (this.#removed) return;
    this.#need('change the event level').setVerbose(on);
  }

  reconcilers(): ReturnType<Core['reconcilers']> {
    const writer = this.#side?.writer;
    return writer === undefined ? [] : [writer.slots, writer.ipcache, writer.endpoints];
  }

  maps(): ReturnType<Core['maps']> {
    if (this.#removed) return [];
    return this.#need('list maps').inspector.maps();
  }

  map(name: string): BpfMap {
    return this.#datapath.map(name);
  }

  mapEntries(name: string, slot?: number): ReturnType<Core['mapEntries']> {
    return this.#need('read a map').inspector.entries(name, slot);
  }

  verify(): ReturnType<Core['verify']> {
    return this.#need('verify maps').verify();
  }

  repairs(): ReturnType<Core['repairs']> {
    return this.#side?.audit.repairs() ?? [];
  }

  comparisons(): ReturnType<Core['comparisons']> {
    return this.#side?.audit.passes() ?? [];
  }

  metrics(): ReturnType<Core['metrics']> {
    if (this.#removed) return [];
    return this.#need('read metrics').inspector.metrics();
  }

  health(): ReturnType<Core['health']> {
    const pending = this.#pending.look();
    const { policyMode } = this.#options;
    return healthOf({
      side: this.#side,
      removed: this.#removed,
      pending,
      rulesAwaited: this.#side !== undefined && this.#rules.unknown,
      more: [
        endpointsCheck({ db: this.db, tables: this.tables, policyMode, wallClock: Date.now }),
        connectionsCheck(this, this.#side?.spentShares() ?? []),
        labelsCheck({
          waiting: this.#model.unidentified(),
          now: performance.now(),
          concluding: pending.length === 0,
        }),
        this.files.check(),
        stepsCheck(this.#model.failedSteps()),
      ],
    });
  }

  #need(what: string): KernelSide {
    if (this.#side === undefined) throw new NotStartedError(what);
    return this.#side;
  }

  async #restore(): Promise<void> {
    const { log, nodeNetns, bpfRoot } = this.#options;
    const endpoints = contentOf(this.files.load('endpoints')) ?? [];
    const numbers = contentOf(this.files.load('numbers'));
    if (numbers !== undefined) this.#numbers.adopt(numbers);
    const interfaces = endpoints.length === 0 ? new Map() : await nodeInterfaces(nodeNetns);
    const { away } = liveLinks(bpfRoot, this.#datapath.inNode);
    const kept = endpoints.flatMap((row) => {
      const reason = outdated(row, interfaces);
      // Where its programs are on it, wherever it is, it may come back. Else its pod, until it is deleted, is one that we connected.
      if (!interfaces.has(row.interfaceName) && (row.pod !== undefined || away.has(row.id)))
        return [{ ...row, gone: row.gone ?? new Date().toISOString() }];
      if (reason !== undefined)
        log.info({ endpoint: row.id, reason }, 'an endpoint of the state folder is none any more');
      return reason === undefined ? [row] : [];
    });
    this.db.write([this.tables.endpoints], (txn) => {
      for (const row of kept) {
        txn.upsert(this.tables.endpoints, row);
        this.#nextId = Math.max(this.#nextId, (row.id % LAST_ENDPOINT) + 1);
      }
      this.#restored(txn);
    });
    if (kept.length < endpoints.length) void this.files.save('endpoints');
  }

  #rulesChanged(): void {
    if (this.#side !== undefined) this.#rules.changed(this.#side.mark);
  }

  #endpointRows(): readonly EndpointRow[] {
    using snapshot = this.db.read();
    return [...snapshot.all(this.tables.endpoints)];
  }

  #onRound(): void {
    const side = this.#side;
    if (side) {
      if (this.#report.take(side)) this.realisedChanges.next(this.realised());
    }
    this.#waiters.look();
  }
}

function contentOf<T>(loaded: Loaded<T>): T | undefined {
  return typeof loaded === 'object' ? loaded.content : undefined;
}
