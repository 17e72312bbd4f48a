/** A pod's program as a child of this process, in a network namespace. */
import { join } from 'node:path';
import { COMPILE_CACHE } from '../../compile-cache.ts';
import { Program } from '../process.ts';
import { ROOT } from '../run.ts';
import { Conversation, type OpenStream, type PodControl } from './conversation.ts';
import type { Lookup, PodReply, ProbeResult, ProbeTarget, Zone } from './protocol.ts';

export class PodProcess implements PodControl {
  readonly program: Program;
  readonly #conversation: Conversation;

  /** @param cgroup folder of the node's; absent for who is on no node */
  constructor(name: string, netns: string, logFile: string, cgroup?: string) {
    const main = join(ROOT, 'test/cluster/pod/main.ts');
    this.program = new Program({
      name,
      netns,
      ...(cgroup === undefined ? {} : { cgroup }),
      command: process.execPath,
      args: ['--max-old-space-size=64', main],
      env: COMPILE_CACHE,
      logFile,
      ipc: true,
    });
    this.#conversation = new Conversation(name, (request) => {
      if (!this.program.running) throw new Error(`pod process ${name} is not running: ${this.program.tail}`);
      this.program.child.send(request);
    });
    this.program.child.on('message', (reply: PodReply) => this.#conversation.receive(reply));
    this.program.child.on('exit', () => this.#conversation.fail(`ended: ${this.program.tail}`));
  }

  serve(name: string, tcp: readonly number[], udp: readonly number[]): Promise<null> {
    return this.#conversation.serve(name, tcp, udp);
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
    return this.program.stop(1000);
  }
}
