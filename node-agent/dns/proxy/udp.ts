/**
 * Questions by UDP. Each flow of a pod gets a socket that has the pod's own address and port and is connected to the server that the pod asks, for as long as
 * a question of the flow is under way and shortly after: only that server's answers come in, by the kernel, and only those to an open question go out. Each
 * question is judged anew, and a socket is nobody's but its flow's: one that is kept gives nothing that a new one would not.
 */
import { clearInterval, setInterval } from 'node:timers';
import type { Family } from '@weir/net';
import type { Asked, Reporter } from './contract.ts';
import { DatagramReader, DatagramSender } from './datagrams.ts';
import type { Judge } from './judge.ts';
import { answers, emptyAnswer } from './message.ts';
import type { Poller } from './poller.ts';
import {
  connectAs,
  encodePlace,
  type Flow,
  listenAt,
  PLACE_BYTES,
  type Place,
  type ProxySocketOptions,
  receive,
  send,
} from './sockets.ts';

export interface UdpOptions extends ProxySocketOptions {
  readonly judge: Judge;
  readonly poller: Poller;
  readonly reporter: Reporter;
  readonly onError: (error: unknown) => void;
  /** A server that has not answered after so many milliseconds does not any more. */
  readonly answerWithinMs: number;
}

/** Datagrams of one listener, or of one server's socket, before others have their turn. */
const MOST_AT_ONCE = 4;
const LOOK_EVERY_MS = 500;
/** Some clients ask again from the same port. Most do not: of sockets without a question only so many stay, for so long. */
const [MOST_KEPT, KEEP_MS] = [256, 500];

interface Waiting {
  readonly key: string;
  readonly asked: Asked;
  readonly upstream: Upstream;
  readonly until: number;
  /** Its answer has come, and is about to go out. */
  answered: boolean;
}

interface Upstream {
  readonly fd: number;
  readonly key: string;
  readonly flow: Flow;
  /** By id and question. */
  readonly waiting: Map<string, Waiting>;
  /** When its last question ended. */
  ended: number;
}

export class UdpProxy {
  readonly #options: UdpOptions;
  readonly #listeners: number[] = [];
  readonly #senders = new Map<Family, DatagramSender>();
  readonly #upstreams = new Map<string, Upstream>();
  /** Those without a question, in the order in which their last one ended. */
  readonly #kept = new Set<Upstream>();
  /** In the order in which they end. */
  readonly #waiting = new Set<Waiting>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: UdpOptions) {
    this.#options = options;
  }

  listen(place: Place): void {
    const { poller } = this.#options;
    const { family } = place;
    if (!this.#senders.has(family)) this.#senders.set(family, new DatagramSender(family, this.#options));
    const fd = listenAt(place, 'datagram', this.#options);
    this.#listeners.push(fd);
    const reader = new DatagramReader(fd, family);
    poller.add(fd, () => {
      for (let turn = 0; turn < MOST_AT_ONCE; turn += 1)
        if (!reader.read((data, flow) => this.#guarded(() => this.#question(data, flow)))) return;
    });
    this.#timer ??= setInterval(() => this.#giveUp(performance.now()), LOOK_EVERY_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
    for (const fd of this.#listeners.splice(0)) this.#options.poller.close(fd);
    for (const upstream of [...this.#upstreams.values()]) this.#fail(upstream);
    for (const sender of this.#senders.values()) sender.close();
    this.#senders.clear();
  }

  /** What a datagram makes throw concerns no other. */
  #guarded(body: () => void): void {
    try {
      body();
    } catch (error) {
      this.#options.onError(error);
    }
  }

  #question(message: Buffer, flow: Flow): void {
    const judgement = this.#options.judge.judge(message, flow, 'udp');
    if (judgement === 'dropped') return;
    if ('answer' in judgement) this.#answer(flow, judgement.answer);
    else this.#forward(judgement.forward, message);
  }

  #forward(asked: Asked, message: Buffer): void {
    const { judge, answerWithinMs } = this.#options;
    let upstream: Upstream;
    try {
      upstream = this.#upstream(asked.flow);
    } catch (error) {
      this.#answer(asked.flow, emptyAnswer(message, asked.question, 'SERVFAIL'));
      judge.end(asked, undefined);
      throw error;
    }
    const key = keyOf(asked.question.id, asked.question.bytes);
    const before = upstream.waiting.get(key);
    // Asked again, as clients do when an answer is late.
    if (before !== undefined && this.#waiting.delete(before)) judge.end(before.asked, undefined);
    const waiting = { key, asked, upstream, until: asked.since + answerWithinMs, answered: false };
    upstream.waiting.set(key, waiting);
    this.#waiting.add(waiting);
    if (send(upstream.fd, message) !== undefined) this.#fail(upstream);
  }

  #upstream(flow: Flow): Upstream {
    const key = keyOfFlow(flow);
    const known = this.#upstreams.get(key);
    if (known !== undefined) {
      this.#kept.delete(known);
      return known;
    }
    const fd = connectAs(flow, 'datagram', this.#options);
    const upstream: Upstream = { fd, key, flow, waiting: new Map(), ended: 0 };
    this.#upstreams.set(key, upstream);
    this.#options.poller.add(fd, () => this.#read(upstream));
    return upstream;
  }

  #read(upstream: Upstream): void {
    for (let turn = 0; turn < MOST_AT_ONCE; turn += 1) {
      // Closed meanwhile.
      if (this.#upstreams.get(upstream.key) !== upstream) return;
      const message = receive(upstream.fd);
      if (message === undefined) return;
      if (typeof message === 'string') this.#fail(upstream);
      else this.#answered(upstream, message);
    }
  }

  #answered(upstream: Upstream, message: Buffer): void {
    const { judge, reporter, onError } = this.#options;
    const waiting = waitingFor(upstream, message);
    if (waiting === undefined || waiting.answered) {
      reporter.count('unasked');
      return;
    }
    const answered = judge.answered(waiting.asked, message);
    if (answered === undefined) return;
    if (answered.ready === undefined) {
      this.#finish(waiting, message);
      return;
    }
    waiting.answered = true;
    // A copy: the buffer is used again.
    const copy = Buffer.from(message);
    answered.ready.then(() => this.#finish(waiting, copy)).catch(onError);
  }

  #finish(waiting: Waiting, message: Buffer): void {
    // Given up meanwhile.
    if (!this.#waiting.has(waiting)) return;
    this.#answer(waiting.asked.flow, message);
    this.#remove(waiting);
    this.#options.judge.end(waiting.asked, message);
  }

  #answer({ source, destination }: Flow, message: Buffer): void {
    this.#senders.get(source.family)?.send({ source: destination, destination: source }, message);
  }

  #giveUp(now: number): void {
    for (const upstream of this.#kept) {
      if (now - upstream.ended < KEEP_MS) break;
      this.#close(upstream);
    }
    for (const waiting of this.#waiting) {
      if (waiting.until > now) return;
      this.#drop(waiting);
    }
  }

  #drop(waiting: Waiting): void {
    this.#remove(waiting);
    this.#options.judge.end(waiting.asked, undefined);
  }

  /** Its server cannot be reached: the pod hears so, and may ask the next one. */
  #fail(upstream: Upstream): void {
    for (const waiting of [...upstream.waiting.values()]) {
      this.#answer(upstream.flow, failureOf(waiting.asked));
      this.#drop(waiting);
    }
    this.#close(upstream);
  }

  #remove(waiting: Waiting): void {
    const { upstream, key } = waiting;
    this.#waiting.delete(waiting);
    upstream.waiting.delete(key);
    if (upstream.waiting.size > 0) return;
    upstream.ended = performance.now();
    this.#kept.add(upstream);
    if (this.#kept.size <= MOST_KEPT) return;
    const [oldest = upstream] = this.#kept;
    this.#close(oldest);
  }

  #close(upstream: Upstream): void {
    // It may have been the one too many.
    if (!this.#kept.delete(upstream)) return;
    this.#upstreams.delete(upstream.key);
    this.#options.poller.close(upstream.fd);
  }
}

const flowBytes = Buffer.alloc(2 * PLACE_BYTES);
const destinationBytes = flowBytes.subarray(PLACE_BYTES);

function keyOfFlow({ source, destination }: Flow): string {
  flowBytes.fill(0);
  encodePlace(source, flowBytes);
  encodePlace(destination, destinationBytes);
  return flowBytes.toString('latin1');
}

function keyOf(id: number, question: Buffer): string {
  return `${id} ${question.toString('latin1')}`;
}

function waitingFor(upstream: Upstream, message: Buffer): Waiting | undefined {
  for (const waiting of upstream.waiting.values()) if (answers(message, waiting.asked.question)) return waiting;
  return undefined;
}

function failureOf({ question }: Asked): Buffer {
  const message = Buffer.alloc(12);
  message.writeUInt16BE(question.id, 0);
  message.writeUInt16BE(question.flags, 2);
  return emptyAnswer(message, question, 'SERVFAIL');
}
