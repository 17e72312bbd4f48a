/**
 * The process inside a pod (or an outside host): serves HTTP on TCP ports and echoes on UDP ports, and probes others on request.
 * Runs in the pod's network namespace and ends when its cluster does.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect, createServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { PodReply, PodRequest, ProbeResult, ProbeTarget, StreamReport } from './protocol.ts';

/** HTTP for a request line, an echo for anything else: one port serves probes and streams. */
function serveTcp(port: number, name: string): Promise<void> {
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      if (/^(GET|HEAD|POST) /.test(chunk.toString('latin1', 0, 5))) {
        const body = `${name}\n`;
        socket.end(
          `HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
        );
      } else socket.write(chunk);
    });
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '0.0.0.0', resolve);
  });
}

/** One socket for each own address: an answer then leaves from the address that was asked. */
async function serveUdp(port: number): Promise<void> {
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const addresses = own.filter(({ family, address }) => family === 'IPv4' && !address.startsWith('127.'));
  await Promise.all(addresses.map(({ address }) => echoUdp(address, port)));
}

function echoUdp(address: string, port: number): Promise<void> {
  const socket = createSocket('udp4');
  socket.on('message', (data, from) => socket.send(data, from.port, from.address));
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.bind(port, address, resolve);
  });
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
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => finish('dropped'), target.timeoutMs);
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
    const socket = createSocket('udp4');
    const finish = (result: ProbeResult) => {
      clearTimeout(timer);
      socket.close();
      resolve(result);
    };
    const timer = setTimeout(() => finish('dropped'), target.timeoutMs);
    socket.once('message', () => finish('reached'));
    socket.once('error', (error: NodeJS.ErrnoException) =>
      finish(error.code === 'ECONNREFUSED' ? 'refused' : 'dropped'),
    );
    socket.bind(target.sourcePort ?? 0, target.sourceAddress ?? '0.0.0.0', () =>
      socket.connect(target.port, target.address, () => socket.send('probe')),
    );
  });
}

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
      const socket: UdpSocket = createSocket('udp4');
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

  close(): StreamReport {
    clearInterval(this.#timer);
    this.#end();
    return this.report();
  }
}

const streams = new Map<number, Stream>();

function stream(id: number): Stream {
  const found = streams.get(id);
  if (found === undefined) throw new Error(`no stream ${id} in this pod`);
  return found;
}

async function answer(request: PodRequest): Promise<Extract<PodReply, { ok: true }>['value']> {
  switch (request.do) {
    case 'serve':
      await Promise.all([...request.tcp.map((port) => serveTcp(port, request.name)), ...request.udp.map(serveUdp)]);
      return null;
    case 'probe':
      return request.target.protocol === 'udp' ? probeUdp(request.target) : probeTcp(request.target);
    case 'stream':
      streams.set(request.id, new Stream(request.protocol, request.address, request.port, request.intervalMs));
      return request.id;
    case 'report':
      return stream(request.stream).report();
    case 'close': {
      const report = stream(request.stream).close();
      streams.delete(request.stream);
      return report;
    }
  }
}

process.on('message', (request: PodRequest) => {
  answer(request).then(
    (value) => process.send?.({ id: request.id, ok: true, value } satisfies PodReply),
    (error: unknown) =>
      process.send?.({
        id: request.id,
        ok: false,
        error: error instanceof Error ? error.message : String(error),
      } satisfies PodReply),
  );
});
process.on('disconnect', () => process.exit(0));
