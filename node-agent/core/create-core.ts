import type { ProgramObject } from '@weir/bpf';
import { type AnyTable, createStateDB, type StateDB } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { Subject } from 'rxjs';
import type { Brought, Core, CoreOptions, ImportedRule, Naming, Realised, RulesWait, Tables } from '../core.ts';
import { createTables, inputTables } from '../create-tables.ts';
import { BesidePins, Datapath, liveLinks } from '../datapath/index.ts';
import { LocalNumbers, Model, namingOf } from '../derive/index.ts';
import { NotStartedError } from '../errors.ts';
import { RealisedReport } from '../realised/report.ts';
import { StateFiles } from '../state/state-files.ts';
import type { EndpointRow, EndpointStateRow } from '../tables.ts';
import { connectionsCheck, endpointsCheck, labelsCheck, stepsCheck } from './endpoint-checks.ts';
import { healthOf, incompleteText, RULES_UNKNOWN } from './health.ts';
import { InputGates } from './input-gates.ts';
import { KernelSide, yieldNow } from './kernel-side.ts';
import { LocalEndpoints } from './local-endpoints.ts';
import { PendingInputs } from './pending-inputs.ts';
import { PodEvents } from './pod-events.ts';
import { removeDatapath } from './remove-datapath.ts';
import { SavedRules } from './saved-rules.ts';
import { Strays } from './strays.ts';
import { Waiters } from './waiters.ts';

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
  readonly numbers: LocalNumbers;
  readonly #model: Model;
  readonly #rules: SavedRules;
  readonly #gates: InputGates;
  #inputs: readonly AnyTable[];
  readonly #pending: PendingInputs;
  readonly #endpoints: LocalEndpoints;
  readonly #strays: Strays;
  readonly #report: RealisedReport;
  readonly #waiters = new Waiters();
  #side: KernelSide | undefined;
  #removed = false;
  #taken = false;

  constructor(options: CoreOptions, datapath?: Datapath) {
    this.#options = options;
    this.#own = datapath === undefined;
    const objects = (): readonly ProgramObject[] => options.brought?.().objects ?? [];
    this.#datapath = datapath ?? new Datapath({ ...options, objects });
    this.db = options.db ?? createStateDB({ countSnapshots: true });
    this.tables = createTables(this.db);
    this.numbers = new LocalNumbers(this.db);
    this.#inputs = inputTables(this.tables);
    const now = (): number => performance.now();
    this.#model = new Model({
      db: this.db,
      tables: this.tables,
      core: options,
      numbers: this.numbers,
      now,
      yieldNow,
    });
    this.naming = namingOf(this.#model, (endpoint) => this.#side?.endpoints.acknowledged(endpoint)?.policies ?? {});
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
    this.#endpoints = new LocalEndpoints({
      db: this.db,
      tables: this.tables,
      model: this.#model,
      files: this.files,
      nodeNetns: options.nodeNetns,
      log: options.log,
      waiters: this.#waiters,
      pendingInputs: () => this.#gates.pending(),
      side: () => this.#side,
    });
    this.files.provide('numbers', () => this.numbers.state());
    this.#strays = new Strays({
      db: this.db,
      tables: this.tables,
      numbers: this.numbers,
      nodeNetns: options.nodeNetns,
      log: options.log,
      allocateId: () => this.#endpoints.allocateId(),
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
      const numbers = this.files.load('numbers');
      if (typeof numbers === 'object') this.numbers.adopt(numbers.content);
      await this.#endpoints.restore(liveLinks(this.#options.bpfRoot, this.#datapath.inNode).away);
      const side = await KernelSide.open({
        open,
        core: this.#options,
        db: this.db,
        tables: this.tables,
        model: this.#model,
        besidePins: new BesidePins(lock, netns),
        imported: this.#rules.imported,
        numbers: this.numbers,
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
              `somebody removed what enforces policies on this node; restored: ${what}`,
            ),
          look: () => {
            lock.look();
            void this.files.look();
            new PodEvents(this).tellDelayed();
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

  upsertEndpoint(endpoint: EndpointRow, options: { readonly timeoutMs?: number } = {}): Promise<EndpointStateRow> {
    return this.#endpoints.upsert(endpoint, options);
  }

  deleteEndpoint(id: number): Promise<boolean> {
    return this.#endpoints.delete(id);
  }

  allocateEndpointId(): number {
    return this.#endpoints.allocateId();
  }

  policyRevision(): number {
    using snapshot = this.db.read();
    const { policies, peerSets, nameIdentities } = this.tables;
    return (
      1 + [policies, peerSets, nameIdentities].reduce((sum, table) => sum + snapshot.revision(table as AnyTable), 0)
    );
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

  spentShares(): ReturnType<Core['spentShares']> {
    return this.#side?.spentShares() ?? { endpoints: [], peers: [] };
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
        connectionsCheck(this, this.spentShares()),
        labelsCheck({
          waiting: this.#model.unidentified(),
          now: performance.now(),
          computing: pending.length === 0,
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

  #rulesChanged(): void {
    if (this.#side !== undefined) this.#rules.changed(this.#side.mark);
  }

  #onRound(): void {
    const side = this.#side;
    if (side) {
      if (this.#report.take(side)) this.realisedChanges.next(this.realised());
    }
    this.#waiters.look();
  }
}
