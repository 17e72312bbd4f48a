/** Sockets whose backend is gone, on the real kernel. */
import { afterAll, beforeAll, beforeEach, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { silent } from '../datapath/testing/lab.ts';
import { type Closing, SocketCloser } from './closing.ts';
import type { Answer, Peer } from './testing/peer.ts';
import { NODE, PODS, service, slices, World } from './testing/world.ts';

const CLUSTER = '10.96.0.10';
const CLUSTER6 = 'fd00:96::10';
const [A, B] = PODS[4];
const [A6, B6] = PODS[6];
const WEB = service({ clusterIPs: [CLUSTER, CLUSTER6] });

let world: World;
let closer: SocketCloser;
beforeAll(async () => {
  world = await World.start();
  closer = start(world, 'all');
});
afterAll(async () => {
  await closer?.stop();
  await world?.stop();
});
let sockets = 0;
beforeEach(() => {
  sockets += 1;
});

function start(on: World, closing: Exclude<Closing, 'off'>): SocketCloser {
  const started = new SocketCloser({
    ...{ db: on.db, slices: on.services.tables.slices, endpoints: on.endpoints, closing },
    sockets: () => on.map('svc_sockets'),
    settled: () => on.services.settled(),
    ...{ nodeNetns: on.lab.netns, log: silent },
  });
  started.start();
  return started;
}

type Protocol = 'TCP' | 'UDP';
const ask = (protocol: Protocol, address = CLUSTER, port = 80, from: Peer = world.node): Promise<Answer> =>
  from.ask(protocol, address, port, { keep: `${sockets} ${protocol} ${address}`, connected: true });
/** Whether the socket of the last question is closed: within a while, if `soon`. */
const closed = async (protocol: Protocol, address = CLUSTER, port = 80): Promise<boolean> =>
  (await ask(protocol, address, port)).error !== undefined;

it.each([
  [CLUSTER, A, B],
  [CLUSTER6, A6, B6],
  [`::ffff:${CLUSTER}`, A, B],
])(
  'closes those of %s to a backend that is gone, once those who connect again get another',
  async (address, first, second) => {
    await world.apply([WEB], slices([first]));
    for (const protocol of ['TCP', 'UDP'] as const) expect((await ask(protocol, address)).text).toBe(`${first} 8080`);
    await world.apply([WEB], slices([second]));
    for (const protocol of ['TCP', 'UDP'] as const)
      await eventually(
        () => closed(protocol, address),
        (isClosed) => isClosed,
      );
    sockets += 1;
    expect((await ask('TCP', address)).text).toBe(`${second} 8080`);
    expect((await ask('UDP', address)).text).toBe(`${second} 8080`);
  },
);

it('leaves TCP alone where only UDP is to be closed', async () => {
  const other = await World.start();
  const udpCloser = start(other, 'udp');
  const asks = (protocol: Protocol) => ask(protocol, CLUSTER, 80, other.node);
  try {
    await other.apply([WEB], slices([A]));
    for (const protocol of ['TCP', 'UDP'] as const) await asks(protocol);
    await other.apply([WEB], slices([B]));
    await eventually(
      () => asks('UDP'),
      ({ error }) => error !== undefined,
    );
    expect(await asks('TCP')).toMatchObject({ text: `${A} 8080` });
  } finally {
    await udpCloser.stop();
    await other.stop();
  }
});

it('leaves alone whoever is connected to a backend that stays, is not ready or ends, or by its own address', async () => {
  const endpoint = (address: string, conditions: object) => ({ addresses: [address], nodeName: NODE, conditions });
  await world.apply([WEB], slices([A]));
  for (const protocol of ['TCP', 'UDP'] as const) {
    await ask(protocol);
    // By itself, not by the Service.
    await ask(protocol, A, 8080);
  }
  for (const conditions of [
    { ready: false },
    { ready: false, serving: true, terminating: true },
    { ready: false, serving: false, terminating: true },
  ])
    await world.apply([WEB], slices([endpoint(A, conditions), B]));
  // What is closed afterwards shows that these have been looked at.
  sockets += 1;
  await world.apply([WEB], slices([endpoint(A, { ready: false }), B]));
  await ask('UDP');
  await world.apply([WEB], slices([endpoint(A, { ready: false })]));
  await eventually(
    () => closed('UDP'),
    (isClosed) => isClosed,
  );
  sockets -= 1;
  for (const protocol of ['TCP', 'UDP'] as const) {
    expect(await ask(protocol)).toMatchObject({ text: `${A} 8080` });
    expect(await ask(protocol, A, 8080)).toMatchObject({ text: `${A} 8080` });
  }
  await world.apply([WEB], []);
  await eventually(
    () => closed('TCP'),
    (isClosed) => isClosed,
  );
  for (const protocol of ['TCP', 'UDP'] as const)
    expect(await ask(protocol, A, 8080)).toMatchObject({ text: `${A} 8080` });
});

it('holds nobody up while it looks at very many sockets', async () => {
  const other = await World.start();
  let turns = 0;
  let seen = 0;
  function* keys(): Generator<Uint8Array> {
    for (; seen < 100_000; seen += 1) {
      if (seen === 0)
        setImmediate(function again() {
          turns += 1;
          if (seen < 100_000) setImmediate(again);
        });
      yield new Uint8Array(32);
    }
  }
  const slow = new SocketCloser({
    ...{ db: other.db, slices: other.services.tables.slices, endpoints: other.endpoints, closing: 'all' },
    sockets: () => ({ keys }),
    settled: () => other.services.settled(),
    ...{ nodeNetns: other.lab.netns, log: silent },
  });
  slow.start();
  try {
    await other.apply([WEB], slices([A]));
    await other.apply([WEB], slices([B]));
    await eventually(
      async () => seen,
      (count) => count >= 100_000,
    );
    expect(turns).toBeGreaterThan(10);
  } finally {
    await slow.stop();
    await other.stop();
  }
});

it('closes those of pods, each in its own network namespace', async () => {
  const { db, endpoints, lab } = world;
  db.write([endpoints], (txn) => {
    const row = { id: 7, ifindex: 7, interfaceName: 'x', addresses: [], createdAt: '' };
    txn.upsert(endpoints, { ...row, netns: `/var/run/netns/${lab.prefix}p` });
    // It has just ended.
    txn.upsert(endpoints, { ...row, id: 8, ifindex: 8, netns: `/var/run/netns/${lab.prefix}gone` });
  });
  await world.apply([WEB], slices([A]));
  expect(await ask('UDP', CLUSTER, 80, world.pod)).toMatchObject({ text: `${A} 8080` });
  expect(await ask('TCP', CLUSTER, 80, world.pod)).toMatchObject({ text: `${A} 8080` });
  await world.apply([WEB], slices([B]));
  for (const protocol of ['UDP', 'TCP'] as const)
    await eventually(
      () => ask(protocol, CLUSTER, 80, world.pod),
      ({ error }) => error !== undefined,
    );
});
