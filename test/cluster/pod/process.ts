/** The cluster's side of a pod's process: typed requests, one reply each. */
import { join } from 'node:path';
import { Program } from '../process.ts';
import { ROOT } from '../run.ts';
import type { PodReply, PodRequest, ProbeResult, ProbeTarget, StreamReport } from './protocol.ts';

type Body<T> = T extends { readonly id: number } ? Omit<T, 'id'> : never;

/** An open stream of numbered messages from this pod. */
export interface OpenStream {
  report(): Promise<StreamReport>;
  close(): Promise<StreamReport>;
}

export class PodProcess {
  readonly program: Program;
  readonly #waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #next = 1;

  constructor(name: string, netns: string, logFile: string) {
    const main = join(ROOT, 'test/cluster/pod/main.ts');
    this.program = new Program({
      name,
      netns,
      command: process.execPath,
      args: ['--max-old-space-size=64', main],
      logFile,
      ipc: true,
    });
    this.program.child.on('message', (reply: PodReply) => {
      const waiting = this.#waiting.get(reply.id);
      this.#waiting.delete(reply.id);
      if (reply.ok) waiting?.resolve(reply.value);
      else waiting?.reject(new Error(`pod process ${name}: ${reply.error}`));
    });
    this.program.child.on('exit', () => {
      for (const { reject } of this.#waiting.values())
        reject(new Error(`pod process ${name} ended: ${this.program.tail}`));
      this.#waiting.clear();
    });
  }

  #ask<T>(body: Body<PodRequest>): Promise<T> {
    const id = this.#next;
    this.#next += 1;
    return new Promise<T>((resolve, reject) => {
      if (!this.program.running)
        return reject(new Error(`pod process ${this.program.name} is not running: ${this.program.tail}`));
      this.#waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      this.program.child.send({ id, ...body } as PodRequest);
    });
  }

  serve(name: string, tcp: readonly number[], udp: readonly number[]): Promise<null> {
    return this.#ask<null>({ do: 'serve', name, tcp, udp });
  }

  probe(target: ProbeTarget): Promise<ProbeResult> {
    return this.#ask<ProbeResult>({ do: 'probe', target });
  }

  async stream(protocol: 'tcp' | 'udp', address: string, port: number, intervalMs = 5): Promise<OpenStream> {
    const stream = await this.#ask<number>({ do: 'stream', protocol, address, port, intervalMs });
    return {
      report: () => this.#ask<StreamReport>({ do: 'report', stream }),
      close: () => this.#ask<StreamReport>({ do: 'close', stream }),
    };
  }

  stop(): Promise<void> {
    return this.program.stop(1000);
  }
}
