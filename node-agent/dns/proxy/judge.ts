/** Judges questions of pods by the rules that the kernel's verdict names, and says what became of each. What it does not know is closed. */
import { performance } from 'node:perf_hooks';
import { formatAddress } from '@weir/net';
import type { StateDB } from '@weir/statedb';
import type { DnsQuery } from '../protocol.ts';
import type { Asked, Flows, Learner, Reporter, Transport } from './contract.ts';
import {
  type Answer,
  emptyAnswer,
  isAsking,
  MessageError,
  rcodeName,
  readAnswer,
  readQuestion,
  typeName,
} from './message.ts';
import type { Flow } from './sockets.ts';
import { numberKey, type ProxyTables } from './tables.ts';

export interface JudgeOptions {
  readonly db: StateDB;
  readonly tables: ProxyTables;
  readonly flows: Flows;
  readonly learner: Learner;
  readonly reporter: Reporter;
  /** What a name is answered that no rule has. */
  readonly denied: 'REFUSED' | 'NXDOMAIN';
  /** Questions of one endpoint that may be under way. */
  readonly mostAsked: number;
}

/** What is to be done with a message. */
export type Judgement = { readonly forward: Asked } | { readonly answer: Buffer } | 'dropped';

/** The pod may get an answer once `ready` has resolved, or at once. */
export interface Answered {
  readonly ready: Promise<void> | undefined;
}

export class Judge {
  readonly #options: JudgeOptions;
  /** Questions under way of each endpoint. */
  readonly #asked = new Map<number, number>();

  constructor(options: JudgeOptions) {
    this.#options = options;
  }

  /** Whoever is told to forward a question says once how it ended (`end`). */
  judge(message: Buffer, flow: Flow, transport: Transport): Judgement {
    const { flows, denied, mostAsked, reporter } = this.#options;
    const since = performance.now();
    const verdict = flows.flowOf(transport, flow);
    if (verdict === undefined || !isAsking(message)) {
      reporter.count(verdict === undefined ? 'no-flow' : 'malformed');
      return 'dropped';
    }
    let read: ReturnType<typeof readQuestion>;
    try {
      read = readQuestion(message);
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      reporter.count('malformed');
      return { answer: emptyAnswer(message, undefined, 'FORMERR') };
    }
    const { question, fault } = read;
    const asked: Asked = { endpoint: verdict.endpoint, question, flow, transport, since };
    const patterns = this.#patterns(verdict.listener);
    const underWay = this.#asked.get(verdict.endpoint) ?? 0;
    if (patterns === undefined || underWay >= mostAsked) {
      this.#say(asked, 'dropped');
      return 'dropped';
    }
    if (fault !== undefined || !patterns.has(question.name)) {
      const code = fault ?? denied;
      this.#say(asked, 'refused', code);
      return { answer: emptyAnswer(message, question, code) };
    }
    this.#asked.set(verdict.endpoint, underWay + 1);
    return { forward: asked };
  }

  /**
   * Looks at an answer that has come. The question stays under way until `end`.
   * @returns undefined: it cannot be read, or its pod is gone and another may have its address: it must not be passed on
   */
  answered({ endpoint, question }: Asked, message: Buffer): Answered | undefined {
    if (!this.#isThere(endpoint)) return undefined;
    let answer: Answer;
    try {
      answer = readAnswer(message, question);
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      this.#options.reporter.count('malformed');
      return undefined;
    }
    if (answer.addresses.length === 0) return { ready: undefined };
    return { ready: this.#options.learner.learn(endpoint, question.name, answer.addresses) };
  }

  /** @param answer what the pod was sent; undefined: no answer came */
  end(asked: Asked, answer: Buffer | undefined): void {
    const left = (this.#asked.get(asked.endpoint) ?? 1) - 1;
    if (left === 0) this.#asked.delete(asked.endpoint);
    else this.#asked.set(asked.endpoint, left);
    if (answer === undefined) this.#say(asked, 'failed');
    else this.#say(asked, 'answered', rcodeName(answer.readUInt16BE(2) & 0xf));
  }

  #isThere(endpoint: number): boolean {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    return snapshot.has(tables.endpoints, numberKey(endpoint));
  }

  #patterns(listener: number): { has(name: string): boolean } | undefined {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    return snapshot.get(tables.listeners, numberKey(listener))?.patterns;
  }

  #say({ endpoint, question, flow, transport, since }: Asked, verdict: DnsQuery['verdict'], rcode?: string): void {
    this.#options.reporter.tell({
      type: 'query',
      endpoint,
      name: question.name,
      qtype: typeName(question.type),
      server: formatAddress(flow.destination.address),
      port: flow.destination.port,
      protocol: transport,
      verdict,
      ...(rcode === undefined ? {} : { rcode }),
      micros: Math.round((performance.now() - since) * 1000),
    });
  }
}
