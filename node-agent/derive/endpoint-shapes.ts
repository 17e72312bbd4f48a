import { type CompiledPolicy, MOST_ROWS } from '@weir/policy';
import { keys, type StateDB } from '@weir/statedb';
import type { CoreOptions } from '../core.ts';
import type { EndpointStateRow, KernelEndpoint, SlotRow } from '../tables.ts';
import type { EndpointIdentity } from './identities.ts';
import type { InForce, Subject } from './in-force.ts';
import { NamespaceRows } from './namespace-rows.ts';
import type { Pace } from './pace.ts';
import { DENY_ALL, type Shape, shapeOf } from './shape.ts';
import type { Refresh, Slots } from './slots.ts';
import { Rows, type RowsView } from './working.ts';

export interface EndpointShapesOptions {
  readonly db: StateDB;
  readonly core: Pick<CoreOptions, 'policyMode' | 'allowLocalhost'>;
  /** Rows that a direction may have at most; a namespace may have four times as many. Default MOST_ROWS. */
  readonly mostRows?: number | undefined;
  readonly inForce: InForce;
  readonly slots: Slots;
  readonly infos: Pick<RowsView<number, EndpointIdentity>, 'get' | 'has' | 'values'>;
  readonly states: Pick<RowsView<number, { readonly state: EndpointStateRow }>, 'values'>;
  readonly pace: Pace;
}

/** Endpoints by the shape that each should have. */
export type Wanted = ReadonlyMap<string, readonly number[]>;

export interface CompiledShapes {
  readonly slots: SlotRow[];
  readonly slotsGone: number[];
  /** Some shape moves to a slot that judges unknown peers otherwise, because of port names. */
  readonly reframed: boolean;
}

/** A compile under way, and which endpoints point at each slot. */
interface Compiling {
  readonly slots: SlotRow[];
  readonly slotsGone: number[];
  reframed: boolean;
  readonly pointing: ReadonlyMap<number, readonly number[]>;
}

/** What the shape of an endpoint follows from: it is another one only if one of these is another object. */
interface ShapedFrom {
  readonly info: EndpointIdentity;
  /** Stands for the rules that select it. */
  readonly subject: Subject | undefined;
}

interface EndpointShape {
  readonly id: number;
  /** The shape that it has: that which it should have, or one that denies all where that cannot be compiled. */
  readonly shape?: string | undefined;
  readonly wanted?: string | undefined;
  /** What `wanted` was computed from. */
  readonly from?: ShapedFrom;
  /** As the kernel had it, until the first plan is computed. */
  readonly kernel?: KernelEndpoint | undefined;
}

/** The shape of each endpoint's policy, and the slot that holds it. */
export class EndpointShapes {
  readonly #options: EndpointShapesOptions;
  readonly #rows: Rows<number, EndpointShape>;

  constructor(options: EndpointShapesOptions) {
    this.#options = options;
    this.#rows = new Rows<number, EndpointShape>(
      options.db,
      {
        name: 'endpointShapes',
        key: ({ id }) => keys.uint(id),
        indexes: [{ name: 'kernelSlot', keys: ({ kernel }) => (kernel === undefined ? [] : [keys.uint(kernel.slot)]) }],
      },
      (id) => keys.uint(id),
    );
  }

  adopt(kernel: KernelEndpoint): void {
    this.#rows.set({ id: kernel.id, kernel });
  }

  /** What was found in the kernel of the endpoint, until the first plan is computed. */
  kernel(id: number): KernelEndpoint | undefined {
    return this.#rows.get(id)?.kernel;
  }

  /** The kernel has these revisions of endpoints that are else as they were found. */
  renewed(revisions: Iterable<readonly [id: number, revision: number]>): void {
    for (const [id, revision] of revisions) {
      const row = this.#rows.get(id);
      if (row?.kernel !== undefined) this.#rows.set({ ...row, kernel: { ...row.kernel, revision } });
    }
  }

  /** Whether the kernel enforces something of the endpoint for somebody whom it was found to be. */
  judgedAsFound(id: number): boolean {
    return this.#options.core.policyMode !== 'never' && this.kernel(id) !== undefined;
  }

  /** Whether the kernel was found to enforce something, until the first plan is computed. */
  kernelEnforces(): boolean {
    return this.#rows.values().some(({ kernel }) => kernel?.enforced.ingress || kernel?.enforced.egress);
  }

  /** A plan is computed: forgets endpoints that are gone, and how the kernel had the others. */
  tidy(): void {
    const { table, keyOf } = this.#rows;
    this.#rows.write((txn) => {
      for (const row of txn.all(table)) {
        if (!this.#options.infos.has(row.id)) txn.delete(table, keyOf(row.id));
        else if (row.kernel !== undefined) txn.upsert(table, { ...row, kernel: undefined });
      }
    });
  }

  /** Why the endpoint's policy could not be compiled. */
  failure(id: number): Error | undefined {
    return this.#failureOf(this.#rows.get(id)?.wanted);
  }

  /** Whether the endpoint is closed for want of its policy. */
  closed(id: number): boolean {
    const row = this.#rows.get(id);
    return row?.shape === DENY_ALL.key && row.wanted !== DENY_ALL.key;
  }

  /** Whether nothing is enforced for the endpoint. */
  open(id: number): boolean {
    return this.#rows.get(id)?.wanted === undefined;
  }

  /** The slot of the shape that the endpoint has. */
  slotOf(id: number): SlotRow | undefined {
    const shape = this.#rows.get(id)?.shape;
    return shape === undefined ? undefined : this.#options.slots.row(shape);
  }

  /** Finds the shape that each endpoint should have. Readers see all of the old ones or all of the new ones. */
  async settle(): Promise<Wanted> {
    const { infos, inForce, slots, pace } = this.#options;
    const computed: { readonly id: number; readonly shape: Shape | undefined; readonly from: ShapedFrom }[] = [];
    const users = new Map<string, number[]>();
    for (const info of infos.values()) {
      const { id } = info.row;
      const subject = info.ready ? inForce.subject(info.identity) : undefined;
      const before = this.#rows.get(id);
      let wanted = before?.wanted;
      if (before?.from?.info !== info || before.from.subject !== subject) {
        const shape = this.#shape(info);
        wanted = shape?.key;
        computed.push({ id, shape, from: { info, subject } });
      }
      if (pace.due()) await pace.yieldNow();
      if (wanted === undefined) continue;
      const list = users.get(wanted);
      if (list) list.push(id);
      else users.set(wanted, [id]);
    }
    for (const { shape } of computed) {
      if (shape !== undefined) slots.need(shape);
      if (pace.due()) await pace.yieldNow();
    }
    this.#put(computed.map(({ id, shape, from }) => ({ ...(this.#rows.get(id) ?? { id }), wanted: shape?.key, from })));
    return users;
  }

  /** Compiles what changed, and gives each endpoint its shape. Endpoints of a shape that cannot be compiled are closed. */
  async compile(users: Wanted): Promise<CompiledShapes> {
    const { infos, slots } = this.#options;
    const out: Compiling = { slots: [], slotsGone: [], reframed: false, pointing: this.#pointing() };
    for (const [key, made] of await this.#made(users)) await this.#refresh(key, made, users, out);
    const used = new Set(users.keys());
    if (users.keys().some((key) => this.#failureOf(key) !== undefined)) {
      used.add(DENY_ALL.key);
      await this.#closing(users, out);
    }
    const changed: EndpointShape[] = [];
    for (const { row } of infos.values()) {
      const known = this.#rows.get(row.id);
      const shape = this.#failureOf(known?.wanted) === undefined ? known?.wanted : DENY_ALL.key;
      if (known !== undefined && shape !== known.shape) changed.push({ ...known, shape });
    }
    this.#put(changed);
    for (const key of slots.unneeded(used)) {
      const slot = slots.drop(key);
      if (slot !== undefined) out.slotsGone.push(slot);
    }
    return { slots: out.slots, slotsGone: out.slotsGone, reframed: out.reframed };
  }

  /** Has a slot for those that are closed. */
  async #closing(users: Wanted, out: Compiling): Promise<void> {
    const { slots } = this.#options;
    slots.need(DENY_ALL);
    if (!slots.dirtyShapes().has(DENY_ALL.key)) return;
    const compiled = await slots.compile(DENY_ALL.key, MOST_ROWS);
    await this.#refresh(DENY_ALL.key, compiled instanceof Error ? compiled : { compiled, room: MOST_ROWS }, users, out);
  }

  /**
   * Compiles the shapes that are wanted and dirty, or have more room than they had. Those of the same namespace in the order of their first
   * endpoints, so that an agent that restarts comes to the same.
   */
  async #made(users: Wanted): Promise<ReadonlyMap<string, Refresh['made']>> {
    const { slots, pace, mostRows } = this.#options;
    const made = new Map<string, Refresh['made']>();
    const rows = new NamespaceRows(mostRows);
    const dirty = slots.dirtyShapes();
    for (const [key, ids] of users) {
      const namespace = this.#payer(ids, rows);
      const [most, room] = [rows.limit(namespace), rows.room(namespace)];
      const known = slots.compiledAs(key);
      const hasRoom = known !== undefined && known.room < room && isBeyond(known.compiled);
      let compiled: CompiledPolicy | Error | undefined = known?.compiled;
      if (dirty.has(key) || hasRoom) compiled = await slots.compile(key, most, this.#like(key, users));
      if (compiled instanceof Error) made.set(key, compiled);
      else if (compiled !== undefined) {
        const fits = rows.take(namespace, compiled === known?.compiled ? compiled : rows.named(namespace, compiled));
        if (fits !== known?.compiled || dirty.has(key)) made.set(key, { compiled: fits, room });
      }
      if (pace.due()) await pace.yieldNow();
    }
    return made;
  }

  /** Whose rows the slot of these endpoints counts among: where several namespaces share it, of the one that has the most left. No tenant closes another. */
  #payer(ids: readonly number[], rows: NamespaceRows): string {
    const namespaces = new Set(ids.map((id) => this.#options.infos.get(id)?.row.pod?.namespace ?? ''));
    return [...namespaces].reduce((payer, other) => (rows.room(other) > rows.room(payer) ? other : payer));
  }

  async #refresh(key: string, made: Refresh['made'], users: Wanted, out: Compiling): Promise<void> {
    const { slots, pace } = this.#options;
    if (pace.due()) await pace.yieldNow();
    const candidates = new Set<number>();
    for (const id of users.get(key) ?? []) {
      const kernel = this.kernel(id);
      if (kernel && kernel.slot !== 0 && !this.#leftAtStart(kernel.slot, key)) candidates.add(kernel.slot);
    }
    const [leaving, like] = [this.#leaving(key, out.pointing), this.#like(key, users)];
    const refreshed = await slots.refresh(key, candidates, { leaving, made, like });
    out.slots.push(...refreshed.rows);
    if (refreshed.reframed) out.reframed = true;
    if (refreshed.left !== undefined) out.slotsGone.push(refreshed.left);
  }

  /** What an endpoint that wants the shape has: often the same but for one policy. */
  #like(key: string, users: Wanted): string | undefined {
    return this.#rows.get(users.get(key)?.[0] ?? 0)?.shape;
  }

  #shape(info: EndpointIdentity): Shape | undefined {
    const { policyMode, allowLocalhost } = this.#options.core;
    if (policyMode === 'never') return undefined;
    if (!info.ready) return DENY_ALL;
    const groups = Array.from(this.#options.inForce.groups(info.identity), ([, group]) => group);
    // Of a pod that nobody knows it is not known either which ports it gives names.
    const unnamed = info.row.found !== undefined && info.row.pod === undefined;
    if (unnamed && groups.some(({ ownNames }) => ownNames.length > 0)) return DENY_ALL;
    const mode = 'reserved:init' in info.labels ? 'always' : policyMode;
    return shapeOf(groups, mode, allowLocalhost, info.namedPorts);
  }

  #failureOf(shape: string | undefined): Error | undefined {
    return shape === undefined ? undefined : this.#options.slots.failure(shape);
  }

  /**
   * Whether endpoints leave the shape's slot. Editing it in place would show the leaving ones the new members of rules that no longer
   * are theirs.
   */
  #leaving(key: string, pointing: ReadonlyMap<number, readonly number[]>): boolean {
    const slot = this.#options.slots.row(key)?.slot;
    if (slot === undefined) return false;
    const ids = pointing.get(slot) ?? [];
    return ids.some((id) => this.#rows.get(id)?.wanted !== key);
  }

  /** Endpoints by the slot that they point at. Those that are gone need nothing of it. */
  #pointing(): Map<number, number[]> {
    const out = new Map<number, number[]>();
    for (const { state } of this.#options.states.values()) {
      if (!this.#options.infos.has(state.id)) continue;
      const list = out.get(state.slot);
      if (list) list.push(state.id);
      else out.set(state.slot, [state.id]);
    }
    return out;
  }

  /** Whether an endpoint that was found at the slot goes to another shape: the slot must then stay as it is. */
  #leftAtStart(slot: number, shape: string): boolean {
    const found = this.#rows.list('kernelSlot', keys.uint(slot));
    return found.some((row) => row.wanted !== shape && this.#options.infos.has(row.id));
  }

  #put(rows: readonly EndpointShape[]): void {
    this.#rows.write((txn) => {
      for (const row of rows) txn.upsert(this.#rows.table, row);
    });
  }
}

/** Whether some direction is closed, as its rules need too many rows. */
function isBeyond({ ingress, egress }: CompiledPolicy): boolean {
  return ingress.excess !== undefined || egress.excess !== undefined;
}
