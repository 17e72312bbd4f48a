/** An address goes from a pod with rights to one without, while nobody leads the cluster: the rights do not go with it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster, type OpenStream, type PodProcess } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const SERVERS = ['near', 'far'] as const;
/** Longer than an address rests after a pod. */
const RESTED_MS = 31_000;
/** For whom each port is. */
const PORTS = { friend: 5301, stranger: 5302 } as const;

const policy = {
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'servers', namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { app: 'server' } },
    ingress: Object.entries(PORTS).map(([app, port]) => ({
      fromEndpoints: [{ matchLabels: { app } }],
      toPorts: [{ ports: [{ port: String(port), protocol: 'UDP' }] }],
    })),
  },
};

describe('the address of a pod that has gone', () => {
  let cluster: Cluster;
  /** What the cluster says. */
  const said: string[] = [];
  /** Times that a pod got no network because addresses rested. */
  const waited = (pod: RegExp): number => said.filter((line) => pod.test(line) && /\brest/.test(line)).length;
  beforeAll(async () => {
    // Five addresses for each node's pods: those of node 1 have all of them.
    cluster = await Cluster.start({ podPrefix: 29, onLog: (line) => said.push(line) });
    const udp = Object.values(PORTS);
    await cluster.createPods([
      { name: 'near', labels: { app: 'server' }, node: 1, udp },
      { name: 'far', labels: { app: 'server' }, node: 2, udp },
      { name: 'friend', labels: { app: 'friend' }, node: 1 },
      ...['a', 'b', 'c'].map((name) => ({ name, labels: { app: 'other' }, node: 1 })),
    ]);
    await cluster.applyObjects([policy]);
    await cluster.programmed('cnp/servers');
  });
  afterAll(() => cluster?.stop());

  /** The program of a pod, as soon as it runs: before anybody says that the pod does. */
  async function process(pod: string): Promise<PodProcess> {
    for (;;) {
      const found = cluster.kubelet.sandbox(`default/${pod}`)?.process;
      if (found !== undefined) return found;
      await sleep(5);
    }
  }

  async function streams(from: PodProcess, port: number): Promise<readonly OpenStream[]> {
    const addresses = await Promise.all(SERVERS.map(async (server) => (await cluster.host(server)).address));
    return Promise.all(addresses.map((address) => from.stream('udp', address, port)));
  }

  /** Why the last try to give the new pod a network failed, and when that was. */
  async function refusal(): Promise<{ readonly at: number; readonly message: string }> {
    const text = await cluster.kubectl(['get', 'pod', 'stranger', '-o', 'jsonpath={.status.conditions[0]}']);
    const { lastTransitionTime = '', message = '' } = text === '' ? {} : JSON.parse(text);
    return { at: Date.parse(lastTransitionTime), message };
  }

  it('is not given while slices name it and no operator is there; who has it afterwards has rights of its own, and no others', async () => {
    const { address } = await cluster.host('friend');
    const known = await streams(await process('friend'), PORTS.friend);
    for (const stream of known)
      await eventually(
        () => stream.report(),
        ({ echoed }) => echoed > 0,
      );
    await cluster.operator.kill9();
    await cluster.deletePod('friend');
    await cluster.applyObjects([
      {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'stranger', namespace: 'default', labels: { app: 'stranger' } },
        spec: { nodeName: 'node-1', containers: [{ name: 'main', image: 'pod' }] },
      },
    ]);
    // It rests first. Afterwards it is the slices alone that keep it from being given.
    const rested = Date.now() + RESTED_MS;
    const held = await eventually(refusal, ({ at }) => at > rested, 120);
    expect(held.message).toMatch(
      /of its 5, 4 in use by endpoints of this node, 1 of other pods by CiliumEndpointSlices/,
    );
    // Between two tries the pod has no sandbox at all.
    expect(cluster.kubelet.sandbox('default/stranger')?.addresses ?? []).toEqual([]);

    cluster.startOperator();
    const stranger = await process('stranger');
    const denied = await streams(stranger, PORTS.friend);
    const allowed = await streams(stranger, PORTS.stranger);
    expect((await cluster.host('stranger')).address).toBe(address);
    for (const stream of allowed) {
      const report = await eventually(
        () => stream.report(),
        ({ echoed }) => echoed > 0,
      );
      expect(report.echoed).toBeGreaterThan(0);
    }
    // Both of its addresses' nodes know it by now; what was sent until then was judged, too.
    for (const stream of denied) {
      const report = await eventually(
        () => stream.report(),
        ({ sent }) => sent > 50,
      );
      expect(report).toMatchObject({ echoed: 0 });
    }
    for (const stream of [...denied, ...allowed]) await stream.close();
  });

  it('is given at once to a pod that every peer judges as the one before: rolling updates in a row do not wait', async () => {
    const roll = async (round: number): Promise<string> => {
      await cluster.createPods([{ name: `web-${round}`, labels: { app: 'friend' }, node: 2 }]);
      const { address } = await cluster.host(`web-${round}`);
      const streamsOf = await streams(await process(`web-${round}`), PORTS.friend);
      for (const stream of streamsOf) {
        await eventually(
          () => stream.report(),
          ({ echoed }) => echoed > 0,
        );
        await stream.close();
      }
      await cluster.deletePod(`web-${round}`);
      return address;
    };
    // Node 2 has four addresses beside that of the server: from the fifth pod on each has one of a pod that has just gone.
    const given: string[] = [];
    for (let round = 1; round <= 9; round += 1) given.push(await roll(round));
    expect(new Set(given).size).toBe(4);
    expect(waited(/^pod default\/web-/)).toBe(0);
  });
});
