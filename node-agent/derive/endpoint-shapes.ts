import { portNamesOf, type ResolvedRule } from '@weir/policy';
import { keys, type StateDB } from '@weir/statedb';
import type { CoreOptions } from '../core.ts';
import type { EndpointStateRow, SlotRow } from '../tables.ts';
import type { EndpointIdentity } from './identities.ts';
import type { InForce } from './in-force.ts';
import type { Pace } from './pace.ts';
import type { KernelEndpoint } from './plan.ts';
import { DENY_ALL, type Shape, shapeOf } from './shape.ts';
import type { Slots } from './slots.ts';
import { Rows, type RowsView } from './working.ts';

export interface EndpointShapesOptions {
  readonly db: StateDB;
  readonly core: Pick<CoreOptions, 'policyMode' | 'allowLocalhost'>;
  readonly inForce: InForce;
  readonly slots: Slots;
  readonly infos: Pick<RowsView<number, EndpointIdentity>, 'has' | 'values'>;
  readonly states: Pick<RowsView<number, { readonly state: EndpointStateRow }>, 'has' | 'values'>;
  readonly pace: Pace;
}

/** Which endpoints use each shape, and the shapes that none uses any more. */
export interface ShapeUse {
  readonly users: ReadonlyMap<string, readonly number[]>;
  readonly departing: readonly string[];
}

export interface CompiledShapes {
  readonly slots: SlotRow[];
  readonly slotsGone: number[];
  /** Some shape moves to a slot that judges unknown peers otherwise, because of port names. */
  readonly reframed: boolean;
}

interface EndpointShape {
  readonly id: number;
  /** The shape that it has, and the one that it should have: they differ only while the latter cannot be compiled. */
  readonly shape?: string | undefined;
  readonly wanted?: string | undefined;
  /** It was enforced before this start. */
  readonly found: boolean;
  /** As the kernel had it, until the first plan is concluded. */
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
    this.#rows.set({ id: kernel.id, found: true, kernel });
  }

  /** What was found in the kernel of the endpoint, until the first plan is concluded. */
  kernel(id: number): KernelEndpoint | undefined {
    return this.#rows.get(id)?.kernel;
  }

  /** Whether the kernel was found to enforce something, until the first plan is concluded. */
  kernelEnforces(): boolean {
    return this.#rows.values().some(({ kernel }) => kernel?.enforced.ingress || kernel?.enforced.egress);
  }

  /** A plan is concluded: forgets endpoints that are gone, and how the kernel had the others. */
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

  /** Whether the shape that the endpoint has (it may not be the one wanted) could not be compiled. */
  stuck(id: number): boolean {
    return this.#failureOf(this.#rows.get(id)?.shape) !== undefined;
  }

  /** Whether the endpoint is closed for want of its policy. */
  closed(id: number): boolean {
    return isClosed(this.#rows.get(id));
  }

  slotOf(id: number): SlotRow | undefined {
    const shape = this.#rows.get(id)?.shape;
    return shape === undefined ? undefined : this.#options.slots.row(shape);
  }

  /** Whether an endpoint is closed for a policy that has compiled now; or is to be closed, as it has just failed to. */
  unsettled(): boolean {
    const { infos, states } = this.#options;
    return infos.values().some(({ row: { id } }) => {
      const row = this.#rows.get(id);
      const closed = isClosed(row);
      // It keeps what is in force while its policy cannot be compiled.
      const holds = states.has(id) ? !closed : row?.found === true;
      return (this.#failureOf(row?.wanted) === undefined) === closed && !holds;
    });
  }

  /** Gives each endpoint its shape. Readers see all of the old shapes or all of the new ones. */
  async settle(): Promise<ShapeUse> {
    const { infos, states, slots, pace } = this.#options;
    const concluded: [number, Shape | undefined][] = [];
    for (const info of infos.values()) {
      concluded.push([info.row.id, this.#shape(info)]);
      if (pace.due()) await pace.breathe();
    }
    const users = new Map<string, number[]>();
    const changed: EndpointShape[] = [];
    for (const [id, wanted] of concluded) {
      const before = this.#rows.get(id) ?? { id, found: false };
      const failed = this.#failureOf(wanted?.key) !== undefined;
      // Nothing is in force yet that could stay: it is closed until its policy compiles.
      const closed = failed && (states.has(id) ? before.shape === DENY_ALL.key : !before.found);
      const shape = closed ? DENY_ALL.key : wanted?.key;
      if (shape !== before.shape || wanted?.key !== before.wanted)
        changed.push({ ...before, shape, wanted: wanted?.key });
      for (const used of closed ? [wanted, DENY_ALL] : [wanted]) {
        if (used === undefined) continue;
        slots.need(used);
        const list = users.get(used.key);
        if (list) list.push(id);
        else users.set(used.key, [id]);
      }
    }
    this.#rows.write((txn) => {
      for (const row of changed) txn.upsert(this.#rows.table, row);
    });
    return { users, departing: slots.departing(new Set(users.keys())) };
  }

  /** Compiles what changed; a shape that fails keeps the slot that it had. */
  async compile({ users, departing }: ShapeUse): Promise<CompiledShapes> {
    const { slots, pace } = this.#options;
    const leaving = this.#leavers(users);
    const rows: SlotRow[] = [];
    const slotsGone: number[] = [];
    let reframed = false;
    for (const key of slots.dirtyShapes()) {
      await pace.breathe();
      const candidates = new Set<number>();
      for (const id of users.get(key) ?? []) {
        const kernel = this.kernel(id);
        if (kernel && kernel.slot !== 0 && !this.#leftAtStart(kernel.slot, key)) candidates.add(kernel.slot);
      }
      const how = departing.includes(key) ? 'all' : leaving.has(key) ? 'some' : 'none';
      const refreshed = await slots.refresh(key, candidates, how);
      rows.push(...refreshed.rows);
      if (refreshed.reframed) reframed = true;
      if (refreshed.left !== undefined) slotsGone.push(refreshed.left);
    }
    for (const key of departing) {
      const slot = slots.drop(key);
      if (slot !== undefined) slotsGone.push(slot);
    }
    return { slots: rows, slotsGone, reframed };
  }

  #shape(info: EndpointIdentity): Shape | undefined {
    const { policyMode, allowLocalhost } = this.#options.core;
    if (policyMode === 'never') return undefined;
    if (!info.ready) return DENY_ALL;
    const rules: (readonly [string, ResolvedRule])[] = [];
    for (const [, rule, key] of this.#options.inForce.rules(info.identity)) rules.push([key, rule]);
    // Of a pod that nobody knows it is not known either which ports it gives names.
    const unnamed = info.row.found !== undefined && info.row.pod === undefined;
    if (unnamed && portNamesOf(rules.map(([, rule]) => rule)).ingress.length > 0) return DENY_ALL;
    const mode = 'reserved:init' in info.labels ? 'always' : policyMode;
    return shapeOf(rules, mode, allowLocalhost, info.namedPorts);
  }

  #failureOf(shape: string | undefined): Error | undefined {
    return shape === undefined ? undefined : this.#options.slots.failure(shape);
  }

  /**
   * Shapes whose slot some endpoint leaves while others stay. Editing it in place would show the leaving ones the new members
   * of rules that no longer are theirs.
   */
  #leavers(users: ReadonlyMap<string, readonly number[]>): Set<string> {
    const bySlot = new Map<number, string>();
    for (const key of users.keys()) {
      const row = this.#options.slots.row(key);
      if (row) bySlot.set(row.slot, key);
    }
    const out = new Set<string>();
    for (const { state } of this.#options.states.values()) {
      const key = bySlot.get(state.slot);
      if (key !== undefined && this.#rows.get(state.id)?.shape !== key) out.add(key);
    }
    return out;
  }

  /** Whether an endpoint that was found at the slot goes to another shape: the slot must then stay as it is. */
  #leftAtStart(slot: number, shape: string): boolean {
    const found = this.#rows.list('kernelSlot', keys.uint(slot));
    return found.some((row) => row.shape !== shape && this.#options.infos.has(row.id));
  }
}

function isClosed(row: EndpointShape | undefined): boolean {
  return row?.shape !== row?.wanted;
}
