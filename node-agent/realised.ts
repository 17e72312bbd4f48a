import type { Realised } from './core.ts';
import type { EndpointStore, SyncLoop } from './datapath/index.ts';
import type { Engine } from './derive/index.ts';
import { InterfaceGoneError } from './errors.ts';

/** How long a policy may wait for its PeerSets before that is a failure: they are other objects and come a moment later. */
const MISSING_AFTER_MS = 5_000;

/** What this node's kernel acknowledged of each policy, and what it refuses. */
export function computeRealised(engine: Engine, sync: SyncLoop, endpoints: EndpointStore, nowMs: number): Realised {
  const policies = new Map<string, { generation: number; endpoints: number }>();
  const failures: Realised['failures'][number][] = [];
  const note = (uid: string, generation: number): void => {
    const known = policies.get(uid);
    if (known === undefined) policies.set(uid, { generation, endpoints: 1 });
    else policies.set(uid, { generation: Math.min(known.generation, generation), endpoints: known.endpoints + 1 });
  };
  const failing = new Map(sync.endpoints.failing().map(({ row, error }) => [row.id, error]));
  for (const state of engine.states()) {
    const held = endpoints.held(state.id);
    const error = failing.get(state.id);
    // No packet can come from or go to an interface that is gone.
    if (error instanceof InterfaceGoneError) continue;
    for (const uid of new Set([...Object.keys(state.policies), ...Object.keys(held?.policies ?? {})])) {
      note(uid, held?.policies[uid] ?? 0);
    }
    if (error === undefined) continue;
    for (const [uid, generation] of Object.entries(state.policies)) {
      failures.push({ uid, generation, reason: 'KernelRefused', message: `endpoint ${state.id}: ${error.message}` });
    }
  }
  for (const endpoint of engine.endpoints()) {
    const error = engine.failure(endpoint);
    if (error === undefined) continue;
    for (const { uid, generation } of engine.policiesOf(endpoint)) {
      failures.push({
        uid,
        generation,
        reason: 'CompileFailed',
        message: `endpoint ${endpoint}: ${error.message}; the policy before stays enforced`,
      });
    }
  }
  for (const { uid, generation, hashes, sinceMs } of engine.missing()) {
    if (nowMs - sinceMs < MISSING_AFTER_MS) continue;
    failures.push({
      uid,
      generation,
      reason: 'PeerSetMissing',
      message: `PeerSets ${hashes.slice(0, 3).join(', ')}${hashes.length > 3 ? ` and ${hashes.length - 3} more` : ''} have not come from the operator; the generation before stays enforced`,
    });
  }
  failures.sort((a, b) => (a.uid < b.uid ? -1 : a.uid > b.uid ? 1 : 0));
  return { revision: sync.reached, policies, failures };
}
