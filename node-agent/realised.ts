import type { Realised, RealisedPolicy } from './core.ts';
import type { EndpointStore, PlanWriter, SyncLoop } from './datapath/index.ts';
import type { Engine } from './derive/index.ts';
import { InterfaceGoneError } from './errors.ts';

/** How long a policy may wait for its PeerSets before that is a failure: they are other objects and come a moment later. */
const MISSING_AFTER_MS = 5_000;

export interface RealisedSources {
  readonly engine: Engine;
  readonly sync: Pick<SyncLoop, 'reached'>;
  readonly writer: Pick<PlanWriter, 'endpoints'>;
  readonly endpoints: Pick<EndpointStore, 'held'>;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Milliseconds since 1970. */
  readonly wallClock: () => number;
}

/** What this node's kernel acknowledged of each policy and since when, and what it refuses. */
export class RealisedReport {
  readonly #sources: RealisedSources;
  #last: ReadonlyMap<string, RealisedPolicy> = new Map();

  constructor(sources: RealisedSources) {
    this.#sources = sources;
  }

  /** As of now; to be called after every round, so that times are those of the acknowledgement. */
  take(): Realised {
    const { engine, sync, now, wallClock } = this.#sources;
    const at = wallClock();
    const policies = new Map<string, RealisedPolicy>();
    for (const [uid, counted] of this.#counts()) {
      const last = this.#last.get(uid);
      policies.set(uid, { ...counted, at: last?.generation === counted.generation ? last.at : at });
    }
    this.#last = policies;
    const failures = [...this.#refused(), ...uncompiled(engine), ...unresolved(engine, now())];
    failures.sort((a, b) => (a.uid < b.uid ? -1 : a.uid > b.uid ? 1 : 0));
    return { revision: sync.reached, policies, failures };
  }

  /** Generation and endpoints of each policy. */
  #counts(): Map<string, { generation: number; endpoints: number }> {
    const { engine, endpoints } = this.#sources;
    const out = new Map<string, { generation: number; endpoints: number }>();
    const failing = this.#failing();
    for (const state of engine.states()) {
      // No packet can come from or go to an interface that is gone.
      if (failing.get(state.id) instanceof InterfaceGoneError) continue;
      const held = endpoints.held(state.id);
      for (const uid of new Set([...Object.keys(state.policies), ...Object.keys(held?.policies ?? {})])) {
        const generation = held?.policies[uid] ?? 0;
        const known = out.get(uid);
        if (known === undefined) out.set(uid, { generation, endpoints: 1 });
        else out.set(uid, { generation: Math.min(known.generation, generation), endpoints: known.endpoints + 1 });
      }
    }
    return out;
  }

  #failing(): Map<number, Error> {
    return new Map(this.#sources.writer.endpoints.failing().map(({ row, error }) => [row.id, error]));
  }

  #refused(): PolicyFailure[] {
    const failing = this.#failing();
    return [...this.#sources.engine.states()].flatMap((state) => {
      const error = failing.get(state.id);
      if (error === undefined || error instanceof InterfaceGoneError) return [];
      const message = `endpoint ${state.id}: ${error.message}`;
      return Object.entries(state.policies).map(([uid, generation]) => ({
        uid,
        generation,
        reason: 'KernelRefused',
        message,
      }));
    });
  }
}

type PolicyFailure = Realised['failures'][number];

function uncompiled(engine: Engine): PolicyFailure[] {
  return [...engine.endpoints()].flatMap((endpoint) => {
    const error = engine.failure(endpoint);
    if (error === undefined) return [];
    const message = `endpoint ${endpoint}: ${error.message}; the policy before stays enforced`;
    return engine
      .policiesOf(endpoint)
      .map(({ uid, generation }) => ({ uid, generation, reason: 'CompileFailed', message }));
  });
}

function unresolved(engine: Engine, now: number): PolicyFailure[] {
  return [...engine.missing()]
    .filter(({ sinceMs }) => now - sinceMs >= MISSING_AFTER_MS)
    .map(({ uid, generation, hashes }) => {
      const more = hashes.length > 3 ? ` and ${hashes.length - 3} more` : '';
      return {
        uid,
        generation,
        reason: 'PeerSetMissing',
        message: `PeerSets ${hashes.slice(0, 3).join(', ')}${more} have not come from the operator; the generation before stays enforced`,
      };
    });
}
