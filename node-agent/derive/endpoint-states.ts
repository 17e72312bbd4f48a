import type { EndpointStateRow, SlotRow } from '../tables.ts';
import type { Move } from './addresses.ts';
import { distinguishes } from './classes.ts';
import type { EndpointShapes } from './endpoint-shapes.ts';
import type { EndpointIdentity } from './identities.ts';
import type { InForce } from './in-force.ts';
import type { LocalNumbers } from './numbers.ts';
import type { Pace } from './pace.ts';
import type { Policies } from './policies.ts';

const OPEN = { ingress: false, egress: false } as const;

interface Epoch {
  readonly slot: number;
  readonly epoch: number;
}

export interface EndpointStatesOptions {
  readonly infos: ReadonlyMap<number, EndpointIdentity>;
  /** The states themselves; written here only. */
  readonly states: Map<number, EndpointStateRow>;
  readonly shapes: EndpointShapes;
  readonly inForce: InForce;
  readonly policies: Policies;
  readonly numbers: LocalNumbers;
  readonly pace: Pace;
}

/** What each endpoint enforces, and a new revision whenever one of its decisions may differ. */
export class EndpointStates {
  readonly #options: EndpointStatesOptions;
  readonly #epochs = new Map<number, Epoch>();

  constructor(options: EndpointStatesOptions) {
    this.#options = options;
  }

  /** New revisions for endpoints whose decisions may differ. */
  bump(endpoints: Iterable<number>): EndpointStateRow[] {
    const { states, numbers } = this.#options;
    const out: EndpointStateRow[] = [];
    for (const id of endpoints) {
      const state = states.get(id);
      if (state === undefined) continue;
      const next = { ...state, revision: numbers.revision() };
      states.set(id, next);
      out.push(next);
    }
    return out;
  }

  /**
   * The states that differ from before, and the endpoints whose decisions `movedByDelete` may change. `interrupted`: the
   * revisions found in the kernel do not tell. Readers see all of the old states or all of the new ones.
   */
  async settle(
    moves: { readonly moved: readonly Move[]; readonly movedByDelete: readonly Move[] },
    interrupted: boolean,
  ): Promise<{ endpoints: EndpointStateRow[]; afterGone: number[] }> {
    const { infos, states, shapes, pace } = this.#options;
    const endpoints: EndpointStateRow[] = [];
    const afterGone: number[] = [];
    const epochs: [number, Epoch][] = [];
    for (const [id, info] of infos) {
      const row = shapes.slotOf(id);
      const affected = row !== undefined && moves.moved.some(([a, b]) => distinguishes(row, a, b));
      const before = states.get(id);
      if (shapes.stuck(id)) {
        // What is in force stays; without anything in force there is nothing to write, and the endpoint is not ready.
        if (before && affected) endpoints.push({ ...before, revision: this.#options.numbers.revision() });
      } else {
        const state = this.#conclude(id, info, row, affected, interrupted);
        epochs.push([id, { slot: state.slot, epoch: row?.epoch ?? 0 }]);
        if (!before || !sameState(before, state)) endpoints.push(state);
      }
      if (row && moves.movedByDelete.some(([a, b]) => distinguishes(row, a, b))) afterGone.push(id);
      if (pace.due()) await pace.breathe();
    }
    for (const [id, epoch] of epochs) this.#epochs.set(id, epoch);
    for (const state of endpoints) {
      states.set(state.id, state);
      if (!shapes.stuck(state.id)) shapes.stated(state.id);
    }
    return { endpoints, afterGone };
  }

  /** Forgets endpoints that are gone; returns them. */
  tidy(): number[] {
    const { infos, states, shapes } = this.#options;
    const gone: number[] = [];
    for (const id of states.keys()) {
      if (infos.has(id)) continue;
      gone.push(id);
      states.delete(id);
      this.#epochs.delete(id);
      shapes.forget(id);
    }
    return gone;
  }

  #conclude(
    id: number,
    info: EndpointIdentity,
    slotRow: SlotRow | undefined,
    affected: boolean,
    interrupted: boolean,
  ): EndpointStateRow {
    const { shapes, inForce, policies: inUse } = this.#options;
    const closed = shapes.closed(id);
    const slot = slotRow?.slot ?? 0;
    const enforced = slotRow
      ? { ingress: slotRow.compiled.ingress.enforced, egress: slotRow.compiled.egress.enforced }
      : OPEN;
    const policies: Record<string, number> = {};
    if (info.ready && !closed) {
      for (const uid of [...inForce.uids(info.identity)].sort()) {
        const generation = inUse.inUse(uid)?.row.generation;
        if (generation !== undefined) policies[uid] = generation;
      }
    }
    const reason = closed ? (shapes.failure(id)?.message ?? 'its policy has just compiled') : info.reason;
    return {
      id,
      ifindex: info.row.ifindex,
      ipv4: info.row.ipv4,
      identity: info.identity,
      labels: info.labels,
      slot,
      enforced,
      revision: this.#revision(id, info, { slot, epoch: slotRow?.epoch ?? 0 }, enforced, affected, interrupted),
      policies,
      state: closed ? 'not-ready' : info.ready ? 'ready' : 'waiting-for-identity',
      ...(reason === undefined ? {} : { reason }),
    };
  }

  /** The revision that it had (or that the kernel has) while no decision can differ, else a new one. */
  #revision(
    id: number,
    { row }: EndpointIdentity,
    { slot, epoch }: Epoch,
    enforced: EndpointStateRow['enforced'],
    affected: boolean,
    interrupted: boolean,
  ): number {
    const { states, shapes, numbers } = this.#options;
    const state = states.get(id);
    const had = this.#epochs.get(id);
    const before = state ?? shapes.kernel.get(id);
    const known = state
      ? had?.slot === slot && had.epoch === epoch
      : !interrupted && before?.slot === slot && epoch === 0;
    const same =
      before !== undefined &&
      known &&
      !affected &&
      before.ifindex === row.ifindex &&
      before.ipv4 === row.ipv4 &&
      before.enforced.ingress === enforced.ingress &&
      before.enforced.egress === enforced.egress;
    return same ? before.revision : numbers.revision();
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
    a.ipv4 === b.ipv4 &&
    a.labels === b.labels &&
    JSON.stringify(a.policies) === JSON.stringify(b.policies)
  );
}
