/** A "node" and a "pod": two network namespaces joined by a veth pair, with processes in them. Removed by dispose. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

export const NODE_ADDRESS = '10.77.0.1';
export const POD_ADDRESS = '10.77.0.2';

function ip(...args: string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe' });
}

export class VethPair {
  readonly node: string;
  readonly pod: string;
  /** Index of the pod's host-side device, in the node's namespace. */
  readonly ifindex: number;
  readonly #peers: Peer[] = [];

  constructor(name: string) {
    this.node = `wt${process.pid}-${name}-node`;
    this.pod = `wt${process.pid}-${name}-pod`;
    ip('netns', 'add', this.node);
    ip('netns', 'add', this.pod);
    ip('-n', this.node, 'link', 'add', 'host0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', this.pod);
    for (const [namespace, device, address] of [
      [this.node, 'host0', NODE_ADDRESS],
      [this.pod, 'eth0', POD_ADDRESS],
    ] as const) {
      ip('-n', namespace, 'address', 'add', `${address}/24`, 'dev', device);
      ip('-n', namespace, 'link', 'set', device, 'up');
      ip('-n', namespace, 'link', 'set', 'lo', 'up');
    }
    const links: unknown = JSON.parse(ip('-n', this.node, '-j', 'link', 'show', 'dev', 'host0'));
    const link: unknown = Array.isArray(links) ? links[0] : undefined;
    if (typeof link !== 'object' || link === null || !('ifindex' in link) || typeof link.ifindex !== 'number') {
      throw new Error('ip link printed no ifindex');
    }
    this.ifindex = link.ifindex;
  }

  get nodePath(): string {
    return `/run/netns/${this.node}`;
  }

  /** Runs a module's text in a namespace; it talks by lines. */
  start(namespace: string, module: string): Peer {
    const args = ['netns', 'exec', namespace, process.execPath, '--input-type=module', '-e', module];
    const peer = new Peer(spawn('ip', args, { stdio: ['pipe', 'pipe', 'inherit'] }));
    this.#peers.push(peer);
    return peer;
  }

  async stop(): Promise<void> {
    for (const peer of this.#peers) await peer.stop();
    ip('netns', 'delete', this.pod);
    ip('netns', 'delete', this.node);
  }
}

/** A child that answers each line with one line. */
export class Peer {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #input: NodeJS.WritableStream;

  constructor(child: ChildProcess) {
    if (child.stdout === null || child.stdin === null) throw new Error('the child has no pipes');
    this.#child = child;
    this.#input = child.stdin;
    const lines: Interface = createInterface({ input: child.stdout });
    this.#lines = lines[Symbol.asyncIterator]();
  }

  async line(): Promise<string> {
    const next = await this.#lines.next();
    if (next.done === true) throw new Error('the child ended');
    return next.value;
  }

  async ask(question: string): Promise<string> {
    this.#input.write(`${question}\n`);
    return await this.line();
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = once(this.#child, 'exit');
    this.#child.kill();
    await gone;
  }
}

/**
 * Sends frames as they are (AF_PACKET): a line names the interface's index and the frame in hex, and where the frame's checksum is left to
 * the kernel: the bytes into the frame from which on it is made, and how far behind that it is written. Answers "sent", or "refused" where
 * a program drops it on its way out.
 */
export const RAW_SENDER = `
import { createInterface } from 'node:readline';
import koffi from 'koffi';
const AF_PACKET = 17, SOCK_RAW = 3, SOL_PACKET = 263, PACKET_VNET_HDR = 15, NEEDS_CSUM = 1;
const libc = koffi.load('libc.so.6');
const openSocket = libc.func('int socket(int domain, int type, int protocol)');
const setOption = libc.func('int setsockopt(int fd, int level, int name, void *value, uint32_t length)');
const sendto = libc.func('long sendto(int fd, void *frame, size_t length, int flags, void *address, uint32_t addressLength)');
const plain = openSocket(AF_PACKET, SOCK_RAW, 0), offloading = openSocket(AF_PACKET, SOCK_RAW, 0);
if (setOption(offloading, SOL_PACKET, PACKET_VNET_HDR, Buffer.of(1, 0, 0, 0), 4) !== 0) throw new Error('no PACKET_VNET_HDR');
createInterface({ input: process.stdin }).on('line', (line) => {
  const [ifindex, hex, start, offset] = line.split(' ');
  const header = Buffer.alloc(start === undefined ? 0 : 10), address = Buffer.alloc(20);
  if (start !== undefined) {
    header[0] = NEEDS_CSUM;
    header.writeUInt16LE(Number(start), 6);
    header.writeUInt16LE(Number(offset), 8);
  }
  const frame = Buffer.concat([header, Buffer.from(hex, 'hex')]);
  address.writeUInt16LE(AF_PACKET);
  address.writeInt32LE(Number(ifindex), 4);
  const socket = start === undefined ? plain : offloading;
  console.log(sendto(socket, frame, frame.length, 0, address, address.length) === frame.length ? 'sent' : 'refused');
});
`;

/** Echoes UDP 7777 and TCP 7778. */
export const ECHO_SERVER = `
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
const udp = createSocket('udp4');
udp.on('message', (text, from) => udp.send(text, from.port, from.address));
udp.bind(7777, () => {
  const tcp = createServer((socket) => { socket.on('error', () => socket.destroy()); socket.pipe(socket); });
  tcp.listen(7778, () => console.log('ready'));
});
`;

/**
 * Answers: "stream N": sends N datagrams, one a millisecond, and says "sent"; "big N": the same with 4000 bytes, which is three fragments
 * each, and waits while more than 200 are not back: that many a socket’s buffer holds; "back?": how many of the last ones came back; "say TEXT": sends TEXT over one TCP connection and says "said"; "heard? TEXT": "heard"
 * once TEXT has come back, else "silence".
 */
export const ECHO_CLIENT = `
import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
const udp = createSocket('udp4');
const back = new Set();
udp.on('message', (text) => back.add(String(text)));
let serial = 0, tcp, heard = '';
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, rest] = line.split(' ');
  if (verb === 'stream' || verb === 'big') {
    back.clear();
    for (let at = 0; at < Number(rest); at++) {
      udp.send(String(serial++).padEnd(verb === 'big' ? 4000 : 0), 7777, '${NODE_ADDRESS}', () => {});
      do await sleep(1); while (at + 1 - back.size > 200);
    }
    console.log('sent');
  } else if (verb === 'back?') {
    console.log(back.size);
  } else if (verb === 'heard?') {
    console.log(heard.includes(rest) ? 'heard' : 'silence');
  } else {
    if (tcp === undefined) {
      tcp = connect(7778, '${NODE_ADDRESS}');
      tcp.setNoDelay(true);
      tcp.on('data', (text) => { heard += text; });
      tcp.on('error', () => {});
    }
    tcp.write(rest);
    console.log('said');
  }
}
`;

/**
 * TCP 7779 and UDP 7780: whoever has been heard is sent something every 5 ms, unasked. Answers any line with the numbers of
 * TCP bytes and of datagrams received.
 */
const CHATTER = `
import { createSocket } from 'node:dgram';
import { createServer, connect } from 'node:net';
import { createInterface } from 'node:readline';
let bytes = 0, datagrams = 0;
const chat = (socket) => {
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (data) => { bytes += data.length; });
  setInterval(() => { if (!socket.destroyed) socket.write('x'); }, 5);
};
const udp = createSocket('udp4');
udp.on('message', () => { datagrams += 1; });
const chatTo = (port, address) => setInterval(() => udp.send('x', port, address, () => {}), 5);
createInterface({ input: process.stdin }).on('line', () => console.log(bytes + ' ' + datagrams));
`;

export const CHATTER_IN_POD = `${CHATTER}
udp.once('message', (_, from) => chatTo(from.port, from.address));
udp.bind(7780, () => createServer(chat).listen(7779, () => console.log('ready')));
`;

export const CHATTER_IN_NODE = `${CHATTER}
chat(connect(7779, '${POD_ADDRESS}'));
chatTo(7780, '${POD_ADDRESS}');
`;

export { sleep };
