import type { ResolvedRule } from '@weir/policy';
import type { CoreOptions } from '../core.ts';
import type { EndpointStateRow, SlotRow } from '../tables.ts';
import type { EndpointIdentity } from './identities.ts';
import type { InForce } from './in-force.ts';
import type { Pace } from './pace.ts';
import type { KernelEndpoint } from './plan.ts';
import { DENY_ALL, type Shape, shapeOf } from './shape.ts';
import type { Slots } from './slots.ts';

export interface EndpointShapesOptions {
  readonly core: Pick<CoreOptions, 'policyMode' | 'allowLocalhost'>;
  readonly inForce: InForce;
  readonly slots: Slots;
  readonly infos: ReadonlyMap<number, EndpointIdentity>;
  readonly states: ReadonlyMap<number, EndpointStateRow>;
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

/** The shape of each endpoint's policy, and the slot that holds it. */
export class EndpointShapes {
  readonly #options: EndpointShapesOptions;
  /** Shape that each endpoint has, and the one that it should have: they differ only while the latter cannot be compiled. */
  readonly #shapes = new Map<number, string | undefined>();
  readonly #wanted = new Map<number, string | undefined>();
  /** Shapes that could not be compiled: their endpoints keep what they have. */
  readonly #failures = new Map<string, Error>();
  /** Endpoints that the kernel enforced before this start and that have no state yet. */
  readonly #found = new Set<number>();
  readonly #kernel = new Map<number, KernelEndpoint>();

  constructor(options: EndpointShapesOptions) {
    this.#options = options;
  }

  adopt(endpoint: KernelEndpoint): void {
    this.#kernel.set(endpoint.id, endpoint);
    this.#found.add(endpoint.id);
  }

  /** Endpoints found in the kernel, until the first plan is concluded. */
  get kernel(): ReadonlyMap<number, KernelEndpoint> {
    return this.#kernel;
  }

  adopted(): void {
    this.#kernel.clear();
  }

  /** The endpoint has a state of its own now. */
  stated(id: number): void {
    this.#found.delete(id);
  }

  forget(id: number): void {
    this.#shapes.delete(id);
    this.#wanted.delete(id);
    this.#found.delete(id);
  }

  get failing(): boolean {
    return this.#failures.size > 0;
  }

  /** Why the endpoint's policy could not be compiled. */
  failure(id: number): Error | undefined {
    const shape = this.#wanted.get(id);
    return shape === undefined ? undefined : this.#failures.get(shape);
  }

  /** Whether the shape that the endpoint has (it may not be the one wanted) could not be compiled. */
  stuck(id: number): boolean {
    const shape = this.#shapes.get(id);
    return shape !== undefined && this.#failures.has(shape);
  }

  /** Whether the endpoint is closed for want of its policy. */
  closed(id: number): boolean {
    return this.#shapes.get(id) !== this.#wanted.get(id);
  }

  slotOf(id: number): SlotRow | undefined {
    const shape = this.#shapes.get(id);
    return shape === undefined ? undefined : this.#options.slots.row(shape);
  }

  /** Whether an endpoint is closed for a policy that has compiled now; or is to be closed, as it has just failed to. */
  unsettled(): boolean {
    for (const id of this.#options.infos.keys()) {
      if ((this.failure(id) === undefined) === this.closed(id) && !this.#holds(id)) return true;
    }
    return false;
  }

  /** Gives each endpoint its shape. Readers see all of the old shapes or all of the new ones. */
  async settle(): Promise<ShapeUse> {
    const { infos, states, slots, pace } = this.#options;
    const concluded: [number, Shape | undefined][] = [];
    for (const [id, info] of infos) {
      concluded.push([id, this.#shape(info)]);
      if (pace.due()) await pace.breathe();
    }
    const users = new Map<string, number[]>();
    for (const [id, wanted] of concluded) {
      this.#wanted.set(id, wanted?.key);
      const failed = wanted !== undefined && this.#failures.has(wanted.key);
      // Nothing is in force yet that could stay: it is closed until its policy compiles.
      const closed = failed && !this.#found.has(id) && (!states.has(id) || this.#shapes.get(id) === DENY_ALL.key);
      this.#shapes.set(id, closed ? DENY_ALL.key : wanted?.key);
      for (const shape of closed ? [wanted, DENY_ALL] : [wanted]) {
        if (shape === undefined) continue;
        slots.need(shape);
        const list = users.get(shape.key);
        if (list) list.push(id);
        else users.set(shape.key, [id]);
      }
    }
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
        const kernel = this.#kernel.get(id);
        if (kernel && kernel.slot !== 0 && !this.#leftAtStart(kernel.slot, key)) candidates.add(kernel.slot);
      }
      try {
        const how = departing.includes(key) ? 'all' : leaving.has(key) ? 'some' : 'none';
        const refreshed = slots.refresh(key, candidates, how);
        this.#failures.delete(key);
        rows.push(...refreshed.rows);
        if (refreshed.reframed) reframed = true;
        if (refreshed.left !== undefined) slotsGone.push(refreshed.left);
      } catch (error) {
        this.#failures.set(key, error instanceof Error ? error : new Error(String(error)));
      }
    }
    for (const key of departing) {
      const slot = slots.drop(key);
      if (slot !== undefined) slotsGone.push(slot);
      this.#failures.delete(key);
    }
    return { slots: rows, slotsGone, reframed };
  }

  #shape(info: EndpointIdentity): Shape | undefined {
    const { policyMode, allowLocalhost } = this.#options.core;
    if (policyMode === 'never') return undefined;
    if (!info.ready) return DENY_ALL;
    const rules: (readonly [string, ResolvedRule])[] = [];
    for (const [, rule, key] of this.#options.inForce.rules(info.identity)) rules.push([key, rule]);
    const mode = 'reserved:init' in info.labels ? 'always' : policyMode;
    return shapeOf(rules, mode, allowLocalhost, info.namedPorts);
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
    for (const [id, { slot }] of this.#options.states) {
      const key = bySlot.get(slot);
      if (key !== undefined && this.#shapes.get(id) !== key) out.add(key);
    }
    return out;
  }

  /** Whether an endpoint that was found at the slot goes to another shape: the slot must then stay as it is. */
  #leftAtStart(slot: number, shape: string): boolean {
    for (const { id, slot: had } of this.#kernel.values()) {
      if (had === slot && this.#options.infos.has(id) && this.#shapes.get(id) !== shape) return true;
    }
    return false;
  }

  /** Whether the endpoint keeps what is in force while its policy cannot be compiled. */
  #holds(id: number): boolean {
    return this.#found.has(id) || (this.#options.states.has(id) && !this.closed(id));
  }
}
