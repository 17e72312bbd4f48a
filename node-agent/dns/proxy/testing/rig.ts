/**
 * A pod, a node with the proxy, and a resolver: three network namespaces with real packets. Rules of routing take the place of the datapath: what the pod sends
 * to port 53, and what comes back from there, is delivered on the node. Maps are real ones, which the test fills as the kernel would.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { CT_KEYS, ctValue, DIRECTION, nameKey, nameValue, PROTOCOL } from '@weir/bpf';
import { parseAddress } from '@weir/net';
import { type BpfMap, createMap } from 'libbpf-ts';
import type { FromProxy, Oddity, ToProxy } from '../../protocol.ts';
import { POD, RESOLVER } from './talk.ts';

export const POD_ADDRESSES = { 4: '10.9.1.2', 6: 'fd09:1::2' } as const;
export const RESOLVER_ADDRESSES = { 4: '10.9.2.2', 6: 'fd09:2::2' } as const;
const MAIN = join(import.meta.dirname, '../main.ts');

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: 'pipe' });
}

export interface Came {
  readonly hex: string;
  readonly identity: number;
}

/** A child that answers lines of JSON. */
class Talker {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(netns: string, module: string, args: readonly string[]) {
    const node = [process.execPath, '--input-type=module', '-e', module, ...args];
    this.child = spawn('nsenter', [`--net=/run/netns/${netns}`, ...node], { stdio: ['pipe', 'pipe', 'inherit'] });
    if (this.child.stdout === null) throw new Error('the child has no output');
    this.#lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }

  async line(): Promise<unknown> {
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error('the child ended');
    return JSON.parse(value) as unknown;
  }

  async ask(order: object): Promise<unknown> {
    this.child.stdin?.write(`${JSON.stringify(order)}\n`);
    return await this.line();
  }
}

/** The agent, as far as the proxy sees it. */
export class Agent {
  readonly heard: FromProxy[] = [];
  readonly #socket: Socket;
  readonly #waiting = new Set<() => void>();
  #isClosed = false;

  private constructor(socket: Socket, answer: (message: FromProxy, agent: Agent) => void) {
    this.#socket = socket;
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#isClosed = true;
      for (const wake of this.#waiting) wake();
    });
    createInterface({ input: socket }).on('line', (line) => {
      const message = JSON.parse(line) as FromProxy;
      this.heard.push(message);
      answer(message, this);
      for (const wake of this.#waiting) wake();
    });
  }

  static async connect(path: string, answer: (message: FromProxy, agent: Agent) => void = () => {}): Promise<Agent> {
    const socket = connect(path);
    await once(socket, 'connect');
    return new Agent(socket, answer);
  }

  say(...messages: readonly ToProxy[]): void {
    this.#socket.write(messages.map((message) => `${JSON.stringify(message)}\n`).join(''));
  }

  /** How often this has been told: what happens together may be told in parts. */
  oddities(kind: Oddity): number {
    return this.heard.reduce(
      (sum, message) => sum + (message.type === 'oddity' && message.oddity === kind ? message.count : 0),
      0,
    );
  }

  /** The first message of which `is` holds, once there is one. @throws when none can come any more */
  async hear(is: (message: FromProxy) => boolean): Promise<FromProxy> {
    for (;;) {
      const found = this.heard.find(is);
      if (found !== undefined) return found;
      if (this.#isClosed) throw new Error('the proxy has ended the connection of the agent');
      await new Promise<void>((resolve) => {
        const wake = (): void => {
          this.#waiting.delete(wake);
          resolve();
        };
        this.#waiting.add(wake);
      });
    }
  }

  close(): void {
    this.#socket.destroy();
  }
}

export interface RigOptions {
  /** Of the proxy's node, and of its environment. */
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

export class Rig {
  readonly folder = mkdtempSync(join(tmpdir(), 'weir-dns-'));
  readonly socket = join(this.folder, 'proxy.sock');
  readonly state = join(this.folder, 'state');
  readonly bpf: string;
  readonly maps: Readonly<Record<'ct4' | 'ct6' | 'names', BpfMap>>;
  readonly #name: string;
  readonly #options: RigOptions;
  #proxy: ChildProcess | undefined;
  #pod: Talker | undefined;
  #resolver: Talker | undefined;
  #port = 20_000;
  #flags: readonly string[] = [];

  constructor(name: string, options: RigOptions = {}) {
    this.#name = `wt${process.pid}-${name}`;
    this.#options = options;
    this.bpf = `/sys/fs/bpf/${this.#name}`;
    mkdirSync(this.bpf);
    const map = (mapName: string, keySize: number, valueSize: number): BpfMap => {
      const made = createMap({ name: mapName, type: 'hash', keySize, valueSize, maxEntries: 1 << 17 });
      made.pin(join(this.bpf, mapName));
      return made;
    };
    this.maps = { ct4: map('ct4', 16, 48), ct6: map('ct6', 40, 48), names: map('names', nameKey.size, nameValue.size) };
    const [pod, node, server] = [this.netns('pod'), this.netns('node'), this.netns('server')];
    for (const each of [pod, node, server]) {
      ip('netns', 'add', each);
      ip('-n', each, 'link', 'set', 'lo', 'up');
    }
    for (const [peer, device, net] of [
      [pod, 'topod', '1'],
      [server, 'toserver', '2'],
    ] as const) {
      ip('-n', node, 'link', 'add', device, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', peer);
      for (const [inside, name, host] of [
        [node, device, '1'],
        [peer, 'eth0', '2'],
      ] as const) {
        ip('-n', inside, 'address', 'add', `10.9.${net}.${host}/24`, 'dev', name);
        ip('-n', inside, 'address', 'add', `fd09:${net}::${host}/64`, 'dev', name, 'nodad');
        ip('-n', inside, 'link', 'set', name, 'up');
      }
      ip('-n', peer, 'route', 'add', 'default', 'via', `10.9.${net}.1`);
      ip('-n', peer, '-6', 'route', 'add', 'default', 'via', `fd09:${net}::1`);
    }
    for (const setting of ['net.ipv4.ip_forward', 'net.ipv6.conf.all.forwarding'])
      execFileSync('nsenter', [`--net=/run/netns/${node}`, 'sysctl', '-qw', `${setting}=1`]);
    for (const family of ['-4', '-6']) {
      for (const protocol of ['udp', 'tcp']) {
        ip('-n', node, family, 'rule', 'add', 'iif', 'topod', 'ipproto', protocol, 'dport', '53', 'lookup', '100');
        ip('-n', node, family, 'rule', 'add', 'iif', 'toserver', 'ipproto', protocol, 'sport', '53', 'lookup', '100');
      }
      ip('-n', node, family, 'route', 'add', 'local', 'default', 'dev', 'lo', 'table', '100');
    }
  }

  netns(what: 'pod' | 'node' | 'server'): string {
    return `${this.#name}-${what}`;
  }

  get pod(): Talker {
    if (this.#pod === undefined) throw new Error('start first');
    return this.#pod;
  }

  get resolver(): Talker {
    if (this.#resolver === undefined) throw new Error('start first');
    return this.#resolver;
  }

  /** @param flags of the proxy, whenever it starts */
  async start(...flags: readonly string[]): Promise<void> {
    this.#flags = flags;
    this.#pod = new Talker(this.netns('pod'), POD, [join(this.bpf, 'names')]);
    this.#resolver = new Talker(this.netns('server'), RESOLVER, Object.values(RESOLVER_ADDRESSES));
    await Promise.all([this.#pod.line(), this.#resolver.line()]);
    await this.startProxy();
  }

  /** Resolves when it is ready. */
  async startProxy(...more: readonly string[]): Promise<void> {
    const args = ['--bind', '0.0.0.0,::', '--port', '53', '--socket', this.socket, '--bpf-root', this.bpf];
    args.push('--state-dir', this.state, ...this.#flags, ...more);
    const { flags = [], env = {} } = this.#options;
    const node = [process.execPath, ...flags, MAIN];
    const proxy = spawn('nsenter', [`--net=/run/netns/${this.netns('node')}`, ...node, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    this.#proxy = proxy;
    if (proxy.stdout === null) throw new Error('the proxy has no output');
    for await (const line of createInterface({ input: proxy.stdout })) {
      if (line.includes('"level":50')) process.stderr.write(`${line}\n`);
      if (line.includes('the DNS proxy is ready')) {
        proxy.stdout.resume();
        return;
      }
    }
    throw new Error('the proxy ended before it was ready');
  }

  get proxyPid(): number {
    const pid = this.#proxy?.pid;
    if (pid === undefined) throw new Error('start first');
    return pid;
  }

  /** @returns its exit code; null after SIGKILL */
  async endProxy(signal: NodeJS.Signals): Promise<number | null> {
    const proxy = this.#proxy;
    if (proxy === undefined || proxy.exitCode !== null || proxy.signalCode !== null) return null;
    const ended = once(proxy, 'exit');
    proxy.kill(signal);
    await ended;
    return proxy.exitCode;
  }

  /** What the kernel does with the first packet of a flow that a rule redirects. Returns the pod's port. */
  redirect(endpoint: number, listener: number, protocol: 'udp' | 'tcp' = 'udp', family: 4 | 6 = 4): number {
    this.#port += 1;
    this.#decide(this.#port, endpoint, listener, protocol, family);
    return this.#port;
  }

  /** What it does with the next packet of a flow of UDP when no rule redirects it any more. */
  restrict(endpoint: number, port: number): void {
    this.#decide(port, endpoint, 0, 'udp', 4);
  }

  #decide(port: number, endpoint: number, listener: number, protocol: 'udp' | 'tcp', family: 4 | 6): void {
    const name = family === 4 ? 'ct4' : 'ct6';
    const key = CT_KEYS[name].encode({
      src: parseAddress(POD_ADDRESSES[family]).bytes,
      dst: parseAddress(RESOLVER_ADDRESSES[family]).bytes,
      sport: port,
      dport: 53,
      endpoint,
      protocol: PROTOCOL[protocol],
      direction: DIRECTION.egress,
    });
    const nothing = {
      revision: 1,
      denied: false,
      local: false,
      proxied: listener !== 0,
      tag: 0,
      lastSeen: 0,
      stamp: 0,
      cookie: 0,
    };
    const value = { ...nothing, flags: listener * 2 ** 16, packets: 1n, bytes: 60n, acked: 0, peer: 0 };
    this.maps[name].update(key, ctValue.encode(value));
  }

  /** `redirect` gives the same ports once more. */
  restartPorts(): void {
    this.#port = 20_000;
  }

  /**
   * Asks from the pod. @param row an address of which the identity in the kernel is wanted at the instant of the answer
   * @param waitMs milliseconds until what has not come counts as lost, from when all is sent and `least` answers have come
   */
  async ask(
    messages: readonly Uint8Array[],
    port: number,
    options: {
      readonly protocol?: 'udp' | 'tcp';
      readonly family?: 4 | 6;
      readonly waitMs?: number;
      readonly least?: number;
      readonly row?: string;
      readonly half?: boolean;
    } = {},
  ): Promise<readonly Came[]> {
    const { protocol = 'udp', family = 4, waitMs, least, row, half } = options;
    return (await this.pod.ask({
      [protocol]: messages.map((message) => Buffer.from(message).toString('hex')),
      from: POD_ADDRESSES[family],
      to: RESOLVER_ADDRESSES[family],
      port,
      waitMs,
      least,
      half,
      row: row === undefined ? undefined : nameKeyHex(row),
    })) as readonly Came[];
  }

  /** Sockets of the proxy that have the pod's address and this port. */
  socketsOf(port: number): number {
    const filter = ['src', `${POD_ADDRESSES[4]}:${port}`];
    const text = execFileSync('nsenter', [`--net=/run/netns/${this.netns('node')}`, 'ss', '-Huan', ...filter]);
    return text.toString().split('\n').filter(Boolean).length;
  }

  /** What the kernel has. */
  rows(): Readonly<Record<string, number>> {
    return Object.fromEntries(
      Array.from(this.maps.names.entries(), ([key, value]) => [
        Buffer.from(key).toString('hex'),
        Buffer.from(value).readUInt32LE(),
      ]),
    );
  }

  async stop(): Promise<void> {
    await this.endProxy('SIGKILL');
    for (const each of [this.#pod?.child, this.#resolver?.child]) {
      if (each === undefined || each.exitCode !== null || each.signalCode !== null) continue;
      const ended = once(each, 'exit');
      each.kill('SIGKILL');
      await ended;
    }
    for (const map of Object.values(this.maps)) map.close();
    rmSync(this.bpf, { recursive: true });
    rmSync(this.folder, { recursive: true });
    for (const what of ['pod', 'node', 'server'] as const) ip('netns', 'delete', this.netns(what));
  }
}

export function nameKeyHex(address: string): string {
  return Buffer.from(nameKey.encode(parseAddress(address).bytes)).toString('hex');
}
