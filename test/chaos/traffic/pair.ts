/** What one host sends to another, by each family that both have in turn. */
import type { Socket as UdpSocket } from 'node:dgram';
import { Connection } from './connection.ts';
import { PORTS } from './protocol.ts';
import { openUdp, sendUdp } from './sockets.ts';
import type { Ears, Station } from './station.ts';

/** A new flow's socket waits this long for its echo. */
const ECHO_MS = 3000;

/** `family`: which address of both. */
interface Way {
  readonly flow: number;
  readonly port: number;
  readonly family: number;
}

export class Pair {
  readonly from: Station;
  readonly to: Station;
  readonly #ears: Ears;
  readonly #intervalMs: number;
  readonly #old: readonly Way[];
  readonly #fresh: readonly Way[];
  readonly #connection: Connection;
  readonly #waiting: { readonly socket: UdpSocket; readonly until: number }[] = [];
  #next: number;
  #turn = 0;

  constructor(
    from: Station,
    to: Station,
    ears: Ears,
    { intervalMs, at }: { readonly intervalMs: number; readonly at: number },
  ) {
    this.from = from;
    this.to = to;
    this.#ears = ears;
    this.#intervalMs = intervalMs;
    const families = Math.min(from.host.addresses.length, to.host.addresses.length);
    const flows = (kind: 'udp' | 'udp-new'): Way[] =>
      Array.from({ length: families }, (_, family) =>
        PORTS.map((port) => ({ flow: ears.flow({ kind, from: from.host.id, to: to.host.id, port }), port, family })),
      ).flat();
    this.#old = flows('udp');
    this.#fresh = flows('udp-new');
    const sum = from.host.id + to.host.id;
    const port = PORTS[sum % PORTS.length] ?? PORTS[0];
    const family = Math.floor(sum / PORTS.length) % families;
    this.#connection = new Connection({ from: from.host, to: to.host, family }, port, ears);
    // Pairs do not send all at once.
    this.#next = at + ((from.host.id * 37 + to.host.id * 101) % intervalMs);
  }

  /** The other end got this line. */
  arrived(number: number): void {
    this.#connection.arrived(number);
  }

  tick(at: number): void {
    while (this.#waiting[0] !== undefined && this.#waiting[0].until < at) this.#waiting.shift()?.socket.close();
    this.#connection.tick(at);
    if (at < this.#next) return;
    // Not earlier than an interval after the last: a process that was held up does not catch up in one burst.
    this.#next = at + this.#intervalMs;
    this.#turn += 1;
    this.#send(({ family }) => this.from.senders[family], this.#old);
    this.#send(({ family }) => {
      const { netns, addresses } = this.from.host;
      const socket = openUdp({ netns, address: addresses[family] ?? '' }, this.#ears.echoed);
      this.#waiting.push({ socket, until: at + ECHO_MS });
      return socket;
    }, this.#fresh);
    this.#connection.send(at);
  }

  #send(by: (way: Way) => UdpSocket | undefined, ways: readonly Way[]): void {
    const way = ways[this.#turn % ways.length];
    const socket = way && by(way);
    if (way === undefined || socket === undefined) return;
    sendUdp(socket, this.#ears.sent(way.flow), way.port, this.to.host.addresses[way.family] ?? '');
  }

  close(): void {
    this.#connection.close();
    for (const { socket } of this.#waiting) socket.close();
  }
}
