import type { Socket as UdpSocket } from 'node:dgram';
import type { Server } from 'node:net';
import { type Flow, PORTS, type TrafficHost } from './protocol.ts';
import { openUdp, serveTcp, serveUdp } from './sockets.ts';

/** Where everything that happens is noted. */
export interface Ears {
  /** Returns the flow's id. */
  readonly flow: (flow: Omit<Flow, 'id'>) => number;
  /** Called just before a packet is given to the kernel; returns its number. */
  readonly sent: (flow: number) => number;
  readonly received: (number: number, host: number) => void;
  /** A line of host `from`. */
  readonly line: (number: number, host: number, from: number) => void;
  readonly echoed: (number: number) => void;
  readonly lost: (number: number) => void;
  readonly void: (number: number) => void;
}

/** A host that answers on every port at each of its addresses, and the UDP socket of each that it sends old flows from. */
export class Station {
  readonly host: TrafficHost;
  readonly senders: readonly UdpSocket[];
  readonly #udp: readonly UdpSocket[];
  readonly #tcp: readonly Server[];

  constructor(host: TrafficHost, ears: Ears) {
    this.host = host;
    const places = host.addresses.map((address) => ({ netns: host.netns, address }));
    this.#udp = places.flatMap((place) =>
      PORTS.map((port) => serveUdp(place, port, (number) => ears.received(number, host.id))),
    );
    this.#tcp = PORTS.map((port) => serveTcp(host, port, (from, number) => ears.line(number, host.id, from)));
    this.senders = places.map((place) => openUdp(place, ears.echoed));
  }

  close(): void {
    for (const socket of [...this.#udp, ...this.senders]) socket.close();
    for (const server of this.#tcp) server.close();
  }
}
