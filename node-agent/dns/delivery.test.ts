/** Real packets to the proxy and back, where the node's kernel asks of each packet that it came by the way that leads back to its source. */
import { execFileSync } from 'node:child_process';
import { closeSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { MARK_FROM_PROXY } from '@weir/bpf';
import {
  type ActorSocket,
  ipBytes,
  LISTENER,
  NODES,
  type Place,
  PODS,
  ProxiedWorld,
  placed,
  SERVER_IDENTITY,
  SERVERS,
} from '@weir/bpf/testing';
import { inNetns } from 'libbpf-ts';
import { runCommand } from '../host/command.ts';
import { ProxyDelivery } from './delivery.ts';
import { accept, connectAs, listenAt, receive, send } from './proxy/sockets.ts';

const PORT = 53;
const SIDES = ['lo', 'to-a', 'to-b', 'to-server'];
let world: ProxiedWorld;
let delivery: ProxyDelivery;
const opened: ActorSocket[] = [];

async function open(socket: Promise<ActorSocket>): Promise<ActorSocket> {
  opened.push(await socket);
  return await socket;
}

beforeAll(async () => {
  world = new ProxiedWorld('delivery');
  const inNode = ['netns', 'exec', world.netns('node')];
  delivery = new ProxyDelivery((command, args) => runCommand('ip', [...inNode, command, ...args]), '', {
    get: () => '',
    set: (path, value) => {
      world.set(path.replaceAll('/', '.'), Number(value));
      return true;
    },
  });
  for (const family of [4, 6] as const)
    for (const address of [NODES[family], PODS.b[family]]) world.path.identity(address, SERVER_IDENTITY);
  world.path.slot(
    0,
    [{ identity: SERVER_IDENTITY, direction: 'egress', class: 16 }],
    (['udp', 'tcp'] as const).map((protocol) => ({
      ...{ class: 16, direction: 'egress' as const, protocol, port: PORT },
      ...{ verdict: 'redirect' as const, proxyPort: LISTENER },
    })),
  );
  world.judgeBy(0);
  await delivery.look();
  expect(delivery.problem).toBeUndefined();
});
afterEach(async () => {
  for (const socket of opened.splice(0)) await socket.close();
  world.path.forget();
});
afterAll(async () => await world?.stop());

describe.each([
  { strict: 0, marks: 0 },
  { strict: 1, marks: 0 },
  { strict: 1, marks: 1 },
  { strict: 0, marks: 1 },
])('with rp_filter $strict and src_valid_mark $marks of all', ({ strict, marks }) => {
  beforeAll(async () => {
    for (const side of ['all', 'default', ...SIDES]) world.set(`net.ipv4.conf.${side}.rp_filter`, strict);
    world.set('net.ipv4.conf.all.src_valid_mark', marks);
    await delivery.look();
  });

  describe.each([4, 6] as const)('IPv%i', (family) => {
    const pod = (port: number): Place => [PODS.a[family], port];
    it.each([
      { of: 'outside', host: 'server', address: SERVERS[family], port: 40_001 },
      { of: 'on the node', host: 'node', address: NODES[family], port: 40_002 },
      { of: 'of a pod of the node', host: 'b', address: PODS.b[family], port: 40_003 },
    ] as const)('a server $of is asked, and its answer comes back, by UDP', async ({ host, address, port }) => {
      const place: Place = [address, PORT];
      const [proxy, server, client] = [
        await open(world.listener(family, 'udp')),
        // Freely, so that who answers in its name can be bound beside it.
        await open(world.actor(host, 'server').open({ type: 'udp', family, freebind: true, bind: place })),
        await open(world.actor('a').open({ type: 'udp', family, bind: pod(port) })),
      ];
      await client.send('question', place);
      expect(await proxy.receive()).toMatchObject({ from: placed(pod(port)), to: placed(place) });
      const upstream = await open(world.as(pod(port), place, 'udp'));
      await upstream.send('forwarded');
      expect(await server.receive()).toMatchObject({ text: 'forwarded', from: placed(pod(port)) });
      await server.send('answer', pod(port));
      expect(await upstream.receive()).toMatchObject({ text: 'answer' });
      await (await open(world.as([address, PORT], pod(port), 'udp'))).send('judged');
      expect(await client.receive()).toMatchObject({ text: 'judged', from: placed(place) });
    });

    it.each([
      { of: 'outside', host: 'server', address: SERVERS[family], port: 41_001 },
      { of: 'of a pod of the node', host: 'b', address: PODS.b[family], port: 41_003 },
    ] as const)('a server $of is asked, and its answer comes back, by TCP', async ({ host, address, port }) => {
      const place: Place = [address, PORT];
      const [proxy, server] = [
        await open(world.listener(family, 'tcp')),
        await open(
          world.actor(host, 'server').open({ type: 'tcp', family, freebind: true, bind: place, listen: true }),
        ),
      ];
      const client = await open(
        world.actor('a').open({ type: 'tcp', family, freebind: true, bind: pod(port), connect: place }),
      );
      const accepted = await open(proxy.accept().then(found));
      const upstream = await open(world.as(pod(port), place, 'tcp'));
      const served = await open(server.accept().then(found));
      await served.send('answer');
      expect(await upstream.receive()).toMatchObject({ text: 'answer' });
      await accepted.send('judged');
      expect(await client.receive()).toMatchObject({ text: 'judged' });
    });

    it('a server on the node is asked by TCP, by the sockets of the proxy', async () => {
      const inNode = <T>(body: () => T): T => inNetns(`/run/netns/${world.netns('node')}`, body);
      const where = ([text, number]: Place) => ({ family, address: ipBytes(text), port: number });
      const options = { mark: MARK_FROM_PROXY };
      const server: Place = [NODES[family], PORT];
      const serving = await open(
        world.actor('node', 'server').open({ type: 'tcp', family, bind: server, listen: true }),
      );
      const listener = inNode(() => listenAt(where([family === 4 ? '127.0.0.1' : '::1', 10_053]), 'stream', options));
      const fds = [listener];
      try {
        const client = await open(
          world.actor('a').open({ type: 'tcp', family, freebind: true, bind: pod(41_002), connect: server }),
        );
        await client.send('question');
        const accepted = await comes(() => accept(listener, family));
        fds.push(accepted.fd);
        const source = where(pod(41_002));
        expect(accepted).toMatchObject({ source, destination: where(server) });
        const upstream = inNode(() => connectAs({ source, destination: where(server) }, 'stream', options));
        fds.push(upstream);
        const served = found(await serving.accept());
        opened.push(served);
        expect(served.from).toBe(placed(pod(41_002)));
        expect(String(await comes(() => receive(accepted.fd)))).toBe('question');
        await served.send('answer');
        expect(String(await comes(() => receive(upstream)))).toBe('answer');
        expect(send(accepted.fd, Buffer.from('judged'))).toBeUndefined();
        expect(await client.receive()).toMatchObject({ text: 'judged' });
      } finally {
        for (const fd of fds) closeSync(fd);
      }
    });
  });
});

it('is taken away whole', async () => {
  await delivery.remove();
  const rules = execFileSync('ip', ['-n', world.netns('node'), 'rule', 'show'], { encoding: 'utf8' });
  expect(rules).not.toContain('2005');
});

async function comes<T>(look: () => T | undefined): Promise<T> {
  for (const end = performance.now() + 60_000; performance.now() < end; ) {
    const got = look();
    if (got !== undefined) return got;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error('it did not come');
}

function found<T extends ActorSocket>(socket: T | undefined): T {
  if (socket === undefined) throw new Error('no connection came');
  return socket;
}
