/** What one host sends to another. */
import type { Socket as UdpSocket } from 'node:dgram';
import { Connection } from './connection.ts';
import { PORTS } from './protocol.ts';
import { openUdp, sendUdp } from './sockets.ts';
import type { Ears, Station } from './station.ts';

/** A new flow's socket waits this long for its echo. */
const ECHO_MS = 3000;

export class Pair {
  readonly from: Station;
  readonly to: Station;
  readonly #ears: Ears;
  readonly #intervalMs: number;
  readonly #old: readonly (readonly [flow: number, port: number])[];
  readonly #fresh: readonly (readonly [flow: number, port: number])[];
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
    const flows = (kind: 'udp' | 'udp-new') =>
      PORTS.map((port) => [ears.flow({ kind, from: from.host.id, to: to.host.id, port }), port] as const);
    this.#old = flows('udp');
    this.#fresh = flows('udp-new');
    const port = PORTS[(from.host.id + to.host.id) % PORTS.length] ?? PORTS[0];
    this.#connection = new Connection(from.host, to.host, port, ears);
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
    this.#send(this.from.sender, this.#old);
    const fresh = openUdp(this.from.host, this.#ears.echoed);
    this.#waiting.push({ socket: fresh, until: at + ECHO_MS });
    this.#send(fresh, this.#fresh);
    this.#connection.send(at);
  }

  #send(socket: UdpSocket, flows: readonly (readonly [flow: number, port: number])[]): void {
    const [flow, port] = flows[this.#turn % flows.length] ?? [0, 0];
    sendUdp(socket, this.#ears.sent(flow), port, this.to.host.address);
  }

  close(): void {
    this.#connection.close();
    for (const { socket } of this.#waiting) socket.close();
  }
}
