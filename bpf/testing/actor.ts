/** A process in a network namespace that makes socket calls on request: transparent sockets, marks, the destination that a datagram had. */
import { type ChildProcess, spawn } from 'node:child_process';

import { ipBytes } from './packets.ts';
import { Peer } from './veth.ts';

/** An address and a port. */
export type Place = readonly [address: string, port: number];

export interface SocketOptions {
  readonly type: 'udp' | 'tcp';
  readonly family: 4 | 6;
  /** IP_TRANSPARENT, and SO_REUSEADDR. */
  readonly transparent?: true;
  /** IP_FREEBIND, which needs no right, and SO_REUSEADDR. */
  readonly freebind?: true;
  readonly mark?: number;
  readonly bind?: Place;
  readonly connect?: Place;
  readonly listen?: true;
}

/** What a socket gives; `to`: of datagrams whom they were sent to, of connections whom they are with. */
export interface Got {
  readonly text?: string;
  readonly from?: string;
  readonly to?: string;
  readonly error?: number;
}

/** How `Got` writes it. */
export function placed([address, port]: Place): string {
  return `${Buffer.from(ipBytes(address)).toString('hex')}:${port}`;
}

const MODULE = `
import { createInterface } from 'node:readline';
import koffi from 'koffi';
const libc = koffi.load('libc.so.6');
const socket = libc.func('int socket(int, int, int)');
const setOption = libc.func('int setsockopt(int, int, int, void *, uint32_t)');
const bind = libc.func('int bind(int, void *, uint32_t)');
const connect = libc.func('int connect(int, void *, uint32_t)');
const listen = libc.func('int listen(int, int)');
const accept = libc.func('int accept4(int, void *, void *, int)');
const sockname = libc.func('int getsockname(int, void *, void *)');
const poll = libc.func('int poll(void *, unsigned long, int)');
const sendto = libc.func('long sendto(int, void *, size_t, int, void *, uint32_t)');
const recvmsg = libc.func('long recvmsg(int, void *, int)');
const close = libc.func('int close(int)');
const sockets = new Map();
const fail = () => { throw koffi.errno(); };
const check = (result) => (result < 0 ? fail() : result);
const option = (fd, level, name, value) => check(setOption(fd, level, name, Buffer.from(new Int32Array([value]).buffer), 4));
const encode = ([address, port]) => {
  const raw = Buffer.from(address, 'hex'), v4 = raw.length === 4, bytes = Buffer.alloc(v4 ? 16 : 28);
  bytes.writeUInt16LE(v4 ? 2 : 10, 0);
  bytes.writeUInt16BE(port, 2);
  bytes.set(raw, v4 ? 4 : 8);
  return bytes;
};
const decode = (bytes) => {
  const v4 = bytes.readUInt16LE(0) === 2;
  return bytes.subarray(v4 ? 4 : 8, v4 ? 8 : 24).toString('hex') + ':' + bytes.readUInt16BE(2);
};
const own = (fd) => {
  const address = Buffer.alloc(28), length = Buffer.from([28, 0, 0, 0]);
  check(sockname(fd, address, length));
  return decode(address);
};
const waits = (fd, ms) => {
  const wanted = Buffer.alloc(8);
  wanted.writeInt32LE(fd, 0);
  wanted.writeInt16LE(1, 4);
  return poll(wanted, 1, ms) > 0;
};
const orders = {
  open({ id, type, family, transparent, freebind, mark, bind: at, connect: to, listen: listens }) {
    const fd = check(socket(family === 4 ? 2 : 10, (type === 'udp' ? 2 : 1) | 0o2004000, 0));
    sockets.set(id, fd);
    const [level, name, binding, wanted] = family === 4 ? [0, 19, 15, 20] : [41, 75, 78, 74];
    if (transparent) option(fd, level, name, 1);
    if (freebind) option(fd, level, binding, 1);
    if (transparent || freebind || listens) option(fd, 1, 2, 1);
    if (mark) option(fd, 1, 36, mark);
    if (family === 6) option(fd, 41, 26, 1);
    if (type === 'udp') option(fd, level, wanted, 1);
    if (at) { const bytes = encode(at); check(bind(fd, bytes, bytes.length)); }
    if (listens) check(listen(fd, 16));
    if (to) { const bytes = encode(to); if (connect(fd, bytes, bytes.length) < 0 && koffi.errno() !== 115) fail(); }
    return { from: own(fd) };
  },
  send({ id, text, to, times = 1 }) {
    const data = Buffer.from(text), address = to ? encode(to) : null;
    for (let at = 0; at < times; at += 1) check(sendto(sockets.get(id), data, data.length, 0x4040, address, address?.length ?? 0));
    return {};
  },
  receive({ id, ms }) {
    const fd = sockets.get(id);
    if (!waits(fd, ms)) return {};
    const data = Buffer.alloc(65536), name = Buffer.alloc(28), control = Buffer.alloc(128), vector = Buffer.alloc(16), header = Buffer.alloc(56);
    vector.writeBigUInt64LE(koffi.address(data), 0);
    vector.writeBigUInt64LE(65536n, 8);
    header.writeBigUInt64LE(koffi.address(name), 0);
    header.writeUInt32LE(28, 8);
    header.writeBigUInt64LE(koffi.address(vector), 16);
    header.writeBigUInt64LE(1n, 24);
    header.writeBigUInt64LE(koffi.address(control), 32);
    header.writeBigUInt64LE(128n, 40);
    const length = check(recvmsg(fd, header, 0x40));
    const got = { text: data.toString('latin1', 0, length) };
    if (header.readUInt32LE(8) > 0) got.from = decode(name);
    if (header.readBigUInt64LE(40) > 16n) got.to = decode(control.subarray(16));
    return got;
  },
  count({ id, ms }) {
    let count = 0;
    while (waits(sockets.get(id), ms)) { orders.receive({ id, ms: 0 }); count += 1; }
    return { text: String(count) };
  },
  accept({ id, as, ms }) {
    if (!waits(sockets.get(id), ms)) return {};
    const address = Buffer.alloc(28), length = Buffer.from([28, 0, 0, 0]);
    const fd = check(accept(sockets.get(id), address, length, 0o2004000));
    sockets.set(as, fd);
    return { from: decode(address), to: own(fd) };
  },
  close({ id, silently }) {
    // TCP_REPAIR: nothing is said to the other end.
    if (silently) option(sockets.get(id), 6, 19, 1);
    check(close(sockets.get(id)));
    sockets.delete(id);
    return {};
  },
};
createInterface({ input: process.stdin }).on('line', (line) => {
  const order = JSON.parse(line);
  let answer;
  try { answer = orders[order.op](order); } catch (error) { answer = { error }; if (typeof error !== 'number') throw error; }
  console.log(JSON.stringify(answer));
});
`;

/** How long something is waited for that is to come: only ends a wait for what never comes. */
const COMES_MS = 60_000;

export class Actor {
  readonly #peer: Peer;
  #last = 0;

  constructor(namespace: string) {
    const args = ['netns', 'exec', namespace, process.execPath, '--input-type=module', '-e', MODULE];
    const child: ChildProcess = spawn('ip', args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#peer = new Peer(child);
  }

  async #order(order: object): Promise<Got> {
    return JSON.parse(await this.#peer.ask(JSON.stringify(order))) as Got;
  }

  /** @throws with the errno */
  async open({ bind, connect, ...options }: SocketOptions): Promise<ActorSocket> {
    this.#last += 1;
    const id = this.#last;
    const [at, to] = [bind, connect].map((place) => (place === undefined ? undefined : encoded(place)));
    const { error, from = '' } = await this.#order({ op: 'open', id, ...options, bind: at, connect: to });
    if (error !== undefined) throw new Error(`a socket cannot be opened: errno ${error}`);
    return this.#socket(id, from);
  }

  #socket(id: number, own: string): ActorSocket {
    return {
      own,
      send: async (text, to, times) => {
        await this.#order({ op: 'send', id, text, to: to === undefined ? undefined : encoded(to), times });
      },
      receive: async (ms = COMES_MS) => await this.#order({ op: 'receive', id, ms }),
      count: async (ms) => Number((await this.#order({ op: 'count', id, ms })).text),
      accept: async (ms = COMES_MS) => {
        this.#last += 1;
        const as = this.#last;
        const { from, to } = await this.#order({ op: 'accept', id, as, ms });
        return from === undefined || to === undefined ? undefined : { ...this.#socket(as, to), from };
      },
      close: async () => {
        await this.#order({ op: 'close', id });
      },
      vanish: async () => {
        await this.#order({ op: 'close', id, silently: true });
      },
    };
  }

  async stop(): Promise<void> {
    await this.#peer.stop();
  }
}

export interface ActorSocket {
  /** Whom it is bound to, as `placed` writes it. */
  readonly own: string;
  readonly send: (text: string, to?: Place, times?: number) => Promise<void>;
  /** The next datagram or bytes; nothing where none come within `ms`. */
  readonly receive: (ms?: number) => Promise<Got>;
  /** How many come until none has for `ms`. */
  readonly count: (ms: number) => Promise<number>;
  readonly accept: (ms?: number) => Promise<(ActorSocket & { readonly from: string }) | undefined>;
  readonly close: () => Promise<void>;
  /** Closes a connection without a word to its other end. */
  readonly vanish: () => Promise<void>;
}

function encoded([address, port]: Place): readonly [string, number] {
  return [Buffer.from(ipBytes(address)).toString('hex'), port];
}
