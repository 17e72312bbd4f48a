import type { Socket } from 'node:net';
import type { TrafficHost } from './protocol.ts';
import { openTcp } from './sockets.ts';
import type { Ears } from './station.ts';

/** Longer than the kernel takes to repeat a SYN twice, or a line four times. */
const PATIENCE_MS = 5000;

/**
 * A TCP connection that lives as long as its lines arrive: one line at a time, the next when the last has come. So each line's fate
 * is its own. What does not come for 5 s is lost, the connection is reset, and another is opened.
 */
export class Connection {
  readonly #from: TrafficHost;
  readonly #to: TrafficHost;
  /** Which address of both. */
  readonly #family: number;
  readonly #port: number;
  readonly #ears: Ears;
  readonly #flows: { readonly connect: number; readonly tcp: number };
  #socket: Socket | undefined;
  #open = false;
  /** What has been sent and has not come. */
  #outstanding: { readonly number: number; readonly until: number } | undefined;

  constructor(
    { from, to, family }: { readonly from: TrafficHost; readonly to: TrafficHost; readonly family: number },
    port: number,
    ears: Ears,
  ) {
    this.#from = from;
    this.#to = to;
    this.#family = family;
    this.#port = port;
    this.#ears = ears;
    const flow = (kind: 'connect' | 'tcp'): number => ears.flow({ kind, from: from.id, to: to.id, port });
    this.#flows = { connect: flow('connect'), tcp: flow('tcp') };
  }

  tick(at: number): void {
    if (this.#outstanding === undefined || at < this.#outstanding.until) return;
    this.#ears.lost(this.#outstanding.number);
    this.#outstanding = undefined;
    this.#reset();
  }

  /** The other end got this number. */
  arrived(number: number): void {
    if (this.#outstanding?.number === number) this.#outstanding = undefined;
  }

  send(at: number): void {
    if (this.#outstanding !== undefined) return;
    if (this.#socket === undefined) this.#connect(at);
    else if (this.#open) {
      const number = this.#note(this.#flows.tcp, at);
      this.#socket.write(`${this.#from.id} ${number}\n`);
    }
  }

  #note(flow: number, at: number): number {
    const number = this.#ears.sent(flow);
    this.#outstanding = { number, until: at + PATIENCE_MS };
    return number;
  }

  #connect(at: number): void {
    const number = this.#note(this.#flows.connect, at);
    const { netns, addresses } = this.#from;
    const place = { netns, address: addresses[this.#family] ?? '' };
    const socket = openTcp(place, this.#port, this.#to.addresses[this.#family] ?? '');
    this.#socket = socket;
    socket.on('connect', () => {
      if (this.#socket !== socket) return;
      this.#open = true;
      this.arrived(number);
      this.#ears.received(number, this.#to.id);
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      if (this.#socket === socket) this.#abandon();
    });
  }

  /** The other end or the kernel has ended it. */
  #abandon(): void {
    if (this.#outstanding !== undefined) this.#ears.void(this.#outstanding.number);
    this.#outstanding = undefined;
    this.#reset();
  }

  #reset(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#open = false;
    // With a reset: what has not been delivered never will be.
    socket?.resetAndDestroy();
  }

  close(): void {
    this.#abandon();
  }
}
