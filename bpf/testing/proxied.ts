/**
 * A node with two pods, and a server outside: four network namespaces, with the programs at the pods' interfaces and the routing by which packets are delivered
 * to a proxy. `from`, `to` and marks are those of real packets; who speaks are actors.
 */
import { execFileSync, spawn } from 'node:child_process';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';

import { ENDPOINT_FLAGS, MARK_FROM_PROXY, SETTING_PROXY_PORT } from '../constants.ts';
import { settingsKey, settingsValue } from '../layout.ts';
import { PROGRAMS, STAGES } from '../maps.ts';
import { Actor, type ActorSocket, type Place } from './actor.ts';
import { type EndpointFields, TestDatapath } from './datapath.ts';
import { checksum, concat, ETHERTYPE, ethernet, ip6, ipBytes, ipv4, ipv6, tcp } from './packets.ts';
import { Peer, RAW_SENDER } from './veth.ts';

export const PROXY_PORT = 10_053;
/** Of the proxied port, by the server's class. */
export const LISTENER = 3;
export const SERVER_IDENTITY = 300;
export const LOOPBACK = { 4: '127.0.0.1', 6: '::1' } as const;
export const SERVERS = { 4: '10.77.9.2', 6: 'fd77:9::2' } as const;
export const NODES = { 4: '10.77.9.1', 6: 'fd77:9::1' } as const;
export const PODS = { a: { 4: '10.77.1.2', 6: 'fd77:1::2' }, b: { 4: '10.77.2.2', 6: 'fd77:2::2' } } as const;
const IDS = { a: 7, b: 8 } as const;
const DEVICES = { a: '1', b: '2', server: '9' } as const;

type Pod = keyof typeof PODS;
type Host = Pod | 'server' | 'node';

function ip(...args: string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe' });
}

function stageFd(fd: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(fd).buffer);
}

export class ProxiedWorld {
  readonly path = new TestDatapath({ ctEntries: 4096 });
  readonly #name: string;
  readonly #links: TcLink[] = [];
  readonly #actors = new Map<string, Actor>();
  #raw: Peer | undefined;
  #revision = 0;

  constructor(name: string) {
    this.#name = `wt${process.pid}-${name}`;
    const node = this.netns('node');
    for (const host of ['a', 'b', 'server', 'node'] as const) {
      ip('netns', 'add', this.netns(host));
      ip('-n', this.netns(host), 'link', 'set', 'lo', 'up');
    }
    for (const [host, net] of Object.entries(DEVICES) as [keyof typeof DEVICES, string][]) {
      ip('-n', node, 'link', 'add', `to-${host}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', this.netns(host));
      for (const [inside, device, last] of [
        [node, `to-${host}`, '1'],
        [this.netns(host), 'eth0', '2'],
      ] as const) {
        ip('-n', inside, 'address', 'add', `10.77.${net}.${last}/24`, 'dev', device);
        ip('-n', inside, 'address', 'add', `fd77:${net}::${last}/64`, 'dev', device, 'nodad');
        ip('-n', inside, 'link', 'set', device, 'up');
      }
      ip('-n', this.netns(host), 'route', 'add', 'default', 'via', `10.77.${net}.1`);
      ip('-n', this.netns(host), '-6', 'route', 'add', 'default', 'via', `fd77:${net}::1`);
    }
    this.set('net.ipv4.ip_forward', 1);
    this.set('net.ipv6.conf.all.forwarding', 1);
    this.#attach();
    for (const family of [4, 6] as const) this.path.identity(SERVERS[family], SERVER_IDENTITY);
    this.path.map('settings').update(settingsKey.encode(SETTING_PROXY_PORT), settingsValue.encode(PROXY_PORT));
  }

  netns(host: Host): string {
    return `${this.#name}-${host}`;
  }

  /** A setting of the node's kernel. */
  set(name: string, value: number): void {
    execFileSync('ip', ['netns', 'exec', this.netns('node'), 'sysctl', '-qw', `${name}=${value}`]);
  }

  device(
    host: keyof typeof DEVICES,
    of: 'node' | 'own' = 'node',
  ): { readonly ifindex: number; readonly address: string } {
    const [namespace, name] = of === 'node' ? [this.netns('node'), `to-${host}`] : [this.netns(host), 'eth0'];
    const [link] = JSON.parse(ip('-n', namespace, '-j', 'link', 'show', 'dev', name)) as [
      { ifindex: number; address: string },
    ];
    return link;
  }

  #attach(): void {
    const { path } = this;
    const { object } = path;
    for (const [stage, program] of [
      ['judge-sent', PROGRAMS.judgeSent],
      ['to-proxy', PROGRAMS.toProxy],
      ['answer-to-proxy', PROGRAMS.answerToProxy],
    ] as const)
      path.map('stages').update(stageFd(STAGES[stage]), stageFd(object.program(program).fd));
    inNetns(`/run/netns/${this.netns('node')}`, () => {
      for (const pod of ['a', 'b'] as const) {
        const { ifindex } = this.device(pod);
        this.#links.push(attachTc(object.program(PROGRAMS.fromPod), { ifindex, direction: 'ingress' }));
        this.#links.push(attachTc(object.program(PROGRAMS.toPod), { ifindex, direction: 'egress' }));
      }
    });
  }

  /** Judges pods by the slot from now on. Default flags: what they send. */
  judgeBy(slot: number, fields: EndpointFields = {}): void {
    this.#revision += 1;
    for (const pod of ['a', 'b'] as const)
      this.path.endpoint({
        ...{ ifindex: this.device(pod).ifindex, ipv4: PODS[pod][4], ipv6: PODS[pod][6], id: IDS[pod] },
        ...{ flags: ENDPOINT_FLAGS.egressEnforced, slot, revision: this.#revision },
        ...fields,
      });
  }

  /** Who speaks on a host, by a name of its own: two of one host are two processes. */
  actor(host: Host, name = ''): Actor {
    const key = `${host} ${name}`;
    const known = this.#actors.get(key) ?? new Actor(this.netns(host));
    this.#actors.set(key, known);
    return known;
  }

  /** Sends a pod's SYN from the port, without its kernel's knowledge. */
  async syn(from: Pod, [to, dport]: Place, sport: number): Promise<void> {
    this.#raw ??= new Peer(
      spawn('ip', ['netns', 'exec', this.netns(from), process.execPath, '--input-type=module', '-e', RAW_SENDER], {
        stdio: ['pipe', 'pipe', 'inherit'],
      }),
    );
    const [src, dst] = [PODS[from][to.includes(':') ? 6 : 4], to];
    const payload = tcp({ sport, dport });
    const pseudo = concat(ipBytes(src), ipBytes(dst), Uint8Array.of(0, 6, 0, payload.length));
    new DataView(payload.buffer).setUint16(16, checksum(concat(pseudo, payload)));
    const packet = to.includes(':')
      ? ethernet(ipv6({ src: ip6(src), dst: ip6(dst), nextHeader: 6, payload }), ETHERTYPE.ipv6)
      : ethernet(ipv4({ src, dst, protocol: 6, payload }));
    packet.set(
      this.device(from)
        .address.split(':')
        .map((byte) => Number.parseInt(byte, 16)),
    );
    await this.#raw.ask(`${this.device(from, 'own').ifindex} ${Buffer.from(packet).toString('hex')}`);
  }

  /** Whether a pod's kernel may answer the server. */
  mute(pod: Pod, muted: boolean): void {
    for (const [family, server] of Object.entries(SERVERS))
      ip('-n', this.netns(pod), `-${family}`, 'route', muted ? 'add' : 'delete', 'blackhole', server);
  }

  /** The proxy's listener. */
  async listener(family: 4 | 6, type: 'udp' | 'tcp'): Promise<ActorSocket> {
    return await this.actor('node', 'proxy').open({
      ...{ type, family, transparent: true, mark: MARK_FROM_PROXY, bind: [LOOPBACK[family], PROXY_PORT] },
      ...(type === 'tcp' ? { listen: true as const } : {}),
    });
  }

  /** What the proxy speaks by, as somebody else. */
  async as(source: Place, destination: Place, type: 'udp' | 'tcp'): Promise<ActorSocket> {
    const family = source[0].includes(':') ? 6 : 4;
    return await this.actor('node', 'proxy').open({
      ...{ type, family, transparent: true, mark: MARK_FROM_PROXY, bind: source, connect: destination },
    });
  }

  async stop(): Promise<void> {
    for (const actor of this.#actors.values()) await actor.stop();
    await this.#raw?.stop();
    for (const link of this.#links) link.close();
    for (const host of ['a', 'b', 'server', 'node'] as const) ip('netns', 'delete', this.netns(host));
    this.path.close();
  }
}

/** As the agent sets them (node-agent/dns/delivery.ts). */
export function deliver(world: ProxiedWorld): void {
  for (const family of ['-4', '-6']) {
    ip('-n', world.netns('node'), family, 'rule', 'add', 'fwmark', '0x200/0xe00', 'lookup', '2005', 'pref', '9');
    ip('-n', world.netns('node'), family, 'route', 'add', 'local', 'default', 'dev', 'lo', 'table', '2005');
  }
  world.set('net.ipv4.conf.lo.accept_local', 1);
  world.set('net.ipv4.conf.lo.src_valid_mark', 1);
  world.set('net.ipv4.ip_early_demux', 0);
}
