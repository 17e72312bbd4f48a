import { isLocalCidr } from '@weir/identity';
import {
  type CompiledPolicy,
  compile,
  type Direction,
  type PeerIdentity,
  type PortNames,
  portNamesOf,
  type SelectorHash,
} from '@weir/policy';
import { IdsExhaustedError } from '../errors.ts';
import type { SlotRow } from '../tables.ts';
import { type ClassMaps, ClassNumbers, classOf } from './classes.ts';
import { portNameKey } from './peer-port-names.ts';
import { DIRECTIONS, frameKey, rowsKey } from './rows.ts';
import type { Shape } from './shape.ts';

/** Highest slot number; 0 is "no policy". */
export const LAST_SLOT = 4095;

/** What a slot found in the kernel means. */
export interface KernelSlot {
  /** Rows keys of the scope classes unknown, pod, world. */
  readonly scope: Readonly<Record<Direction, readonly [string, string, string]>>;
  readonly classes: ClassMaps;
  /** Rows key of each class number from 16 on. */
  readonly rows: Readonly<Record<Direction, ReadonlyMap<number, string>>>;
}

export interface SlotWorld {
  members(hash: SelectorHash): Iterable<number> | undefined;
  identities(): Iterable<PeerIdentity>;
  /** Numbers that peers give port names. */
  readonly peerPorts: PortNames['peers'];
  /** Whether some address has the identity. */
  addressed(identity: number): boolean;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
}

/** What became of a shape: rows that changed, and the slot that it left when it had to move. */
export interface Refreshed {
  readonly rows: readonly SlotRow[];
  readonly left?: number;
  /** It judges unknown peers or whole scopes otherwise than before: peers gave port names other numbers. */
  readonly reframed?: boolean;
}

interface Entry {
  readonly shape: Shape;
  readonly hashes: ReadonlySet<SelectorHash>;
  readonly namesIdentities: boolean;
  /** Port names that mean what each peer says. */
  readonly portNames: ReadonlySet<string>;
  numbers: ClassNumbers;
  row: SlotRow | undefined;
}

/** Slots by shape. */
export class Slots {
  readonly #entries = new Map<string, Entry>();
  readonly #dirty = new Set<string>();
  readonly #busy = new Set<number>();
  readonly #kernel = new Map<number, KernelSlot>();
  readonly #world: SlotWorld;

  constructor(world: SlotWorld) {
    this.#world = world;
  }

  /** Slots found in the kernel; each may be taken over by the shape that means the same. */
  adopt(slots: ReadonlyMap<number, KernelSlot>): void {
    for (const [slot, content] of slots) {
      this.#kernel.set(slot, content);
      this.#busy.add(slot);
    }
  }

  /** The kernel no longer has the slot: its number may be given out again. */
  release(slot: number): void {
    for (const entry of this.#entries.values()) if (entry.row?.slot === slot) return;
    this.#busy.delete(slot);
  }

  /** The shape is in use. */
  need(shape: Shape): void {
    if (this.#entries.has(shape.key)) return;
    const hashes = new Set<SelectorHash>();
    let namesIdentities = false;
    for (const rule of shape.rules) {
      for (const peer of rule.peers ?? []) {
        if ('peerSet' in peer) hashes.add(peer.peerSet);
        else namesIdentities = true;
      }
    }
    this.#entries.set(shape.key, {
      shape,
      hashes,
      namesIdentities,
      portNames: new Set(portNamesOf(shape.rules).egress.map(({ protocol, name }) => portNameKey(protocol, name))),
      numbers: new ClassNumbers(this.#world.now),
      row: undefined,
    });
    this.#dirty.add(shape.key);
  }

  /** Shapes that are not needed any more. Until `drop`, their slots are kept up to date: endpoints still point at them. */
  departing(needed: ReadonlySet<string>): string[] {
    return [...this.#entries.keys()].filter((key) => !needed.has(key));
  }

  /** Forgets a shape; returns its slot number. */
  drop(key: string): number | undefined {
    const slot = this.#entries.get(key)?.row?.slot;
    this.#entries.delete(key);
    this.#dirty.delete(key);
    return slot;
  }

  peerSetChanged(hash: SelectorHash): void {
    for (const [key, entry] of this.#entries) if (entry.hashes.has(hash)) this.#dirty.add(key);
  }

  /** Local CIDR identities, or what is known of the host, changed. */
  identitiesChanged(): void {
    for (const [key, entry] of this.#entries) if (entry.namesIdentities) this.#dirty.add(key);
  }

  /** Peers give these port names other numbers. */
  portNamesChanged(names: ReadonlySet<string>): void {
    if (names.size === 0) return;
    for (const [key, entry] of this.#entries) if (!names.isDisjointFrom(entry.portNames)) this.#dirty.add(key);
  }

  /** Whether a shape in use asks what peers mean by the port name. */
  usesPortName(name: string): boolean {
    for (const entry of this.#entries.values()) if (entry.portNames.has(name)) return true;
    return false;
  }

  allChanged(): void {
    for (const key of this.#entries.keys()) this.#dirty.add(key);
  }

  row(shape: string): SlotRow | undefined {
    return this.#entries.get(shape)?.row;
  }

  dirtyShapes(): string[] {
    return [...this.#dirty];
  }

  /**
   * Compiles one shape. `candidates`: kernel slots that endpoints of this shape have. `left`: endpoints that point at its slot
   * go elsewhere, all of them or some; for them it stays as it was. When it throws, the shape stays dirty and keeps the row
   * that it had.
   */
  refresh(key: string, candidates: Iterable<number>, left: 'none' | 'some' | 'all' = 'none'): Refreshed {
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      this.#dirty.delete(key);
      return { rows: [] };
    }
    const { shape } = entry;
    const compiled = compile({
      rules: shape.rules,
      peerSets: { identities: (hash) => this.#world.members(hash) },
      identities: this.#world.identities(),
      mode: shape.mode,
      allowLocalhost: shape.allowLocalhost,
      portNames: {
        own: (name, protocol) => shape.ownPorts.get(portNameKey(protocol, name)),
        peers: this.#world.peerPorts,
      },
    });
    const result = this.#place(entry, key, compiled, candidates, left);
    // Only now: what failed is tried again.
    this.#dirty.delete(key);
    return result;
  }

  #place(
    entry: Entry,
    key: string,
    compiled: CompiledPolicy,
    candidates: Iterable<number>,
    leaving: 'none' | 'some' | 'all',
  ): Refreshed {
    const before = entry.row;
    if (before && leaving === 'all') return { rows: this.#withNewCidrs(entry, before, compiled) };
    if (before && frameKey(before.compiled) === frameKey(compiled) && this.#mayStay(before, compiled, leaving)) {
      const classes = entry.numbers.assign(compiled);
      const differs = this.#differs(before.classes, classes);
      if (sameClasses(before.classes, classes)) return { rows: [] };
      entry.row = { ...before, compiled, classes, epoch: before.epoch + (differs ? 1 : 0) };
      return { rows: [entry.row] };
    }
    if (!before) {
      for (const slot of candidates) {
        const known = this.#kernel.get(slot);
        if (known === undefined || !sameFrame(known, compiled)) continue;
        this.#kernel.delete(slot);
        for (const direction of DIRECTIONS) entry.numbers.adopt(direction, known.rows[direction]);
        const classes = entry.numbers.assign(compiled);
        const differs = this.#differs(known.classes, classes);
        // Epoch 1 tells endpoints that had this slot already: something differs from what the kernel decided.
        entry.row = { slot, shape: key, compiled, classes, epoch: differs ? 1 : 0 };
        return { rows: [entry.row] };
      }
    }
    const old = before ? this.#withNewCidrs(entry, before, compiled) : [];
    const reframed = before !== undefined && frameKey(before.compiled) !== frameKey(compiled);
    const slot = this.#allocate();
    entry.numbers = new ClassNumbers(this.#world.now);
    entry.row = { slot, shape: key, compiled, classes: entry.numbers.assign(compiled), epoch: 0 };
    return { rows: [...old, entry.row], ...(before ? { left: before.slot } : {}), reframed };
  }

  /** Whether the slot may be edited in place: nobody leaves it, or there is nothing to edit. */
  #mayStay(before: SlotRow, compiled: CompiledPolicy, leaving: 'none' | 'some' | 'all'): boolean {
    if (leaving === 'none') return true;
    return DIRECTIONS.every((direction) => {
      const members = (of: CompiledPolicy): string =>
        of[direction].classes.map(({ members: ids, rows }) => `${ids.join()}:${rowsKey(rows)}`).join(' ');
      return members(before.compiled) === members(compiled);
    });
  }

  /** The slot as it was, but for addresses outside that get a number of their own: they mean there what they meant before. */
  #withNewCidrs(entry: Entry, before: SlotRow, compiled: CompiledPolicy): SlotRow[] {
    const one = (direction: Direction): CompiledPolicy[Direction] => {
      const added = compiled[direction].classes.flatMap(({ members, rows }) => {
        const fresh = members.filter((id) => isLocalCidr(id) && !before.classes[direction].has(id));
        return fresh.length === 0 ? [] : [{ members: fresh, rows }];
      });
      return { ...before.compiled[direction], classes: [...before.compiled[direction].classes, ...added] };
    };
    const extended: CompiledPolicy = { ingress: one('ingress'), egress: one('egress') };
    const classes = entry.numbers.assign(extended);
    if (sameClasses(before.classes, classes)) return [];
    entry.row = { ...before, compiled: extended, classes };
    return [entry.row];
  }

  #differs(before: ClassMaps, after: ClassMaps): boolean {
    return DIRECTIONS.some((direction) => {
      const a = before[direction];
      const b = after[direction];
      for (const [id] of a) if (classOf(a, id) !== classOf(b, id) && this.#world.addressed(id)) return true;
      for (const [id] of b)
        if (!a.has(id) && classOf(a, id) !== classOf(b, id) && this.#world.addressed(id)) return true;
      return false;
    });
  }

  /** The lowest: a slot that was emptied lately still has its maps in the kernel. */
  #allocate(): number {
    for (let slot = 1; slot <= LAST_SLOT; slot += 1) {
      if (this.#busy.has(slot)) continue;
      this.#busy.add(slot);
      return slot;
    }
    throw new IdsExhaustedError('policy slots', LAST_SLOT);
  }
}

function sameClasses(a: ClassMaps, b: ClassMaps): boolean {
  return DIRECTIONS.every((direction) => {
    if (a[direction].size !== b[direction].size) return false;
    for (const [id, number] of a[direction]) if (b[direction].get(id) !== number) return false;
    return true;
  });
}

function sameFrame(known: KernelSlot, compiled: CompiledPolicy): boolean {
  return DIRECTIONS.every((direction) => {
    const { enforced, scope } = compiled[direction];
    const [unknown, pod, world] = known.scope[direction];
    // A word may still enforce what is open now: rows of an open direction must not be emptied under it.
    if (!enforced) return `${unknown}${pod}${world}` === '' && known.classes[direction].size === 0;
    return unknown === rowsKey(scope.unknown) && pod === rowsKey(scope.pod) && world === rowsKey(scope.world);
  });
}
