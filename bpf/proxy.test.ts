/** What a proxy decides: real packets of a pod, the proxy, a server, and processes that are none of these. */
import { constants } from 'node:os';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';

import { ENDPOINT_FLAGS, MARK_FROM_PROXY, SETTING_PROXY_RATE } from './constants.ts';
import { listenerOf } from './flows.ts';
import { settingsKey, settingsValue } from './layout.ts';
import { type ActorSocket, placed } from './testing/actor.ts';
import type { VerdictRow } from './testing/datapath.ts';
import {
  deliver,
  LISTENER,
  LOOPBACK,
  PODS,
  PROXY_PORT,
  ProxiedWorld,
  SERVER_IDENTITY,
  SERVERS,
} from './testing/proxied.ts';

const REDIRECT = 0;
const PORT = 53;
const { ECONNRESET } = constants.errno;
let world: ProxiedWorld;
const opened: ActorSocket[] = [];

function rows(verdict: Pick<VerdictRow, 'verdict' | 'proxyPort'>): readonly VerdictRow[] {
  return (['udp', 'tcp'] as const).map((protocol) => ({
    ...{ class: 16, direction: 'egress' as const, protocol, port: PORT },
    ...verdict,
  }));
}

const classes = [{ identity: SERVER_IDENTITY, direction: 'egress' as const, class: 16 }];
function setRate(packets: number): void {
  world.path.map('settings').update(settingsKey.encode(SETTING_PROXY_RATE), settingsValue.encode(packets));
  const budgets = world.path.map('proxy_budgets');
  for (const key of [...budgets.keys()]) budgets.update(key, new Uint8Array(8));
}

const noProxy = (direction: 'ingress' | 'egress' = 'egress'): bigint => world.path.count('no-proxy', direction);

/** Remembers to close. */
async function open(socket: Promise<ActorSocket>): Promise<ActorSocket> {
  opened.push(await socket);
  return await socket;
}

async function until(what: () => boolean): Promise<void> {
  const end = performance.now() + 60_000;
  while (!what()) {
    if (performance.now() > end) throw new Error('it did not happen');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

beforeAll(() => {
  world = new ProxiedWorld('proxy');
  deliver(world);
  world.path.slot(REDIRECT, classes, rows({ verdict: 'redirect', proxyPort: LISTENER }));
});
beforeEach(() => {
  world.judgeBy(REDIRECT);
  setRate(0);
});
afterEach(async () => {
  for (const socket of opened.splice(0)) await socket.close();
  world.path.forget();
});
afterAll(async () => await world.stop());

describe.each([4, 6] as const)('IPv%i', (family) => {
  const SERVER = [SERVERS[family], PORT] as const;
  const any = family === 4 ? '0.0.0.0' : '::';
  const pod = (port: number) => [PODS.a[family], port] as const;

  describe('UDP', () => {
    const asks = async (port: number): Promise<ActorSocket> =>
      await open(world.actor('a').open({ type: 'udp', family, bind: pod(port) }));

    it('goes to the proxy and back with source and destination as they are', async () => {
      const proxy = await open(world.listener(family, 'udp'));
      const client = await asks(40_001);
      await client.send('question', SERVER);
      const got = await proxy.receive();
      expect(got).toEqual({ text: 'question', from: placed(pod(40_001)), to: placed(SERVER) });

      const flow = world.path.flow('egress', 17, PODS.a[family], 40_001, SERVER[0], PORT).get();
      expect([flow?.proxied, flow === undefined ? 0 : listenerOf(flow)]).toEqual([true, LISTENER]);

      const server = await open(world.actor('server').open({ type: 'udp', family, bind: SERVER }));
      const upstream = await open(world.as(pod(40_001), SERVER, 'udp'));
      await upstream.send('forwarded');
      expect(await server.receive()).toMatchObject({ text: 'forwarded', from: placed(pod(40_001)) });
      await server.send('answer', pod(40_001));
      expect(await upstream.receive()).toMatchObject({ text: 'answer' });
      const back = await open(world.as(SERVER, pod(40_001), 'udp'));
      await back.send('judged');
      // Nothing else came before it.
      expect(await client.receive()).toMatchObject({ text: 'judged', from: placed(SERVER) });
    });

    it('is dropped without a proxy, whoever listens at its port', async () => {
      const strangers: ActorSocket[] = [];
      for (const address of [any, LOOPBACK[family]])
        strangers.push(
          await open(
            world.actor('node', address).open({ type: 'udp', family, freebind: true, bind: [address, PROXY_PORT] }),
          ),
        );
      const before = noProxy();
      const client = await asks(40_002);
      await client.send('question', SERVER);
      await until(() => noProxy() > before);
      for (const stranger of strangers) expect(await stranger.receive(0)).toEqual({});
    });

    it('takes a mark from nobody', async () => {
      const proxy = await open(world.listener(family, 'udp'));
      const client = await open(
        world.actor('a').open({ type: 'udp', family, bind: pod(40_004), mark: MARK_FROM_PROXY }),
      );
      await client.send('question', SERVER);
      expect(await proxy.receive()).toMatchObject({ text: 'question', to: placed(SERVER) });
      const upstream = await open(world.as(pod(40_004), SERVER, 'udp'));
      const server = await open(
        world.actor('server').open({ type: 'udp', family, bind: SERVER, mark: MARK_FROM_PROXY }),
      );
      await server.send('answer', pod(40_004));
      expect(await upstream.receive()).toMatchObject({ text: 'answer' });
      expect(await client.receive(0)).toEqual({});
    });

    it('takes an answer from the server that was asked, and its port alone', async () => {
      world.judgeBy(REDIRECT, { flags: ENDPOINT_FLAGS.egressEnforced | ENDPOINT_FLAGS.ingressEnforced });
      const proxy = await open(world.listener(family, 'udp'));
      const client = await asks(40_005);
      await client.send('question', SERVER);
      await proxy.receive();
      const upstream = await open(world.as(pod(40_005), SERVER, 'udp'));
      const refused = (): bigint =>
        ['policy', 'unknown-identity'].reduce((sum, why) => sum + world.path.count(why, 'ingress'), 0n);
      const before = refused();
      const other = await open(world.actor('server').open({ type: 'udp', family, bind: [SERVER[0], 54] }));
      await other.send('forged', pod(40_005));
      const pods = await open(world.actor('b').open({ type: 'udp', family, bind: [PODS.b[family], PORT] }));
      await pods.send('forged', pod(40_005)).catch(() => undefined);
      await until(() => refused() >= before + 1n);
      const server = await open(world.actor('server').open({ type: 'udp', family, bind: SERVER }));
      await server.send('answer', pod(40_005));
      expect(await upstream.receive()).toMatchObject({ text: 'answer' });
      expect(await client.receive(0)).toEqual({});
    });

    it('goes from the proxy to a server that is a pod of the node, and back', async () => {
      world.path.identity(PODS.b[family], SERVER_IDENTITY);
      const place = [PODS.b[family], PORT] as const;
      const proxy = await open(world.listener(family, 'udp'));
      const client = await asks(40_006);
      const server = await open(world.actor('b').open({ type: 'udp', family, bind: place }));
      await client.send('question', place);
      expect(await proxy.receive()).toMatchObject({ text: 'question', to: placed(place) });
      const upstream = await open(world.as(pod(40_006), place, 'udp'));
      await upstream.send('forwarded');
      expect(await server.receive()).toMatchObject({ text: 'forwarded', from: placed(pod(40_006)) });
      await server.send('answer', pod(40_006));
      expect(await upstream.receive()).toMatchObject({ text: 'answer' });
      await (await open(world.as(place, pod(40_006), 'udp'))).send('judged');
      expect(await client.receive()).toMatchObject({ text: 'judged', from: placed(place) });
    });

    it('comes from the proxy in fragments, too, and to it in none', async () => {
      const proxy = await open(world.listener(family, 'udp'));
      const client = await asks(40_008);
      await client.send('question', SERVER);
      await proxy.receive();
      const long = 'x'.repeat(4000);
      const server = await open(world.actor('server').open({ type: 'udp', family, bind: SERVER }));
      const upstream = await open(world.as(pod(40_008), SERVER, 'udp'));
      const before = [noProxy('ingress'), noProxy('egress')];
      await server.send(long, pod(40_008));
      await client.send(long, SERVER);
      await until(() => [noProxy('ingress'), noProxy('egress')].every((count, at) => count > (before[at] ?? 0n)));
      await (await open(world.as(SERVER, pod(40_008), 'udp'))).send(long);
      expect(await client.receive()).toMatchObject({ text: long, from: placed(SERVER) });
      expect([await upstream.receive(0), await proxy.receive(0)]).toEqual([{}, {}]);
    });

    it('drops what one pod asks beyond its rate, and nothing of others', async () => {
      const most = 50;
      setRate(most);
      const proxy = await open(world.listener(family, 'udp'));
      const [flooding, client] = [await asks(40_007), await open(world.actor('b').open({ type: 'udp', family }))];
      const dropped = world.path.count('proxy-rate', 'egress');
      const start = performance.now();
      await flooding.send('flood', SERVER, 1000);
      await client.send('question', SERVER, 2 * most - 1);
      const excess = (): number => Number(world.path.count('proxy-rate', 'egress') - dropped);
      let came = 0;
      while (excess() + came < 1000 + 2 * most - 1) came += await proxy.count(200);
      const seconds = (performance.now() - start) / 1000;
      expect(excess() + came).toBe(1000 + 2 * most - 1);
      // All of the other's, and of the flood what fills its bucket.
      expect(came - (2 * most - 1)).toBeGreaterThanOrEqual(2 * most);
      expect(came - (2 * most - 1)).toBeLessThanOrEqual(2 * most + 1 + seconds * most);
      setRate(0);
    });

    it('takes no answer of a server to others than the proxy', async () => {
      const proxy = await open(world.listener(family, 'udp'));
      const client = await asks(40_003);
      await client.send('question', SERVER);
      await proxy.receive();
      const wildcard = await open(world.actor('node', 'any').open({ type: 'udp', family, bind: [any, 40_003] }));
      const server = await open(world.actor('server').open({ type: 'udp', family, bind: SERVER }));
      const before = noProxy('ingress');
      await server.send('answer', pod(40_003));
      await until(() => noProxy('ingress') > before);
      await wildcard.close();
      opened.splice(opened.indexOf(wildcard), 1);
      // Bound to the pod's own address, which needs no right.
      const posing = await open(
        world.actor('node', 'any').open({
          ...{ type: 'udp', family, freebind: true, bind: pod(40_003) },
          // IPv4 connects none from an address that is not the node's.
          ...(family === 6 ? { connect: SERVER } : {}),
        }),
      );
      await server.send('answer', pod(40_003));
      await until(() => noProxy('ingress') > before + 1n);
      expect([await posing.receive(0), await client.receive(0)]).toEqual([{}, {}]);
    });
  });

  describe('TCP', () => {
    const connects = async (port: number, from: 'a' | 'b' = 'a'): Promise<ActorSocket> =>
      await open(
        world
          .actor(from)
          .open({ type: 'tcp', family, freebind: true, bind: [PODS[from][family], port], connect: SERVER }),
      );

    it('goes to the proxy and back with source and destination as they are', async () => {
      const proxy = await open(world.listener(family, 'tcp'));
      const client = await connects(41_001);
      const accepted = await proxy.accept();
      expect([accepted?.from, accepted?.own]).toEqual([placed(pod(41_001)), placed(SERVER)]);
      opened.push(accepted as ActorSocket);
      const flow = world.path.flow('egress', 6, PODS.a[family], 41_001, SERVER[0], PORT).get();
      expect([flow?.proxied, flow === undefined ? 0 : listenerOf(flow)]).toEqual([true, LISTENER]);

      const server = await open(
        world.actor('server').open({ type: 'tcp', family, freebind: true, bind: SERVER, listen: true }),
      );
      const upstream = await open(world.as(pod(41_001), SERVER, 'tcp'));
      const served = await server.accept();
      expect(served?.from).toBe(placed(pod(41_001)));
      opened.push(served as ActorSocket);
      await client.send('question');
      expect(await accepted?.receive()).toMatchObject({ text: 'question' });
      await upstream.send('forwarded');
      expect(await served?.receive()).toMatchObject({ text: 'forwarded' });
      await served?.send('answer');
      expect(await upstream.receive()).toMatchObject({ text: 'answer' });
      await accepted?.send('judged');
      expect(await client.receive()).toMatchObject({ text: 'judged' });
    });

    it('is dropped without a proxy, whoever listens at its port', async () => {
      for (const [at, address] of [any, LOOPBACK[family]].entries()) {
        const bind = [address, PROXY_PORT] as const;
        const stranger = await world.actor('node', 'any').open({ type: 'tcp', family, bind, listen: true });
        const before = noProxy();
        await connects(41_010 + at);
        await until(() => noProxy() > before);
        expect(await stranger.accept(0)).toBeUndefined();
        await stranger.close();
      }
    });

    it('is reset where the proxy knows the connection no more, and dropped where there is none', async () => {
      const proxy = await open(world.listener(family, 'tcp'));
      const [reset, silent] = [await connects(41_003), await connects(41_004)];
      const accepted = [await proxy.accept(), await proxy.accept()];
      for (const each of accepted) await each?.vanish();
      await reset.send('question');
      expect(await reset.receive()).toMatchObject({ error: ECONNRESET });
      await proxy.close();
      opened.splice(opened.indexOf(proxy), 1);
      const before = noProxy();
      await silent.send('question');
      await until(() => noProxy() > before);
    });

    it('a pod that opens connections and does not go on keeps nobody else from it', async () => {
      const proxy = await open(world.listener(family, 'tcp'));
      world.mute('a', true);
      for (let port = 42_000; port < 42_100; port += 1) await world.syn('a', SERVER, port);
      const client = await connects(41_005, 'b');
      const accepted = await proxy.accept();
      expect(accepted?.from).toBe(placed([PODS.b[family], 41_005]));
      opened.push(accepted as ActorSocket);
      await client.send('question');
      expect(await accepted?.receive()).toMatchObject({ text: 'question' });
      world.mute('a', false);
    });
  });
});
