/** Sockets of hosts, made by this process inside their network namespaces: there they stay, and one clock times all of them. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect, createServer, isIP, type Server, type Socket } from 'node:net';
import { inNetns } from 'libbpf-ts';
import type { TrafficHost } from './protocol.ts';

type Found = (error: null, address: string, family: number) => void;
/** A socket is made where the thread is when it is bound or connected; an asynchronous look-up would be too late. */
const asGiven = (address: string, _options: object, found: Found): void => found(null, address, isIP(address));

/** Enough for everything that comes while a busy machine lets this process wait. */
const BUFFER_BYTES = 1 << 20;

/** Where a socket is, and the address there that it has. */
export interface Place extends Pick<TrafficHost, 'netns'> {
  readonly address: string;
}

function udp(place: Place, port: number, onMessage: (data: Buffer, port: number, address: string) => void) {
  const type = isIP(place.address) === 6 ? 'udp6' : 'udp4';
  const socket = createSocket({ type, lookup: asGiven, recvBufferSize: BUFFER_BYTES });
  socket.on('message', (data, from) => onMessage(data, from.port, from.address));
  // A destination that has gone away says so; that its packets are lost is seen anyway.
  socket.on('error', () => undefined);
  inNetns(place.netns, () => socket.bind(port, place.address));
  return socket;
}

/** Answers each packet with the same bytes, to where it came from. */
export function serveUdp(place: Place, port: number, onNumber: (number: number) => void): UdpSocket {
  const socket = udp(place, port, (data, fromPort, fromAddress) => {
    onNumber(data.readUInt32BE(0));
    socket.send(data, fromPort, fromAddress);
  });
  return socket;
}

/** A sender's socket, on a port of the kernel's choice. */
export function openUdp(place: Place, onNumber: (number: number) => void): UdpSocket {
  return udp(place, 0, (data) => onNumber(data.readUInt32BE(0)));
}

export function sendUdp(socket: UdpSocket, number: number, port: number, address: string): void {
  const data = Buffer.alloc(8);
  data.writeUInt32BE(number);
  socket.send(data, port, address);
}

/** Lines in, each with its sender and its number; nothing out. By either family. */
export function serveTcp(
  host: Pick<TrafficHost, 'netns'>,
  port: number,
  onLine: (from: number, number: number) => void,
): Server {
  const server = createServer((socket) => {
    let rest = '';
    socket.setEncoding('latin1').on('data', (text: string) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const [from, number] = line.split(' ');
        onLine(Number(from), Number(number));
      }
    });
    socket.setTimeout(30_000, () => socket.destroy());
    socket.on('error', () => socket.destroy());
  });
  server.on('error', () => server.close());
  // Without an address the socket is made before listen() returns.
  inNetns(host.netns, () => server.listen({ port }));
  return server;
}

export function openTcp(place: Place, port: number, address: string): Socket {
  const family = isIP(address);
  return inNetns(place.netns, () =>
    connect({
      host: 'peer',
      port,
      localAddress: place.address,
      family,
      autoSelectFamily: false,
      noDelay: true,
      // Not numeric: a numeric host is connected to a turn later.
      lookup: (_host, _options, found) => found(null, address, family),
    }),
  );
}
