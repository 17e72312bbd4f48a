import { type CompiledPolicy, MOST_CHANGED, type SelectorHash } from '@weir/policy';
import type { StateDB } from '@weir/statedb';
import { IdsExhaustedError } from '../errors.ts';
import type { SlotRow } from '../tables.ts';
import { type Around, type ClassNumbers, NO_NUMBERS } from './classes.ts';
import type { Shape } from './shape.ts';
import { hostNamesOf, type Recompiled, ShapeCompiler, type ShapeCompilerOptions } from './shape-compiler.ts';
import { type Placed, SlotPlaces, slotKey } from './slot-places.ts';
import type { KernelSlot, Numbered } from './slot-rows.ts';
import { Rows } from './working.ts';

/** What a failed compile costs may be seconds. Without another input, or a slot that is free again, only time can help. Milliseconds. */
const RETRY_MS = 60_000;

export interface SlotWorld extends ShapeCompilerOptions {
  readonly db: StateDB;
  readonly around: Around;
  /** Called when a shape begins or ceases to name a peer set. */
  namingChanged(hash: SelectorHash): void;
  /** Whether some address has the identity. */
  addressed(identity: number): boolean;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** As in `SlotPlacesOptions`. */
  readonly classNumbers?: number | undefined;
}

/** What became of a shape: rows that changed, and the slot that it left when it had to move. */
export interface Refreshed {
  readonly rows: readonly SlotRow[];
  readonly left?: number;
  /** It judges unknown peers or whole scopes otherwise than before: peers gave port names other numbers. */
  readonly reframed?: boolean;
}

export interface Refresh {
  readonly leaving?: boolean;
  readonly made: { readonly compiled: CompiledPolicy; readonly room: number } | Error;
  readonly like?: string | undefined;
}

/** A shape in use. */
interface ShapeRow {
  readonly shape: Shape;
  /** PeerSets that its rules name as peers. */
  readonly hashes: ReadonlySet<SelectorHash>;
  readonly tellsServers: boolean;
  /** Port names that mean what each peer says. */
  readonly portNames: ReadonlySet<string>;
  /** Its slot, once it has compiled. */
  readonly row?: SlotRow;
  /** What it was compiled to last. `row` has that, or what it had before endpoints left it. */
  readonly compiled?: CompiledPolicy;
  readonly numbers: ClassNumbers;
  /** The rows that its namespace had left for it when it was compiled. */
  readonly room: number;
  /** Why it could not be compiled when that was last tried, and when that is tried again though no input changes. */
  readonly failure?: { readonly error: Error; readonly retryAt: number };
  /** The kernel cannot edit its slot any more. */
  readonly outgrown?: boolean;
}

const NOBODY: ReadonlySet<number> = new Set();

/** Slots by shape. */
export class Slots {
  readonly #world: SlotWorld;
  readonly #compiler: ShapeCompiler;
  readonly #shapes: Rows<string, ShapeRow>;
  readonly #places: SlotPlaces;
  /**
   * Shapes to compile, each with the identities that its peer sets have won or lost, or that give port names other numbers, and API servers'; `anything`: more than
   * that may have changed.
   */
  readonly #dirty = new Map<string, Set<number> | 'anything'>();

  constructor(world: SlotWorld) {
    this.#world = world;
    this.#compiler = new ShapeCompiler(world);
    this.#shapes = new Rows<string, ShapeRow>(
      world.db,
      {
        name: 'shapes',
        key: ({ shape }) => shape.key,
        indexes: [
          { name: 'peerSet', keys: ({ hashes }) => hashes },
          { name: 'tellsServers', keys: ({ tellsServers }) => (tellsServers ? [''] : []) },
          { name: 'portName', keys: ({ portNames }) => portNames },
          { name: 'hostName', keys: ({ shape }) => hostNamesOf(shape) },
          { name: 'slot', keys: ({ row }) => (row === undefined ? [] : [slotKey(row.slot)]) },
          { name: 'failing', keys: ({ failure }) => (failure === undefined ? [] : ['']) },
        ],
      },
      (key) => key,
    );
    this.#places = new SlotPlaces(world);
  }

  /** Slots found in the kernel; each may be taken over by the shape that means the same. */
  adopt(slots: ReadonlyMap<number, KernelSlot>): void {
    this.#places.adopt(slots);
  }

  /** The kernel's slot cannot be edited to the wanted content: its shape gets another slot. */
  outgrown(slot: number): void {
    const [user] = this.#shapes.list('slot', slotKey(slot));
    if (user === undefined) return;
    this.#shapes.set({ ...user, outgrown: true });
    this.compiled([user.shape.key]);
  }

  /** The kernel no longer has the slot: its number may be given out again. */
  release(slot: number): void {
    const [user] = this.#shapes.list('slot', slotKey(slot));
    if (user !== undefined) return;
    this.#places.release(slot);
    for (const { shape, failure } of this.#shapes.list('failing', ''))
      if (failure?.error instanceof IdsExhaustedError) this.#dirty.set(shape.key, 'anything');
  }

  /** The shape is in use. */
  need(shape: Shape): void {
    if (this.#shapes.has(shape.key)) return;
    const { groups } = shape;
    const hashes = new Set(groups.flatMap(({ peerSets }) => [...peerSets]));
    const portNames = new Set(groups.flatMap(({ peerNames }) => [...peerNames]));
    const tellsServers = groups.some(({ tellServers }) => tellServers);
    this.#shapes.set({ shape, hashes, tellsServers, portNames, numbers: NO_NUMBERS, room: 0 });
    for (const hash of hashes) this.#world.namingChanged(hash);
    this.#dirty.set(shape.key, 'anything');
  }

  /** Shapes that are not among those in use. */
  unneeded(used: ReadonlySet<string>): string[] {
    return Array.from(this.#shapes.values(), ({ shape }) => shape.key).filter((key) => !used.has(key));
  }

  /** Forgets a shape; returns its slot number. */
  drop(key: string): number | undefined {
    this.#dirty.delete(key);
    const gone = this.#shapes.delete(key);
    for (const hash of gone?.hashes ?? []) this.#world.namingChanged(hash);
    return gone?.row?.slot;
  }

  /** Whether a shape in use names the set as a peer. */
  names(hash: SelectorHash): boolean {
    const [user] = this.#shapes.list('peerSet', hash);
    return user !== undefined;
  }

  /** These identities have joined or left the set; undefined: all may have. */
  peerSetChanged(hash: SelectorHash, ids: ReadonlySet<number> | undefined): void {
    this.#touch(this.#shapes.list('peerSet', hash), ids ?? 'anything');
  }

  /** These identities have become an API server's, or are one's no longer. */
  serversChanged(ids: ReadonlySet<number>): void {
    if (ids.size > 0) this.#touch(this.#shapes.list('tellsServers', ''), ids);
  }

  /** Another thing is known of the host. */
  hostChanged(): void {
    this.#touch(this.#shapes.list('tellsServers', ''));
  }

  /** There is another identity of names of these patterns, or one is gone. */
  hostNamesChanged(patterns: Iterable<string>): void {
    for (const pattern of patterns) this.#touch(this.#shapes.list('hostName', pattern));
  }

  /** Identities give these port names other numbers. */
  portNamesChanged(names: ReadonlyMap<string, ReadonlySet<number>>): void {
    for (const [name, ids] of names) this.#touch(this.#shapes.list('portName', name), ids);
  }

  /** Whether a shape in use asks what peers mean by the port name. */
  usesPortName(name: string): boolean {
    const [user] = this.#shapes.list('portName', name);
    return user !== undefined;
  }

  /** Writes these shapes into their slots again, changed or not. */
  compiled(shapes: Iterable<string>): void {
    for (const shape of shapes) if (!this.#dirty.has(shape)) this.#dirty.set(shape, new Set());
  }

  /** Listeners of proxies that the slots name, some more than once. */
  *listeners(): Generator<number> {
    for (const { row, compiled } of this.#shapes.values())
      for (const policy of new Set([row?.compiled, compiled])) if (policy !== undefined) yield* listenersOf(policy);
  }

  row(shape: string): SlotRow | undefined {
    return this.#shapes.get(shape)?.row;
  }

  /** When a shape that failed to compile is retried; Infinity: not before an input changes. */
  retryAt(): number {
    let at = Infinity;
    for (const { failure } of this.#shapes.list('failing', '')) at = Math.min(at, failure?.retryAt ?? Infinity);
    return at;
  }

  /** Why the shape could not be compiled. */
  failure(shape: string): Error | undefined {
    return this.#shapes.get(shape)?.failure?.error;
  }

  /** Shapes to compile: what they mean has changed, or they could not be compiled long ago. */
  dirtyShapes(): ReadonlySet<string> {
    const now = this.#world.now();
    const due = new Set(this.#dirty.keys());
    for (const { shape, failure } of this.#shapes.list('failing', ''))
      if (failure !== undefined && failure.retryAt <= now) due.add(shape.key);
    return due;
  }

  /** What the shape was compiled to last, as it fits its namespace; undefined: nothing, or it could not be compiled. */
  compiledAs(key: string): { readonly compiled: CompiledPolicy; readonly room: number } | undefined {
    const { compiled, room = 0, failure } = this.#shapes.get(key) ?? {};
    return compiled === undefined || failure !== undefined ? undefined : { compiled, room };
  }

  /**
   * Compiles the shape with at most so many rows a direction, or returns why that fails. `like`: a shape that may differ from it little, and has
   * been compiled. Makes breaks, as `refresh` does.
   */
  async compile(key: string, most: number, like?: string): Promise<CompiledPolicy | Error> {
    const entry = this.#shapes.get(key);
    if (entry === undefined) return new Error(`shape ${key} is not in use`);
    try {
      return await this.#compile(entry, most, this.#dirty.get(key), like);
    } catch (error) {
      return asError(error);
    }
  }

  /**
   * Puts one shape into its slot. `made`: what it was compiled to with that room, or why it was not. `candidates`: kernel
   * slots that endpoints of this shape have. `leaving`: endpoints that point at its slot go elsewhere, all of them or some; for them it stays as it
   * was. A shape that cannot be compiled, or gets no slot, has none. `like`: as in `compile`. Makes breaks: no slot may be given out, and nothing
   * that was computed may change, meanwhile.
   */
  async refresh(
    key: string,
    candidates: Iterable<number>,
    { leaving = false, made, like }: Refresh,
  ): Promise<Refreshed> {
    this.#dirty.delete(key);
    const entry = this.#shapes.get(key);
    if (entry === undefined) return { rows: [] };
    if (made instanceof Error) return this.#fail(entry, made);
    const { compiled, room } = made;
    const placing = {
      ...{ shape: key, compiled, before: this.#numbered(entry), candidates, leaving },
      ...{ outgrown: entry.outgrown === true, like: this.#numbered(this.#shapes.get(like ?? '')) },
    };
    try {
      return this.#placed({ ...entry, room, compiled }, await this.#world.pace.run(this.#places.place(placing)));
    } catch (error) {
      return this.#fail(entry, asError(error));
    }
  }

  /** The shape loses its slot: its endpoints are closed. */
  #fail({ row, compiled: _, ...entry }: ShapeRow, error: Error): Refreshed {
    const failure = { error, retryAt: this.#world.now() + RETRY_MS };
    this.#shapes.set({ ...entry, numbers: NO_NUMBERS, failure });
    return row === undefined ? { rows: [] } : { rows: [], left: row.slot };
  }

  /** The shape has compiled. */
  #placed({ failure: _, outgrown: __, ...entry }: ShapeRow, { row, numbers, left, reframed }: Placed): Refreshed {
    this.#shapes.set({ ...entry, row, numbers });
    const changed = [left ?? row, row].filter((each, at, all) => each !== entry.row && all.indexOf(each) === at);
    if (left === undefined) return { rows: changed };
    return { rows: changed, left: left.slot, reframed: reframed === true };
  }

  #numbered(entry: ShapeRow | undefined): Numbered | undefined {
    return entry?.row && { row: entry.row, numbers: entry.numbers };
  }

  /** `changed`: identities that its peer sets have won or lost since it was compiled, and API servers', if nothing else has changed. */
  async #compile(
    { shape, tellsServers, compiled, failure }: ShapeRow,
    mostRows: number,
    changed: ReadonlySet<number> | 'anything' = NOBODY,
    like?: string,
  ): Promise<CompiledPolicy> {
    const own =
      compiled !== undefined && failure === undefined && changed !== 'anything' ? { compiled, changed } : undefined;
    return this.#compiler.compile({ shape, tellsServers }, mostRows, own ?? (await this.#sibling(shape, like)));
  }

  /** What another shape was compiled to, and whom the difference concerns. */
  async #sibling(shape: Shape, key: string | undefined): Promise<Recompiled | undefined> {
    if (key === undefined || key === shape.key) return undefined;
    const other = this.#shapes.get(key);
    const changed = this.#dirty.get(key) ?? NOBODY;
    if (other?.compiled === undefined || other.failure !== undefined || changed === 'anything') return undefined;
    return this.#compiler.differing({ shape: other.shape, compiled: other.compiled, changed }, shape);
  }

  #touch(rows: Iterable<ShapeRow>, ids: ReadonlySet<number> | 'anything' = 'anything'): void {
    for (const { shape } of rows) {
      const known = this.#dirty.get(shape.key) ?? new Set<number>();
      this.#dirty.set(shape.key, ids === 'anything' ? ids : withMore(known, ids));
    }
  }
}

function* listenersOf({ ingress, egress }: CompiledPolicy): Generator<number> {
  for (const { scope, classes, addresses } of [ingress, egress])
    for (const rows of [scope.unknown, scope.pod, scope.world, ...[...classes, ...addresses].map((each) => each.rows)])
      for (const row of rows) if (row.verdict === 'redirect') yield row.listener.port;
}

/** `known` with the others: more than a shape is compiled for alone are everybody. */
function withMore(known: Set<number> | 'anything', ids: ReadonlySet<number>): Set<number> | 'anything' {
  if (known === 'anything') return known;
  for (const id of ids) if (known.add(id).size > MOST_CHANGED) return 'anything';
  return known;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
