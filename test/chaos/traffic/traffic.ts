import { join } from 'node:path';
import { Program } from '../../cluster/process.ts';
import { ROOT, TOOL_PATH } from '../../cluster/run.ts';
import type { Flow, TrafficCommand, TrafficHost, TrafficReport } from './protocol.ts';

/** A packet and what became of it. */
export interface Packet {
  readonly number: number;
  readonly flow: Flow;
  readonly sent: number;
  /** The host that got it, and when. */
  readonly received: { readonly by: number; readonly at: number } | undefined;
  /** UDP: when the echo came back. */
  readonly echoed: number | undefined;
  /** Until when it had time to arrive; later arrivals are reported all the same. */
  readonly deadline: number;
}

interface Pending {
  readonly flow: Flow;
  readonly sent: number;
  received?: { readonly by: number; readonly at: number };
  echoed?: number;
}

/**
 * How long a UDP packet or its echo may be on its way. The kernel takes microseconds; a busy machine may let its reader wait, but
 * what has come in by then is reported before this time counts as over (`upTo`).
 */
const UDP_MS = 1500;

export interface TrafficOptions {
  readonly logFile: string;
  readonly intervalMs: number;
  /** Called once for each packet whose fate is known. */
  readonly onPacket: (packet: Packet) => void;
}

/** The traffic process, and the account of its packets. */
export class Traffic {
  readonly #program: Program;
  readonly #onPacket: (packet: Packet) => void;
  readonly #flows = new Map<number, Flow>();
  /** By number, in the order in which they were sent. */
  readonly #pending = new Map<number, Pending>();
  #upTo = 0;

  constructor({ logFile, intervalMs, onPacket }: TrafficOptions) {
    this.#onPacket = onPacket;
    this.#program = new Program({
      name: 'traffic',
      command: process.execPath,
      args: [join(ROOT, 'test/chaos/traffic/main.ts'), String(intervalMs)],
      logFile,
      env: { PATH: TOOL_PATH },
      ipc: true,
    });
    this.#program.child.on('message', (report: TrafficReport) => this.#receive(report));
  }

  /** Everything that came in before this time is known. */
  get upTo(): number {
    return this.#upTo;
  }

  /** @throws Error when the traffic process has ended: an account of nothing proves nothing */
  check(): void {
    if (!this.#program.running) throw new Error(`the traffic process ended: ${this.#program.tail}`);
  }

  add(host: TrafficHost): void {
    this.#send({ do: 'host', host });
  }

  remove(id: number): void {
    this.#send({ do: 'gone', id });
  }

  stop(): Promise<void> {
    return this.#program.stop();
  }

  #send(command: TrafficCommand): void {
    this.check();
    this.#program.child.send(command);
  }

  #receive(report: TrafficReport): void {
    for (const flow of report.flows) this.#flows.set(flow.id, flow);
    for (const [number, id, sent] of report.sent) {
      const flow = this.#flows.get(id);
      if (flow !== undefined) this.#pending.set(number, { flow, sent });
    }
    for (const [number, by, at] of report.received) {
      const pending = this.#pending.get(number);
      if (pending !== undefined) pending.received ??= { by, at };
    }
    for (const [number, at] of report.echoed) {
      const pending = this.#pending.get(number);
      if (pending !== undefined) pending.echoed ??= at;
    }
    for (const number of report.void)
      if (this.#pending.get(number)?.received === undefined) this.#pending.delete(number);
    for (const [number, at] of report.lost) this.#finish(number, at);
    this.#upTo = report.upTo;
    this.#finishUdp();
  }

  /** UDP packets whose time is over, and TCP ones that arrived. */
  #finishUdp(): void {
    for (const [number, { flow, sent, received }] of this.#pending) {
      if (flow.kind === 'udp' || flow.kind === 'udp-new') {
        const over = (received?.at ?? sent) + UDP_MS;
        if (over < this.#upTo) this.#finish(number, sent + UDP_MS);
      } else if (received !== undefined) this.#finish(number, received.at);
    }
  }

  #finish(number: number, deadline: number): void {
    const pending = this.#pending.get(number);
    if (pending === undefined) return;
    this.#pending.delete(number);
    const { flow, sent, received, echoed } = pending;
    this.#onPacket({ number, flow, sent, received, echoed, deadline });
  }
}
