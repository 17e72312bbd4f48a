import type { SelectorHash } from '@weir/policy';
import type { StateDB, Table } from '@weir/statedb';
import type { Core, HealthCheck } from '../core.ts';
import { InterfaceGoneError } from '../errors.ts';
import type { PolicyRow } from '../tables.ts';
import type { KernelSide } from './kernel-side.ts';

const WHAT = 'peer-sets';
/** How long PeerSets may stay away after a start before that is a fault of its own, in milliseconds. */
const AWAITED_MS = 30_000;

/** What holds everything back, and what to do about it. */
export const RULES_UNKNOWN =
  'which rules were imported on this node is not known, as their file is lost or is not of the rules in force: what was enforced ' +
  'stays enforced, and nothing new is, until `weir policy import` (or `weir policy delete --all`, for none) says which there are';

/** What is not put in force while these are missing, and what becomes of pods that change. */
export function incompleteText(pending: readonly string[]): string {
  return (
    'what was enforced when the agent started stays enforced, nothing new is, and pods that change are not let through, as for more than half a ' +
    `minute it has waited for ${pending.join(', ')}; see that the operator and the API server answer, and the agent's log`
  );
}

export interface HealthSources {
  readonly side: Pick<KernelSide, 'writer' | 'sync' | 'audit'> | undefined;
  readonly removed: boolean;
  /** Inputs that are not complete, as text. */
  readonly pending: readonly string[];
  /** Nobody knows which rules were imported. */
  readonly rulesAwaited: boolean;
  readonly awaited: AwaitedSets;
  /** What other parts say of themselves. */
  readonly more: readonly HealthCheck[];
}

/** Each part of the core, and whether it does its work. */
export function healthOf(sources: HealthSources): ReturnType<Core['health']> {
  const { side, awaited } = sources;
  const checks = [
    running(sources),
    inputs(sources),
    awaited.check(),
    kernel(side),
    ...(side === undefined ? [] : [side.audit.check()]),
    ...sources.more,
  ];
  return { ok: checks.every(({ ok }) => ok), checks };
}

function running({ side, removed }: HealthSources): HealthCheck {
  const message = removed
    ? 'the datapath was removed: nothing is enforced on this node'
    : side
      ? 'the core runs'
      : 'the core is not started';
  return { name: 'running', ok: side !== undefined, message };
}

function inputs({ pending, rulesAwaited }: HealthSources): HealthCheck {
  if (!rulesAwaited && pending.length === 0) return { name: 'inputs', ok: true, message: 'all inputs are complete' };
  const why = rulesAwaited
    ? RULES_UNKNOWN
    : `not complete yet: ${pending.join(', ')}; what was enforced stays enforced`;
  return { name: 'inputs', ok: false, message: why };
}

function kernel(side: HealthSources['side']): HealthCheck {
  const name = 'kernel';
  const broken = side?.sync.broken;
  if (broken !== undefined) {
    const why = broken instanceof Error ? broken.message : 'for an unknown reason';
    return { name, ok: false, message: `the last round failed: ${why}` };
  }
  const failing = side
    ? [...side.writer.slots.failing(), ...side.writer.ipcache.failing(), ...side.writer.endpoints.failing()].filter(
        // Nothing is to be enforced there; the next look takes the endpoint out.
        ({ error }) => !(error instanceof InterfaceGoneError),
      )
    : [];
  const [first] = failing;
  if (first !== undefined)
    return { name, ok: false, message: `${failing.length} changes are refused: ${first.error.message}` };
  // What others took away since, the audit names.
  return side?.audit.check().ok === false
    ? { name, ok: false, message: 'the kernel took what is wanted, and does not hold all of it any more' }
    : { name, ok: true, message: 'the kernel holds what is wanted' };
}

/** Something waits. Key: `what`. */
interface WaitRow {
  readonly what: 'peer-sets';
  /** Milliseconds. */
  readonly since: number;
}

/**
 * PeerSets that policies name and that do not come. After a start they hold up everything: what the kernel enforces stays, but
 * nothing that is new is. Table `waits` has since when.
 */
export class AwaitedSets {
  readonly #db: StateDB;
  readonly #awaited: () => ReadonlyMap<SelectorHash, PolicyRow>;
  readonly #now: () => number;
  readonly #waits: Table<WaitRow>;

  /** `now`: milliseconds, any clock that only grows. */
  constructor(db: StateDB, awaited: () => ReadonlyMap<SelectorHash, PolicyRow>, now: () => number) {
    this.#db = db;
    this.#awaited = awaited;
    this.#now = now;
    this.#waits = db.table<WaitRow>({ name: 'waits', key: (row) => row.what });
  }

  /** To be called whenever they may have come. */
  look(): ReadonlyMap<SelectorHash, PolicyRow> {
    const awaited = this.#awaited();
    this.#db.write([this.#waits], (txn) => {
      if (awaited.size === 0) txn.delete(this.#waits, WHAT);
      else if (!txn.has(this.#waits, WHAT)) txn.insert(this.#waits, { what: WHAT, since: this.#now() });
    });
    return awaited;
  }

  check(): HealthCheck {
    const name = WHAT;
    const awaited = this.look();
    using snapshot = this.#db.read();
    const since = snapshot.get(this.#waits, WHAT)?.since ?? this.#now();
    const seconds = Math.floor((this.#now() - since) / 1000);
    const [first] = awaited;
    if (first === undefined || seconds * 1000 < AWAITED_MS)
      return { name, ok: true, message: 'no policy waits for its peer sets' };
    const [hash, policy] = first;
    const more = awaited.size > 1 ? ` and ${awaited.size - 1} more` : '';
    const of = `${policy.kind} ${policy.namespace === undefined ? '' : `${policy.namespace}/`}${policy.name}`;
    return {
      name,
      ok: false,
      message:
        `PeerSet ${hash}${more}, which ${of} names, has not come for ${seconds} s: endpoints keep what was enforced before ` +
        'this start, and no change is carried out. Check that the operator runs and writes PeerSets',
    };
  }
}
