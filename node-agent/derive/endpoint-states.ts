import { isLocalCidr, scopeOf } from '@weir/identity';
import { sameAddresses } from '@weir/net';
import { keys, type StateDB } from '@weir/statedb';
import type { EndpointRow, EndpointStateRow, SlotRow } from '../tables.ts';
import type { AddressChanges } from './addresses.ts';
import { type Around, distinguisher } from './classes.ts';
import type { EndpointShapes } from './endpoint-shapes.ts';
import type { EndpointIdentity } from './identities.ts';
import { type InForce, type Judging, NO_POLICIES, type Subject } from './in-force.ts';
import type { LocalNumbers } from './numbers.ts';
import type { Pace } from './pace.ts';
import type { Policies } from './policies.ts';
import { DIRECTIONS } from './rows.ts';
import { Rows, type RowsView } from './working.ts';

const OPEN = { ingress: false, egress: false } as const;
const CLOSED = { ingress: true, egress: true } as const;

/** What an endpoint is to enforce. */
export interface ComputedState {
  readonly state: EndpointStateRow;
  /** Epoch of its slot that the state was computed from. */
  readonly epoch: number;
  /** Stands for the rules that its policies were computed from; undefined: from none. */
  readonly subject?: Subject | undefined;
}

/** The computed states, by endpoint. Only `EndpointStates` writes this table. */
export function computedStates(db: StateDB): Rows<number, ComputedState> {
  const spec = { name: 'computedStates', key: ({ state }: ComputedState) => keys.uint(state.id) };
  return new Rows<number, ComputedState>(db, spec, (id) => keys.uint(id));
}

type Moves = Pick<AddressChanges, 'moved' | 'movedByDelete'>;

export interface EndpointStatesOptions {
  readonly infos: Pick<RowsView<number, EndpointIdentity>, 'has' | 'values'>;
  readonly states: Rows<number, ComputedState>;
  readonly shapes: EndpointShapes;
  readonly inForce: InForce;
  readonly policies: Policies;
  readonly numbers: LocalNumbers;
  readonly around: Around;
  readonly pace: Pace;
}

/** What each endpoint enforces, and a new revision whenever one of its decisions may differ. */
export class EndpointStates {
  readonly #options: EndpointStatesOptions;

  constructor(options: EndpointStatesOptions) {
    this.#options = options;
  }

  /** New revisions for endpoints whose decisions may differ. */
  bump(endpoints: Iterable<number>): EndpointStateRow[] {
    const { states, numbers } = this.#options;
    const rows: ComputedState[] = [];
    for (const id of endpoints) {
      const row = states.get(id);
      if (row !== undefined) rows.push({ ...row, state: { ...row.state, revision: numbers.revision() } });
    }
    this.#put(rows);
    return rows.map(({ state }) => state);
  }

  /**
   * The states that differ from before, and the endpoints whose decisions `movedByDelete` may change. Readers see all of the old states or all of
   * the new ones.
   */
  async settle(moves: Moves): Promise<{ endpoints: EndpointStateRow[]; afterGone: number[] }> {
    const { infos, states, shapes, pace } = this.#options;
    const endpoints: EndpointStateRow[] = [];
    const afterGone: number[] = [];
    const computed: ComputedState[] = [];
    const selecting = new Map<Subject, Judging>();
    const concern = onceASlot(moves, this.#options.around);
    for (const info of infos.values()) {
      const { id } = info.row;
      const row = shapes.slotOf(id);
      const before = states.get(id);
      const { policies, subject } = this.#policies(info, before, selecting);
      const state = this.#compute(info, before, { row, policies }, () => concern('moved', row));
      const differs = before === undefined || !sameState(before.state, state);
      if (differs) endpoints.push(state);
      const epoch = row?.epoch ?? 0;
      if (differs || before.epoch !== epoch || before.subject !== subject)
        computed.push({ state: differs ? state : before.state, epoch, subject });
      if (concern('movedByDelete', row)) afterGone.push(id);
      if (pace.due()) await pace.yieldNow();
    }
    this.#put(computed);
    return { endpoints, afterGone };
  }

  /**
   * While rules are not known: closes endpoints that were found and are not who they were. The rules that were found go by identity, so that
   * they are right for all others: the operator gives a number to other labels only once all others of its range have been given out
   * (`unusedIdentity`), and addresses get no identity that those rules do not know (`Addresses.settle`).
   */
  close(): EndpointStateRow[] {
    const { infos, states, shapes, numbers } = this.#options;
    const closed: ComputedState[] = [];
    for (const { row, ready, identity, labels, reason } of infos.values()) {
      const { id, ifindex, addresses } = row;
      if (ready || states.has(id) || !shapes.judgedAsFound(id)) continue;
      // No slot has the number 0: nothing passes.
      const judging = { slot: 0, enforced: CLOSED, revision: numbers.revision(), policies: NO_POLICIES };
      const why = reason === undefined ? {} : { reason };
      closed.push({
        state: { id, ifindex, addresses, identity, labels, ...judging, state: 'waiting-for-identity', ...why },
        epoch: 0,
      });
    }
    this.#put(closed);
    return closed.map(({ state }) => state);
  }

  /** Forgets endpoints that are gone; returns them. */
  tidy(): number[] {
    const { infos, states } = this.#options;
    const gone: number[] = [];
    for (const { state } of states.values()) if (!infos.has(state.id)) gone.push(state.id);
    states.write((txn) => {
      for (const id of gone) txn.delete(states.table, states.keyOf(id));
    });
    return gone;
  }

  #put(rows: readonly ComputedState[]): void {
    const { states } = this.#options;
    states.write((txn) => {
      for (const row of rows) txn.upsert(states.table, row);
    });
  }

  #compute(
    info: EndpointIdentity,
    before: ComputedState | undefined,
    { row: slotRow, policies }: { readonly row: SlotRow | undefined; readonly policies: Judging },
    affected: () => boolean,
  ): EndpointStateRow {
    const { shapes } = this.#options;
    const { id } = info.row;
    const closed = shapes.closed(id);
    const slot = slotRow?.slot ?? 0;
    const enforced = slotRow
      ? { ingress: slotRow.compiled.ingress.enforced, egress: slotRow.compiled.egress.enforced }
      : shapes.open(id)
        ? OPEN
        : CLOSED;
    const reason = closed ? shapes.failure(id)?.message : info.reason;
    return {
      id,
      ifindex: info.row.ifindex,
      addresses: info.row.addresses,
      identity: info.identity,
      labels: info.labels,
      slot,
      enforced,
      revision: this.#revision(info.row, before, { slot, epoch: slotRow?.epoch ?? 0 }, enforced, affected),
      policies,
      state: closed ? 'not-ready' : info.ready ? 'ready' : 'waiting-for-identity',
      ...(reason === undefined ? {} : { reason }),
    };
  }

  /** The policies that the endpoint is judged by: one object for endpoints of one identity, as far as they have the same. */
  #policies(
    { row, ready, identity }: EndpointIdentity,
    before: ComputedState | undefined,
    shared: Map<Subject, Judging>,
  ): { readonly policies: Judging; readonly subject: Subject | undefined } {
    const { shapes, inForce } = this.#options;
    const subject = ready && !shapes.closed(row.id) ? inForce.subject(identity) : undefined;
    if (subject === undefined) return { policies: NO_POLICIES, subject };
    const known = before?.subject === subject ? before.state.policies : shared.get(subject);
    const policies = known ?? asBefore(before?.state.policies, inForce.policiesOf(subject));
    shared.set(subject, policies);
    return { policies, subject };
  }

  /** The revision that it had (or that the kernel has) while no decision can differ, else a new one. */
  #revision(
    { id, ifindex, addresses }: EndpointRow,
    former: ComputedState | undefined,
    { slot, epoch }: { readonly slot: number; readonly epoch: number },
    enforced: EndpointStateRow['enforced'],
    affected: () => boolean,
  ): number {
    const before = former?.state ?? this.#options.shapes.kernel(id);
    const known = before?.slot === slot && epoch === (former?.epoch ?? 0);
    const same =
      before !== undefined &&
      known &&
      before.ifindex === ifindex &&
      sameAddresses(before.addresses, addresses) &&
      before.enforced.ingress === enforced.ingress &&
      before.enforced.egress === enforced.egress &&
      // Last, as it may take long: an endpoint of a slot that is new gets a new revision anyway.
      !affected();
    return same ? before.revision : this.#options.numbers.revision();
  }
}

/** Whether addresses that move may have packets decided otherwise, by slot. Many endpoints share one. */
function onceASlot(
  { moved, movedByDelete }: Moves,
  around: Around,
): (kind: keyof Moves, slot: SlotRow | undefined) => boolean {
  const moves = { moved: new MovesBySlot(moved, around), movedByDelete: new MovesBySlot(movedByDelete, around) };
  const known = { moved: new Map<SlotRow, boolean>(), movedByDelete: new Map<SlotRow, boolean>() };
  return (kind, slot) => {
    if (slot === undefined) return false;
    const found = known[kind].get(slot) ?? moves[kind].concern(slot);
    known[kind].set(slot, found);
    return found;
  };
}

type Move = Moves[keyof Moves][number];

/** Of addresses outside a slot knows the CIDRs of its own rules: where others come and go, which may be very many, it decides as before. */
class MovesBySlot {
  readonly #around: Around;
  readonly #others: readonly Move[];
  readonly #outside: ReadonlyMap<number, readonly Move[]>;

  constructor(moves: readonly Move[], around: Around) {
    this.#around = around;
    const isOutside = (move: Move): boolean => move.every((id) => scopeOf(id) === 'world');
    this.#others = moves.filter((move) => !isOutside(move));
    const byCidr = new Map<number, Move[]>();
    for (const move of moves.filter(isOutside))
      for (const id of move.filter(isLocalCidr)) {
        const known = byCidr.get(id);
        if (known === undefined) byCidr.set(id, [move]);
        else known.push(move);
      }
    this.#outside = byCidr;
  }

  /** Whether they may have packets decided otherwise. */
  concern(slot: SlotRow): boolean {
    if (this.#others.length + this.#outside.size === 0) return false;
    const distinguishes = distinguisher(slot, this.#around);
    const differ = ([a, b]: Move): boolean => distinguishes(a, b);
    if (this.#others.some(differ)) return true;
    return DIRECTIONS.some((direction) => {
      const named = slot.classes[direction];
      const [fewer, has] = named.size < this.#outside.size ? [named, this.#outside] : [this.#outside, named];
      return fewer.keys().some((id) => has.has(id) && this.#outside.get(id)?.some(differ) === true);
    });
  }
}

function sameState(a: EndpointStateRow, b: EndpointStateRow): boolean {
  return (
    a.revision === b.revision &&
    a.slot === b.slot &&
    a.identity === b.identity &&
    a.state === b.state &&
    a.reason === b.reason &&
    a.ifindex === b.ifindex &&
    sameAddresses(a.addresses, b.addresses) &&
    a.labels === b.labels &&
    (a.policies === b.policies || JSON.stringify(a.policies) === JSON.stringify(b.policies))
  );
}

/** As the same object while it is the same. */
function asBefore(before: Judging | undefined, found: Judging): Judging {
  return before !== undefined && JSON.stringify(before) === JSON.stringify(found) ? before : found;
}
