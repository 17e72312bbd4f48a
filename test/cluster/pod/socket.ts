/** A pod's program that runs in a container, reached through its unix socket: JSON lines both ways. */
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { Conversation, type OpenStream, type PodControl } from './conversation.ts';
import type { Lookup, PodReply, ProbeResult, ProbeTarget, Zone } from './protocol.ts';

/** Longest path that a unix socket's address holds (unix(7): 108 bytes with the closing zero). */
const LONGEST = 107;

/** One connection to one run of the program. When the program ends, everything that waits is rejected. */
export class PodSocket implements PodControl {
  readonly #socket: Socket;
  readonly #conversation: Conversation;

  private constructor(name: string, socket: Socket) {
    this.#socket = socket;
    this.#conversation = new Conversation(name, (request) => {
      if (!this.open) throw new Error(`pod process ${name} has ended`);
      socket.write(`${JSON.stringify(request)}\n`);
    });
    createInterface({ input: socket })
      .on('line', (line) => this.#conversation.receive(JSON.parse(line) as PodReply))
      // The socket's own, once more; 'close' follows.
      .on('error', () => undefined);
    socket.on('close', () => this.#conversation.fail('ended'));
  }

  /** The program answers once it serves what it was told to serve at its start. */
  static open(name: string, path: string): Promise<PodSocket> {
    return new Promise((resolve, reject) => {
      if (Buffer.byteLength(path) > LONGEST)
        return reject(
          new Error(`${path} is longer than a unix socket's path may be (${LONGEST}): use a shorter TMPDIR`),
        );
      const socket = connect(path);
      const failed = (error: Error) => reject(new Error(`pod process ${name} does not answer: ${error.message}`));
      socket.once('error', failed);
      socket.once('connect', () => {
        socket.off('error', failed);
        // An error is followed by 'close', which tells those that wait.
        socket.on('error', () => undefined);
        resolve(new PodSocket(name, socket));
      });
    });
  }

  get open(): boolean {
    return !this.#socket.destroyed && this.#socket.writable && !this.#socket.readableEnded;
  }

  serve(name: string, tcp: readonly number[], udp: readonly number[]): Promise<null> {
    return this.#conversation.serve(name, tcp, udp);
  }

  /** Its own addresses beyond loopback and link. */
  addresses(): Promise<readonly string[]> {
    return this.#conversation.addresses();
  }

  probe(target: ProbeTarget): Promise<ProbeResult> {
    return this.#conversation.probe(target);
  }

  stream(protocol: 'tcp' | 'udp', address: string, port: number, intervalMs?: number): Promise<OpenStream> {
    return this.#conversation.stream(protocol, address, port, intervalMs);
  }

  names(zone: Zone): Promise<null> {
    return this.#conversation.names(zone);
  }

  lookUp(lookup: Lookup): Promise<readonly string[] | string> {
    return this.#conversation.lookUp(lookup);
  }

  stop(): Promise<void> {
    this.#socket.destroy();
    return Promise.resolve();
  }
}
