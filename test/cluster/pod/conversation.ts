/** Typed requests to a pod's program, one reply each, over whatever channel carries them. */
import type { Lookup, PodReply, PodRequest, ProbeResult, ProbeTarget, StreamReport, Zone } from './protocol.ts';

type Body<T> = T extends { readonly id: number } ? Omit<T, 'id'> : never;

/** An open stream of numbered messages from this pod. */
export interface OpenStream {
  report(): Promise<StreamReport>;
  close(): Promise<StreamReport>;
}

/** What can be asked of a pod's program. */
export interface PodControl {
  /** Serves HTTP and echoes on TCP ports, echoes on UDP ports. A port that it serves already is left as it is. */
  serve(name: string, tcp: readonly number[], udp: readonly number[]): Promise<null>;
  probe(target: ProbeTarget): Promise<ProbeResult>;
  stream(protocol: 'tcp' | 'udp', address: string, port: number, intervalMs?: number): Promise<OpenStream>;
  /** Answers for these names at UDP port 53, beside those that it answers for already. */
  names(zone: Zone): Promise<null>;
  /** Addresses, or the code of an error of node:dns. */
  lookUp(lookup: Lookup): Promise<readonly string[] | string>;
  /** Ends the program, or this end of the conversation where the program is the pod's own. */
  stop(): Promise<void>;
}

/** The asking side. A channel delivers what it receives to `receive`, and says with `fail` when nothing more will come. */
export class Conversation {
  readonly #name: string;
  readonly #send: (request: PodRequest) => void;
  readonly #waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #next = 1;

  /** @param send may throw: the request is then rejected with that error. */
  constructor(name: string, send: (request: PodRequest) => void) {
    this.#name = name;
    this.#send = send;
  }

  receive(reply: PodReply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (reply.ok) waiting?.resolve(reply.value);
    else waiting?.reject(new Error(`pod process ${this.#name}: ${reply.error}`));
  }

  /** Rejects everything that still waits for an answer. */
  fail(reason: string): void {
    for (const { reject } of this.#waiting.values()) reject(new Error(`pod process ${this.#name} ${reason}`));
    this.#waiting.clear();
  }

  #ask<T>(body: Body<PodRequest>): Promise<T> {
    const id = this.#next;
    this.#next += 1;
    return new Promise<T>((resolve, reject) => {
      this.#waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      try {
        this.#send({ id, ...body } as PodRequest);
      } catch (error) {
        this.#waiting.delete(id);
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    });
  }

  serve(name: string, tcp: readonly number[], udp: readonly number[]): Promise<null> {
    return this.#ask<null>({ do: 'serve', name, tcp, udp });
  }

  addresses(): Promise<readonly string[]> {
    return this.#ask<readonly string[]>({ do: 'addresses' });
  }

  probe(target: ProbeTarget): Promise<ProbeResult> {
    return this.#ask<ProbeResult>({ do: 'probe', target });
  }

  names(zone: Zone): Promise<null> {
    return this.#ask<null>({ do: 'names', zone });
  }

  lookUp(lookup: Lookup): Promise<readonly string[] | string> {
    return this.#ask<readonly string[] | string>({ do: 'lookup', lookup });
  }

  async stream(protocol: 'tcp' | 'udp', address: string, port: number, intervalMs = 5): Promise<OpenStream> {
    const stream = await this.#ask<number>({ do: 'stream', protocol, address, port, intervalMs });
    return {
      report: () => this.#ask<StreamReport>({ do: 'report', stream }),
      close: () => this.#ask<StreamReport>({ do: 'close', stream }),
    };
  }
}
