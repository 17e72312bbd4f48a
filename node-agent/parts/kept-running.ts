import { Supervised } from '@weir/process/supervised';
import { Counter, type Registry } from 'prom-client';
import type { Logger } from '../core.ts';
import type { KeptRunning, PartCondition } from './contract.ts';

/** Child processes and worker threads of all parts: from after the parts' start until before their stop. */
export class AllKeptRunning {
  readonly #all: readonly { readonly spec: KeptRunning; readonly supervised: Supervised }[];

  constructor(specs: readonly KeptRunning[], log: Logger) {
    this.#all = specs.map((spec) => {
      const { name, start } = spec;
      const onEnd = (how: string, againInMs: number): void =>
        log.warn({ name, how, againInMs }, 'a process or thread of the agent ended; starting it again');
      return { spec, supervised: new Supervised({ start, onEnd }) };
    });
  }

  start(): void {
    for (const { supervised } of this.#all) supervised.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#all.map(({ supervised }) => supervised.stop()));
  }

  conditions(): readonly PartCondition[] {
    return this.#all.map(({ spec: { start: _, ...spec }, supervised }) => ({
      ...spec,
      read: () => {
        const { problem } = supervised;
        return { ok: problem === undefined, message: problem ?? 'runs' };
      },
    }));
  }

  metrics(registry: Registry): void {
    const all = this.#all;
    if (all.length === 0) return;
    new Counter({
      name: 'weir_agent_process_restarts_total',
      help: 'How often a process or thread of the agent was started again.',
      labelNames: ['name'],
      registers: [registry],
      collect() {
        this.reset();
        for (const { spec, supervised } of all) this.inc({ name: spec.name }, supervised.restarts);
      },
    });
  }
}
