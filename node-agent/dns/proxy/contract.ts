/** What the parts of the proxy ask of each other. */
import type { FromProxy, Oddity } from '../protocol.ts';
import type { AnswerAddress, Question } from './message.ts';
import type { Flow } from './sockets.ts';

export type Transport = 'udp' | 'tcp';

/** The kernel's verdict on a flow. */
export interface FlowVerdict {
  readonly endpoint: number;
  /** Never 0. */
  readonly listener: number;
}

/** Which rules judge the questions of a flow. */
export interface Flows {
  /** Undefined: the kernel has no such flow, or did not redirect it. */
  flowOf(transport: Transport, flow: Flow): FlowVerdict | undefined;
}

/** Who keeps what answers say. */
export interface Learner {
  /**
   * Takes the addresses that an answer gives a name. Returns when they are in the kernel, as far as they get there: at once (undefined), or later.
   */
  learn(endpoint: number, name: string, addresses: readonly AnswerAddress[]): Promise<void> | undefined;
}

/** A question that is under way. */
export interface Asked {
  readonly endpoint: number;
  readonly question: Question;
  readonly flow: Flow;
  readonly transport: Transport;
  /** `performance.now()`. */
  readonly since: number;
}

export interface Reporter {
  tell(message: FromProxy): void;
  count(oddity: Oddity): void;
}
