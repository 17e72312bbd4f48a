/** Routes between three real network namespaces on one bridge, each a node; an address on its loopback stands for its pods. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB, type InitDone } from '@weir/statedb';
import { eventually as answers } from '../../test/eventually.ts';
import { CommandError, type RunCommand, runCommand } from '../host/command.ts';
import type { NodeRow } from '../tables.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { TestNamespaces } from '../testing/netns.ts';
import { NodeRouting, ROUTE_METRIC, ROUTE_PROTOCOL, removeRoutes } from './index.ts';
import { KernelRoutes } from './kernel.ts';

const namespaces = new TestNamespaces('weir-rt');
const NODES = [1, 2, 3] as const;
type Number3 = (typeof NODES)[number];
const paths = new Map<Number3, string>();
let wire = '';
const servers: ChildProcess[] = [];

function inside(path: string): RunCommand {
  return (command, args, input) => runCommand('nsenter', [`--net=${path}`, command, ...args], input);
}
function runIn(node: Number3): RunCommand {
  return inside(paths.get(node) ?? '');
}
function row(node: number, change: Partial<NodeRow> = {}): NodeRow {
  return {
    name: `node-${node}`,
    addresses: [`192.0.2.${node}`],
    podCidrs: [`10.66.${node}.0/24`],
    kubeApiserver: false,
    ...change,
  };
}

/** The same with both families. */
function dual(node: number): NodeRow {
  return row(node, {
    addresses: [`192.0.2.${node}`, `fd00:2::${node}`],
    podCidrs: [`10.66.${node}.0/24`, `fd00:66:${node}::/64`],
  });
}

/** An agent's routing on one node, with a nodes table of its own. */
function agent(
  node: Number3,
  options: { mode?: 'direct' | 'none'; refreshMs?: number; forward?: (family: number) => Promise<boolean> } = {},
) {
  const db = createStateDB();
  const nodes = db.table<NodeRow>({ name: 'nodes', key: (entry) => entry.name });
  let done: InitDone | undefined = db.initialiser(nodes, 'kubernetes');
  const log = recordingLogger();
  const routing = new NodeRouting({
    db,
    nodes,
    nodeName: `node-${node}`,
    mode: options.mode ?? 'direct',
    log,
    run: runIn(node),
    forward: options.forward ?? (() => Promise.resolve(false)),
    refreshMs: options.refreshMs ?? 60_000,
  });
  const put = (...rows: NodeRow[]): void =>
    db.write([nodes], (txn) => {
      for (const entry of rows) txn.upsert(nodes, entry);
    });
  const drop = (name: string): void =>
    db.write([nodes], (txn) => {
      txn.delete(nodes, name);
    });
  const complete = (): void =>
    db.write([nodes], (txn) => {
      done?.(txn);
      done = undefined;
    });
  running.push(routing);
  return { routing, put, drop, complete, log };
}
let running: NodeRouting[] = [];

beforeAll(async () => {
  wire = await namespaces.add('wire');
  await inside(wire)('ip', ['link', 'add', 'br0', 'type', 'bridge']);
  await inside(wire)('ip', ['link', 'set', 'br0', 'up']);
  for (const node of NODES) {
    const path = await namespaces.add(`node${node}`);
    paths.set(node, path);
    await inside(wire)('ip', ['link', 'add', `up${node}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', path]);
    await inside(wire)('ip', ['link', 'set', `up${node}`, 'master', 'br0', 'up']);
    const run = runIn(node);
    await run('ip', ['address', 'add', `192.0.2.${node}/24`, 'dev', 'eth0']);
    await run('ip', ['address', 'add', `fd00:2::${node}/64`, 'dev', 'eth0', 'nodad']);
    await run('ip', ['link', 'set', 'eth0', 'up']);
    await run('ip', ['address', 'add', `fd00:66:${node}::9/128`, 'dev', 'lo']);
    await run('ip', ['address', 'add', `10.66.${node}.9/32`, 'dev', 'lo']);
    servers.push(await listen(path));
  }
});
afterAll(async () => {
  for (const server of servers) {
    server.kill();
    await once(server, 'close');
  }
  await namespaces.dispose();
});
beforeEach(() => {
  running = [];
});
afterEach(async () => {
  for (const routing of running) await routing.stop();
  for (const node of NODES) {
    await removeRoutes(runIn(node));
    expect(await kernelRoutes(node)).toEqual([]);
  }
});

describe('forwarding', () => {
  it('is of IPv6, too, where the node has pods of it', async () => {
    const asked = new Set<number>();
    const forward = async (family: number) => {
      asked.add(family);
      return false;
    };
    const one = agent(1, { refreshMs: 20, forward });
    one.put(row(1), dual(2));
    one.complete();
    one.routing.start();
    await eventually(() => one.routing.status().wanted === 2 && asked.size > 0);
    expect([...asked]).toEqual([4]);
    one.put(dual(1));
    await eventually(() => asked.has(6));
  });

  it.each(['direct', 'none'] as const)(
    'that somebody turned off is turned on at the next look, and said: %s',
    async (mode) => {
      let looks = 0;
      // At a start it may well be off: that is nobody's doing.
      let answer: () => Promise<boolean> = async () => {
        looks += 1;
        return looks === 1;
      };
      const { routing, complete, log } = agent(1, { mode, refreshMs: 20, forward: () => answer() });
      routing.start();
      complete();
      await answers(
        async () => looks,
        (count) => count > 1,
      );
      expect(log.lines).toEqual([]);
      answer = () => {
        answer = async () => false;
        return Promise.resolve(true);
      };
      await answers(
        async () => log.lines.length,
        (lines) => lines > 0,
      );
      expect(log.lines).toEqual([
        {
          level: 'warn',
          message: 'somebody turned IPv4 forwarding off; it is on again',
          fields: { sysctl: 'net.ipv4.ip_forward' },
        },
      ]);
      expect(routing.status().ok).toBe(true);
      answer = () => Promise.reject(new Error('read-only'));
      const blocked = await answers(
        async () => routing.status(),
        ({ ok }) => !ok,
      );
      expect(blocked.message).toContain('no pod reaches another by IPv4: read-only; ');
      answer = async () => true;
      expect(
        (
          await answers(
            async () => routing.status(),
            ({ ok }) => ok,
          )
        ).ok,
      ).toBe(true);
    },
  );
});

async function listen(netns: string): Promise<ChildProcess> {
  const script = `require('net').createServer((s)=>s.end('x')).listen(8080,()=>console.log('up'))`;
  const child = spawn('nsenter', [`--net=${netns}`, process.execPath, '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  return child;
}

/** Rejects when the address on another node's loopback cannot be reached from the node's own one. */
async function connect(from: Number3, to: Number3, pod: (node: number) => string): Promise<void> {
  const script = `const s=require('net').connect({port:8080,host:'${pod(to)}',localAddress:'${pod(from)}'},()=>s.end());s.setTimeout(60000,()=>process.exit(1));s.on('error',()=>process.exit(1));s.resume()`;
  await runIn(from)(process.execPath, ['-e', script]);
}

async function kernelRoutes(node: Number3): Promise<readonly string[]> {
  const routes = await new KernelRoutes(runIn(node)).list();
  return routes.map(({ prefix, gateway }) => `${prefix} via ${gateway}`).sort();
}

/** Resolves when it holds; the test's own time limit is the only one. */
async function eventually(holds: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 20));
}
async function routesAre(node: Number3, wanted: readonly string[]): Promise<void> {
  await eventually(async () => JSON.stringify(await kernelRoutes(node)) === JSON.stringify(wanted));
}

describe('NodeRouting', () => {
  it('connects the pods of every node with those of every other', async () => {
    for (const node of NODES) {
      const { routing, put, complete } = agent(node);
      put(...NODES.map((other) => dual(other)));
      complete();
      routing.start();
    }
    const to = (...nodes: number[]) => [
      ...nodes.map((node) => `10.66.${node}.0/24 via 192.0.2.${node}`),
      ...nodes.map((node) => `fd00:66:${node}::/64 via fd00:2::${node}`),
    ];
    await routesAre(1, to(2, 3));
    await routesAre(2, to(1, 3));
    await routesAre(3, to(1, 2));
    for (const from of NODES)
      for (const other of NODES)
        for (const pod of [(node: number) => `10.66.${node}.9`, (node: number) => `fd00:66:${node}::9`])
          if (from !== other) await connect(from, other, pod);
    expect(running[0]?.status()).toEqual({ ok: true, message: '4 routes to other nodes', wanted: 4, failing: [] });
  });

  it('follows nodes that join, move and leave', async () => {
    const { routing, put, drop, complete } = agent(1);
    put(row(1));
    complete();
    routing.start();
    put(row(2));
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.2']);
    put(row(2, { addresses: ['2001:db8::2', '192.0.2.3'] }));
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.3']);
    put(row(2, { podCidrs: ['10.66.7.0/24'] }));
    await routesAre(1, ['10.66.7.0/24 via 192.0.2.2']);
    drop('node-2');
    await routesAre(1, []);
    put(dual(2));
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.2', 'fd00:66:2::/64 via fd00:2::2']);
    put(row(2, { addresses: ['fd00:2::3'], podCidrs: ['fd00:66:2::/64'] }));
    await routesAre(1, ['fd00:66:2::/64 via fd00:2::3']);
    drop('node-2');
    await routesAre(1, []);
  });

  it('prunes its own routes once the nodes are complete, and nobody else’s ever', async () => {
    const run = runIn(1);
    const own = ['proto', String(ROUTE_PROTOCOL), 'metric', String(ROUTE_METRIC)];
    await run('ip', ['route', 'add', '10.66.200.0/24', 'via', '192.0.2.3', ...own]);
    await run('ip', ['route', 'add', '10.66.201.0/24', 'via', '192.0.2.3']);
    await run('ip', ['route', 'add', '10.66.2.0/24', 'via', '192.0.2.3']);
    try {
      const { routing, put, complete } = agent(1);
      put(row(2));
      routing.start();
      await routesAre(1, ['10.66.2.0/24 via 192.0.2.2', '10.66.200.0/24 via 192.0.2.3']);
      complete();
      await routesAre(1, ['10.66.2.0/24 via 192.0.2.2']);
      await routing.stop();
      expect(await kernelRoutes(1)).toEqual(['10.66.2.0/24 via 192.0.2.2']);
      expect(await removeRoutes(runIn(1))).toEqual(['route 10.66.2.0/24 via 192.0.2.2']);
    } finally {
      const left = await run('ip', ['route', 'show', 'root', '10.66.0.0/16']);
      await run('ip', ['route', 'flush', 'root', '10.66.0.0/16', 'proto', 'boot']);
      expect(
        left
          .trim()
          .split('\n')
          .map((line) => line.trim())
          .sort(),
      ).toEqual(['10.66.2.0/24 via 192.0.2.3 dev eth0', '10.66.201.0/24 via 192.0.2.3 dev eth0']);
    }
  });

  it('puts back what somebody took away', async () => {
    const { routing, put, complete } = agent(1, { refreshMs: 100 });
    put(row(2));
    complete();
    routing.start();
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.2']);
    await runIn(1)('ip', ['route', 'flush', 'proto', String(ROUTE_PROTOCOL)]);
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.2']);
  });

  it('names the node that is on no network of ours, and routes the others', async () => {
    const { routing, put, drop, complete, log } = agent(1, { refreshMs: 100 });
    put(
      row(2),
      row(3, { addresses: ['198.51.100.7'] }),
      row(4, { addresses: ['2001:db8::4'] }),
      row(5, { podCidrs: ['fd00:66:5::/64'] }),
    );
    complete();
    routing.start();
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.2']);
    await eventually(() => routing.status().failing.length === 3);
    const { ok, message, wanted } = routing.status();
    expect({ ok, wanted }).toEqual({ ok: false, wanted: 4 });
    expect(message).toContain(
      'no route to the pods of node node-3 (10.66.3.0/24): its address 198.51.100.7 is not on a network',
    );
    expect(message).toContain('--routing none');
    expect(message).toContain('node node-4 (10.66.4.0/24): the node has no IPv4 address');
    expect(message).toContain('node node-5 (fd00:66:5::/64): the node has no IPv6 address');
    expect(log.lines.filter((line) => line.level === 'error')).toHaveLength(3);
    put(row(3), row(4, { addresses: ['192.0.2.4'] }));
    drop('node-5');
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.2', '10.66.3.0/24 via 192.0.2.3', '10.66.4.0/24 via 192.0.2.4']);
    await eventually(() => routing.status().ok);
  });

  it('takes the routes of an earlier run away when the network is to route', async () => {
    const direct = agent(1);
    direct.put(row(2));
    direct.complete();
    direct.routing.start();
    await routesAre(1, ['10.66.2.0/24 via 192.0.2.2']);
    await direct.routing.stop();
    const none = agent(1, { mode: 'none' });
    none.put(row(2));
    none.routing.start();
    await routesAre(1, []);
    expect(none.routing.status()).toMatchObject({ ok: true, wanted: 0 });
  });
});

describe('KernelRoutes', () => {
  it('fails as a whole when ip itself does', async () => {
    const broken = new KernelRoutes((command, _args, input) =>
      Promise.reject(new CommandError(command, input ?? '', 'Option "-force" is unknown')),
    );
    await expect(broken.list()).rejects.toThrow('is unknown');
    await expect(broken.replace([{ prefix: '10.66.2.0/24', node: 'n', gateway: '192.0.2.2' }])).rejects.toThrow(
      'is unknown',
    );
  });
});
