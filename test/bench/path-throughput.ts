/**
 * UDP across two veth pairs through a routing namespace, packets per CPU second of the sender, with and without the datapath in the
 * same run and by turns, so that the machine's drift falls on both. Fails where the datapath does not let the packets through at both ends, as flows.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildDatapath, ENDPOINT_FLAGS, FIRST_CLASS, ipcacheKey, ipcacheValue, PROGRAMS } from '@weir/bpf';
import { TestDatapath } from '@weir/bpf/testing/datapath.ts';
import { ip4 } from '@weir/bpf/testing/packets.ts';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';
import { netnsPath } from '../cluster/fabric.ts';
import { ipBatch, ROOT, run } from '../cluster/run.ts';
import { connections } from './path-packets.ts';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const ROUNDS = 7;
const SECONDS = 0.5;
const A = '10.0.1.2';
const B = '10.0.2.2';

interface Ends {
  readonly router: string;
  readonly a: string;
  readonly b: string;
  readonly all: readonly string[];
}

async function wire(): Promise<Ends> {
  const id = `wt${process.pid}-bench`;
  const ends = { router: `${id}-r`, a: `${id}-a`, b: `${id}-b`, all: [`${id}-r`, `${id}-a`, `${id}-b`] };
  await ipBatch(ends.all.map((name) => `netns add ${name}`));
  await ipBatch([
    `link add va netns ${ends.router} type veth peer name eth0 netns ${ends.a}`,
    `link add vb netns ${ends.router} type veth peer name eth0 netns ${ends.b}`,
  ]);
  await ipBatch(
    [
      'link set lo up',
      'addr add 10.0.1.1/24 dev va',
      'addr add 10.0.2.1/24 dev vb',
      'link set va up',
      'link set vb up',
    ],
    netnsPath(ends.router),
  );
  await run('nsenter', [`--net=${netnsPath(ends.router)}`, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward']);
  for (const [name, address, gateway] of [
    [ends.a, A, '10.0.1.1'],
    [ends.b, B, '10.0.2.1'],
  ] as const) {
    await ipBatch(
      ['link set lo up', `addr add ${address}/24 dev eth0`, 'link set eth0 up', `route add default via ${gateway}`],
      netnsPath(name),
    );
  }
  return ends;
}

async function ifindexes(netns: string): Promise<Readonly<Record<string, number>>> {
  const { stdout } = await run('nsenter', [`--net=${netnsPath(netns)}`, 'ip', '-j', 'link']);
  return Object.fromEntries(
    (JSON.parse(stdout) as { readonly ifname: string; readonly ifindex: number }[]).map(({ ifname, ifindex }) => [
      ifname,
      ifindex,
    ]),
  );
}

/** Both ends enforced: A's egress and B's ingress, one peer each, all UDP ports allowed. */
async function enforce(ends: Ends, datapath: TestDatapath): Promise<readonly TcLink[]> {
  const index = await ifindexes(ends.router);
  const sides = [
    { dev: index.va ?? 0, address: A, id: 1, identity: 1001 },
    { dev: index.vb ?? 0, address: B, id: 2, identity: 1002 },
  ];
  for (const { address, identity } of sides)
    datapath
      .map('ipcache')
      .update(ipcacheKey.encode({ address: ip4(address), bits: 32 }), ipcacheValue.encode({ identity, bits: 32 }));
  const both = ['ingress', 'egress'] as const;
  datapath.slot(
    1,
    both.flatMap((direction) => sides.map(({ identity }) => ({ identity, direction, class: FIRST_CLASS }))),
    both.map((direction) => ({ class: FIRST_CLASS, direction, protocol: 'udp', verdict: 'allow', cookie: 1 })),
  );
  const links: TcLink[] = [];
  for (const { dev, address, id, identity } of sides) {
    const flags = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
    datapath.endpoint({ ifindex: dev, slot: 1, flags, ipv4: address, identity, id });
    inNetns(netnsPath(ends.router), () => {
      links.push(attachTc(datapath.object.program(PROGRAMS.fromPod), { ifindex: dev, direction: 'ingress' }));
      links.push(attachTc(datapath.object.program(PROGRAMS.toPod), { ifindex: dev, direction: 'egress' }));
    });
  }
  return links;
}

async function flood(flooder: string, ends: Ends, ports: number): Promise<Flood> {
  const { stdout } = await run('nsenter', [
    `--net=${netnsPath(ends.a)}`,
    flooder,
    B,
    '1024',
    String(SECONDS),
    String(ports),
  ]);
  const { packets, cpu_seconds } = JSON.parse(stdout) as { readonly packets: number; readonly cpu_seconds: number };
  return { packets, rate: packets / cpu_seconds };
}

interface Flood {
  readonly packets: number;
  /** Packets per second of the sender's CPU time. */
  readonly rate: number;
}

/** Both ends know each flow, and each packet of it. The network between them may lose one in a hundred. */
function check(datapath: TestDatapath, { packets }: Flood, ports: number): void {
  const expected = { flows: 2 * Math.min(packets, ports), tracked: 2 * packets };
  const { flows, tracked } = connections(datapath);
  if (flows < 0.99 * expected.flows || tracked < 0.99 * expected.tracked)
    throw new Error(`${expected.flows} flows with ${expected.tracked} packets are ${flows} with ${tracked}`);
}

export const throughput: Suite = async function* () {
  buildDatapath();
  const folder = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const flooder = join(folder, 'flood');
  await run('gcc', ['-O2', '-o', flooder, join(ROOT, 'test/bench/flood.c')]);
  const ends = await wire();
  try {
    for (const [name, ports, goal] of [
      ['one flow', 1, 0.95],
      ['new flows', 60_000, 0.5],
    ] as const) {
      const ratios: number[] = [];
      const bare: number[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const without = await flood(flooder, ends, ports);
        using datapath = new TestDatapath({ ctEntries: 262_144 });
        const links = await enforce(ends, datapath);
        const enforced = await flood(flooder, ends, ports);
        for (const link of links) link.detach();
        check(datapath, enforced, ports);
        bare.push(without.rate);
        ratios.push(enforced.rate / without.rate);
      }
      yield { case: `veth UDP, ${name}, no filter`, value: quantile(bare, 0.5), unit: 'packets/CPU-s' };
      yield {
        case: `veth UDP, ${name}, Weir at both ends / no filter`,
        value: quantile(ratios, 0.5),
        unit: 'ratio',
        goal,
        kind: 'rate',
        peer: 1,
      };
    }
  } finally {
    for (const name of ends.all) await run('ip', ['netns', 'delete', name]);
    rmSync(folder, { recursive: true, force: true });
  }
};
