import { beforeEach, describe, expect, it } from '@jest/globals';
import type { Lease } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { OperatorHeartbeat } from './heartbeat.ts';

const AT = { namespace: 'kube-system', name: 'weir-operator-heartbeat' };

function beat(renewTime: string, holderIdentity = 'operator-1', metadata = AT): Lease {
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata,
    spec: { holderIdentity, leaseDurationSeconds: 20, renewTime },
  };
}

describe("the operator's heartbeat", () => {
  let now: number;
  let heartbeat: OperatorHeartbeat;
  beforeEach(() => {
    now = 1_000_000;
    heartbeat = new OperatorHeartbeat(createStateDB(), AT, () => now);
  });

  it('is waited for as long as one is good', () => {
    heartbeat.replace([]);
    now += 19_999;
    expect(heartbeat.condition()).toEqual({ ok: true, message: 'not heard of yet' });
    now += 1;
    expect(heartbeat.condition()).toEqual({
      ok: false,
      message: expect.stringMatching(
        /^no operator has led for 20 s: Lease kube-system\/weir-operator-heartbeat has never been there\. Meanwhile /,
      ),
    });
  });

  it("ages by this agent's clock from when it came first, whatever the operator's clock says", () => {
    heartbeat.replace([beat('2001-01-01T00:00:00.000000Z')]);
    now += 19_999;
    heartbeat.replace([beat('2001-01-01T00:00:00.000000Z')]);
    expect(heartbeat.condition()).toEqual({ ok: true, message: 'operator-1 leads' });
    now += 1;
    expect(heartbeat.condition()).toMatchObject({
      ok: false,
      message: expect.stringContaining(
        'operator-1, renewed Lease kube-system/weir-operator-heartbeat at 2001-01-01T00',
      ),
    });
    expect(heartbeat.age).toBe(20_000);
    heartbeat.upsert(beat('2001-01-01T00:00:05.000000Z', 'operator-2'));
    expect(heartbeat.condition()).toEqual({ ok: true, message: 'operator-2 leads' });
  });

  it('is no other Lease, and none without holder', () => {
    heartbeat.upsert(beat('2001-01-01T00:00:00.000000Z', 'other', { ...AT, name: 'weir-operator' }));
    heartbeat.upsert(beat('2001-01-01T00:00:00.000000Z', ''));
    expect(heartbeat.condition().message).toBe('not heard of yet');
  });
});
