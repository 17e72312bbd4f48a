import { type CompiledPolicy, isSmallChange, MOST_CHANGED, type SelectorHash, type Steps } from '@weir/policy';
import type { StateDB } from '@weir/statedb';
import { IdsExhaustedError } from '../errors.ts';
import type { SlotRow } from '../tables.ts';
import { type Around, type ClassNumbers, NO_NUMBERS } from './classes.ts';
import { HeldGroups } from './held-groups.ts';
import { limited, type Needs, NO_NEEDS, needsOf, type Shared } from './row-shares.ts';
import { both } from './rows.ts';
import type { Shape } from './shape.ts';
import { type Recompiled, ShapeCompiler, type ShapeCompilerOptions } from './shape-compiler.ts';
import { type Placed, SlotPlaces, slotKey } from './slot-places.ts';
import {
  type Edited,
  type KernelSlot,
  type Leaving,
  type Numbered,
  withoutChanged,
  withoutPeers,
} from './slot-rows.ts';
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
  /** As in `ShareOptions`. */
  readonly mostRows?: number | undefined;
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
  /** As it was compiled last. */
  readonly needs: Needs;
  /** Why it could not be compiled when that was last tried, and when that is tried again though no input changes. */
  readonly failure?: { readonly error: Error; readonly retryAt: number };
  /** It stays in force at some endpoint, in place of a shape that cannot be compiled, or has not been yet. */
  readonly held: boolean;
  /** The kernel cannot edit its slot any more. */
  readonly outgrown?: boolean;
  /** It is to be compiled by the next plan: the last had enough to do for its namespaces. */
  readonly putOff: boolean;
}

const NOBODY: ReadonlySet<number> = new Set();

/** Slots by shape. */
export class Slots {
  readonly #world: SlotWorld;
  readonly #compiler: ShapeCompiler;
  readonly #shapes: Rows<string, ShapeRow>;
  readonly #heldGroups: HeldGroups;
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
          { name: 'slot', keys: ({ row }) => (row === undefined ? [] : [slotKey(row.slot)]) },
          { name: 'held', keys: ({ held }) => (held ? [''] : []) },
          { name: 'heldGroup', keys: ({ held, shape }) => (held ? shape.groups.map(({ key }) => key) : []) },
          { name: 'putOff', keys: ({ putOff }) => (putOff ? [''] : []) },
          { name: 'limited', keys: ({ needs }) => (limited(needs, world.mostRows) ? [''] : []) },
          { name: 'failing', keys: ({ failure }) => (failure === undefined ? [] : ['']) },
        ],
      },
      (key) => key,
    );
    this.#heldGroups = new HeldGroups(world.db);
    this.#places = new SlotPlaces(world);
  }

  /** Slots found in the kernel; each may be taken over by the shape that means the same. */
  adopt(slots: ReadonlyMap<number, KernelSlot>): void {
    this.#places.adopt(slots);
  }

  /** The kernel's slot cannot become what it is to be: its shape is to get another one. */
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
    const fresh = { numbers: NO_NUMBERS, needs: NO_NEEDS, held: false, putOff: false };
    this.#shapes.set({ shape, hashes, tellsServers, portNames, ...fresh });
    for (const hash of hashes) this.#world.namingChanged(hash);
    this.#dirty.set(shape.key, 'anything');
  }

  /** Shapes that are not among those in use. */
  unneeded(used: ReadonlySet<string>): string[] {
    return Array.from(this.#shapes.values(), ({ shape }) => shape.key).filter((key) => !used.has(key));
  }

  /** These shapes, and no others, stay in force in place of others. Returns the CIDRs of those of which that is new, or no longer so. */
  hold(shapes: ReadonlySet<string>): ReadonlySet<string> {
    const groups = this.#mark('held', shapes).flatMap(({ shape }) => shape.groups);
    const held = (key: string): boolean => {
      const [user] = this.#shapes.list('heldGroup', key);
      return user !== undefined;
    };
    return this.#heldGroups.settle(new Map(groups.map((group) => [group.key, group])).values(), held);
  }

  /** These shapes, and no others, wait for the next plan. */
  putOff(shapes: ReadonlySet<string>): void {
    this.#mark('putOff', shapes);
  }

  /** Whether some shape is left to the next plan: to be compiled, or to get another share. */
  get hasPutOff(): boolean {
    const [some] = this.#shapes.list('putOff', '');
    return some !== undefined;
  }

  /** Whether the shape is left to the next plan, and has not been compiled yet. */
  awaitsFirstCompile(key: string): boolean {
    const row = this.#shapes.get(key);
    return row?.putOff === true && row.row === undefined;
  }

  /** Whether the shape is to be compiled by the next plan, be it for the first time. */
  awaitsCompile(key: string): boolean {
    return this.#dirty.has(key) && this.#shapes.get(key)?.putOff === true;
  }

  /**
   * Whether a plan may leave the shape to the next: nothing of it is in force, or compiling it is much work and it is known to whom its slot must be
   * closed until then.
   */
  mayWait(key: string): boolean {
    const entry = this.#shapes.get(key);
    if (entry?.row === undefined) return true;
    const changed = this.#dirty.get(key) ?? NOBODY;
    const { compiled, failure } = entry;
    if (compiled === undefined || failure !== undefined || changed === 'anything') return false;
    return !isSmallChange(compiled, changed);
  }

  #mark(as: 'held' | 'putOff', shapes: ReadonlySet<string>): ShapeRow[] {
    const marked = new Set(Array.from(this.#shapes.list(as, ''), ({ shape }) => shape.key));
    const changed: ShapeRow[] = [];
    for (const key of shapes.symmetricDifference(marked)) {
      const row = this.#shapes.get(key);
      if (row !== undefined) changed.push({ ...row, [as]: !row[as] });
    }
    for (const row of changed) this.#shapes.set(row);
    return changed;
  }

  /** Whether a shape that stays in force in place of another names the CIDR. */
  holdsCidr(cidr: string): boolean {
    return this.#heldGroups.names(cidr);
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

  /** Identities give these port names other numbers. */
  portNamesChanged(names: ReadonlyMap<string, ReadonlySet<number>>): void {
    for (const [name, ids] of names) this.#touch(this.#shapes.list('portName', name), ids);
  }

  /** Whether a shape in use asks what peers mean by the port name. */
  usesPortName(name: string): boolean {
    const [user] = this.#shapes.list('portName', name);
    return user !== undefined;
  }

  /** These shapes are to be put into their slots, whether what they mean has changed or not. */
  compiled(shapes: Iterable<string>): void {
    for (const shape of shapes) if (!this.#dirty.has(shape)) this.#dirty.set(shape, new Set());
  }

  row(shape: string): SlotRow | undefined {
    return this.#shapes.get(shape)?.row;
  }

  /** `clusterwide` of the shape. */
  clusterwide(shape: string): string {
    return this.#shapes.get(shape)?.shape.clusterwide ?? '';
  }

  /** How many rules the shape has. */
  rules(shape: string): number {
    return this.#shapes.get(shape)?.shape.groups.reduce((sum, { rules }) => sum + rules.length, 0) ?? 0;
  }

  /** Rows that the shape needs, as it was compiled last. */
  needs(shape: string): Needs {
    return this.#shapes.get(shape)?.needs ?? NO_NEEDS;
  }

  /** Whether some shape has fewer rows than it needs, as others of its namespace need theirs. */
  get limited(): boolean {
    const [some] = this.#shapes.list('limited', '');
    return some !== undefined;
  }

  /** When a shape that could not be compiled is to be tried again; Infinity: not before an input changes. */
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
   * Puts one shape into its slot. `made`: what it was compiled to, or why it was not; without, it is compiled with the room that it had. `candidates`: kernel slots that
   * endpoints of this shape have. `left`: endpoints that point at its slot go elsewhere, all of them or some; for them it stays as it was. When it
   * cannot be compiled, the shape keeps the row that it had; when there is no slot for it, that row without peers of whom it should allow something
   * else; and when it is left to the next plan, that row without peers that have changed. `like`: as in `compile`. Makes breaks: no slot may be given out, and nothing that was
   * concluded may change, meanwhile.
   */
  async refresh(
    key: string,
    candidates: Iterable<number>,
    {
      left = 'none',
      made,
      like,
    }: { readonly left?: Leaving; readonly made?: Shared | Error; readonly like?: string } = {},
  ): Promise<Refreshed> {
    const { pace } = this.#world;
    const changed = this.#dirty.get(key);
    const entry = this.#shapes.get(key);
    if (entry?.row !== undefined && entry.putOff && made === undefined && changed instanceof Set) {
      const { row, numbers } = entry;
      const peers = both(() => changed);
      return this.#keep(entry, row, withoutPeers({ row, numbers }, peers, this.#world.now()));
    }
    this.#dirty.delete(key);
    if (entry === undefined) return { rows: [] };
    let compiled: CompiledPolicy | undefined;
    try {
      if (made instanceof Error) throw made;
      const { most } = made?.needs ?? entry.needs;
      compiled = made?.compiled ?? (await this.#compile(entry, most, changed));
      const needs = made?.needs ?? needsOf(compiled, most);
      const outgrown = entry.outgrown === true;
      const similar = this.#numbered(this.#shapes.get(like ?? ''));
      const placing = {
        shape: key,
        compiled,
        before: this.#numbered(entry),
        candidates,
        leaving: left,
        outgrown,
        like: similar,
      };
      return this.#placed({ ...entry, needs, compiled }, await pace.run(this.#places.place(placing)));
    } catch (error) {
      const failing = { ...entry, failure: { error: asError(error), retryAt: this.#world.now() + RETRY_MS } };
      this.#shapes.set(failing);
      if (compiled === undefined || entry.row === undefined) return { rows: [] };
      const { row, numbers } = entry;
      const { around, now } = this.#world;
      return this.#keep(failing, row, withoutChanged({ row, numbers }, compiled, around, now()));
    }
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

  /** The shape goes on with less, as its slot cannot become what it is to be, or waits for that. */
  async #keep(entry: ShapeRow, row: SlotRow, less: Steps<Edited>): Promise<Refreshed> {
    const { pace } = this.#world;
    const kept = await pace.run(less);
    const after = await pace.run(this.#places.edited(row, kept));
    this.#shapes.set({ ...entry, row: after, numbers: kept.numbers });
    return { rows: after === row ? [] : [after] };
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

/** `known` with the others: more than a shape is compiled for alone are everybody. */
function withMore(known: Set<number> | 'anything', ids: ReadonlySet<number>): Set<number> | 'anything' {
  if (known === 'anything') return known;
  for (const id of ids) if (known.add(id).size > MOST_CHANGED) return 'anything';
  return known;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
