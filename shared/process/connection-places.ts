/**
 * Places for the connections of a server that strangers reach. A full server makes room for whoever comes: it closes a connection of the
 * source that holds the most.
 *
 * Guarantees: there are at most `most` connections. One that was let in keeps its place. Of the others, the oldest of the source with the most of
 * them goes; of sources that have as many, the oldest of all. So who fills the server closes their own connections, and a newcomer from elsewhere is
 * served. The newcomer goes only where all others were let in.
 *
 * A source is an IPv4 address, or the /64 of an IPv6 one: a host has all addresses of that.
 */
import type { Socket } from 'node:net';

const IPV6_GROUPS = 8;
const SUBNET_GROUPS = 4;

/** What a TCP connection and the TLS one above it have in common, and no other connection of the server. */
type Peer = Pick<Socket, 'remoteAddress' | 'remotePort' | 'localAddress'>;

/** Of a `Socket`, what is needed here. */
export interface Connection extends Peer {
  once(event: 'close', listener: () => void): unknown;
  destroy(): unknown;
}

interface Place {
  readonly source: string;
  readonly socket: Connection;
}

export interface ConnectionPlacesOptions {
  /** Connections, at least 1. */
  readonly most: number;
  readonly onClosed?: (source: string) => void;
}

export class ConnectionPlaces {
  readonly #options: ConnectionPlacesOptions;
  /** By `nameOf`, oldest first. */
  readonly #strangers = new Map<string, Place>();
  readonly #letIn = new Map<string, Place>();

  constructor(options: ConnectionPlacesOptions) {
    this.#options = options;
  }

  /** A connection has come, before TLS. */
  take(socket: Connection): void {
    const { remoteAddress } = socket;
    if (remoteAddress === undefined) {
      // It is gone again.
      socket.destroy();
      return;
    }
    const name = nameOf(socket);
    this.#strangers.set(name, { source: sourceOf(remoteAddress), socket });
    socket.once('close', () => {
      // Another may have come meanwhile from the same port.
      for (const places of [this.#strangers, this.#letIn]) if (places.get(name)?.socket === socket) places.delete(name);
    });
    if (this.#strangers.size + this.#letIn.size > this.#options.most) this.#makeRoom();
  }

  /** Whoever asks on this connection, which may be the TLS one above what was taken, may have what they ask for; or may not. */
  judge(peer: Peer, allowed: boolean): void {
    const [from, to] = allowed ? [this.#strangers, this.#letIn] : [this.#letIn, this.#strangers];
    const name = nameOf(peer);
    const place = from.get(name);
    if (place === undefined) return;
    from.delete(name);
    to.set(name, place);
  }

  closeAll(): void {
    for (const places of [this.#strangers, this.#letIn]) for (const { socket } of places.values()) socket.destroy();
  }

  #makeRoom(): void {
    const held = new Map<string, number>();
    for (const { source } of this.#strangers.values()) held.set(source, (held.get(source) ?? 0) + 1);
    const most = Math.max(...held.values());
    for (const [name, { source, socket }] of this.#strangers) {
      if (held.get(source) !== most) continue;
      this.#strangers.delete(name);
      socket.destroy();
      this.#options.onClosed?.(source);
      return;
    }
  }
}

function nameOf({ remoteAddress, remotePort, localAddress }: Peer): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}

/** @param address as a socket has it: canonical text */
export function sourceOf(address: string): string {
  // 10.0.0.1, ::ffff:10.0.0.1
  if (address.includes('.')) return address.slice(address.lastIndexOf(':') + 1);
  const [head = [], tail = []] = address.split('::').map((part) => part.split(':').filter(Boolean));
  const zeros = Array.from({ length: IPV6_GROUPS - head.length - tail.length }, () => '0');
  return `${[...head, ...zeros, ...tail].slice(0, SUBNET_GROUPS).join(':')}::/64`;
}
