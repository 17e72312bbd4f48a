import { decodeEvent } from '@weir/bpf';
import type { StateDB } from '@weir/statedb';
import { hasTcx, inNetns, RingBufferReader } from 'libbpf-ts';
import type { Subject } from 'rxjs';
import { bootOffset } from './boot-clock.ts';
import type { CoreOptions, FlowEvent, Tables } from './core.ts';
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
  RoundMark,
  SlotStore,
  SyncLoop,
} from './datapath/index.ts';
import type { Engine, ImportedRules, LocalNumbers } from './derive/index.ts';
import { MapInspector } from './map-inspector.ts';

/** A packet is judged in microseconds. */
const QUIESCE_MS = 50;
const COLLECT_MS = 10_000;
/** How soon events come to those who follow them. */
const FOLLOWED_MS = 50;
/** Without a follower events are thrown away: often enough that 11 CPUs at the programs' rate limit do not fill the ring. */
const UNFOLLOWED_MS = 250;

/** Lets timers, sockets and other callers of this process run. */
export const breathe = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export interface KernelSideOptions {
  readonly core: CoreOptions;
  readonly db: StateDB;
  readonly tables: Tables;
  readonly engine: Engine;
  readonly imported: ImportedRules;
  readonly numbers: LocalNumbers;
  readonly events: Subject<FlowEvent>;
  readonly saveNumbers: () => void;
  /** Whether every input table is complete: before that the kernel is not touched. */
  readonly complete: () => boolean;
  readonly policyRevision: () => number;
  /** After every round, and from time to time without one. */
  readonly onRound: () => void;
}

/** All that is open while a core runs: pinned maps and programs, what writes them, and what reads them. */
export class KernelSide {
  readonly sync: SyncLoop;
  readonly writer: PlanWriter;
  readonly mark: RoundMark;
  readonly inspector: MapInspector;
  readonly endpoints: EndpointStore;
  /** Why drop events are not read. */
  ringError: string | undefined;
  readonly #options: KernelSideOptions;
  readonly #pinned: PinnedDatapath;
  readonly #slots: SlotStore;
  readonly #ipcache: IpcacheStore;
  readonly #conntrack: Conntrack;
  readonly #ring: RingBufferReader;
  readonly #stop = new AbortController();
  #collecting: Promise<void> = Promise.resolve();
  #ctEntries = 0;

  /** Opens (or makes) the pins, and tells the engine what they hold. Nothing is changed yet. */
  static async open(options: KernelSideOptions): Promise<KernelSide> {
    const { bpfRoot: root, datapathObject: object, ctEntries, log } = options.core;
    const pinned = PinnedDatapath.open({
      root,
      ...(object === undefined ? {} : { object }),
      ...(ctEntries === undefined ? {} : { ctEntries }),
    });
    try {
      if (pinned.replaced.length > 0)
        log.info({ maps: pinned.replaced }, 'maps of another size or layout are replaced beside the old ones');
      const side = new KernelSide(options, pinned);
      await side.#adopt();
      return side;
    } catch (error) {
      pinned.close();
      throw error;
    }
  }

  private constructor(options: KernelSideOptions, pinned: PinnedDatapath) {
    const { core, db, tables, engine, numbers } = options;
    const { bpfRoot, log } = core;
    this.#options = options;
    this.#pinned = pinned;
    const now = (): number => performance.now();
    this.#slots = new SlotStore({ ...pinned.maps, db, now });
    this.mark = new RoundMark(pinned.maps.settings);
    const inNode = nodeScope(core);
    const attachment = core.attachment ?? (hasTcx() ? 'tcx' : 'clsact');
    const links = attachment === 'tcx' ? new Links(bpfRoot, pinned, inNode) : new ClsactLinks(bpfRoot, pinned, inNode);
    this.endpoints = new EndpointStore(db, pinned.endpoints, links, (slot) => this.writer.slotReady(slot));
    this.#conntrack = new Conntrack(pinned.maps.ct4, breathe);
    this.#ipcache = new IpcacheStore(db, pinned.maps.ipcache);
    this.writer = new PlanWriter({
      db,
      tables,
      engine,
      numbers,
      slots: this.#slots,
      ipcache: this.#ipcache,
      endpoints: this.endpoints,
      conntrack: this.#conntrack,
      mark: this.mark,
      breathe,
      quiesce: () => new Promise((resolve) => setTimeout(resolve, QUIESCE_MS)),
      saveNumbers: options.saveNumbers,
      onAdopted: () => pinned.commitPins(),
      log,
    });
    this.sync = new SyncLoop({
      engine,
      imported: options.imported,
      writer: this.writer,
      slots: this.#slots,
      breathe,
      now,
      log,
      complete: options.complete,
      policyRevision: options.policyRevision,
      onRound: options.onRound,
    });
    this.inspector = new MapInspector({
      root: bpfRoot,
      maps: pinned.maps,
      endpoints: pinned.endpoints,
      slots: this.#slots,
      counts: () => ({ ipcache: engine.ipcacheSize(), ct4: this.#ctEntries }),
    });
    const names = new FlowNames({ engine, bootOffset, db, services: tables.services });
    this.#ring = new RingBufferReader({
      map: pinned.maps.events,
      handler: (record) => {
        if (options.events.observed) options.events.next(names.event(decodeEvent(record)));
      },
      onError: (error) => {
        this.ringError = String(error);
        log.error({ error: this.ringError }, 'reading drop events failed');
      },
    });
  }

  async #adopt(): Promise<void> {
    this.#options.engine.adopt({
      endpoints: this.endpoints.adopt(),
      slots: await this.#slots.adopt(breathe),
      ipcache: await this.#ipcache.adopt(breathe),
      // A new map of settings does not tell.
      interrupted: this.mark.set || this.#pinned.replaced.includes('settings'),
      unread: this.#pinned.endpointsUnread,
    });
  }

  start(): void {
    this.followersChanged();
    this.#ring.start();
    this.#collecting = this.#collect();
    this.sync.schedule();
  }

  /** To be called when `events` gets or loses a follower. */
  followersChanged(): void {
    this.#ring.pace(this.#options.events.observed ? FOLLOWED_MS : UNFOLLOWED_MS);
  }

  /** Everything pinned stays and goes on enforcing. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.sync.stop();
    await this.#collecting;
    this.#ring.close();
    this.#slots.close();
    this.#pinned.close();
  }

  async #collect(): Promise<void> {
    const { signal } = this.#stop;
    const { onRound, core } = this.#options;
    while (!signal.aborted) {
      await pause(COLLECT_MS, signal);
      if (signal.aborted) return;
      // Missing PeerSets become failures by the passing of time.
      onRound();
      try {
        const { entries, deleted } = await this.#conntrack.collect(signal);
        this.#ctEntries = entries - deleted;
      } catch (error) {
        core.log.error({ error: String(error) }, 'collecting expired connections failed');
      }
    }
  }
}

function nodeScope({ nodeNetns }: CoreOptions): InNode {
  return nodeNetns === undefined ? (body) => body() : (body) => inNetns(nodeNetns, body);
}

/** Waits; early when the signal comes. Is no reason to live on. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise<void>((resolve) => {
    const done = (): void => {
      signal.removeEventListener('abort', done);
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(done, ms);
    timer.unref();
    signal.addEventListener('abort', done);
  });
}
