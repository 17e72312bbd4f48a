import type { Family } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import type { Logger } from '../core.ts';

export interface ForwardingOptions {
  /** Turns it on; whether it was off. Rejects when it is off and stays so. */
  readonly forward: (family: Family) => Promise<boolean>;
  readonly wanted: () => boolean;
  readonly log: Logger;
}

const SYSCTL: Readonly<Record<Family, string>> = { 4: 'net.ipv4.ip_forward', 6: 'net.ipv6.conf.all.forwarding' };

/** That the node forwards packets of a family. Others may turn it off (sysctl --system, a firewall's script) long after the agent's start. */
export class Forwarding {
  readonly #family: Family;
  readonly #options: ForwardingOptions;
  /** It has been seen to be on: whoever finds it off afterwards has had it turned off. */
  #seen = false;
  #blocked: string | undefined;

  constructor(family: Family, options: ForwardingOptions) {
    this.#family = family;
    this.#options = options;
  }

  /** Why no pod reaches another. */
  get problem(): string | undefined {
    return this.#blocked === undefined ? undefined : `no pod reaches another by IPv${this.#family}: ${this.#blocked}`;
  }

  async look(): Promise<void> {
    const { forward, wanted, log } = this.#options;
    const name = `IPv${this.#family} forwarding`;
    try {
      if (wanted()) {
        if ((await forward(this.#family)) && this.#seen)
          log.warn({ sysctl: SYSCTL[this.#family] }, `somebody turned ${name} off; it is on again`);
        this.#seen = true;
      }
      this.#blocked = undefined;
    } catch (error) {
      const why = messageOf(error);
      if (this.#blocked !== why) log.error({ error: why }, `${name} is off: no pod reaches another`);
      this.#blocked = why;
    }
  }
}
