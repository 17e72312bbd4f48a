/**
 * Questions by TCP. Each connection of a pod gets one to the server that it asks, from the pod's own address and port, once a question of it may be forwarded.
 * Messages have two bytes of length before them (RFC 1035, 4.2.2); a client may ask more before it is answered, and answers come in any order (RFC 7766).
 */
import { closeSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Asked, Flows, Reporter } from './contract.ts';
import type { Judge } from './judge.ts';
import { answers, emptyAnswer } from './message.ts';
import type { Poller } from './poller.ts';
import { answerProbe } from './probe.ts';
import {
  type Accepted,
  accept,
  connectAs,
  type Flow,
  listenAt,
  type Place,
  type ProxySocketOptions,
} from './sockets.ts';
import { Framer, framed } from './tcp-frames.ts';

export interface TcpOptions extends ProxySocketOptions {
  readonly judge: Judge;
  readonly flows: Flows;
  readonly poller: Poller;
  readonly reporter: Reporter;
  readonly onError: (error: unknown) => void;
  /** Connections that an endpoint may have. */
  readonly mostConnections: number;
  readonly answerWithinMs: number;
}

/** A connection on which nothing happens for so long is closed. */
const IDLE_MS = 10_000;
/** Of answers that the pod does not read. */
const MOST_UNREAD_BYTES = 1 << 18;
const LONGEST_QUESTION = 4096;
const LONGEST_ANSWER = 65_535;
const MOST_AT_ONCE = 32;

export class TcpProxy {
  readonly #options: TcpOptions;
  readonly #listeners: number[] = [];
  readonly #connections = new Set<TcpConnection>();
  /** Of each endpoint. */
  readonly #open = new Map<number, number>();

  constructor(options: TcpOptions) {
    this.#options = options;
  }

  listen(place: Place): void {
    const fd = listenAt(place, 'stream', this.#options);
    this.#listeners.push(fd);
    this.#options.poller.add(fd, () => {
      for (let turn = 0; turn < MOST_AT_ONCE; turn += 1) {
        const accepted = accept(fd, place.family);
        if (accepted === undefined) return;
        const { address, port } = accepted.destination;
        if (port === place.port && Buffer.compare(address, place.address) === 0) answerProbe(accepted.fd);
        else this.#accept(accepted);
      }
    });
  }

  close(): void {
    for (const fd of this.#listeners.splice(0)) this.#options.poller.close(fd);
    for (const connection of [...this.#connections]) connection.destroy();
  }

  #accept(accepted: Accepted): void {
    const { flows, reporter, mostConnections } = this.#options;
    const endpoint = flows.flowOf('tcp', accepted)?.endpoint;
    const open = endpoint === undefined ? 0 : (this.#open.get(endpoint) ?? 0);
    if (endpoint === undefined || open >= mostConnections) {
      reporter.count(endpoint === undefined ? 'no-flow' : 'connection');
      closeSync(accepted.fd);
      return;
    }
    this.#open.set(endpoint, open + 1);
    const connection = new TcpConnection(this.#options, accepted, () => {
      this.#connections.delete(connection);
      const left = (this.#open.get(endpoint) ?? 1) - 1;
      if (left === 0) this.#open.delete(endpoint);
      else this.#open.set(endpoint, left);
    });
    this.#connections.add(connection);
  }
}

interface Waiting {
  readonly asked: Asked;
  readonly timer: NodeJS.Timeout;
  /** Its answer has come, and is about to go out. */
  answered: boolean;
}

class TcpConnection {
  readonly #options: TcpOptions;
  readonly #flow: Flow;
  readonly #client: Socket;
  readonly #onClose: () => void;
  readonly #waiting = new Set<Waiting>();
  #server: Socket | undefined;
  /** No more is asked, by the client's or the server's end: what was answered still goes out. */
  #ended = false;
  #closed = false;

  constructor(options: TcpOptions, { fd, source, destination }: Accepted, onClose: () => void) {
    this.#options = options;
    this.#flow = { source, destination };
    this.#onClose = onClose;
    this.#client = new Socket({ fd, readable: true, writable: true, allowHalfOpen: true });
    this.#client.setNoDelay(true);
    this.#read(this.#client, LONGEST_QUESTION, (message) => this.#question(message));
    this.#client.on('close', () => this.destroy());
    this.#client.setTimeout(IDLE_MS, () => this.destroy());
    this.#client.on('end', () => {
      this.#ended = true;
      this.#endIfDone();
    });
  }

  destroy(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#client.destroy();
    this.#server?.destroy();
    for (const waiting of [...this.#waiting]) this.#end(waiting, undefined);
    this.#onClose();
  }

  /** Gives each message of a socket. */
  #read(socket: Socket, longest: number, take: (message: Buffer) => void): void {
    const framer = new Framer(longest);
    socket.on('data', (chunk) => {
      try {
        for (const message of framer.add(chunk)) {
          if (this.#closed) return;
          take(message);
        }
      } catch (error) {
        this.#options.onError(error);
        this.destroy();
      }
      if (framer.tooLong) this.destroy();
    });
    // Then it closes.
    socket.on('error', () => undefined);
    socket.resume();
  }

  #question(message: Buffer): void {
    if (this.#ended) return;
    const { judge, answerWithinMs } = this.#options;
    const judgement = judge.judge(message, this.#flow, 'tcp');
    if (judgement === 'dropped') {
      this.destroy();
      return;
    }
    if ('answer' in judgement) {
      this.#answer(judgement.answer);
      return;
    }
    const asked = judgement.forward;
    const waiting = { asked, timer: setTimeout(() => this.destroy(), answerWithinMs), answered: false };
    this.#waiting.add(waiting);
    try {
      this.#server ??= this.#connect();
    } catch (error) {
      this.#answer(emptyAnswer(message, asked.question, 'SERVFAIL'));
      this.#end(waiting, undefined);
      throw error;
    }
    this.#server.write(framed(message));
  }

  #connect(): Socket {
    const fd = connectAs(this.#flow, 'stream', this.#options);
    const server = new Socket({ fd, readable: true, writable: true });
    server.setNoDelay(true);
    this.#read(server, LONGEST_ANSWER, (message) => this.#answered(message));
    server.on('close', () => this.#serverClosed());
    return server;
  }

  /** Some servers end a connection behind their answer, which may still wait for an identity. */
  #serverClosed(): void {
    this.#ended = true;
    for (const waiting of [...this.#waiting]) if (!waiting.answered) this.#end(waiting, undefined);
    this.#endIfDone();
  }

  #answered(message: Buffer): void {
    const { judge, reporter, onError } = this.#options;
    const waiting = [...this.#waiting].find(({ asked }) => answers(message, asked.question));
    if (waiting === undefined || waiting.answered) {
      reporter.count('unasked');
      return;
    }
    const answered = judge.answered(waiting.asked, message);
    if (answered?.ready === undefined) {
      // What cannot be read is not passed on: its time goes by.
      if (answered !== undefined) this.#finish(waiting, message);
      return;
    }
    waiting.answered = true;
    answered.ready.then(() => this.#finish(waiting, message)).catch(onError);
  }

  #finish(waiting: Waiting, message: Buffer): void {
    if (!this.#waiting.has(waiting)) return;
    this.#answer(message);
    this.#end(waiting, message);
  }

  #answer(message: Buffer): void {
    this.#client.write(framed(message));
    if (this.#client.writableLength <= MOST_UNREAD_BYTES) return;
    this.#options.reporter.count('connection');
    this.destroy();
  }

  #end(waiting: Waiting, answer: Buffer | undefined): void {
    if (!this.#waiting.delete(waiting)) return;
    clearTimeout(waiting.timer);
    this.#options.judge.end(waiting.asked, answer);
    this.#endIfDone();
  }

  #endIfDone(): void {
    // What was written goes out first: the connection closes behind it.
    if (this.#ended && this.#waiting.size === 0 && !this.#closed) this.#client.end();
  }
}
