import { type CT_KEYS, SETTINGS, settingsKey, settingsValue } from '@weir/bpf';
import { delay } from '@weir/process/delay';
import { messageOf } from '@weir/process/errors';
import type { StateDB } from '@weir/statedb';
import { hasTcx } from 'libbpf-ts';
import type { CoreOptions, SpentShares, Tables, Verification } from '../core.ts';
import {
  AddressAudit,
  Audit,
  auditRounds,
  type BesidePins,
  type Clock,
  ClsactLinks,
  Conntrack,
  EndpointStore,
  IpcacheStore,
  type KernelStores,
  Links,
  nodeScope,
  type OpenDatapath,
  type PartPrograms,
  type PinnedDatapath,
  PlanWriter,
  RoundMark,
  SlotAudit,
  SlotStore,
  SyncLoop,
  type SyncLoopOptions,
  verify,
} from '../datapath/index.ts';
import { type ImportedRules, type LocalNumbers, type Model, Pace } from '../derive/index.ts';
import { InterfaceGoneError } from '../errors.ts';
import type { EndpointRow, SlotContent } from '../tables.ts';
import { MapInspector } from './map-inspector.ts';
import type { Strays } from './strays.ts';

/** A packet is judged in microseconds. */
const QUIESCE_MS = 50;
const COLLECT_MS = 10_000;
/** How often is looked whether a quarantine is over. */
const RELEASE_MS = 500;
/** So many elements are named in a line of the log. */
const MOST_NAMED = 3;

const now = (): number => performance.now();

/** Lets timers, sockets and other callers of this process run. */
export const yieldNow = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const clock: Clock = {
  now,
  yieldNow,
  quiesce: (since) => {
    const leftMs = since + QUIESCE_MS - now();
    return leftMs <= 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, leftMs));
  },
};

export interface KernelSideOptions {
  readonly open: OpenDatapath;
  readonly core: CoreOptions;
  readonly db: StateDB;
  readonly tables: Tables;
  readonly model: Model;
  /** Of which network namespace the pins are, which files belong to them, and who may write them. */
  readonly besidePins: BesidePins;
  readonly imported: ImportedRules;
  readonly numbers: LocalNumbers;
  readonly saveNumbers: () => Promise<boolean>;
  readonly strays: Strays;
  readonly inputs: Pick<SyncLoopOptions, 'complete' | 'policyRevision'>;
  readonly on: {
    /** After every round, and from time to time without one. */
    readonly round: () => void;
    /** What somebody had taken away of what is enforced is there again, in words. */
    readonly mended: (what: string) => void;
    /** As often as is looked at what is enforced. */
    readonly look: () => void;
  };
}

/** All that is open while a core runs: pinned maps and programs, what writes them, and what reads them. */
export class KernelSide {
  readonly sync: SyncLoop;
  readonly writer: PlanWriter;
  readonly inspector: MapInspector;
  readonly endpoints: EndpointStore;
  readonly audit: Audit;
  readonly mark: RoundMark;
  readonly #options: KernelSideOptions;
  readonly #pinned: PinnedDatapath;
  readonly #partPrograms: PartPrograms;
  readonly #stores: KernelStores;
  readonly #conntrack: Conntrack;
  readonly #stop = new AbortController();
  #collecting: Promise<void> = Promise.resolve();
  #auditing: Promise<void> = Promise.resolve();
  #releasing: Promise<void> = Promise.resolve();
  #ctEntries: Readonly<Record<keyof typeof CT_KEYS, number>> = { ct4: 0, ct6: 0 };

  /** Tells the model what the pins hold. Nothing is changed yet. */
  static async open(options: KernelSideOptions): Promise<KernelSide> {
    options.besidePins.repin();
    const side = new KernelSide(options);
    await side.#adopt();
    return side;
  }

  private constructor(options: KernelSideOptions) {
    const { pinned, programs } = options.open;
    const { core, db, tables, model } = options;
    const { bpfRoot } = core;
    this.#options = options;
    this.#pinned = pinned;
    this.#partPrograms = programs;
    const slots = new SlotStore({ ...pinned.maps, ...clock, db, prefixOf: (identity) => model.prefixOf(identity) });
    const inNode = nodeScope(core);
    const attachment = core.kernel?.attachment ?? (hasTcx() ? 'tcx' : 'clsact');
    const links = attachment === 'tcx' ? new Links(bpfRoot, pinned, inNode) : new ClsactLinks(bpfRoot, pinned, inNode);
    this.endpoints = new EndpointStore({ db, tables }, pinned.endpoints, links, (slot) =>
      this.writer.rows.slotReady(slot),
    );
    this.#conntrack = new Conntrack({
      maps: pinned.maps,
      shares: pinned.ctShares,
      collected: (tick) => pinned.maps.settings.update(settingsKey.encode(1), settingsValue.encode(tick)),
      yieldNow,
    });
    this.mark = new RoundMark(pinned.maps.settings);
    this.#stores = {
      slots,
      ipcache: new IpcacheStore(db, pinned.maps.ipcache),
      endpoints: this.endpoints,
      conntrack: this.#conntrack,
      mark: this.mark,
      clearFlows: () => this.#clearFlows(),
    };
    this.writer = this.#createWriter();
    this.sync = this.#createSyncLoop();
    this.audit = this.#createAudit();
    this.inspector = new MapInspector({
      root: bpfRoot,
      maps: pinned.maps,
      more: pinned.more,
      endpoints: pinned.endpoints,
      slots,
      counts: () => ({ ipcache: model.ipcacheSize(), ...this.#ctEntries }),
    });
  }

  #createWriter(): PlanWriter {
    const { core, db, tables, model, numbers, saveNumbers } = this.#options;
    return new PlanWriter({
      db,
      tables,
      model,
      numbers,
      kernel: this.#stores,
      clock,
      saveNumbers,
      onAdopted: () => this.#pinned.commitPins(),
      log: core.log,
    });
  }

  #createSyncLoop(): SyncLoop {
    const { core, model, strays, imported, inputs, on } = this.#options;
    return new SyncLoop({
      model,
      prepare: () => {
        strays.sync();
        imported.sync();
      },
      writer: this.writer,
      slots: this.#stores.slots,
      clock,
      log: core.log,
      ...inputs,
      onRound: on.round,
      onLost: core.onLost,
    });
  }

  #createAudit(): Audit {
    const { core, db, tables, besidePins, strays, on } = this.#options;
    const { slots, ipcache } = this.#stores;
    const pinned = this.#pinned;
    return new Audit({
      db,
      tables,
      writer: this.writer,
      kernel: this.#stores,
      contents: {
        address: new AddressAudit({
          db,
          tables,
          ipcache,
          settled: (prefix) => this.writer.rows.addressSettled(prefix),
          pace: new Pace(now, yieldNow),
        }),
        slot: new SlotAudit({
          slots,
          settled: (slot) => this.writer.rows.slotSettled(slot),
          pace: new Pace(now, yieldNow),
        }),
      },
      clock,
      pinned: {
        unpinned: () => [...pinned.unpinned(), ...besidePins.unpinned(), ...this.#partPrograms.unpinned()],
        repin: () => {
          pinned.repin();
          besidePins.repin();
          this.#partPrograms.repin();
        },
      },
      interfaces: {
        guardReturned: async () => this.#guard(await strays.returned()),
        gone: (id) => strays.gone(id, this.endpoints.isAway(id)),
      },
      onMended: on.mended,
      onFaults: on.round,
      log: core.log,
    });
  }

  async #adopt(): Promise<void> {
    const { model, numbers, strays, db, tables, core } = this.#options;
    const { made, replaced } = this.#pinned;
    const stores = this.#stores;
    // Where the map was replaced, on purpose, connections go on.
    const lost = (['ct4', 'ct6'] as const).some((name) => made.includes(name) && !replaced.includes(name));
    const found = this.endpoints.adopt(lost);
    const revisions = found.map(({ revision }) => revision);
    numbers.sawRevisions(revisions);
    // Before words are renewed: it depends on them what an address is that was changing.
    const ipcache = await stores.ipcache.adopt(revisions, yieldNow);
    // A round of the agent before broke off; a new map of settings does not tell.
    const interrupted = stores.mark.set || made.includes('settings');
    const renewed = interrupted ? this.endpoints.renew(() => numbers.revision()) : new Map<number, number>();
    const kernel = found.map((row) => ({ ...row, revision: renewed.get(row.id) ?? row.revision }));
    const attached = this.endpoints.attached();
    await strays.take({ kernel, hooked: this.endpoints.hooked(), pinned: this.endpoints.pinned() });
    await strays.returned();
    const removed = [...this.#pinned.endpoints.removed.map(String), ...stores.ipcache.removed];
    if (removed.length > 0)
      core.log.warn(
        { elements: removed.slice(0, MOST_NAMED), more: Math.max(0, removed.length - MOST_NAMED) },
        'removed map elements that no agent wrote',
      );
    using snapshot = db.read();
    const guarded = new Set(attached.values());
    const bare = [...snapshot.all(tables.endpoints)].filter((row) => !guarded.has(row.ifindex));
    // Where there was no map of endpoints nobody has taken programs away: Weir is new here.
    await this.#guard(bare, made.includes('endpoint_array') && !replaced.includes('endpoint_array') ? 'info' : 'warn');
    model.adopt({
      endpoints: kernel,
      slots: await stores.slots.adopt(),
      ipcache,
      unread: this.#pinned.endpointsUnread,
    });
  }

  /**
   * While only one of an endpoint's programs ran, its answers to what came unjudged began flows: as replies to those, it would go on. Once both
   * run they are gone for good.
   */
  async #clearFlows(): Promise<void> {
    const doubted = this.endpoints.doubted();
    if (doubted.size === 0) return;
    await this.#conntrack.doubt(doubted, this.#stop.signal);
    this.endpoints.undoubt(doubted);
  }

  /** An interface without programs is open: it gets them before anything else is known of it. One that cannot keeps no other waiting. */
  async #guard(rows: readonly EndpointRow[], level: 'info' | 'warn' = 'warn'): Promise<void> {
    const { log } = this.#options.core;
    const guarded: string[] = [];
    for (const { id, ifindex, interfaceName, gone } of rows) {
      if (gone !== undefined) continue;
      try {
        this.endpoints.guard({ id, ifindex });
        guarded.push(interfaceName);
      } catch (error) {
        if (error instanceof InterfaceGoneError) continue;
        log.error(
          { endpoint: id, interface: interfaceName, error: messageOf(error) },
          'cannot attach programs to an interface that has none; retrying with each check',
        );
      }
    }
    if (guarded.length > 0)
      log[level](
        { interfaces: guarded.slice(0, MOST_NAMED), more: Math.max(0, guarded.length - MOST_NAMED) },
        "attached programs to pods' interfaces that had none",
      );
    // What fails is a fault in the next look, and tried again there.
    await this.#clearFlows().catch(() => undefined);
  }

  start(): void {
    this.#collecting = this.#collect();
    this.#auditing = this.#audit();
    this.#releasing = this.#release();
    this.sync.schedule();
  }

  /** Whether programs tell of allowed flows, too. */
  setVerbose(on: boolean): void {
    this.#stores.mark.change(on ? SETTINGS.allowEvents : 0);
  }

  /** What the kernel holds of a policy slot. */
  slot(slot: number): SlotContent | undefined {
    return this.#stores.slots.content(slot);
  }

  /** Everything pinned stays and goes on enforcing. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.sync.stop();
    await Promise.all([this.#collecting, this.#auditing, this.#releasing]);
    this.#stores.slots.close();
  }

  /** Endpoints that have as many connections as they may. */
  spentShares(): SpentShares {
    return this.#conntrack.spent();
  }

  /** See `Core`. */
  verify(): Promise<Verification> {
    return verify({
      audit: this.audit,
      exclusively: (job) => this.sync.exclusively(job),
      signal: this.#stop.signal,
    });
  }

  /** Interfaces of the node come and go. */
  #follow(): void {
    try {
      this.#partPrograms.follow();
    } catch (error) {
      this.#options.core.log.error({ error: messageOf(error) }, 'cannot attach a program to an interface of the node');
    }
  }

  #audit(): Promise<void> {
    const { core, on } = this.#options;
    return auditRounds({
      auditMs: core.kernel?.auditMs,
      look: () =>
        this.sync.exclusively(async () => {
          on.look();
          this.#follow();
          await this.audit.look();
        }),
      compare: () => this.audit.compare((body) => this.sync.exclusively(body)),
      onError: (error) => core.log.error({ error: String(error) }, 'checking what is enforced failed'),
      signal: this.#stop.signal,
    });
  }

  async #release(): Promise<void> {
    const { signal } = this.#stop;
    for (;;) {
      await delay(RELEASE_MS, signal, { ref: false });
      if (signal.aborted) return;
      try {
        this.endpoints.endQuarantine();
      } catch (error) {
        this.#options.core.log.error({ error: messageOf(error) }, 'ending the quarantine of an endpoint failed');
      }
    }
  }

  async #collect(): Promise<void> {
    const { signal } = this.#stop;
    const { on, core } = this.#options;
    while (!signal.aborted) {
      await delay(COLLECT_MS, signal, { ref: false });
      if (signal.aborted) return;
      // Missing PeerSets become failures by the passing of time. A round under way has computed what the kernel does not have yet, and tells
      // when it ends.
      try {
        if (!this.sync.busy) on.round();
        this.#ctEntries = (await this.#conntrack.collect(signal)).left;
      } catch (error) {
        core.log.error({ error: String(error) }, 'the periodic check or the collection of expired connections failed');
      }
    }
  }
}
