/**
 * The process inside a pod (or an outside host): serves HTTP on TCP ports and echoes on UDP ports, and probes others on request.
 *
 * As a child of a cluster it listens to its parent over Node's channel, and ends with it. In a container the environment tells it:
 * WEIR_POD_SOCKET, a unix socket that takes requests as JSON lines; WEIR_POD_TCP and WEIR_POD_UDP, ports that it serves from its start
 * ("80,8080"); WEIR_POD_NAME, what it answers with. The socket is there once those ports are served.
 */

import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { mkdirSync, rmSync } from 'node:fs';
import { connect, createServer, isIPv6, type ListenOptions, type Socket } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { know, lookUp, serveNames } from './dns.ts';
import type { PodReply, PodRequest, ProbeResult, ProbeTarget, StreamReport } from './protocol.ts';

/** HTTP for a request line, an echo for anything else: one port serves probes and streams. */
async function serveTcp(port: number, name: string): Promise<void> {
  const serve = (socket: Socket): void => {
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      if (/^(GET|HEAD|POST) /.test(chunk.toString('latin1', 0, 5))) {
        const body = `${name}\n`;
        socket.end(
          `HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
        );
      } else socket.write(chunk);
    });
  };
  const listen = (options: ListenOptions): Promise<void> =>
    new Promise((resolve, reject) => {
      const server = createServer(serve);
      server.once('error', reject);
      server.listen({ port, ...options }, resolve);
    });
  await listen({ host: '0.0.0.0' });
  if (ownAddresses().some(isIPv6)) await listen({ host: '::', ipv6Only: true });
}

/** One socket for each own address: an answer then leaves from the address that was asked. */
async function serveUdp(port: number): Promise<void> {
  await Promise.all(ownAddresses().map((address) => echoUdp(address, port)));
}

function ownAddresses(): readonly string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .map(({ address }) => address)
    .filter((address) => !/^(127\.|::1$|fe80:)/.test(address));
}

function echoUdp(address: string, port: number): Promise<void> {
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
  socket.on('message', (data, from) => socket.send(data, from.port, from.address));
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.bind(port, address, resolve);
  });
}

/** Timers come first in a turn of the event loop: what has arrived by now is heard before `act`, however long this process had no core. */
function afterwards(act: () => void): void {
  setImmediate(() => setImmediate(act));
}

/**
 * Calls `act` after so many milliseconds of silence, in four parts: a process that had no core for a while has lost one of them and no more.
 * Returns what ends the wait.
 */
function afterSilence(ms: number, act: () => void): () => void {
  let parts = 4;
  let timer: NodeJS.Timeout;
  const next = (): void => {
    parts -= 1;
    timer = setTimeout(parts === 0 ? () => afterwards(act) : next, ms / 4);
  };
  next();
  return () => clearTimeout(timer);
}

function probeTcp(target: ProbeTarget): Promise<ProbeResult> {
  return new Promise((resolve) => {
    const options = {
      host: target.address,
      port: target.port,
      ...(target.sourceAddress === undefined ? {} : { localAddress: target.sourceAddress }),
      ...(target.sourcePort === undefined ? {} : { localPort: target.sourcePort }),
    };
    const socket = connect(options);
    const finish = (result: ProbeResult) => {
      stopWaiting();
      socket.destroy();
      resolve(result);
    };
    const stopWaiting = afterSilence(target.timeoutMs, () => finish('dropped'));
    socket.once('connect', () => {
      if (target.protocol === 'http') socket.write('GET / HTTP/1.1\r\nhost: probe\r\n\r\n');
      else finish('reached');
    });
    socket.once('data', () => finish('reached'));
    socket.once('error', (error: NodeJS.ErrnoException) =>
      finish(error.code === 'ECONNREFUSED' || error.code === 'ECONNRESET' ? 'refused' : 'dropped'),
    );
  });
}

function probeUdp(target: ProbeTarget): Promise<ProbeResult> {
  return new Promise((resolve) => {
    const six = isIPv6(target.address);
    const socket = createSocket(six ? 'udp6' : 'udp4');
    const finish = (result: ProbeResult) => {
      stopWaiting();
      socket.close();
      resolve(result);
    };
    const stopWaiting = afterSilence(target.timeoutMs, () => finish('dropped'));
    socket.once('message', () => finish('reached'));
    socket.once('error', (error: NodeJS.ErrnoException) =>
      finish(error.code === 'ECONNREFUSED' ? 'refused' : 'dropped'),
    );
    socket.bind(target.sourcePort ?? 0, target.sourceAddress ?? (six ? '::' : '0.0.0.0'), () =>
      // A Service without backends is refused at the call.
      socket.connect(target.port, target.address, (error?: NodeJS.ErrnoException) => {
        if (error === undefined || error === null) socket.send('probe');
        else finish(error.code === 'ECONNREFUSED' ? 'refused' : 'dropped');
      }),
    );
  });
}

/** Milliseconds without any echo until those that have not come count as lost: of a flow that was cut before, and of one that was alive. */
const SETTLE_MS = 1000;
const PATIENCE_MS = 10_000;

/** One connection that sends a numbered message at an interval and counts the echoes. */
class Stream {
  #sent = 0;
  #echoed = 0;
  #last = 0;
  #back = 0;
  #closed = false;
  readonly #timer: NodeJS.Timeout;
  readonly #end: () => void;

  constructor(protocol: 'tcp' | 'udp', address: string, port: number, intervalMs: number) {
    let send: (data: Buffer) => void;
    if (protocol === 'tcp') {
      const socket: Socket = connect({ host: address, port, noDelay: true });
      let pending = Buffer.alloc(0);
      socket.on('data', (chunk) => {
        pending = Buffer.concat([pending, chunk]);
        this.#echo(Math.floor(pending.length / 8));
        pending = pending.subarray(pending.length - (pending.length % 8));
      });
      socket.on('error', () => socket.destroy());
      socket.on('close', () => {
        this.#closed = true;
      });
      send = (data) => {
        if (!this.#closed) socket.write(data);
      };
      this.#end = () => socket.destroy();
    } else {
      const socket: UdpSocket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
      socket.on('message', () => this.#echo(1));
      socket.on('error', () => undefined);
      send = (data) => socket.send(data, port, address);
      this.#end = () => socket.close();
    }
    const tick = () => {
      const data = Buffer.alloc(8);
      data.writeUInt32BE(this.#sent);
      this.#sent += 1;
      send(data);
    };
    this.#timer = setInterval(tick, intervalMs);
  }

  #echo(count: number): void {
    if (count === 0) return;
    this.#echoed += count;
    const now = Date.now();
    if (now - this.#last >= 20) this.#back = now;
    this.#last = now;
  }

  report(): StreamReport {
    return {
      sent: this.#sent,
      echoed: this.#echoed,
      silentMs: this.#last === 0 ? undefined : Date.now() - this.#last,
      lastAt: this.#last,
      backAt: this.#back,
      closed: this.#closed,
    };
  }

  /** Sends no more, and gives echoes that are on their way the time to come. */
  async close(): Promise<StreamReport> {
    clearInterval(this.#timer);
    const ended = Date.now();
    const patience = ended - this.#last < SETTLE_MS / 2 ? PATIENCE_MS : SETTLE_MS;
    const settled = () => Date.now() - Math.max(ended, this.#last) > patience;
    while (this.#echoed > 0 && this.#echoed < this.#sent && !this.#closed && !settled()) await sleep(10);
    this.#end();
    return this.report();
  }
}

const streams = new Map<number, Stream>();
let streamsOpened = 0;
/** Ports that are served: `tcp/80`. */
const served = new Map<string, Promise<void>>();

function stream(id: number): Stream {
  const found = streams.get(id);
  if (found === undefined) throw new Error(`no stream ${id} in this pod`);
  return found;
}

function once(key: string, start: () => Promise<void>): Promise<void> {
  const begun = served.get(key) ?? start();
  served.set(key, begun);
  begun.catch(() => served.delete(key));
  return begun;
}

async function serve(name: string, tcp: readonly number[], udp: readonly number[]): Promise<void> {
  await Promise.all([
    ...tcp.map((port) => once(`tcp/${port}`, () => serveTcp(port, name))),
    ...udp.map((port) => once(`udp/${port}`, () => serveUdp(port))),
  ]);
}

async function answer(request: PodRequest): Promise<Extract<PodReply, { ok: true }>['value']> {
  switch (request.do) {
    case 'serve':
      await serve(request.name, request.tcp, request.udp);
      return null;
    case 'names':
      know(request.zone);
      await once('udp/53', () => serveNames(ownAddresses()));
      return null;
    case 'lookup':
      return lookUp(request.lookup);
    case 'addresses':
      return ownAddresses();
    case 'probe':
      return request.target.protocol === 'udp' ? probeUdp(request.target) : probeTcp(request.target);
    case 'stream':
      streamsOpened += 1;
      streams.set(streamsOpened, new Stream(request.protocol, request.address, request.port, request.intervalMs));
      return streamsOpened;
    case 'report':
      return stream(request.stream).report();
    case 'close': {
      const report = await stream(request.stream).close();
      streams.delete(request.stream);
      return report;
    }
  }
}

function reply(request: PodRequest, send: (reply: PodReply) => void): void {
  answer(request).then(
    (value) => send({ id: request.id, ok: true, value }),
    (error: unknown) =>
      send({ id: request.id, ok: false, error: error instanceof Error ? error.message : String(error) }),
  );
}

/** Requests over a unix socket, from as many askers as there are. */
function listen(path: string): void {
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    createInterface({ input: socket })
      .on('line', (line) => {
        reply(JSON.parse(line) as PodRequest, (answered) => socket.write(`${JSON.stringify(answered)}\n`));
      })
      // The socket's own, once more.
      .on('error', () => undefined);
  });
  mkdirSync(dirname(path), { recursive: true });
  // What an earlier run of this container left.
  rmSync(path, { force: true });
  server.listen(path);
}

function ports(variable: string): readonly number[] {
  const text = process.env[variable] ?? '';
  return text
    .split(',')
    .filter((part) => part.trim() !== '')
    .map((part) => {
      const port = Number(part);
      if (!Number.isInteger(port) || port < 1 || port > 65_535)
        throw new Error(`${variable} is "${text}": "${part}" is no port; give numbers from 1 to 65535, as "80,8080"`);
      return port;
    });
}

async function main(): Promise<void> {
  // As process 1 of a container it gets no signal that it does not ask for.
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => process.exit(0));
  if (process.send !== undefined) {
    process.on('message', (request: PodRequest) => reply(request, (answered) => process.send?.(answered)));
    process.on('disconnect', () => process.exit(0));
  }
  const [tcp, udp] = [ports('WEIR_POD_TCP'), ports('WEIR_POD_UDP')];
  await serve(process.env.WEIR_POD_NAME ?? hostname(), tcp, udp);
  const socket = process.env.WEIR_POD_SOCKET;
  if (socket !== undefined && socket !== '') listen(socket);
  else if (process.send === undefined && tcp.length === 0 && udp.length === 0)
    throw new Error('nothing to do: set WEIR_POD_SOCKET, WEIR_POD_TCP or WEIR_POD_UDP');
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
});
