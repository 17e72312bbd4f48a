/** What the log says of requests that fail again and again: kubelet tries each every few seconds. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { tableKey } from '../create-tables.ts';
import { FakeCore, recordingLogger } from '../testing/fake-core.ts';
import { CniService } from './service.ts';
import type { CniAnswer, Network } from './types.ts';

const MINUTE = 60_000;
/** The one address of the pod CIDR. */
const ADDRESS = '10.55.0.2';

let core: FakeCore;
let log: ReturnType<typeof recordingLogger>;
let service: CniService;
let now: number;
let containers: number;
let uplink: () => { readonly mtu: number; readonly addresses: readonly string[] };

beforeEach(async () => {
  core = new FakeCore();
  log = recordingLogger();
  [now, containers] = [1_000_000, 0];
  uplink = () => ({ mtu: 1500, addresses: [] });
  const network: Network = {
    prepareNode: async () => undefined,
    uplink: async () => uplink(),
    addressesWithin: async () => [],
    createPair: async () => 7,
    configurePod: async () => undefined,
    removeLink: async () => true,
    checkPod: async () => [],
    hostLinks: async () => [],
    interfaceIndex: async () => 7,
  };
  const podCidrs = () => ['10.55.0.0/30'];
  service = new CniService({ core, network, podCidrs, log, clusterName: 'default', firstHere: true, now: () => now });
  await service.start();
});
afterEach(() => service.stop());

/** As kubelet does it: each try has a sandbox of its own. */
async function add(pod: string): Promise<CniAnswer> {
  containers += 1;
  return await service.handle({
    env: {
      ...{ CNI_COMMAND: 'ADD', CNI_IFNAME: 'eth0', CNI_CONTAINERID: `c${containers}`, CNI_NETNS: '/var/run/netns/x' },
      CNI_ARGS: `K8S_POD_NAMESPACE=default;K8S_POD_NAME=${pod}`,
    },
    stdin: JSON.stringify({ cniVersion: '1.1.0', name: 'weir', type: 'weir-cni' }),
  });
}

async function fail(pod: string): Promise<void> {
  expect((await add(pod)).ok).toBe(false);
}

/** The address is another pod's. */
function occupied(is: boolean): void {
  const { endpoints } = core.tables;
  core.db.write([endpoints], (txn) => {
    if (!is) for (const { id } of txn.all(endpoints)) txn.delete(endpoints, tableKey.endpoint(id));
    else txn.upsert(endpoints, { id: 99, ifindex: 9, interfaceName: 'x', addresses: [ADDRESS], createdAt: '' });
  });
}

function said(level: string): object[] {
  const lines = log.lines.splice(0).filter((line) => line.level === level && line.message.startsWith('cni request'));
  return lines.map(({ message, fields }) => ({ message, ...fields }));
}

describe('while the pod CIDR is full', () => {
  const FULL = { message: 'cni request failed', code: 102, error: expect.stringContaining('no free address') };

  it('one line needs a person, whichever pods are tried how often; after minutes it says how often', async () => {
    occupied(true);
    await fail('a');
    expect(said('error')).toMatchObject([FULL]);
    for (let second = 0; second < 9; second += 1) {
      now += 10_000;
      await fail(second % 2 === 0 ? 'a' : 'b');
    }
    expect(said('info')).toMatchObject(Array.from({ length: 9 }, () => FULL));
    await fail('b');
    expect(said('error')).toEqual([]);
    for (let minute = 0; minute < 10; minute += 1) {
      now += MINUTE;
      await fail('c');
    }
    expect(said('error')).toMatchObject([{ ...FULL, times: expect.any(Number) }]);
  });

  it('one line tells that it is over; where it recurs soon, nobody is called again', async () => {
    occupied(true);
    await fail('a');
    now += 30_000;
    await fail('b');
    occupied(false);
    // Its rest begins.
    await new Promise((resolve) => setImmediate(resolve));
    said('');
    now += MINUTE;
    expect((await add('c')).ok).toBe(true);
    const over = { message: 'cni requests that failed succeed again', code: 102, times: 2, seconds: 90 };
    expect(said('info')).toMatchObject([over]);
    await fail('a');
    expect(said('error')).toEqual([]);
    now += 20 * MINUTE;
    await fail('a');
    expect(said('error')).toMatchObject([FULL]);
  });
});

it("one pod's failure is told once, each pod's for itself, and its own success ends it", async () => {
  uplink = () => {
    throw new Error('no way out');
  };
  for (let time = 0; time < 3; time += 1) for (const pod of ['a', 'b']) await fail(pod);
  expect(said('error')).toMatchObject([
    { pod: { namespace: 'default', name: 'a' }, error: 'no way out' },
    { pod: { namespace: 'default', name: 'b' }, error: 'no way out' },
  ]);
  uplink = () => ({ mtu: 1500, addresses: [] });
  now += 40_000;
  expect((await add('b')).ok).toBe(true);
  expect(said('info')).toMatchObject([{ pod: { namespace: 'default', name: 'b' }, times: 3, seconds: 40 }]);
});

it('a pod that is never tried again is forgotten', async () => {
  uplink = () => {
    throw new Error('no way out');
  };
  for (let pod = 0; pod < 5; pod += 1) await fail(`p${pod}`);
  now += 20 * MINUTE;
  await fail('last');
  expect(core.db.tables()).toContainEqual(expect.objectContaining({ name: 'cniFailures', rows: 1 }));
});
