import { isLocalCidr } from '@weir/identity';
import type { StateDB } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { changesAnything, Pace, type Plan } from '../derive/contract.ts';
import { InterfaceGoneError, OrderError } from '../errors.ts';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';
import { Afterwards, EVERY } from './afterwards.ts';
import { longestFirst, settled, unknownBefore, versioned } from './changing-addresses.ts';
import type { Clock } from './clock.ts';
import { finishAdoption } from './finish-adoption.ts';
import { FlowPurge } from './flow-purge.ts';
import { KernelRows } from './kernel-rows.ts';
import type { KernelStores } from './kernel-stores.ts';
import type { Numbers, Planner } from './planner.ts';

const PIECE = 1000;

export interface PlanWriterOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly model: Planner;
  readonly numbers: Numbers;
  readonly kernel: KernelStores;
  readonly clock: Clock;
  /** Has them outlive this agent; what the kernel holds tells most of them, so that nothing waits for it. */
  readonly saveNumbers: () => Promise<boolean>;
  /** The kernel holds all that is wanted, for the first time. */
  readonly onAdopted: () => void;
  readonly log: Logger;
}

/**
 * Carries plans out: derived rows into their tables, tables into the kernel, in the order that keeps every packet judged by
 * something complete: slots, addresses, endpoints' words and programs; then what is gone.
 */
export class PlanWriter {
  readonly rows: KernelRows;
  readonly slots: KernelRows['slots'];
  readonly ipcache: KernelRows['ipcache'];
  readonly endpoints: KernelRows['endpoints'];
  adopted = false;
  /** Whether addresses of the last plan were kept, as rules that the kernel could not replace name them: the next plan lets them go again. */
  keeps = false;
  /** Whether addresses of the last plan were withheld, as the kernel would let through what it is to drop: the next plan has them again. */
  holds = false;
  readonly #options: PlanWriterOptions;
  readonly #pace: Pace;
  /** When a word was written last, unless packets were waited for since; at start another agent may have. */
  #moved: number | undefined;
  /** A plan is being carried out, or broke off. */
  #carrying = false;
  /** A plan with rules is computed: nothing counts any more that was found at start. */
  #computed = false;
  /** One was carried out: until then the mark may be of the agent before. */
  #carried = false;
  /** Something that others edited is being put back. */
  #repairing = false;
  readonly #afterwards: Afterwards;
  readonly #flows: FlowPurge;

  constructor(options: PlanWriterOptions) {
    const { db, kernel, clock } = options;
    this.#options = options;
    this.#pace = new Pace(clock.now, clock.yieldNow);
    this.#moved = clock.now();
    this.#afterwards = new Afterwards(db);
    this.#flows = new FlowPurge(this.#afterwards, kernel.conntrack, () => this.#endMark());
    this.rows = new KernelRows({
      ...options,
      retire: (slot) => this.#retire(slot),
      isKept: (id) => this.#isKept(id),
      moving: () => {
        this.#moved = clock.now();
      },
    });
    this.slots = this.rows.slots;
    this.ipcache = this.rows.ipcache;
    this.endpoints = this.rows.endpoints;
  }

  /** Whether something of the last plan is still to be done. */
  get unfinished(): boolean {
    return this.rows.failing > 0 || this.#afterwards.size > 0;
  }

  async stop(): Promise<void> {
    await Promise.all([this.rows.stop(), this.#flows.idle()]);
  }

  /** Every step is idempotent: a plan that broke off is carried out again from its start. */
  async carryOut(plan: Plan, signal: AbortSignal): Promise<void> {
    this.#carrying = true;
    this.holds = false;
    this.#flows.throwFailure();
    if (changesAnything(plan)) this.#options.kernel.mark.begin();
    this.#computed ||= plan.rules;
    if (plan.rules && !this.#carried) {
      // Elements that somebody has edited are written over by this plan: flows that they let through are not to stay.
      const edited = this.#options.kernel.endpoints.editedFound();
      for (const id of edited) this.#options.kernel.endpoints.doubt(id);
      this.#afterwards.add('bump', edited);
    }
    await this.#saveNumbers();
    await this.#grow(plan, signal);
    await this.#shrink(plan);
    await this.#settleAddresses(false);
    if (plan.rules && !this.adopted) this.#finishAdoption();
    this.#carried ||= plan.rules;
    this.#carrying = false;
    this.#endMark();
    this.#flows.start(signal);
  }

  /** Nothing is under way any more, if that is so. */
  #endMark(): void {
    if (this.#carried && !this.#carrying && !this.#repairing && !this.unfinished) this.#options.kernel.mark.end();
  }

  /**
   * Something that others edited in the kernel is about to be put back: until `endRepair`, an agent that dies leaves its successor to give every
   * endpoint a new revision. Both are to be called between rounds.
   */
  beginRepair(): void {
    this.#repairing = true;
    this.#options.kernel.mark.begin();
  }

  /** The repair is done. These endpoints get new revisions, so that flows that were allowed meanwhile are judged again. */
  async endRepair(endpoints: Iterable<number>): Promise<void> {
    this.#repairing = false;
    this.#afterwards.add('bump', endpoints);
    // While a plan has broken off, states are ahead of what they need: it is carried out again, with what is due.
    if (this.#carrying) return;
    if (await this.#bump()) await this.endpoints.reconcile();
    await this.#settleAddresses(false);
    this.#endMark();
  }

  /** Before they are in the kernel, as far as the disk allows. */
  async #saveNumbers(): Promise<void> {
    const { numbers, saveNumbers } = this.#options;
    if (!numbers.dirty) return;
    numbers.dirty = false;
    if (!(await saveNumbers())) numbers.dirty = true;
  }

  /** Everything that adds or moves. */
  async #grow(plan: Plan, signal: AbortSignal): Promise<void> {
    const { db, tables, kernel, model } = this.#options;
    db.write([tables.slots], (txn) => {
      for (const row of plan.slots) txn.upsert(tables.slots, row);
    });
    await this.#reconcileSlots();
    this.#pace.restart();
    const ipcache = this.#knowable(plan.ipcache);
    // Those whose words the kernel has refused leave their slots now, too.
    const states = [...this.#refusedStates(), ...plan.endpoints];
    if (ipcache.length > 0) await kernel.slots.forget(new Set(ipcache.map(({ identity }) => identity)));
    const rows = await this.#versioned(ipcache, states, plan);
    const changing = rows.some(({ before }) => before !== undefined);
    // A packet that has read a word of before the last plan must not meet addresses of after this one.
    if (rows.some(({ prefix, before }) => before === undefined && plan.moved.has(prefix))) await this.#quiesceMoved();
    await this.#writeAddresses(rows);
    await this.#flows.before(plan.endpoints, signal);
    // Their words are to be of the world in which the addresses have changed.
    const late = changing || this.#changing().length > 0;
    await this.#writeStates(late ? model.bump(states.map(({ id }) => id)) : plan.endpoints);
    // What was found is judged by it again wherever addresses have changed.
    if (!plan.rules && plan.moved.size > 0) this.#afterwards.add('bump', [EVERY]);
    await this.#bump();
    await this.endpoints.reconcile();
    await this.#settleAddresses(changing);
    await this.#options.kernel.clearFlows();
  }

  async #versioned(rows: readonly IpcacheRow[], states: readonly EndpointStateRow[], { moved, leaving }: Plan) {
    const { db, tables, numbers, kernel } = this.#options;
    using snapshot = db.read();
    const options = {
      states,
      moved,
      leaving,
      was: (prefix: string) => kernel.ipcache.identityOf(prefix) ?? 0,
      word: (id: number) => kernel.endpoints.word(id),
      there: (prefix: string) => snapshot.get(tables.ipcache, prefix),
      revision: () => numbers.revision(),
    };
    return await this.#pace.run(versioned(rows, options));
  }

  #changing(): readonly IpcacheRow[] {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    return [...snapshot.list(tables.ipcache, 'changing', '')];
  }

  /** All words are written, or refused. `changed`: since the last time addresses have changed beside rules. */
  async #settleAddresses(changed: boolean): Promise<void> {
    const { model, numbers, kernel } = this.#options;
    const rows = this.#changing();
    const hasRules = ({ id }: EndpointStateRow): boolean => (kernel.endpoints.word(id)?.slot ?? 0) !== 0;
    const behind = this.#refusedStates().filter(hasRules);
    const waiting = this.#refusedStates((error) => error instanceof OrderError).filter(hasRules);
    if (behind.length === 0) {
      if (rows.length === 0) return;
      await this.#quiesceMoved();
      await this.#writeAddresses(settled(rows));
    } else if (changed || waiting.some((row) => !kernel.endpoints.wasJudgedAnew(row))) {
      // Flows of those that wait for something else are judged again by a revision of before; all others have words of after.
      const [before, since] = [numbers.revision(), numbers.revision()];
      await this.#writeAddresses(unknownBefore(rows, since));
      const left = new Set(behind.map(({ id }) => id));
      for (const row of waiting) kernel.endpoints.judgeAnew(row, before);
      this.#afterwards.add(
        'bump',
        Iterator.from(model.states()).flatMap(({ id }) => (left.has(id) ? [] : [id])),
      );
    }
    if (await this.#bump()) await this.endpoints.reconcile();
  }

  /**
   * The rows. While the kernel refuses a slot, what it had goes on, which knows nothing of identities that are new to it: addresses of pods and
   * nodes that get others are unknown meanwhile, to every endpoint. The next plan has them again.
   */
  #knowable(ipcache: readonly IpcacheRow[]): readonly IpcacheRow[] {
    if (!this.slots.failing().some(({ deleted }) => !deleted)) return ipcache;
    const { model, kernel } = this.#options;
    const planned = new Set(ipcache.map(({ prefix }) => prefix));
    const late = this.ipcache
      .failing()
      .flatMap(({ row, deleted }) => (deleted || planned.has(row.prefix) ? [] : [row]));
    const withheld: string[] = [];
    const rows = [...ipcache, ...late].map((row): IpcacheRow => {
      if (isLocalCidr(row.identity) || kernel.ipcache.identityOf(row.prefix) === row.identity) return row;
      withheld.push(row.prefix);
      return { ...row, identity: 0 };
    });
    this.holds ||= withheld.length > 0;
    model.withholdAddresses(withheld);
    return rows;
  }

  #refusedStates(by = (error: unknown) => !(error instanceof InterfaceGoneError)): readonly EndpointStateRow[] {
    const { model } = this.#options;
    return this.endpoints
      .failing()
      .flatMap(({ row, deleted, error }) => (deleted || !by(error) ? [] : (model.state(row.id) ?? [])));
  }

  async #writeAddresses(rows: readonly IpcacheRow[]): Promise<void> {
    const { db, tables } = this.#options;
    await this.#inPieces(longestFirst(rows), (piece) =>
      db.write([tables.ipcache], (txn) => {
        for (const row of piece) txn.upsert(tables.ipcache, row);
      }),
    );
    await this.#reconcileAddresses();
  }

  /** Returns once no packet is judged by a word that was replaced. */
  async #quiesceMoved(): Promise<void> {
    const since = this.#moved;
    if (since === undefined) return;
    this.#moved = undefined;
    await this.#options.clock.quiesce(since);
  }

  /** Everything that goes, now that nothing points at it. */
  async #shrink(plan: Plan): Promise<void> {
    const { db, tables, model, kernel } = this.#options;
    const { ipcache, slots } = kernel;
    const leaving = new Set(plan.leaving.map(({ prefix }) => prefix));
    const kept = this.#stillNamed(plan.ipcacheGone.filter((prefix) => !leaving.has(prefix)));
    const gone = plan.ipcacheGone.filter((prefix) => !kept.has(prefix));
    this.keeps = kept.size > 0;
    if (this.keeps) model.keepAddresses(kept);
    if (gone.length > 0) this.#afterwards.add('bump', plan.rules ? plan.afterGone : [EVERY]);
    // A packet that has read an old word may still look its peer up by an address that only the old rules need.
    if (gone.length > 0) await this.#quiesceMoved();
    await this.#inPieces(gone, (prefixes) => {
      const unknown = db.write([tables.ipcache], (txn) =>
        prefixes.filter((prefix) => txn.delete(tables.ipcache, prefix) === undefined),
      );
      // Only the kernel knew them (from before this start).
      for (const prefix of unknown) ipcache.delete(prefix);
    });
    if (gone.length > 0) await this.#reconcileAddresses();
    if (await this.#bump()) await this.endpoints.reconcile();
    model.forgetCidrs(gone);
    db.write([tables.endpointStates, tables.slots], (txn) => {
      for (const id of plan.endpointsGone) txn.delete(tables.endpointStates, tableKey.endpoint(id));
      for (const slot of plan.slotsGone) txn.delete(tables.slots, tableKey.slot(slot));
    });
    this.#afterwards.add('purge', plan.endpointsGone);
    if (plan.endpointsGone.length > 0) await this.endpoints.reconcile();
    if (plan.slotsGone.length > 0) await this.slots.reconcile();
    for (const slot of await slots.trim()) model.slotReleased(slot);
  }

  /**
   * CIDRs that rules may name which stay in force while the kernel refuses their successors, with the identities that it has for them. Who a pod
   * or a node is does not depend on rules.
   */
  #stillNamed(prefixes: readonly string[]): Map<string, number> {
    const { db, tables, kernel } = this.#options;
    const named = new Map<string, number>();
    const refused = this.endpoints.failing().some(({ error }) => !(error instanceof InterfaceGoneError));
    if (!refused && this.slots.failing().length === 0) return named;
    using snapshot = db.read();
    for (const prefix of prefixes) {
      const identity = snapshot.get(tables.ipcache, prefix)?.identity ?? kernel.ipcache.identityOf(prefix);
      if (identity !== undefined && isLocalCidr(identity)) named.set(prefix, identity);
    }
    return named;
  }

  /** Not while the kernel refuses an endpoint or a slot: the former may run the programs that were found, and the latter be one that was. */
  #finishAdoption(): void {
    const { onAdopted } = this.#options;
    if (this.endpoints.failing().length + this.slots.failing().length > 0) return;
    this.#afterwards.add('purge', finishAdoption(this.#options));
    onAdopted();
    this.adopted = true;
  }

  /** Whether the endpoint was not removed: it lost its interface, and counts again when that is back. */
  #isKept(id: number): boolean {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    return snapshot.has(tables.endpoints, tableKey.endpoint(id));
  }

  #retire(slot: number): void {
    const { endpoints, slots } = this.#options.kernel;
    if (endpoints.uses(slot)) throw new OrderError(`policy slot ${slot} is still in use by an endpoint`);
    if (slots.has(slot)) slots.retire(slot);
    else this.#options.model.slotReleased(slot);
  }

  async #writeStates(rows: readonly EndpointStateRow[]): Promise<void> {
    const { db, tables, model } = this.#options;
    await this.#saveNumbers();
    db.write([tables.endpointStates], (txn) => {
      for (const row of rows) {
        // In a plan that is carried out again it may have been given a later one, and flows of the one before must stay forgotten.
        const { revision } = model.state(row.id) ?? row;
        txn.upsert(tables.endpointStates, revision === row.revision ? row : { ...row, revision });
      }
    });
  }

  /** A slot that the kernel refused changes decisions when it takes it: of those who have it already. */
  async #reconcileSlots(): Promise<void> {
    const refused = this.slots.failing();
    await this.slots.reconcile();
    const failing = this.slots.failing();
    for (const { row, deleted, error } of failing)
      if (!deleted && error instanceof OrderError) this.#options.model.slotOutgrown(row.slot);
    if (refused.length === 0) return;
    const still = new Set(failing.map(({ key }) => key));
    const taken = new Set(refused.flatMap(({ row, key }) => (still.has(key) ? [] : [row.slot])));
    const { model, kernel } = this.#options;
    this.#afterwards.add(
      'bump',
      Iterator.from(model.states()).flatMap(({ id, slot }) =>
        taken.has(slot) || taken.has(kernel.endpoints.word(id)?.slot ?? 0) ? [id] : [],
      ),
    );
  }

  /** An address that the kernel refused changes decisions when it takes it. */
  async #reconcileAddresses(): Promise<void> {
    const refused = this.ipcache.failing();
    await this.ipcache.reconcile();
    if (refused.length === 0) return;
    const still = new Set(this.ipcache.failing().map(({ key }) => key));
    if (refused.some(({ key }) => !still.has(key))) this.#afterwards.add('bump', [EVERY]);
  }

  /** New revisions for those that are to have one, and for all that is as it was found. Returns whether there are any. */
  async #bump(): Promise<boolean> {
    const { model, kernel, numbers } = this.#options;
    const due = this.#afterwards.due('bump');
    if (due.length === 0) return false;
    if (!this.#computed) model.renewed(kernel.endpoints.renew(() => numbers.revision()));
    await this.#writeStates(model.bump(due.includes(EVERY) ? Array.from(model.states(), ({ id }) => id) : due));
    this.#afterwards.done('bump', due);
    return true;
  }

  async #inPieces<T>(items: readonly T[], body: (piece: readonly T[]) => void): Promise<void> {
    for (let from = 0; from < items.length; from += PIECE) {
      if (from > 0) await this.#options.clock.yieldNow();
      body(items.slice(from, from + PIECE));
    }
  }
}
