/** Test helper: a node's report, with a model whose kernel the test plays. */
import { rule, World } from '../../derive/testing/model-world.ts';
import { RealisedReport } from '../report.ts';
import type { RealisedSources } from '../sources.ts';

export const SOURCES: RealisedSources = {
  sync: { reached: 0, broken: undefined },
  writer: {
    slots: { failing: () => [] },
    endpoints: { failing: () => [] },
    ipcache: { failing: () => [] },
  } as unknown as RealisedSources['writer'],
  endpoints: { acknowledged: () => undefined },
  audit: { faults: () => [] },
};

/** A node with one pod of app `a`, which a policy selects, and one of app `b`, which none does. Each has an address and no endpoint. */
export function node(policyMode: 'default' | 'never' = 'default'): {
  world: World;
  report: RealisedReport;
  failures: (atMs: number) => Promise<readonly object[]>;
} {
  const world = new World({ policyMode });
  let now = 0;
  const { db, tables, model } = world;
  const report = new RealisedReport({ db, tables, model, policyMode, now: () => now });
  world.namespace();
  world.identity(256, 'a');
  world.identity(257, 'b');
  world.peerSet('a', [256]);
  world.peerSet('b', [257]);
  world.policy('p', 3, [rule('a', 'b', 7)]);
  for (const [index, app] of ['a', 'b'].entries()) {
    addressed(world, app, `10.0.0.${index + 1}`);
    world.remote(app, `10.0.0.${index + 1}`, 256 + index, [], `u-${app}`);
  }
  return {
    world,
    report,
    failures: async (atMs) => {
      now = atMs;
      await world.plan();
      report.take(SOURCES);
      return report.read().failures;
    },
  };
}

export function addressed({ db, tables }: World, name: string, ...addresses: readonly string[]): void {
  const pod = { namespace: 'ns', name, uid: `u-${name}`, labels: { app: name }, serviceAccount: '', namedPorts: [] };
  db.write([tables.localPods], (txn) => txn.upsert(tables.localPods, { ...pod, addresses }));
}
