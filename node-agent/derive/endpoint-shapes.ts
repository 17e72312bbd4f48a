import { keys, type StateDB } from '@weir/statedb';
import type { CoreOptions } from '../core.ts';
import type { EndpointStateRow, KernelEndpoint, SlotRow } from '../tables.ts';
import type { EndpointIdentity } from './identities.ts';
import type { InForce, Subject } from './in-force.ts';
import type { Pace } from './pace.ts';
import { compileByShare, type Kept, type Shared } from './row-shares.ts';
import { DENY_ALL, type Shape, shapeOf } from './shape.ts';
import type { Leaving } from './slot-rows.ts';
import type { Slots } from './slots.ts';
import { Rows, type RowsView } from './working.ts';

const WAITS =
  "its policy is not compiled yet: there is more to compile for its namespace's endpoints than one plan takes";

export interface EndpointShapesOptions {
  readonly db: StateDB;
  readonly core: Pick<CoreOptions, 'policyMode' | 'allowLocalhost'>;
  /** As in `ShareOptions`. */
  readonly work?: number | undefined;
  /** As in `ShareOptions`. */
  readonly mostRows?: number | undefined;
  readonly inForce: InForce;
  readonly slots: Slots;
  readonly infos: Pick<RowsView<number, EndpointIdentity>, 'get' | 'has' | 'values'>;
  readonly states: Pick<RowsView<number, { readonly state: EndpointStateRow }>, 'has' | 'values'>;
  readonly pace: Pace;
}

/** Endpoints by the shape that each should have. */
export type Wanted = ReadonlyMap<string, readonly number[]>;

export interface CompiledShapes {
  readonly slots: SlotRow[];
  readonly slotsGone: number[];
  /** Some shape moves to a slot that judges unknown peers otherwise, because of port names. */
  readonly reframed: boolean;
  /** Some shapes are to be compiled by the next plan. */
  readonly waiting: boolean;
}

/** A compile under way, and which endpoints point at each slot. */
interface Compiling {
  readonly slots: SlotRow[];
  readonly slotsGone: number[];
  reframed: boolean;
  readonly pointing: ReadonlyMap<number, readonly number[]>;
  /** What shapes were compiled to, with the rows that their namespaces leave them. */
  readonly made: ReadonlyMap<string, Shared | Error>;
}

/** What the shape of an endpoint follows from: it is another one only if one of these is another object. */
interface ShapedFrom {
  readonly info: EndpointIdentity;
  /** Stands for the rules that select it. */
  readonly subject: Subject | undefined;
}

interface EndpointShape {
  readonly id: number;
  /**
   * The shape that it has, and the one that it should have. Once a plan is concluded they differ only while the latter cannot be
   * compiled, or waits for the next plan: then the former is the one in force before, or denies all where nothing was, or where the endpoint is not
   * who it was.
   */
  readonly shape?: string | undefined;
  readonly wanted?: string | undefined;
  /** What `wanted` was concluded from. */
  readonly from?: ShapedFrom;
  /** What `shape` was wanted for last, while it is not. */
  readonly holder?: ShapedFrom | undefined;
  /** For so many plans it has waited for the shape that it should have. */
  readonly waited?: number;
  /** The identity that it was enforced with before this start. */
  readonly found?: number | undefined;
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
    this.#rows.set({ id: kernel.id, found: kernel.identity, kernel });
  }

  /** What was found in the kernel of the endpoint, until the first plan is concluded. */
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

  /** Whether the endpoint's policy is to be compiled by the next plan, as the last had enough to do for its namespace. */
  waits(id: number): boolean {
    const wanted = this.#rows.get(id)?.wanted;
    return wanted !== undefined && this.#options.slots.awaitsCompile(wanted);
  }

  /** Why the endpoint has not got its policy's shape. */
  lacks(id: number): string | undefined {
    return this.failure(id)?.message ?? (this.waits(id) ? WAITS : undefined);
  }

  /** Whether the shape that the endpoint has (it may not be the one wanted) is not compiled. */
  stuck(id: number): boolean {
    return this.#uncompiled(this.#rows.get(id)?.shape);
  }

  /** Whether the endpoint is closed for want of its policy. */
  closed(id: number): boolean {
    const row = this.#rows.get(id);
    return row?.shape === DENY_ALL.key && row.wanted !== DENY_ALL.key;
  }

  /** Whether what was in force before stays, as the endpoint's policy is not compiled. */
  held(id: number): boolean {
    const row = this.#rows.get(id);
    return row?.shape !== row?.wanted && row?.shape !== DENY_ALL.key;
  }

  /** The slot of the shape that the endpoint has. */
  slotOf(id: number): SlotRow | undefined {
    const shape = this.#rows.get(id)?.shape;
    return shape === undefined ? undefined : this.#options.slots.row(shape);
  }

  /** Finds the shape that each endpoint should have. Readers see all of the old ones or all of the new ones. */
  async settle(): Promise<Wanted> {
    const { infos, inForce, slots, pace } = this.#options;
    const concluded: { readonly id: number; readonly shape: Shape | undefined; readonly from: ShapedFrom }[] = [];
    const users = new Map<string, number[]>();
    for (const info of infos.values()) {
      const { id } = info.row;
      const subject = info.ready ? inForce.subject(info.identity) : undefined;
      const before = this.#rows.get(id);
      let wanted = before?.wanted;
      if (before?.from?.info !== info || before.from.subject !== subject) {
        const shape = this.#shape(info);
        wanted = shape?.key;
        concluded.push({ id, shape, from: { info, subject } });
      }
      if (pace.due()) await pace.breathe();
      if (wanted === undefined) continue;
      const list = users.get(wanted);
      if (list) list.push(id);
      else users.set(wanted, [id]);
    }
    for (const { shape } of concluded) {
      if (shape !== undefined) slots.need(shape);
      if (pace.due()) await pace.breathe();
    }
    this.#put(
      concluded.map(({ id, shape, from }) => {
        const before = this.#rows.get(id) ?? { id };
        const holder = before.shape === before.wanted ? before.from : before.holder;
        return { ...before, wanted: shape?.key, from, holder };
      }),
    );
    return users;
  }

  /**
   * Compiles what changed, and gives each endpoint its shape. A shape that fails keeps the slot that it had. `first`: nothing is concluded yet, and
   * no shape waits for a later plan.
   */
  async compile(users: Wanted, first: boolean): Promise<CompiledShapes> {
    const { infos, slots } = this.#options;
    const made = await this.#compileByShare(users, first);
    const out: Compiling = { slots: [], slotsGone: [], reframed: false, pointing: this.#pointing(), made };
    const left = this.#leavers();
    const refresh = (which: (key: string) => boolean): Promise<void> =>
      this.#refresh(
        [...slots.dirtyShapes()].filter((key) => which(key) && !slots.awaitsFirstCompile(key)),
        users,
        out,
      );
    // Who leaves a shape is certain once the shapes that they go to have compiled, or have failed to.
    await refresh((key) => users.has(key) && !left.has(key));
    await refresh((key) => users.has(key));
    const ids = Array.from(infos.values(), ({ row }) => row.id);
    if (ids.some((id) => this.#next(this.#rows.get(id)) === DENY_ALL.key)) slots.need(DENY_ALL);
    // What nobody wants and nobody has need not be compiled.
    await refresh((key) => !users.has(key) && (key === DENY_ALL.key || slots.row(key) !== undefined));
    const held = new Set<string>();
    const used = new Set<string>(users.keys());
    const changed: EndpointShape[] = [];
    for (const id of ids) {
      const row = this.#rows.get(id);
      const shape = this.#next(row);
      if (row !== undefined) {
        const waited = this.waits(id) ? (row.waited ?? 0) + 1 : 0;
        const holder = shape === row.wanted ? undefined : row.holder;
        if (shape !== row.shape || waited !== (row.waited ?? 0) || holder !== row.holder)
          changed.push({ ...row, shape, waited, holder });
      }
      if (shape === undefined) continue;
      used.add(shape);
      if (shape !== row?.wanted) held.add(shape);
    }
    this.#put(changed);
    await this.#options.inForce.cidrsNamed(slots.hold(held));
    for (const key of slots.unneeded(used)) {
      const slot = slots.drop(key);
      if (slot !== undefined) out.slotsGone.push(slot);
    }
    return { slots: out.slots, slotsGone: out.slotsGone, reframed: out.reframed, waiting: slots.hasPutOff };
  }

  /** Compiles what is dirty of what is wanted, and what has another share of its namespace's rows than before. */
  async #compileByShare(users: Wanted, first: boolean): Promise<ReadonlyMap<string, Shared | Error>> {
    const { slots, pace, work, mostRows } = this.#options;
    const dirty = slots.dirtyShapes();
    if (dirty.size === 0 && !slots.limited && !slots.hasPutOff) return new Map();
    const { made, failed, waiting } = await compileByShare({
      users: this.#namespaces(users),
      kept: this.#kept(),
      dirty,
      needs: (key) => slots.needs(key),
      failing: (key) => slots.failure(key) !== undefined,
      compile: async (key, most) => {
        if (pace.due()) await pace.breathe();
        return slots.compile(key, most, this.#like(key, users));
      },
      rules: (key) => slots.rules(key),
      // What is in force follows its peers before addresses do, or is closed to them. Who is nobody, or nobody any more, is closed at once.
      mayWait: (key) => key !== DENY_ALL.key && slots.mayWait(key),
      work: first ? Infinity : work,
      mostRows,
    });
    slots.putOff(waiting);
    slots.compiled(made.keys());
    return new Map<string, Shared | Error>([...failed, ...made]);
  }

  /**
   * By shape, the namespaces of its endpoints. A shape by which one of them gets other rules of the cluster's policies comes first: who edits
   * policies of a namespace without end keeps an administrator's from nobody. Then comes that for which one of them has waited longest.
   */
  #namespaces(users: Wanted): ReadonlyMap<string, ReadonlySet<string>> {
    const { infos, slots } = this.#options;
    const turns = Array.from(users, ([key, ids]) => {
      const rows = ids.map((id) => this.#rows.get(id));
      const clusterwide = slots.clusterwide(key);
      return {
        key,
        namespaces: new Set(ids.map((id) => infos.get(id)?.row.pod?.namespace ?? '')),
        first: rows.some((row) => slots.clusterwide(row?.shape ?? '') !== clusterwide),
        waited: rows.reduce((most, row) => Math.max(most, row?.waited ?? 0), 0),
      };
    });
    turns.sort((a, b) => Number(b.first) - Number(a.first) || b.waited - a.waited);
    return new Map(turns.map(({ key, namespaces }) => [key, namespaces]));
  }

  /** By the shape that they are to have: the shapes that endpoints keep until then, and the namespaces of these. */
  #kept(): ReadonlyMap<string, Kept> {
    const { infos, states } = this.#options;
    const out = new Map<string, Map<string, Set<string>>>();
    for (const { id, shape, wanted, holder, from } of this.#rows.values()) {
      if (shape === undefined || wanted === undefined || shape === wanted || shape === DENY_ALL.key) continue;
      if (!states.has(id) || !isSame(holder, from)) continue;
      const kept = out.get(wanted) ?? new Map<string, Set<string>>();
      const namespaces = kept.get(shape) ?? new Set();
      out.set(wanted, kept.set(shape, namespaces.add(infos.get(id)?.row.pod?.namespace ?? '')));
    }
    return out;
  }

  async #refresh(shapes: readonly string[], users: Wanted, out: Compiling): Promise<void> {
    const { slots, pace } = this.#options;
    for (const key of shapes) {
      if (pace.due()) await pace.breathe();
      const candidates = new Set<number>();
      for (const id of users.get(key) ?? []) {
        const kernel = this.kernel(id);
        if (kernel && kernel.slot !== 0 && !this.#leftAtStart(kernel.slot, key)) candidates.add(kernel.slot);
      }
      const made = out.made.get(key);
      const like = this.#like(key, users);
      const refreshed = await slots.refresh(key, candidates, {
        left: this.#leaving(key, users, out.pointing),
        ...(made === undefined ? {} : { made }),
        ...(like === undefined ? {} : { like }),
      });
      out.slots.push(...refreshed.rows);
      if (refreshed.reframed) out.reframed = true;
      if (refreshed.left !== undefined) out.slotsGone.push(refreshed.left);
    }
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

  #uncompiled(shape: string | undefined): boolean {
    return (
      this.#failureOf(shape) !== undefined || (shape !== undefined && this.#options.slots.awaitsFirstCompile(shape))
    );
  }

  #failureOf(shape: string | undefined): Error | undefined {
    return shape === undefined ? undefined : this.#options.slots.failure(shape);
  }

  /** The shape that the endpoint is to have, by what has compiled so far. */
  #next(row: EndpointShape | undefined): string | undefined {
    if (row === undefined || !this.#uncompiled(row.wanted)) return row?.wanted;
    if (this.#options.states.has(row.id)) {
      // Rules of whom it was are not for whom it is: others judge it by its identity already.
      const stays = row.shape === row.wanted || isSame(row.holder, row.from);
      return stays ? row.shape : DENY_ALL.key;
    }
    // What the kernel was found to enforce stays for whom it was. Without anything in force it is closed until its policy compiles.
    return row.found !== undefined && row.found === row.from?.info.identity ? row.wanted : DENY_ALL.key;
  }

  /** Shapes that some endpoint should leave. */
  #leavers(): Set<string> {
    const out = new Set<string>();
    for (const { shape, wanted } of this.#rows.values()) if (shape !== undefined && shape !== wanted) out.add(shape);
    return out;
  }

  /**
   * Which endpoints leave the shape's slot. Editing it in place would show the leaving ones the new members of rules that no longer
   * are theirs.
   */
  #leaving(key: string, users: Wanted, pointing: ReadonlyMap<number, readonly number[]>): Leaving {
    const slot = this.#options.slots.row(key)?.slot;
    if (slot === undefined) return 'none';
    const ids = pointing.get(slot) ?? [];
    const staying = ids.filter((id) => this.#next(this.#rows.get(id)) === key).length;
    if (!users.has(key) && staying === 0) return 'all';
    return staying === ids.length ? 'none' : 'some';
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

/** Whether the endpoint is the same pod, with the same identity. */
function isSame(before: ShapedFrom | undefined, now: ShapedFrom | undefined): boolean {
  if (before === undefined || now === undefined) return false;
  const [had, has] = [before.info, now.info];
  return had.identity === has.identity && had.row.ifindex === has.row.ifindex && had.row.pod?.uid === has.row.pod?.uid;
}
