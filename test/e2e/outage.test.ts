/** An API server that answers nobody for a while: what was enforced stays, and an edit needs a bounded number of requests afterwards. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const WEIR = { userAgent: 'weir' } as const;

const policy = (peer: string): string =>
  JSON.stringify({
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name: 'outage', namespace: 'default' },
    spec: {
      endpointSelector: { matchLabels: { id: 'app1' } },
      ingress: [{ fromEndpoints: [{ matchLabels: { id: peer } }] }],
    },
  });

describe('an outage of the API server', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    // As in a real cluster: an outage costs the operator its lease.
    cluster = await Cluster.start({ operatorArgs: ['--leader-elect', '--leader-namespace', 'default'] });
    await cluster.createPods([
      { name: 'app1', labels: { id: 'app1' }, node: 1, tcp: [80] },
      { name: 'app2', labels: { id: 'app2' }, node: 2 },
      { name: 'app3', labels: { id: 'app3' }, node: 2 },
    ]);
  });
  afterAll(() => cluster?.stop());

  it('the last rules hold, the operator leads again without a restart, and an edit is enforced', async () => {
    await cluster.apply(policy('app3'));
    await cluster.programmed('cnp/outage');
    const { faults, stats } = cluster.api;
    const lost = (): number =>
      readFileSync(join(cluster.logDir, 'operator.log'), 'utf8').split('"leadership lost').length;
    const before = lost();
    const mend = faults.fail(503, WEIR);
    try {
      faults.dropWatches(WEIR);
      await cluster.apply(policy('app2'));
      expect(
        await eventually(
          async () => lost(),
          (count) => count > before,
        ),
      ).toBeGreaterThan(before);
      expect(await cluster.probe('app3', 'app1')).toBe('reached');
      expect(await cluster.probe('app2', 'app1')).toBe('dropped');
    } finally {
      mend();
    }
    stats.reset();
    expect(
      await eventually(
        () => cluster.probe('app2', 'app1'),
        (result) => result === 'reached',
      ),
    ).toBe('reached');
    expect(await cluster.probe('app3', 'app1')).toBe('dropped');
    await cluster.programmed('cnp/outage');
    expect(cluster.operator.running).toBe(true);
    // Each reflector lists or watches once, the edit and its reports are written, the lease is renewed: nobody asks in a loop.
    expect(stats.count(WEIR) - stats.count({ ...WEIR, resource: 'leases' })).toBeLessThan(200);
  });
});
