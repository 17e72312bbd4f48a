import { type EndpointValue, endpointKey, endpointValue } from '@weir/bpf';
import { keys, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { tableKey, YES } from '../create-tables.ts';
import { InterfaceGoneError, OrderError } from '../errors.ts';
import type { EndpointStateRow, KernelEndpoint, KernelEndpointRow } from '../tables.ts';
import { Contests } from './contests.ts';
import { elementOf, foundIn, sameElement } from './endpoint-element.ts';
import type { EndpointTable } from './endpoint-map.ts';
import type { Hooked, LinkLook, LinkTable } from './link-table.ts';

const EDITED = 'its element in the endpoint map was changed';
/** What has passed an interface unjudged is answered by then, in milliseconds; until then a pod's own queries over UDP find no answer. */
const QUARANTINE_MS = 2000;

/**
 * Endpoints in the kernel: the word that says which policy revision judges, and the programs on the interface. Table `kernelEndpoints` has
 * what the kernel has.
 */
export class EndpointStore {
  readonly #db: StateDB;
  readonly #table: Tables['kernelEndpoints'];
  readonly #map: EndpointTable;
  readonly #links: LinkTable;
  /** Whether the kernel holds the slot as its newest row says. */
  readonly #slotReady: (slot: number) => boolean;
  readonly #contests: Contests;
  readonly #now = (): number => performance.now();

  constructor(
    { db, tables }: { readonly db: StateDB; readonly tables: Pick<Tables, 'kernelEndpoints'> },
    map: EndpointTable,
    links: LinkTable,
    slotReady: (slot: number) => boolean,
  ) {
    this.#db = db;
    this.#table = tables.kernelEndpoints;
    this.#map = map;
    this.#links = links;
    this.#slotReady = slotReady;
    this.#contests = new Contests(db, this.#now);
  }

  /** @param flowsLost nobody knows any more which connections were opened, and which were cut */
  adopt(flowsLost: boolean): KernelEndpoint[] {
    const rows = new Map<number, KernelEndpointRow & { readonly found: KernelEndpoint }>();
    for (const value of this.#elements()) {
      const found = foundIn(value);
      const { id, ifindex, slot } = found;
      // The agent before may have ended between the element and the flows.
      const { quarantine: doubted = false } = value;
      rows.set(id, { id, ifindex, slot, doubted, ...(doubted ? { quarantined: this.#now() } : {}), found });
    }
    this.#db.write([this.#table], (txn) => {
      for (const row of rows.values()) txn.upsert(this.#table, row);
    });
    if (flowsLost) for (const id of rows.keys()) this.doubt(id);
    return Array.from(rows.values(), ({ found }) => found);
  }

  /** What the kernel acknowledged. */
  acknowledged(id: number): EndpointStateRow | undefined {
    return this.#row(id)?.acknowledged;
  }

  /** What the endpoint's word in the kernel says; undefined: there is none. */
  word(id: number): Pick<EndpointStateRow, 'slot' | 'enforced'> | undefined {
    const row = this.#row(id);
    const last = row?.written ?? row?.found;
    return row === undefined || last === undefined ? undefined : { slot: row.slot, enforced: last.enforced };
  }

  /** Whether some endpoint in the kernel points at the slot. */
  uses(slot: number): boolean {
    using snapshot = this.#db.read();
    return !snapshot.list(this.#table, 'slot', keys.uint(slot)).next().done;
  }

  update(row: EndpointStateRow): void {
    if (row.slot !== 0 && !this.#slotReady(row.slot)) {
      throw new OrderError(
        `endpoint ${row.id} cannot move to policy slot ${row.slot}: the slot is not complete in the kernel`,
      );
    }
    this.#write(row);
  }

  /** Whether the endpoint's flows were judged again since the kernel refused this row. */
  wasJudgedAnew({ id, revision }: EndpointStateRow): boolean {
    return this.#row(id)?.refused === revision;
  }

  /**
   * The endpoint keeps its policy, as the kernel refuses the wanted one; but its flows are judged again, under a revision that neither
   * has, by what has changed besides.
   */
  judgeAnew({ id, ifindex, revision: refused }: EndpointStateRow, revision: number): void {
    const row = this.#row(id);
    if (row === undefined || row.ifindex !== ifindex) return;
    const key = endpointKey.encode(ifindex);
    const bytes = this.#map.lookup(key);
    const value = bytes === undefined ? undefined : endpointValue.decode(bytes);
    if (value?.id !== id) return;
    const next = { revision };
    this.#map.update(key, endpointValue.encode({ ...value, ...next }));
    const { found, written, acknowledged } = row;
    this.#put({
      ...row,
      refused,
      ...(found === undefined ? {} : { found: { ...found, ...next } }),
      ...(written === undefined ? {} : { written: { ...written, ...next } }),
      ...(acknowledged === undefined ? {} : { acknowledged: { ...acknowledged, ...next } }),
    });
  }

  /** Element, programs and links. */
  #write(row: EndpointStateRow): void {
    const { id, ifindex, slot } = row;
    const before = this.#row(id);
    // Another interface is a new one: nothing has passed it yet.
    const moves = before !== undefined && before.ifindex !== ifindex;
    const trust = before === undefined || moves ? NEW : before;
    const key = endpointKey.encode(ifindex);
    const value = elementOf(row, trust);
    if (!sameElement(this.#map.lookup(key), value)) this.#map.update(key, value);
    // The word names the slot from now on, whether or not the interface still takes programs.
    if (!moves) this.#put({ ...trust, ...before, id, ifindex, slot, written: row });
    try {
      this.#links.ensure(id, ifindex, {
        ...(moves && !this.#isTaken(before.ifindex, id) ? { former: before.ifindex } : {}),
        ...(before === undefined || moves ? {} : { onBare: () => this.doubt(id) }),
      });
    } catch (error) {
      // The row is of the former interface still, and would not tell of this one's element.
      if (moves) this.#removeEntry(ifindex, id);
      throw error;
    }
    if (moves) this.#removeEntry(before.ifindex, id);
    const {
      found: _,
      refused: __,
      ...now
    } = moves
      ? { ...NEW, found: undefined, refused: undefined }
      : { found: undefined, refused: undefined, ...(this.#row(id) ?? NEW) };
    this.#put({ ...now, id, ifindex, slot, acknowledged: row, written: row });
  }

  /**
   * Gives every endpoint that is as it was found a new revision, so that its flows are judged again by addresses that have changed. Returns the
   * revisions.
   */
  renew(revision: () => number): Map<number, number> {
    const renewed = new Map<number, number>();
    for (const id of this.editedFound()) this.doubt(id);
    using snapshot = this.#db.read();
    for (const row of snapshot.all(this.#table)) {
      if (row.written !== undefined) continue;
      const key = endpointKey.encode(row.ifindex);
      const bytes = this.#map.lookup(key);
      const value = bytes === undefined ? undefined : endpointValue.decode(bytes);
      if (value?.id !== row.id) continue;
      const next = { revision: revision() };
      const found = row.found && { ...row.found, ...next };
      this.#map.update(key, found ? elementOf(found, row) : endpointValue.encode({ ...value, ...next }));
      if (found) this.#put({ ...row, found });
      renewed.set(row.id, next.revision);
    }
    return renewed;
  }

  /** Nobody knows any more who began its flows: it is in quarantine, and they are to be gone through. */
  doubt(id: number): void {
    const row = this.#row(id);
    if (row === undefined) return;
    const key = endpointKey.encode(row.ifindex);
    const bytes = this.#map.lookup(key);
    if (bytes !== undefined) {
      const value = endpointValue.decode(bytes);
      if (value.id === id) this.#map.update(key, endpointValue.encode({ ...value, quarantine: true }));
    }
    this.#put({ ...row, ...this.#inDoubt() });
  }

  #inDoubt() {
    return { doubted: true, quarantined: this.#now() } as const;
  }

  /** Endpoints whose flows may have begun with an answer to what nobody judged. */
  doubted(): Set<number> {
    using snapshot = this.#db.read();
    return new Set([...snapshot.list(this.#table, 'doubted', YES)].map(({ id }) => id));
  }

  /** Their flows were gone through. */
  undoubt(ids: Iterable<number>): void {
    this.#db.write([this.#table], (txn) => {
      for (const id of ids) {
        const row = txn.get(this.#table, tableKey.endpoint(id));
        if (row !== undefined) txn.upsert(this.#table, { ...row, doubted: false });
      }
    });
  }

  /** Ends the quarantine of those that were in it long enough, once their flows were gone through. */
  endQuarantine(): void {
    const due = this.#now() - QUARANTINE_MS;
    using snapshot = this.#db.read();
    for (const { quarantined = due, ...row } of snapshot.list(this.#table, 'quarantined', YES)) {
      if (quarantined > due || row.doubted) continue;
      const key = endpointKey.encode(row.ifindex);
      const bytes = this.#map.lookup(key);
      const value = bytes === undefined ? undefined : endpointValue.decode(bytes);
      if (value?.id === row.id && value.quarantine === true)
        this.#map.update(key, endpointValue.encode({ ...value, quarantine: false }));
      this.#put(row);
    }
  }

  /**
   * Detaches first: an interface whose programs find no endpoint would drop everything with a misleading reason. `everywhere`: it was
   * removed, and did not only lose its interface; what another network namespace has of it goes then, too.
   */
  delete(id: number, { everywhere }: { readonly everywhere: boolean }): void {
    const row = this.#row(id);
    const known = row === undefined ? {} : { ifindex: row.ifindex, alone: !this.#isTaken(row.ifindex, id) };
    this.#links.remove(id, { everywhere, ...known });
    this.#contests.forget(id);
    if (row !== undefined) this.#removeEntry(row.ifindex, id);
    this.#forget(id);
  }

  /** The live interface of each endpoint that has programs of ours, of whichever version. */
  attached(): Map<number, number> {
    return this.#links.attached();
  }

  /** The same, whatever program somebody may have put into our links or filters. */
  hooked(): Map<number, number> {
    return this.#links.hooked();
  }

  /**
   * Puts programs onto an interface that has none: without an element they let nothing through. Where that fails, each look says so and
   * tries again. @throws InterfaceGoneError, of which nothing is to be put back
   */
  guard({ id, ifindex }: Hooked): void {
    const before = this.#row(id);
    if (before?.ifindex !== ifindex) {
      if (before !== undefined) this.#removeEntry(before.ifindex, id);
      this.#put({ id, ifindex, slot: 0, ...NEW });
    }
    try {
      this.#links.ensure(id, ifindex, { onBare: () => this.doubt(id) });
    } catch (error) {
      if (error instanceof InterfaceGoneError && before?.ifindex !== ifindex) this.#forget(id);
      throw error;
    }
  }

  /** Endpoints that have something pinned. */
  pinned(): Set<number> {
    return this.#links.endpoints();
  }

  /** Whether its interface lives, with programs of ours, in another network namespace. */
  isAway(id: number): boolean {
    return this.#links.isAway(id);
  }

  /** Whether the kernel or a pin has something of this endpoint. */
  has(id: number): boolean {
    return this.#row(id) !== undefined || this.#links.has(id);
  }

  /**
   * Looks at what was written: element, programs and links of each endpoint; of what was found at start, at its element and whether it has programs.
   * Of either, whether its flows are still to be gone through.
   */
  look(): LinkLook[] {
    using snapshot = this.#db.read();
    const rows = [...snapshot.all(this.#table)];
    const doubted = this.doubted();
    return [
      ...this.#lookAtFound(rows.filter(({ acknowledged }) => acknowledged === undefined)),
      ...this.#lookAtAcknowledged(rows.filter(({ acknowledged }) => acknowledged !== undefined)),
    ].map((look) =>
      doubted.has(look.id) && !look.gone
        ? { ...look, faults: [...look.faults, 'flows that began while no program judged are not deleted yet'] }
        : look,
    );
  }

  #lookAtFound(rows: readonly KernelEndpointRow[]): LinkLook[] {
    if (rows.length === 0) return [];
    const attached = this.#links.attached();
    // Of an interface that has gone since nothing is to be put back.
    return this.#links.look(rows).flatMap(({ id, gone, behind }, at) => {
      if (gone) return [];
      const row = rows[at];
      const faults = attached.get(id) === row?.ifindex ? [] : ['its programs are not attached'];
      if (row !== undefined && this.#isEdited(row)) faults.push(EDITED);
      return [{ id, gone: false, faults: [...faults, ...behind], behind }];
    });
  }

  #lookAtAcknowledged(rows: readonly KernelEndpointRow[]): LinkLook[] {
    return this.#links.look(rows).map(({ faults, ...rest }, at) => {
      const row = rows[at];
      const edited = row !== undefined && !rest.gone && this.#isEdited(row);
      return { ...rest, faults: [...faults, ...rest.behind, ...(edited ? [EDITED] : [])] };
    });
  }

  /** Endpoints that are as they were found, but for their elements, which somebody has edited since. */
  editedFound(): number[] {
    using snapshot = this.#db.read();
    const found = [...snapshot.all(this.#table)].filter(({ written }) => written === undefined);
    return found.filter((row) => this.#isEdited(row)).map(({ id }) => id);
  }

  /** Whether the element is another than the one that was written or, before that, found. */
  #isEdited(row: KernelEndpointRow): boolean {
    const last = row.written ?? row.found;
    return last !== undefined && !sameElement(this.#map.lookup(endpointKey.encode(last.ifindex)), elementOf(last, row));
  }

  /** Brings element, programs and links back to what was written, and the programs before all others'. @throws LinkError */
  mend(id: number): void {
    const row = this.#row(id);
    if (row === undefined) return;
    // Its packets were judged by somebody's element, or its flows go by somebody's id.
    const edited = this.#isEdited(row);
    if (edited) this.doubt(id);
    // Its word is as it was written, whatever has become of the slot's newest row.
    if (row.written !== undefined) this.#write(row.written);
    else {
      if (edited) this.#putFoundBack(id);
      if (this.#links.attached().get(id) !== row.ifindex) this.guard(row);
    }
    const [look] = this.#links.look([row]);
    if (look === undefined || look.behind.length === 0) return;
    this.#contests.move(id, () => this.#links.overtake(row, () => this.doubt(id)));
    // To load and attach them may have taken a while.
    this.doubt(id);
  }

  #putFoundBack(id: number): void {
    const row = this.#row(id);
    if (row?.found !== undefined) this.#map.update(endpointKey.encode(row.ifindex), elementOf(row.found, row));
  }

  /** Endpoints that the kernel or a pin knows, and nobody else. */
  strays(known: (id: number) => boolean): number[] {
    using snapshot = this.#db.read();
    const ids = Array.from(snapshot.all(this.#table), ({ id }) => id);
    return [...new Set([...ids, ...this.#links.endpoints()])].filter((id) => !known(id));
  }

  /** One an endpoint: where an agent died while it moved there are two, and that of the interface with its programs stays. */
  #elements(): EndpointValue[] {
    const all = Array.from(this.#map.entries(), ([, bytes]) => endpointValue.decode(bytes));
    return [...Map.groupBy(all, ({ id }) => id)].flatMap(([id, found]) => {
      if (found.length === 1) return found;
      const attached = this.#links.attached().get(id);
      const stays = found.find(({ ifindex }) => ifindex === attached) ?? found.at(-1);
      for (const { ifindex } of found) if (ifindex !== stays?.ifindex) this.#removeEntry(ifindex, id);
      return stays ?? [];
    });
  }

  #forget(id: number): void {
    this.#db.write([this.#table], (txn) => txn.delete(this.#table, tableKey.endpoint(id)));
  }

  #put(row: KernelEndpointRow): void {
    this.#db.write([this.#table], (txn) => txn.upsert(this.#table, row));
  }

  #row(id: number): KernelEndpointRow | undefined {
    using snapshot = this.#db.read();
    return snapshot.get(this.#table, tableKey.endpoint(id));
  }

  /** Whether another endpoint has the interface. */
  #isTaken(ifindex: number, id: number): boolean {
    using snapshot = this.#db.read();
    return Iterator.from(snapshot.list(this.#table, 'ifindex', keys.uint(ifindex))).some((other) => other.id !== id);
  }

  #removeEntry(ifindex: number, id: number): void {
    const key = endpointKey.encode(ifindex);
    const bytes = this.#map.lookup(key);
    // The interface index may belong to a new endpoint by now.
    if (bytes !== undefined && endpointValue.decode(bytes).id === id) this.#map.delete(key);
  }
}

/** Of an endpoint whose programs were there before it was. */
const NEW: Pick<KernelEndpointRow, 'doubted' | 'quarantined'> = { doubted: false };
